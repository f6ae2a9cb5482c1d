//! Figs 7 and 9: the synthetic workload on 8 nodes, with our prices of messages, and with higher ones.

use super::super::figure::{Axis, Claim, Panel, Scale, about, ratios};
use super::super::lab::{Job, series};
use super::{
    CLIENTS_MIN, Found, KEYS, NODES, OVER_PARTITIONS, Place, SPARKLE, SSMR, Study, WORKERS, found, synthetic,
};
use crate::engine::Settings;
use anyhow::Result;
use sim::scale::{Contender, Report, SparkleVariant};

/// What a step takes at least where told things are dear.
const SLOW_STEP_NS: u64 = 400;

/// What steps and told things cost in a panel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prices {
    /// Steps as measured, and messages that tell all that there is to tell in a round.
    Ours,
    /// Slower steps, and so many nanoseconds for each told thing, as if it were a message of its own.
    Dear(u64),
}

impl Prices {
    const ALL: [Prices; 3] = [Prices::Ours, Prices::Dear(1_000), Prices::Dear(5_000)];

    /// What titles and claims say.
    fn name(self) -> String {
        match self {
            Prices::Ours => "our prices".to_owned(),
            Prices::Dear(note_ns) => format!("{} us for each told thing", note_ns / 1_000),
        }
    }
    fn charge(self, job: &mut Job) {
        if let Prices::Dear(note_ns) = self {
            let costs = &mut job.options.costs;
            let slower = SLOW_STEP_NS.max(costs.step_ns) / costs.step_ns.max(1);
            job.options.clients = (job.options.clients / slower.max(1) as usize).max(CLIENTS_MIN);
            costs.step_ns = costs.step_ns.max(SLOW_STEP_NS);
            costs.note_ns = note_ns;
        }
    }
}

/// Why a plot is shown with several prices.
fn prices_differ() -> String {
    format!(
        "The paper does not say what a step and a message cost its prototype, and its ratios depend on \
         both. So plots are shown with our prices (steps as measured here; all that a partition tells \
         another one in a round goes as one message, and each thing in it costs {} ns), \
         and again with steps of at least {SLOW_STEP_NS} ns and 1 or 5 us for each told thing, as if it \
         were a message of its own. No price was found with which all of the paper's ratios come out at \
         the same time.",
        sim::scale::Costs::default().note_ns
    )
}

const BUNDLED: &str = "Here a message tells all that a round has, so that transactions over partitions cost \
    little more than others, and whatever waits for the network instead loses by a large factor. With \
    dear messages the network's threads are the limit for all: see the plots with other prices.";

/// What the paper says of Calvin at 50 % multi-partition transactions, none dependent.
const CALVIN_WINS: f64 = 1.3;

