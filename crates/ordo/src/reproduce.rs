//! `ordo reproduce`: the papers' evaluations, again.

use anyhow::{Result, bail};
use bench::reproduce::sparkle;
use clap::{Args, Subcommand};
use sim::scale::{Costs, Times};
use std::path::PathBuf;

/// What to reproduce.
#[derive(Subcommand)]
pub enum Reproduce {
    /// The evaluation of the Sparkle paper (Li, Van Roy, Romano, VLDB 2019, section 5): its figures, by real
    /// runs with one and two threads on this machine, and by a model of a cluster for all that takes more
    /// cores and nodes.
    Sparkle(Box<SparkleArgs>),
}

/// `ordo reproduce sparkle`.
#[derive(Args)]
pub struct SparkleArgs {
    /// Where the report goes: index.html, and JSON and SVG for each figure.
    #[arg(long, value_name = "DIR", default_value = "reproduce-sparkle")]
    out: PathBuf,
    /// Fewer points and shorter runs.
    #[arg(long)]
    quick: bool,
    /// Only these figures of the paper, with commas between them: 6a, 6b, 7, 8, 9, 10; or 3p, which is ours:
    /// three real processes beside their model, to see how far the model can be trusted.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seed of records, calls and the model's network.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    model: ModelArgs,
}

/// What the scale model takes for granted.
#[derive(Args)]
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
    /// As options of a command line.
    fn shown(&self) -> String {
        let shown = [
            ("epoch-ms", self.epoch_ms),
            ("order-ms", self.order_ms),
            ("confirm-ms", self.confirm_ms),
            ("latency-us", self.latency_us),
            ("round-us", self.round_us),
            ("gigabits", self.gigabits),
        ];
        let shown = shown.map(|(name, value)| format!(" --{name} {value}"));
        let step_ns = self.step_ns.map(|ns| format!(" --step-ns {ns}"));
        shown.concat() + &step_ns.unwrap_or_default()
    }

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
            ..default
        })
    }
}

/// Reproduces.
pub fn run(reproduce: Reproduce) -> Result<()> {
    let Reproduce::Sparkle(args) = reproduce;
    if let Some(unknown) = args.only.iter().find(|id| !sparkle::FIGURES.contains(&id.as_str())) {
        bail!("--only {unknown}: choose from {}", sparkle::FIGURES.join(", "));
    }
    let times = args.model.times(args.quick)?;
    let options = sparkle::Options {
        model: args.model.shown(),
        dir: args.out,
        quick: args.quick,
        only: args.only,
        seed: args.seed,
        times,
        costs: args.model.costs()?,
        calibrated: args.model.step_ns.is_none(),
    };
    println!("seed {}", options.seed);
    let (page, claims) = sparkle::run(&options)?;
    let rows = claims.into_iter().map(|claim| {
        let met = match claim.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        };
        vec![claim.about, claim.paper, claim.ours, claim.bar.unwrap_or_default(), met.to_owned()]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let header = ["what", "the paper", "here", "bar", ""];
        println!("{}", bench::report::table(&header, rows));
    }
    println!("{}", page.display());
    Ok(())
}
