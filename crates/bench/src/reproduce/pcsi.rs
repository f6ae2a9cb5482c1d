//! `ordo reproduce pcsi`: the evaluation of the paper on partially replicated sites (sections IV and VI).
//!
//! [`sim::scale::sites`] runs real sites on a modelled test bed: its head tells what the model takes for
//! granted. A step of a site takes the processor time that it has just taken this machine, times
//! [`SLOWER`]; or an assumed price, if one is given.

use super::figure::{Axis, Claim, Mark, Panel, Point, Sample, Scale, Series, Source, about, ratios};
use super::lab::{add_point, side_by_side};
use super::study::{Found, Made, Options, Page};
use super::worker::thread_ns;
use anyhow::Result;
use certify::pcsi::RemoteAccess;
use sim::scale::Times;
use sim::scale::sites::{self, Load, Price, SitesOptions, SitesReport};
use std::collections::BTreeMap;

/// Ghost replicas (1), workloads A to C (8 to 10), Table II, granted numbers against ghosts, and the cost of
/// causality.
pub const FIGURES: [&str; 7] = ["1", "8", "9", "10", "table-2", "grants", "causality"];

/// How many times as long a processor of the test bed (Xeon X5560, 2.8 GHz, of 2009) takes as one of this
/// machine: an assumption.
const SLOWER: f64 = 3.0;
/// Section VI-C.
const PERIOD_NS: u64 = 1_000_000_000;
/// From region to region, one way: an assumption, for the paper does not say.
const BETWEEN_REGIONS_NS: u64 = 30_000_000;
/// The most transactions of a site that are under way: more than a site takes on.
const CLIENTS: u16 = 400;
/// Section VI-A.
const ITEMS: u64 = 100_000;
/// A run counts if its share of transactions with remote writes is at least the load's divided by this, and
/// at most the load's times this. Such transactions take longer than others, so a short run may end without
/// most of them.
const MIX_TOLERANCE: f64 = 1.25;
/// The sites of Table II.
const TABLE_SITES: u16 = 40;

/// A workload of the paper.
struct Workload {
    name: &'static str,
    figure: &'static str,
    write_partitions: usize,
    remote_partitions: usize,
    /// By how much its throughput grows from 16 to 64 sites: in the paper, and as this project aims.
    grows: (f64, f64),
    /// Response time, latency of two-phase commit and update delay in milliseconds, and commit rate in
    /// percent.
    table: [f64; 4],
    /// This project's bar for the commit rate.
    commit_rate_min: f64,
}

/// Table I, with what the text and Table II say.
const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "A",
        figure: "8",
        write_partitions: 1,
        remote_partitions: 1,
        grows: (3.5, 3.9),
        table: [102.96, 154.25, 78.17, 96.82],
        commit_rate_min: 97.0,
    },
    Workload {
        name: "B",
        figure: "9",
        write_partitions: 2,
        remote_partitions: 1,
        grows: (2.86, 3.6),
        table: [139.47, 176.36, 101.54, 92.18],
        commit_rate_min: 92.0,
    },
    Workload {
        name: "C",
        figure: "10",
        write_partitions: 3,
        remote_partitions: 2,
        grows: (1.82, 3.0),
        table: [199.15, 197.88, 150.05, 86.92],
        commit_rate_min: 87.0,
    },
];

impl Workload {
    fn load(&self, remote_percent: u32) -> Load {
        Load {
            read_partitions: 2,
            write_partitions: self.write_partitions,
            remote_partitions: self.remote_partitions,
            remote_percent,
            read_items: 4,
            write_items: 2,
            items: ITEMS,
            item_bytes: 1_000,
        }
    }
}

/// The transactions of Fig. 1: one partition is read, and one is updated.
fn single(remote_percent: u32) -> Load {
    Load {
        read_partitions: 1,
        write_partitions: 1,
        remote_partitions: 1,
        remote_percent,
        read_items: 4,
        write_items: 4,
        items: ITEMS,
        item_bytes: 10_000,
    }
}

