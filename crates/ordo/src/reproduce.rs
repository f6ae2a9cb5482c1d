//! `ordo reproduce`: the papers' evaluations, again.

use anyhow::{Result, bail};
use bench::reproduce::figure::Claim;
use bench::reproduce::study::{Made, Options};
use bench::reproduce::{archie, hierarchy, pcsi, qstore, sparkle};
use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use serde_json::Value;
use sim::scale::{Costs, Times};
use std::path::PathBuf;

/// What to reproduce.
#[derive(Subcommand)]
pub enum Reproduce {
    /// The evaluation of the Sparkle paper (Li, Van Roy, Romano, VLDB 2019, section 5): its figures, by real
    /// runs with one and two threads on this machine, and by a model of a cluster for all that takes more
    /// cores and nodes. `--only` chooses from 6a, 6b, 7, 8, 9, 10, and from two of ours: check (real engines
    /// beside their model) and 3p (three real processes beside theirs).
    Sparkle(Box<PaperArgs>),
    /// The evaluation of the Archie paper (Hirve, Palmieri, Ravindran, Middleware 2014, sections 3.3 and 6),
    /// by the model of a cluster of replicas. It names each measurement on standard error. Ctrl-C leaves the
    /// figures that are done. `--only` chooses from 1, 2, table-1, 3, 4 (with 5 and 6) and 7.
    Archie(Box<PaperArgs>),
    /// The evaluation of the Q-Store paper (Qadah, Gupta, Sadoghi, section 6), by the model of a cluster of
    /// 16 nodes (4 with `--quick`). It names each measurement on standard error. Ctrl-C leaves the figures
    /// that are done. `--only` chooses from 5 to 13. `--order-ms` does nothing: nothing is replicated.
    Qstore(Box<PaperArgs>),
    /// The network analysis of the paper on hierarchical validation (Amaro, section III-E), and how much the
    /// root hears in trees of two to seven levels. Messages and steps of real validators are counted, which
    /// takes seconds: the options of the model do nothing, and the paper's figures 2 to 6 are not there.
    /// `--only` chooses from network and levels.
    Hierarchy(Box<PaperArgs>),
    /// The evaluation of the paper on partially replicated sites (Tripathi, Rajappan, Padhye, TR 15-012,
    /// sections IV and VI): real sites on a modelled test bed of 8 to 64 sites. A site's step takes the
    /// processor time that this machine takes for it, three times; with `--step-ns` it takes that for each
    /// record, letter and answer, and vectors cost nothing. `--only` chooses from 1, 8, 9, 10, table-2, and
    /// from two of ours: grants (granted numbers against ghosts) and causality (what its tracking costs).
    /// Options of epochs and rounds do nothing.
    Pcsi(Box<PaperArgs>),
    /// Checks the model against this machine: modelled / measured must be within 0.8 to 1.25 for engines with
    /// one and two workers, and for what transactions over partitions cost three real processes. Prints each
    /// ratio, and fails if one is outside. Takes about ten minutes, with `--quick` about three, and names
    /// each measurement on standard error. Ctrl-C leaves the figures that are done.
    CheckModel(Box<CheckArgs>),
}

/// `ordo reproduce sparkle`, `archie`, `qstore`, `hierarchy`, `pcsi`.
#[derive(Args)]
pub struct PaperArgs {
    /// Where the report goes: index.html, and JSON and SVG for each figure [default: reproduce-PAPER].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only these figures of the page, with commas between them.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    runs: RunArgs,
    #[command(flatten)]
    model: ModelArgs,
}

/// `ordo reproduce check-model`.
#[derive(Args)]
pub struct CheckArgs {
    /// Where the report goes: index.html, and JSON and SVG for each figure.
    #[arg(long, value_name = "DIR", default_value = "reproduce-check-model")]
    out: PathBuf,
    /// Leaves out the three real processes.
    #[arg(long)]
    without_processes: bool,
    #[command(flatten)]
    runs: RunArgs,
}

/// How often and how long runs are.
#[derive(Args, Serialize)]
pub struct RunArgs {
    /// Fewer points and shorter runs.
    #[arg(long)]
    quick: bool,
    /// First seed of records, calls and the model's network.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds each run is repeated with: the first one and those that follow it.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Seconds of each real measurement; a quick run takes a third.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

/// An empty command line: what options are if nobody gives them.
#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    runs: RunArgs,
    #[command(flatten)]
    model: ModelArgs,
}

/// All options with their values and their defaults.
fn told(runs: &RunArgs, model: &ModelArgs) -> Result<Value> {
    let Defaults { runs: default_runs, model: default_model } = Defaults::parse_from([""]);
    let mut told = serde_json::Map::new();
    for (given, default) in [
        (serde_json::to_value(runs)?, serde_json::to_value(default_runs)?),
        (serde_json::to_value(model)?, serde_json::to_value(default_model)?),
    ] {
        for (name, value) in given.as_object().into_iter().flatten() {
            let name = name.replace('_', "-");
            let default = &default[name.replace('-', "_")];
            told.insert(name, serde_json::json!({ "value": value, "default": default }));
        }
    }
    Ok(Value::Object(told))
}