impl Study {
    /// Makes Fig. 7.
    pub(super) fn synthetic(&mut self) -> Result<Found> {
        let multis: &[u32] = if self.quick { &[0, 10, 50] } else { &[0, 1, 10, 50] };
        let dependents: &[u32] = if self.quick { &[0, 1, 10, 100] } else { &[0, 1, 10, 50, 100] };
        let contentions: &[&str] = if self.quick { &["low"] } else { &["low", "medium"] };
        let calibrated = self.measure(&OVER_PARTITIONS, synthetic("low", 0, 0))?;
        // Prices of messages matter to transactions over partitions only.
        let plots = multis.iter().flat_map(|&multi| {
            let prices = if multi < 50 { &Prices::ALL[..1] } else { &Prices::ALL[..] };
            prices.iter().map(move |&prices| (multi, prices))
        });
        let plots: Vec<(u32, Prices)> = plots.collect();
        let mut jobs = Vec::new();
        for (panel, &(multi, prices)) in plots.iter().enumerate() {
            for &contention in contentions {
                for (x, &dependent) in dependents.iter().enumerate() {
                    let settings = synthetic(contention, dependent, multi);
                    for contender in OVER_PARTITIONS {
                        if contender == SSMR && contention != "low" {
                            // One transaction at a time: contention is nothing to it.
                            continue;
                        }
                        let short = if contention == "low" { "LC" } else { "MC" };
                        let place = Place {
                            panel,
                            series: format!("{contender} {short}"),
                            x: x as f64,
                            name: format!("{dependent} %"),
                        };
                        let mut job =
                            self.job(place, contender, (&settings, &calibrated), (NODES, WORKERS))?;
                        prices.charge(&mut job);
                        jobs.push(job);
                    }
                }
            }
        }
        let reports = self.lab.run("figure 7", &jobs)?;
        let panel = |number: usize, what: &str, y_label: &'static str, value: fn(&Report) -> f64| {
            let (multi, prices) = plots[number];
            let title =
                format!("Figure 7: {what}, {multi} % multi-partition transactions, {}", prices.name());
            let labels = ("dependent transactions", y_label);
            Panel::new(title, labels, Axis::Names, series(number, &jobs, &reports, value))
        };
        let mut panels: Vec<Panel> = (0..plots.len())
            .map(|number| panel(number, "throughput", "transactions/s", Report::throughput_per_s))
            .collect();
        let at = |multi: u32, prices: Prices| plots.iter().position(|&plot| plot == (multi, prices));
        let x = |dependent: u32| dependents.iter().position(|&of| of == dependent).map(|x| x as f64);
        let mut claims = Vec::new();
        let (none, all) = (&panels[0], dependents.len() as f64 - 1.0);
        claims.push(
            Claim::new(
                "ssmr / sparkle, no multi-partition transactions",
                &none.ratios("ssmr LC", "sparkle LC", 0.0),
            )
            .paper("approx. 60 % lower", about(0.4)),
        );
        claims.push(
            Claim::new(
                "calvin / ssmr, no multi-partition transactions",
                &none.ratios("calvin LC", "ssmr LC", 0.0),
            )
            .paper("Calvin is below both, throttled by its scheduler", 0.0..=1.0),
        );
        let sparkle = ratios(&none.samples("sparkle LC", all), &none.samples("sparkle LC", 0.0));
        claims.push(
            Claim::new("sparkle, 100 % / 0 % dependent, no multi-partition transactions", &sparkle)
                .paper("not affected", about(1.0))
                .because(
                    "A dependent transaction reads its five normal keys, where another one updates them: it \
                     takes fewer steps.",
                ),
        );
        let calvin = ratios(&none.samples("calvin LC", all), &none.samples("calvin LC", 0.0));
        claims.push(
            Claim::new("calvin, 100 % / 0 % dependent, no multi-partition transactions", &calvin)
                .paper("thrashes: reduced dramatically", 0.0..=0.5),
        );
        for prices in Prices::ALL {
            let Some(half) = at(50, prices).map(|number| &panels[number]) else { continue };
            let whose = prices.name();
            let because = |claim: Claim| if prices == Prices::Ours { claim.because(BUNDLED) } else { claim };
            let calvin = half.ratios("calvin LC", "sparkle LC", 0.0);
            claims.push(because(
                Claim::new(
                    format!("calvin / sparkle, 50 % multi-partition, 0 % dependent, {whose}"),
                    &calvin,
                )
                .paper("Calvin is 30 % faster", about(CALVIN_WINS)),
            ));
            if let Some(x) = x(1) {
                let sparkle = half.ratios("sparkle LC", "calvin LC", x);
                claims.push(
                    Claim::new(
                        format!("sparkle / calvin, 50 % multi-partition, 1 % dependent, {whose}"),
                        &sparkle,
                    )
                    .paper("Sparkle outperforms Calvin as soon as 1 % are dependent", 1.0..=f64::MAX),
                );
            }
            // S-SMR without transactions over partitions tells nothing: its messages' prices do not matter,
            // but its steps' do.
            if prices == Prices::Ours {
                let drop = ratios(&none.samples("ssmr LC", 0.0), &half.samples("ssmr LC", 0.0));
                claims.push(
                    Claim::new("ssmr, 0 % / 50 % multi-partition", &drop)
                        .paper("drops by about 40", about(40.0)),
                );
                let drop = ratios(&half.samples("sparkle LC", 0.0), &none.samples("sparkle LC", 0.0));
                claims.push(
                    Claim::new("sparkle, 50 % / 0 % multi-partition, 0 % dependent", &drop)
                        .paper("reduced, but by far not as S-SMR's (1/40)", 0.1..=1.0),
                );
                claims.push(
                    Claim::new(
                        "sparkle / ssmr, 50 % multi-partition",
                        &half.ratios("sparkle LC", "ssmr LC", 0.0),
                    )
                    .bar(10.0, None),
                );
                let ours = half.ratios("sparkle LC", "calvin LC", 0.0);
                claims.push(
                    Claim::new("sparkle / calvin, 50 % multi-partition, 0 % dependent", &ours).bar(1.0, None),
                );
            }
        }
        if let (Some(number), Some(x)) = (at(10, Prices::Ours), x(10)) {
            let ours = panels[number].ratios("sparkle LC", "calvin LC", x);
            claims.push(
                Claim::new("sparkle / calvin, 10 % multi-partition, 10 % dependent", &ours)
                    .paper("more than 10, on average over all shares of both", 10.0..=f64::MAX)
                    .because(
                        "Calvin's reconnaissance costs no message and no wait here, and a call that is \
                         given back waits for one epoch, so that it runs again within milliseconds. The \
                         paper's goes through the order again, which takes its 200 ms.",
                    )
                    .bar(2.0, None),
            );
        }
        for (number, &(multi, _)) in plots.iter().enumerate() {
            if multi == 50 {
                let text = "30 % above Sparkle";
                panels[number].mark("calvin LC", 0.0, ("sparkle LC", 0.0), CALVIN_WINS..=CALVIN_WINS, text);
            }
        }
        panels[0].mark("ssmr LC", 0.0, ("sparkle LC", 0.0), 0.4..=0.4, "60 % below Sparkle");
        if let (Some(number), Some(base)) = (at(50, Prices::Ours), panels[0].median("ssmr LC", 0.0)) {
            let here = panels[number].median("ssmr LC", 0.0).filter(|&here| here > 0.0);
            if let Some(here) = here {
                let factor = base / 40.0 / here;
                let text = "a fortieth of what it does without multi-partition transactions";
                panels[number].mark("ssmr LC", 0.0, ("ssmr LC", 0.0), factor..=factor, text);
            }
        }
        for number in 0..plots.len() {
            let mut panel = panel(number, "abort rate", "executions thrown away, share", Report::abort_rate);
            panel.scale = Scale::Linear;
            panels.push(panel);
        }
        let differences = vec![
            format!(
                "{KEYS} keys of a partition, index keys included, instead of a million. Index keys as in \
                 the paper: 50,000 (LC) and 1,000 (MC)."
            ),
            "Calvin's workers include its scheduler. S-SMR uses one worker of each node, as in the paper."
                .to_owned(),
            "Calvin's reconnaissance asks other nodes without a message and at once.".to_owned(),
            prices_differ(),
        ];
        Ok(found("8 nodes of 5 workers, synthetic workload", panels, claims, differences))
    }

    /// Makes Fig. 9: what speculative confirmation and scheduling are worth.
    pub(super) fn variants(&mut self) -> Result<Found> {
        let calibrated = self.measure(&[SPARKLE], synthetic("low", 0, 0))?;
        let multis: &[u32] = if self.quick { &[10, 50] } else { &[1, 10, 50, 100] };
        let mut jobs = Vec::new();
        for (panel, prices) in Prices::ALL.into_iter().enumerate() {
            for (x, &multi) in multis.iter().enumerate() {
                let settings = synthetic("low", 0, multi);
                for variant in SparkleVariant::ALL {
                    let mut job = self.variant(panel, (x, multi), variant, (&settings, &calibrated))?;
                    prices.charge(&mut job);
                    jobs.push(job);
                }
            }
        }
        let reports = self.lab.run("figure 9", &jobs)?;
        let half = multis.iter().position(|&multi| multi == 50).unwrap_or(0) as f64;
        let (mut panels, mut claims) = (Vec::new(), Vec::new());
        for (number, prices) in Prices::ALL.into_iter().enumerate() {
            let whose = prices.name();
            let all = series(number, &jobs, &reports, Report::throughput_per_s);
            let labels = ("multi-partition transactions", "transactions/s");
            let throughput = Panel::new(format!("Figure 9: throughput, {whose}"), labels, Axis::Names, all);
            let ratio = |one: &str, other: &str| throughput.ratios(one, other, half);
            let because = |claim: Claim| if prices == Prices::Ours { claim.because(BUNDLED) } else { claim };
            let about_half = |what: &str| format!("{what}, 50 % multi-partition, {whose}");
            let mut first = Claim::new(about_half("sc-schedule / cons"), &ratio("sc-schedule", "cons"))
                .paper("up to about 3", about(3.0));
            if prices == Prices::Ours {
                first = first.bar(2.5, None);
            }
            claims.push(because(first));
            claims.push(
                Claim::new(about_half("sc / cc"), &ratio("sc", "cc")).paper("almost identical", 0.87..=1.15),
            );
            claims.push(because(
                Claim::new(about_half("sc-schedule / cc"), &ratio("sc-schedule", "cc"))
                    .paper("up to 2", about(2.0)),
            ));
            panels.push(by_cons(&throughput, &whose, half));
            panels.push(throughput);
        }
        let differences = vec![
            format!("{KEYS} keys of a partition instead of a million; 50,000 index keys as in the paper."),
            "Without scheduling, groups are runs of transactions over the same partitions that stand \
             together at all of these in the merged order."
                .to_owned(),
            prices_differ(),
        ];
        Ok(found("variants of Sparkle, synthetic workload at low contention", panels, claims, differences))
    }

    fn variant(
        &self,
        panel: usize,
        (x, multi): (usize, u32),
        variant: SparkleVariant,
        of: (&Settings, &Settings),
    ) -> Result<Job> {
        let place =
            Place { panel, series: variant.name().to_owned(), x: x as f64, name: format!("{multi} %") };
        self.job(place, Contender::sparkle(variant), of, (NODES, WORKERS))
    }
}

/// A panel of Fig. 9 as it is in the paper: each run by that of cons with the same seed.
fn by_cons(throughput: &Panel, whose: &str, half: f64) -> Panel {
    let mut normalized = throughput.clone();
    normalized.title = format!("Figure 9: throughput by that of cons, {whose}");
    normalized.y_label = "cons = 1";
    for series in &mut normalized.series {
        for point in &mut series.points {
            let ratios = throughput.ratios(&series.name, "cons", point.x);
            let samples = std::mem::take(&mut point.samples);
            // Without a base there is nothing to plot.
            let samples = samples.into_iter().zip(ratios).map(|(mut sample, y)| {
                sample.y = y;
                sample.run = serde_json::Value::Null;
                sample
            });
            *point = super::super::figure::Point::of(point.x, point.name.clone(), samples.collect());
        }
    }
    let cons = ("cons", half);
    normalized.mark("sc-schedule", half, cons, 3.0..=3.0, "up to approx. 3 times cons");
    normalized.mark("cc", half, cons, 1.5..=1.5, "half of sc-schedule");
    normalized.mark("sc", half, cons, 1.5..=1.5, "almost identical to cc");
    normalized
}