/// A run of the model, which each seed repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Setting {
    load: Load,
    remote_access: RemoteAccess,
    is_causal: bool,
    sites: u16,
}

impl Setting {
    fn new(load: Load, remote_access: RemoteAccess, sites: u16) -> Setting {
        Setting { load, remote_access, is_causal: true, sites }
    }
}

/// A series of a figure: its name, and its settings by the number of sites.
struct Line {
    name: String,
    settings: Vec<Setting>,
}

fn line(name: impl Into<String>, sites: &[u16], setting: impl Fn(u16) -> Setting) -> Line {
    Line { name: name.into(), settings: sites.iter().map(|&sites| setting(sites)).collect() }
}

struct Study<'a> {
    options: &'a Options,
    /// The settings that have run, with a report of each seed: figures share runs.
    runs: Vec<(Setting, Vec<SitesReport>)>,
    /// The lines of the present figure whose runs have another mix of transactions than their load.
    other_mixes: Vec<String>,
}

/// Makes the wanted figures, and writes the page.
pub fn run(options: &Options) -> Result<Made> {
    let mut study = Study { options, runs: Vec::new(), other_mixes: Vec::new() };
    let page = Page {
        title: "Partitioned causal snapshot isolation, its evaluation reproduced",
        head: head(options),
        figures: &FIGURES,
        only: &options.only,
    };
    page.make(options, |id| study.figure(id))
}

fn head(options: &Options) -> Vec<String> {
    let price = match options.calibrated {
        true => format!(
            "A step of a site takes the processor time that it has just taken this machine, times {SLOWER}: \
             so two runs of one seed differ a little."
        ),
        false => format!(
            "A step of a site takes {} ns, and as long again for each record, letter and answer that it \
             makes. So vectors cost nothing, and no figure about their cost means anything.",
            options.costs.step_ns
        ),
    };
    vec![
        "Tripathi, Rajappan and Padhye, Scalable Transactions in Partially Replicated Data Systems using \
         Causal Snapshot Isolation (TR 15-012): sections IV and VI, with real sites (certify::pcsi) on a \
         modelled test bed. The paper's figures are images that we do not have: what stands under \"the \
         paper\" is what its text and its Table II say."
            .to_owned(),
        "Not the paper's escrow: a site that numbers the updates of others grants these numbers as a \
         sequence of their own, which replicas apply in any order. The paper's escrow lets updates wait for \
         each other for ever; certify::pcsi::grant has the proof. \"Granted numbers\" stand where the paper \
         has escrow."
            .to_owned(),
        format!(
            "One thread of a site does all of its protocol and encodes its letters and its log; clients \
             and the network have the other cores. {price} Updates are propagated each second; between \
             regions a message takes {} ms, within one {} us. A transaction begins whenever its site's \
             thread has nothing else to do, unless {CLIENTS} are under way: so throughputs are peaks, and \
             transactions hardly wait for each other.",
            BETWEEN_REGIONS_NS / 1_000_000,
            options.times.latency_ns / 1_000
        ),
        format!(
            "Each run is repeated with {} seeds from {} on.{}",
            options.repeats,
            options.seed,
            if options.quick { " A quick run: few sites, short, and without bars." } else { "" }
        ),
    ]
}