/// Those of the options that are not as by default, as a command line has them.
fn typed(told: &Value) -> String {
    let options = told.as_object().into_iter().flatten();
    let changed = options.filter(|(_, option)| option["value"] != option["default"]);
    let words = changed.map(|(name, option)| match &option["value"] {
        Value::Bool(_) => format!(" --{name}"),
        value => format!(" --{name} {value}"),
    });
    words.collect()
}

/// What the scale model takes for granted.
#[derive(Args, Serialize)]
#[command(next_help_heading = "What the model takes for granted")]
pub struct ModelArgs {
    /// Milliseconds from one epoch to the next: calls are ordered in batches, one of each node in an epoch.
    #[arg(long, default_value_t = 5.0)]
    epoch_ms: f64,
    /// Milliseconds from a call until its epoch is ordered and comes to the engines: the time that agreement
    /// takes, which is not modelled itself. It makes latencies longer, and changes no throughput.
    #[arg(long, default_value_t = 200.0)]
    order_ms: f64,
    /// Milliseconds for which an epoch may still be taken back once the engines have it; its calls are
    /// answered after that at the earliest.
    #[arg(long, default_value_t = 0.0)]
    confirm_ms: f64,
    /// Microseconds that a message takes from node to node.
    #[arg(long, default_value_t = 50.0)]
    latency_us: f64,
    /// Microseconds for which a node gathers what it has to tell the others, before it sends that as one
    /// message to each.
    #[arg(long, default_value_t = 20.0)]
    round_us: f64,
    /// Gigabits per second that a node can send.
    #[arg(long, default_value_t = 10.0)]
    gigabits: f64,
    /// Nanoseconds that a message takes its sender, and again its receiver.
    #[arg(long, default_value_t = 2_000)]
    message_ns: u64,
    /// Nanoseconds that each thing which a message tells (a read, a confirmation) takes both.
    #[arg(long, default_value_t = 60)]
    note_ns: u64,
    /// Nanoseconds of a step of an engine, which executes one operation on one key. If not given,
    /// `ordo reproduce` measures it on this machine, and `ordo bench model` takes 140.
    #[arg(long, value_name = "NS")]
    step_ns: Option<u64>,
}

fn nanoseconds(option: &str, value: f64, unit_ns: f64) -> Result<u64> {
    if !(0.0..=1e6).contains(&value) {
        bail!("--{option} {value}: 0 to 1,000,000");
    }
    Ok((value * unit_ns) as u64)
}

impl ModelArgs {
    /// What takes how long; in a quick run less is measured.
    pub fn times(&self, quick: bool) -> Result<Times> {
        let epoch_ns = nanoseconds("epoch-ms", self.epoch_ms, 1e6)?;
        let latency_ns = nanoseconds("latency-us", self.latency_us, 1e3)?;
        let round_ns = nanoseconds("round-us", self.round_us, 1e3)?;
        if epoch_ns < 100_000 || round_ns == 0 {
            bail!("--epoch-ms must be at least 0.1, and --round-us more than 0");
        }
        let (warm_up, measured) = if quick { (4, 5) } else { (6, 12) };
        Ok(Times {
            epoch_ns,
            epoch_calls: None,
            order_ns: nanoseconds("order-ms", self.order_ms, 1e6)?,
            confirm_ns: nanoseconds("confirm-ms", self.confirm_ms, 1e6)?,
            latency_ns,
            jitter_ns: latency_ns / 5,
            round_ns,
            warm_up_ns: warm_up * epoch_ns,
            measured_ns: measured * epoch_ns,
        })
    }

    /// What costs how much.
    pub fn costs(&self) -> Result<Costs> {
        if !(self.gigabits > 0.0 && self.gigabits.is_finite()) {
            bail!("--gigabits {}: more than 0", self.gigabits);
        }
        if self.step_ns == Some(0) {
            bail!("--step-ns must be at least 1");
        }
        let default = Costs::default();
        Ok(Costs {
            step_ns: self.step_ns.unwrap_or(default.step_ns),
            byte_ns: 8.0 / self.gigabits,
            message_ns: self.message_ns,
            note_ns: self.note_ns,
            ..default
        })
    }
}

