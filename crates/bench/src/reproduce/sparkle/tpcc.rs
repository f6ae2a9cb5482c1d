//! Figs 8 and 10: TPC-C on 8 nodes, and from 4 to 40.

use super::super::figure::{Axis, Claim, Panel, Scale, about};
use super::super::lab::series;
use super::{Found, NODES, OVER_PARTITIONS, Place, SPARKLE, Study, WAREHOUSES, WORKERS, found, tpcc};
use anyhow::Result;
use sim::scale::{Report, Times};

/// The least epoch of Fig. 10. The paper says 5 to 10 ms. With 40 nodes a partition has a group with each of
/// 39 others in every epoch, however short that is.
const FIG_10_EPOCH_NS: u64 = 10_000_000;
/// The shares of updates.
const UPDATES: [u32; 3] = [10, 50, 90];

impl Study {
    /// Makes Fig. 8.
    pub(super) fn tpcc(&mut self) -> Result<Found> {
        let calibrated = self.measure(&OVER_PARTITIONS, tpcc(WAREHOUSES, 90))?;
        let mut jobs = Vec::new();
        for (x, updates) in UPDATES.into_iter().enumerate() {
            let settings = tpcc(WAREHOUSES, updates);
            for contender in OVER_PARTITIONS {
                let place = Place {
                    panel: 0,
                    series: contender.to_string(),
                    x: x as f64,
                    name: format!("{updates} %"),
                };
                jobs.push(self.job(place, contender, (&settings, &calibrated), (NODES, WORKERS))?);
            }
        }
        let reports = self.lab.run("figure 8", &jobs)?;
        let all = series(0, &jobs, &reports, Report::throughput_per_s);
        let mut throughput =
            Panel::new("Figure 8: throughput", ("updates", "transactions/s"), Axis::Names, all);
        let all = series(0, &jobs, &reports, Report::abort_rate);
        let labels = ("updates", "executions thrown away, share");
        let mut aborts = Panel::new("Figure 8: abort rate", labels, Axis::Names, all);
        aborts.scale = Scale::Linear;
        let share = |place: usize| {
            let share =
                |report: &Report| 100.0 * report.multi_partition as f64 / report.committed.max(1) as f64;
            reports[place].iter().map(share).collect::<Vec<f64>>()
        };
        let mut claims = vec![
            Claim::new("multi-partition transactions at 10 % updates, in percent", &share(0))
                .paper("approx. 1 %", about(1.0)),
            Claim::new("multi-partition transactions at 90 % updates, in percent", &share(jobs.len() - 1))
                .paper("approx. 10 %", about(10.0)),
        ];
        for (other, factor) in [("calvin", 3.0), ("ssmr", 4.0)] {
            // The peak: where the ratio is largest.
            let ratios =
                (0..UPDATES.len()).map(|x| (x as f64, throughput.ratios("sparkle", other, x as f64)));
            let median = |ratios: &[f64]| crate::report::Summary::of(ratios).median;
            let peak = ratios.max_by(|a, b| median(&a.1).total_cmp(&median(&b.1)));
            let (x, ratios) = peak.unwrap_or_default();
            claims.push(
                Claim::new(format!("sparkle / {other}, where it is largest"), &ratios)
                    .paper(format!("peak gain of approx. {factor}"), about(factor)),
            );
            let text = format!("Sparkle is up to {factor} times as fast");
            throughput.mark(other, x, ("sparkle", x), 1.0 / factor..=1.0 / factor, &text);
        }
        let mut differences = differences();
        differences
            .push("Calvin's reconnaissance asks other nodes without a message and at once.".to_owned());
        let title = "8 nodes of 5 workers, TPC-C with 12 warehouses a node";
        Ok(found(title, vec![throughput, aborts], claims, differences))
    }

    /// Makes Fig. 10.
    pub(super) fn nodes(&mut self) -> Result<Found> {
        let counts: &[u16] = if self.quick { &[4, 40] } else { &[4, 8, 16, 24, 32, 40] };
        let mixes: &[u32] = if self.quick { &[90] } else { &UPDATES };
        let calibrated = self.measure(&[SPARKLE], tpcc(WAREHOUSES, 90))?;
        let times = with_epochs_of(FIG_10_EPOCH_NS, self.lab.times);
        let standard = std::mem::replace(&mut self.lab.times, times);
        let mut jobs = Vec::new();
        for &updates in mixes {
            let settings = tpcc(WAREHOUSES, updates);
            for &nodes in counts {
                let place = Place {
                    panel: 0,
                    series: format!("{updates} % updates"),
                    x: f64::from(nodes),
                    name: nodes.to_string(),
                };
                jobs.push(self.job(place, SPARKLE, (&settings, &calibrated), (nodes, WORKERS))?);
            }
        }
        let parameters = self.lab.parameters();
        self.lab.times = standard;
        let reports = self.lab.run("figure 10", &jobs)?;
        let all = series(0, &jobs, &reports, Report::throughput_per_s);
        let labels = ("nodes", "transactions/s");
        let mut panel = Panel::new("Figure 10: throughput by nodes", labels, Axis::Numbers, all);
        let (first, last) = (f64::from(counts[0]), f64::from(counts[counts.len() - 1]));
        let mut claims = Vec::new();
        for updates in mixes {
            let name = format!("{updates} % updates");
            let ratios =
                super::super::figure::ratios(&panel.samples(&name, last), &panel.samples(&name, first));
            let of_linear: Vec<f64> = ratios.iter().map(|ratio| ratio * first / last).collect();
            let claim = Claim::new(format!("{name}: {last} nodes / linear from {first}"), &of_linear)
                .paper("linear", 0.9..=1.1);
            claims.push(if *updates == 90 { claim.bar(0.9, None) } else { claim });
            let factor = last / first;
            panel.mark(&name, last, (&name, first), factor..=factor, "linear");
        }
        let title = "TPC-C with 12 warehouses a node, 4 to 40 nodes of 5 workers";
        let mut differences = differences();
        differences.push(format!(
            "Epochs of {} ms for all numbers of nodes (the paper: \"5-10 msecs\", and not which here). A \
             partition's siblings settle one group after the other, at a message's way each, and with 40 \
             nodes every epoch has 39 pairs of each partition, however short it is.",
            times.epoch_ns as f64 / 1e6
        ));
        Ok(Found { parameters, ..found(title, vec![panel], claims, differences) })
    }
}

fn differences() -> Vec<String> {
    vec![
        "Small tables: 1,000 items (the specification: 100,000), 120 customers of a district \
         (3,000)."
            .to_owned(),
        "TPC-C as specified: NewOrder and Payment meet, customers are named by last name, 1 % of the \
         NewOrders roll back; the paper's does not. Each line of a NewOrder may be of another \
         partition."
            .to_owned(),
        "Read-only transactions are of one partition, and run at snapshots.".to_owned(),
    ]
}

/// The same with epochs of at least this, and as many of them.
fn with_epochs_of(epoch_ns: u64, times: Times) -> Times {
    let epoch_ns = times.epoch_ns.max(epoch_ns);
    let longer = |ns: u64| ns / times.epoch_ns * epoch_ns;
    Times { epoch_ns, warm_up_ns: longer(times.warm_up_ns), measured_ns: longer(times.measured_ns), ..times }
}