impl Study<'_> {
    /// The numbers of sites of a figure.
    fn sites<'a>(&self, all: &'a [u16], quick: &'a [u16]) -> &'a [u16] {
        if self.options.quick { quick } else { all }
    }

    fn scaled(&self) -> &'static [u16] {
        self.sites(&[16, 32, 48, 64], &[8, 16])
    }

    fn figure(&mut self, id: &str) -> Result<Found> {
        let found = match id {
            "1" => self.ghosts(),
            "table-2" => self.table(),
            "grants" => self.grants(),
            "causality" => self.causality(),
            id => self.workload(WORKLOADS.iter().find(|one| one.figure == id).unwrap_or(&WORKLOADS[0])),
        };
        let mut found = found?;
        let other_mixes = std::mem::take(&mut self.other_mixes);
        let Options { seed, repeats, times, costs, .. } = self.options;
        found.parameters = serde_json::json!({
            "first_seed": seed,
            "repeats": repeats,
            "clients": CLIENTS,
            "period_ns": PERIOD_NS,
            "between_regions_ns": BETWEEN_REGIONS_NS,
            "within_region_ns": times.latency_ns,
            "warm_up_and_measured_ns": self.times(),
            "message_ns": costs.message_ns,
            "byte_ns": costs.byte_ns,
            "slower": SLOWER,
            "assumed_step_ns": (!self.options.calibrated).then_some(costs.step_ns),
        });
        if !other_mixes.is_empty() {
            let of = other_mixes.join("; ");
            found.differences.push(format!(
                "Nothing is judged here: of the transactions that ended in the measured time, another share \
                 had remote updates than the load says: {of}."
            ));
            found.claims.iter_mut().for_each(|claim| claim.agrees = None);
        }
        // Bars are for the paper's mix, and for as many sites as the paper has.
        if self.options.quick || !other_mixes.is_empty() {
            found.claims.iter_mut().for_each(|claim| (claim.bar, claim.met) = (None, None));
        }
        Ok(found)
    }

    /// Whole periods.
    fn times(&self) -> (u64, u64) {
        if self.options.quick { (5_000_000_000, 1_000_000_000) } else { (5_000_000_000, 2_000_000_000) }
    }

    /// The reports of a setting, one of each seed; it must have run.
    fn of(&self, setting: &Setting) -> &[SitesReport] {
        self.runs.iter().find(|(run, _)| run == setting).map_or(&[], |(_, reports)| &reports[..])
    }

    /// Runs what has not run yet, seed by seed: so runs that are compared are near each other.
    fn run(&mut self, what: &str, lines: &[Line]) -> Result<()> {
        let mut new: Vec<Setting> = Vec::new();
        for setting in lines.iter().flat_map(|line| &line.settings) {
            if self.of(setting).is_empty() && !new.contains(setting) {
                new.push(*setting);
            }
        }
        let Options { seed, repeats, times, costs, calibrated, .. } = *self.options;
        let (warm_up_ns, measured_ns) = self.times();
        let price = match calibrated {
            true => Price::Measured { clock: thread_ns, factor: SLOWER },
            false => Price::Assumed(costs.step_ns),
        };
        let runs = (seed..).take(repeats).flat_map(|seed| new.iter().map(move |&setting| (seed, setting)));
        let runs = runs.map(|(seed, Setting { load, remote_access, is_causal, sites })| SitesOptions {
            sites,
            remote_access,
            is_causal,
            load,
            clients: CLIENTS,
            period_ns: PERIOD_NS,
            between_regions_ns: BETWEEN_REGIONS_NS,
            times: Times { warm_up_ns, measured_ns, ..times },
            costs,
            price,
            seed,
            judged: false,
        });
        let runs: Vec<SitesOptions> = runs.collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let reports = side_by_side(what, threads, &runs, sites::run)?;
        for (place, &setting) in new.iter().enumerate() {
            let of_setting = reports.iter().skip(place).step_by(new.len().max(1));
            self.runs.push((setting, of_setting.cloned().collect()));
        }
        for Line { name, settings } in lines {
            for setting in settings {
                let wanted = f64::from(setting.load.remote_percent);
                let shares: Vec<f64> = self.of(setting).iter().map(SitesReport::remote_percent).collect();
                let is_right =
                    |share: &f64| (wanted / MIX_TOLERANCE..=wanted * MIX_TOLERANCE).contains(share);
                if !shares.iter().all(is_right) {
                    let shares: Vec<String> = shares.iter().map(|share| format!("{share:.1} %")).collect();
                    let sites = setting.sites;
                    self.other_mixes.push(format!("{name}, {sites} sites: {}", shares.join(", ")));
                }
            }
        }
        Ok(())
    }

    /// A series of what runs have found, by their number of sites.
    fn panel(
        &self,
        title: &str,
        y_label: &'static str,
        lines: &[Line],
        value: impl Fn(&SitesReport) -> f64,
    ) -> Panel {
        let mut all: Vec<Series> = Vec::new();
        for Line { name, settings } in lines {
            for setting in settings {
                let point = self.point(f64::from(setting.sites), &setting.sites.to_string(), setting, &value);
                add_point(&mut all, name, Source::Modelled, point);
            }
        }
        Panel::new(title, ("sites", y_label), Axis::Numbers, all)
    }

    fn point(&self, x: f64, name: &str, setting: &Setting, value: impl Fn(&SitesReport) -> f64) -> Point {
        let samples = (self.options.seed..).zip(self.of(setting)).map(|(seed, report)| Sample {
            seed,
            y: value(report),
            run: serde_json::json!({ "load": setting.load, "found": report }),
        });
        Point::of(x, name, samples.collect())
    }

    /// The panels of all figures about throughput.
    fn panels(&self, lines: &[Line]) -> Vec<Panel> {
        vec![
            self.panel("throughput", "transactions/s", lines, SitesReport::throughput_per_s),
            self.panel("commit rate", "%", lines, SitesReport::commit_rate_percent),
            self.panel(
                "commit rate of transactions with remote updates",
                "%",
                lines,
                SitesReport::commit_rate_of_remote_percent,
            ),
            self.panel(
                "processor time of sites' threads",
                "us for a committed transaction",
                lines,
                SitesReport::thread_us,
            ),
            self.panel("vectors of an update", "bytes", lines, |report| report.vector_bytes),
            self.panel("how busy sites' threads are", "% of the time", lines, |report| report.busy * 100.0),
        ]
    }

    fn workload(&mut self, workload: &Workload) -> Result<Found> {
        let sites = self.scaled();
        let lines = [0, 5].map(|percent| {
            let setting = move |sites| Setting::new(workload.load(percent), RemoteAccess::Grants, sites);
            line(format!("{percent} % remote updates"), sites, setting)
        });
        self.run(&format!("workload {}", workload.name), &lines)?;
        let panels = self.panels(&lines);
        let (first, last) = (f64::from(sites[0]), f64::from(sites[sites.len() - 1]));
        let mut claims = Vec::new();
        let grown =
            |panel: &Panel, name: &str| ratios(&panel.samples(name, last), &panel.samples(name, first));
        let about_it =
            |percent: u32| format!("throughput with {last} sites / {first} sites, {percent} % remote");
        let of_remote = grown(&panels[0], &lines[1].name);
        let (papers, aimed) = workload.grows;
        claims.push(
            Claim::new(about_it(5), &of_remote)
                .paper(format!("increased by a factor of {papers}"), about(papers))
                .bar(papers, None),
        );
        claims.push(Claim::new(about_it(5) + ", what we aim for", &of_remote).bar(aimed, None));
        claims.push(Claim::new(about_it(0), &grown(&panels[0], &lines[0].name)));
        Ok(found(format!("throughput of workload {}", workload.name), panels, claims, differences()))
    }

    fn ghosts(&mut self) -> Result<Found> {
        let sites = self.sites(&[8, 16, 32, 64], &[8, 16]);
        let lines = [0, 1, 5].map(|percent| {
            let setting = move |sites| Setting::new(single(percent), RemoteAccess::Ghosts, sites);
            line(format!("{percent} % remote updates"), sites, setting)
        });
        self.run("ghost replicas", &lines)?;
        let panels = self.panels(&lines);
        let grown = |name: &str| ratios(&panels[0].samples(name, 32.0), &panels[0].samples(name, 16.0));
        let claims = vec![
            Claim::new("ghosts: throughput with 32 sites / 16 sites, 5 % remote", &grown(&lines[2].name))
                .paper("does not scale when the number of sites is above 16", 0.0..=1.33),
            Claim::new(
                "ghosts: throughput with 32 sites / 16 sites, no remote updates",
                &grown(&lines[0].name),
            )
            .paper("scales well for local writes", about(2.0)),
        ];
        Ok(found("ghost replicas".to_owned(), panels, claims, differences()))
    }

    fn grants(&mut self) -> Result<Found> {
        let sites = self.sites(&[16, 32, 64], &[8, 16]);
        let lines = [("granted numbers", RemoteAccess::Grants), ("ghosts", RemoteAccess::Ghosts)]
            .map(|(name, access)| line(name, sites, move |sites| Setting::new(single(5), access, sites)));
        self.run("granted numbers and ghosts", &lines)?;
        let panels = self.panels(&lines);
        let [grants, ghosts] = [&lines[0].name, &lines[1].name];
        let mut claims = Vec::new();
        for &sites in &sites[1..] {
            let x = f64::from(sites);
            let of = |panel: &Panel| panel.ratios(grants, ghosts, x);
            claims.push(
                Claim::new(format!("granted numbers / ghosts: throughput, {sites} sites"), &of(&panels[0]))
                    .bar(1.5, None),
            );
            claims.push(Claim::new(
                format!("granted numbers / ghosts: bytes of an update's vectors, {sites} sites"),
                &of(&panels[4]),
            ));
            claims.push(Claim::new(
                format!("granted numbers / ghosts: processor time of a transaction, {sites} sites"),
                &of(&panels[3]),
            ));
        }
        Ok(found(
            "granted numbers against ghosts, 5 % remote updates".to_owned(),
            panels,
            claims,
            differences(),
        ))
    }

    fn causality(&mut self) -> Result<Found> {
        let sites = self.sites(&[16, 64], &[8, 16]);
        let load = WORKLOADS[0].load(5);
        let lines = [("pcsi", true), ("without dependency tracking", false)].map(|(name, is_causal)| {
            let setting =
                move |sites| Setting { is_causal, ..Setting::new(load, RemoteAccess::Grants, sites) };
            line(name, sites, setting)
        });
        self.run("the cost of causality", &lines)?;
        let panels = self.panels(&lines);
        let mut claims = Vec::new();
        for &sites in sites {
            let ratios = panels[0].ratios("pcsi", "without dependency tracking", f64::from(sites));
            let about =
                format!("pcsi / without dependency tracking: throughput of workload A, {sites} sites");
            claims.push(Claim::new(about, &ratios).bar(0.8, None));
        }
        let mut differences = differences();
        differences.push(
            "Without dependency tracking, updates carry stamps and no dependencies, and snapshots may be \
             torn: a variant for this figure only."
                .to_owned(),
        );
        Ok(found("the cost of causality".to_owned(), panels, claims, differences))
    }

    fn table(&mut self) -> Result<Found> {
        let sites = self.sites(&[TABLE_SITES], &[16])[0];
        let lines = WORKLOADS.each_ref().map(|one| {
            line(one.name, &[sites], |sites| Setting::new(one.load(5), RemoteAccess::Grants, sites))
        });
        self.run("Table II", &lines)?;
        let ms = |ns: u64| ns as f64 / 1e6;
        type Value = fn(&SitesReport) -> u64;
        let columns: [(&str, Option<Value>); 4] = [
            ("response time", Some(|report| report.response_mean_ns)),
            ("2PC latency", Some(|report| report.votes_mean_ns)),
            ("update delay", Some(|report| report.update_delay_mean_ns)),
            ("commit rate", None),
        ];
        let (mut panels, mut claims) = (Vec::new(), Vec::new());
        for (column, (title, value)) in columns.into_iter().enumerate() {
            let unit = if value.is_some() { "ms" } else { "%" };
            let value = |report: &SitesReport| {
                value.map_or_else(|| report.commit_rate_percent(), |value| ms(value(report)))
            };
            let (mut series, mut marks) = (Vec::new(), Vec::new());
            for (place, (workload, line)) in WORKLOADS.iter().zip(&lines).enumerate() {
                let (x, papers) = (place as f64, workload.table[column]);
                let point = self.point(x, workload.name, &line.settings[0], value);
                let values: Vec<f64> = point.samples.iter().map(|sample| sample.y).collect();
                add_point(&mut series, "granted numbers", Source::Modelled, point);
                let of = "granted numbers".to_owned();
                marks.push(Mark { of, x, low: papers, high: papers, text: "Table II".to_owned() });
                let claim =
                    Claim::new(format!("{title} of workload {}, {sites} sites", workload.name), &values);
                claims.push(match unit {
                    "ms" => claim.paper(format!("{papers} ms"), about(papers)),
                    _ => claim
                        .paper(format!("{papers} %"), papers - 3.0..=papers + 3.0)
                        .bar(workload.commit_rate_min, None),
                });
            }
            let panel =
                Panel::new(format!("{title} with {sites} sites"), ("workload", unit), Axis::Names, series);
            panels.push(Panel { marks, scale: Scale::Linear, ..panel });
        }
        panels.push(self.causes(&lines));
        Ok(found("Table II".to_owned(), panels, claims, differences()))
    }

    /// How many of 100 transactions were refused, by cause.
    fn causes(&self, lines: &[Line]) -> Panel {
        let reports = |line: &Line| self.of(&line.settings[0]).to_vec();
        let all: BTreeMap<&str, ()> =
            lines.iter().flat_map(reports).flat_map(|one| one.aborted.into_keys()).map(|c| (c, ())).collect();
        let mut series = Vec::new();
        for &cause in all.keys() {
            for (place, line) in lines.iter().enumerate() {
                let percent = |report: &SitesReport| {
                    let ended = report.committed + report.aborted.values().sum::<u64>();
                    report.aborted.get(cause).copied().unwrap_or(0) as f64 * 100.0 / ended.max(1) as f64
                };
                let point = self.point(place as f64, &line.name, &line.settings[0], percent);
                add_point(&mut series, cause, Source::Modelled, point);
            }
        }
        Panel::new("refused transactions by cause", ("workload", "% of transactions"), Axis::Names, series)
    }
}