impl RunArgs {
    fn options(&self, out: PathBuf, only: Vec<String>, name: &str, model: &ModelArgs) -> Result<Options> {
        if !(self.seconds > 0.0 && self.seconds <= 3_600.0) {
            bail!("--seconds {}: more than 0, and at most 3600", self.seconds);
        }
        if !(1..=1_000).contains(&self.repeats) {
            bail!("--repeats {}: 1 to 1000", self.repeats);
        }
        let told = told(self, model)?;
        Ok(Options {
            command: format!("ordo reproduce {name}{}", typed(&told)),
            told,
            dir: out,
            quick: self.quick,
            only,
            seed: self.seed,
            repeats: self.repeats,
            seconds: if self.quick { self.seconds / 3.0 } else { self.seconds },
            times: model.times(self.quick)?,
            costs: model.costs()?,
            calibrated: model.step_ns.is_none(),
        })
    }
}

/// Reproduces.
pub fn run(reproduce: Reproduce) -> Result<()> {
    match reproduce {
        Reproduce::Sparkle(args) => args.run("sparkle", &sparkle::FIGURES, sparkle::run),
        Reproduce::Archie(args) => args.run("archie", &archie::FIGURES, archie::run),
        Reproduce::Qstore(args) => args.run("qstore", &qstore::FIGURES, qstore::run),
        Reproduce::Hierarchy(args) => args.run("hierarchy", &hierarchy::FIGURES, hierarchy::run),
        Reproduce::Pcsi(args) => args.run("pcsi", &pcsi::FIGURES, pcsi::run),
        Reproduce::CheckModel(args) => {
            let mut only = vec![sparkle::CHECK.to_owned()];
            if !args.without_processes {
                only.push(sparkle::PROCESSES.to_owned());
            }
            let Defaults { model, .. } = Defaults::parse_from([""]);
            let options = args.runs.options(args.out, only, "sparkle", &model)?;
            let claims = shown(&options, sparkle::run)?;
            let outside = claims.iter().filter(|claim| claim.met == Some(false)).count();
            match outside {
                0 => Ok(()),
                _ => bail!("{outside} of {} ratios are outside of their bars", claims.len()),
            }
        }
    }
}

impl PaperArgs {
    /// Makes a paper's page, which has these figures.
    fn run(self, paper: &str, figures: &[&str], reproduce: fn(&Options) -> Result<Made>) -> Result<()> {
        if let Some(unknown) = self.only.iter().find(|id| !figures.contains(&id.as_str())) {
            bail!("--only {unknown}: choose from {}", figures.join(", "));
        }
        let out = self.out.unwrap_or_else(|| format!("reproduce-{paper}").into());
        let options = self.runs.options(out, self.only, paper, &self.model)?;
        shown(&options, reproduce).map(|_| ())
    }
}

/// Runs, and prints the claims.
fn shown(options: &Options, reproduce: fn(&Options) -> Result<Made>) -> Result<Vec<Claim>> {
    println!("seeds {} to {}", options.seed, options.seed + options.repeats as u64 - 1);
    let (page, claims) = reproduce(options)?;
    let rows = claims.iter().map(|claim| {
        vec![
            claim.about.clone(),
            claim.paper.clone().unwrap_or_default(),
            claim.shown(),
            claim.against_paper().to_owned(),
            claim.bar.map(|bar| bar.shown()).unwrap_or_default(),
            claim.against_bar().to_owned(),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let header = ["what", "the paper", "here", "against the paper", "our bar", ""];
        println!("{}", bench::report::table(&header, rows));
    }
    println!("{}", page.display());
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::{Defaults, Reproduce, told, typed};
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(subcommand)]
        reproduce: Reproduce,
    }

    #[test]
    fn a_page_has_the_figures_of_its_paper_only() {
        for (words, figures) in [
            ("qstore --only 5,14", "5, 6, 7"),
            ("archie --only 5", "table-1"),
            ("hierarchy --only 2", "network, levels"),
            ("pcsi --only 2", "table-2, grants"),
        ] {
            let words = ["ordo"].into_iter().chain(words.split(' '));
            let wrong = super::run(Words::parse_from(words).reproduce).unwrap_err().to_string();
            assert!(wrong.contains("choose from") && wrong.contains(figures), "{wrong}");
        }
    }

    #[test]
    fn options_are_told_with_types_and_defaults() {
        let given = |words: &[&str]| {
            let words = [""].iter().chain(words).copied();
            let Defaults { runs, model } = Defaults::parse_from(words);
            told(&runs, &model).unwrap()
        };
        assert_eq!(typed(&given(&[])), "");
        let some = given(&["--repeats", "5", "--quick", "--latency-us", "80", "--step-ns", "140"]);
        assert_eq!(typed(&some), " --latency-us 80.0 --quick --repeats 5 --step-ns 140");
        assert_eq!(some["repeats"], serde_json::json!({ "value": 5, "default": 3 }));
        assert_eq!(some["quick"], serde_json::json!({ "value": true, "default": false }));
        assert_eq!(some["step-ns"]["default"], serde_json::Value::Null);
    }
}
