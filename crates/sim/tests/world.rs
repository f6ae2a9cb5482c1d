//! Whole worlds: every oracle watches, whatever goes wrong.

use ordo_sim::draw::{one_seed, seeds, tracing};
use ordo_sim::options::{Options, SystemKind, Wishes};
use ordo_sim::run::{Report, run};
use ordo_sim::tally::Tally;
use ordo_sim::trace::Trace;

fn options(seed: u64) -> Options {
    let wishes = Wishes { system: Some(SystemKind::Ordo), ..Wishes::default() };
    Options::draw(seed, &wishes)
}

fn pass(options: &Options) -> Report {
    let outcome = run(options, tracing().then(|| Trace::new(100_000)));
    if let Some(trace) = &outcome.trace {
        eprintln!("{}", trace.text());
    }
    if let Some(violation) = outcome.violation {
        panic!(
            "{options}\n{violation}\nrun this test again with ORDO_SEED={}, and ORDO_TRACE=1 for every event",
            options.seed
        );
    }
    outcome.report
}

#[test]
fn nodes_keep_their_promises() {
    let mut sum = Tally::default();
    for seed in seeds(60) {
        sum.add(&pass(&options(seed)).tally);
    }
    println!("{sum:?}");
    if !one_seed() {
        assert!(sum.committed > 1_000 && sum.rolled_back > 0 && sum.snapshot_reads > 100);
        assert!(sum.unknown > 0 && sum.ends > 10);
        assert!(sum.checkpoints > 0 && sum.recovered_from_checkpoint > 0);
        assert!(sum.restarts > 0 && sum.suspensions > 0);
    }
}

#[test]
fn a_seed_gives_the_same_run_whatever_ran_before() {
    for seed in seeds(8) {
        let options = options(seed);
        let first = pass(&options).account;
        // Another world in between leaves its traces in the process: warm interpreters, tables of costs.
        pass(&self::options(seed + 1));
        assert_eq!(first, pass(&options).account, "seed {seed} gives two runs");
        assert!(first.digest != 0 && first.events > 0);
    }
}