fn found(title: String, panels: Vec<Panel>, claims: Vec<Claim>, differences: Vec<String>) -> Found {
    Found { title, panels, claims, differences, parameters: serde_json::Value::Null }
}

fn differences() -> Vec<String> {
    vec![
        "Transactions read partitions of their own site, and write items that they have read. In remote \
         partitions they write only: the paper does not say whether the partitions that are read may be \
         remote. Ordo needs a state of each partition that a transaction writes, so such a transaction first \
         looks at one key of each remote partition."
            .to_owned(),
        "A refused transaction is not run again: its client begins another one.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_page_has_all_figures() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = Options {
            dir: dir.path().to_owned(),
            quick: true,
            only: ["1", "table-2", "causality"].map(str::to_owned).to_vec(),
            seed: 1,
            repeats: 1,
            seconds: 1.0,
            command: "ordo reproduce pcsi --quick".to_owned(),
            told: serde_json::Value::Null,
            times: Times::default(),
            costs: sim::scale::Costs { step_ns: 2_000_000, ..sim::scale::Costs::default() },
            calibrated: false,
        };
        let (page, claims) = run(&options).expect("a page");
        let page = std::fs::read_to_string(page).expect("a page");
        assert!(page.contains("Not the paper's escrow") && page.contains("without dependency tracking"));
        assert!(dir.path().join("figure-table-2.json").exists());
        let unfounded: Vec<&Claim> = claims.iter().filter(|claim| claim.ours.is_none()).collect();
        assert!(
            claims.len() > 12 && unfounded.iter().all(|claim| claim.about.contains("32 sites")),
            "{unfounded:?}"
        );
        assert!(claims.iter().all(|claim| claim.met.is_none()), "a quick run has no bars: {claims:?}");
    }
}
