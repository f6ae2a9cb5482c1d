//! Clusters in the world: every oracle watches, whatever goes wrong.

use ordo_sim::draw::{one_seed, seeds, tracing};
use ordo_sim::options::{Options, SystemKind, Wishes};
use ordo_sim::ordo::{EngineKind, Tally};
use ordo_sim::run::{Report, run};
use ordo_sim::trace::Trace;
use ordo_sim::traffic::WorkloadKind;

fn options(seed: u64, wishes: Wishes) -> Options {
    let wishes = Wishes {
        system: Some(SystemKind::Cluster),
        ..wishes
    };
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
fn clusters_keep_their_promises() {
    let mut sum = Tally::default();
    for seed in seeds(40) {
        sum.add(&pass(&options(seed, Wishes::default())).tally);
    }
    println!("{sum:?}");
    if !one_seed() {
        assert!(sum.committed > 1_000 && sum.rolled_back > 0 && sum.snapshot_reads > 100);
        assert!(sum.unknown > 0 && sum.ends > 10);
        assert!(sum.restarts > 0 && sum.suspensions > 0 && sum.speculated > 1_000);
    }
}

#[test]
fn a_seed_gives_the_same_run_whatever_ran_before() {
    for seed in seeds(6) {
        let options = options(seed, Wishes::default());
        let first = pass(&options).account;
        pass(&self::options(seed + 1, Wishes::default()));
        assert_eq!(first, pass(&options).account, "seed {seed} gives two runs");
        assert!(first.digest != 0 && first.events > 0);
    }
}

/// Where nothing goes wrong and no answer takes longer than clients wait, every client learns how each command ended, and
/// most transactions are executed before they are agreed on.
#[test]
fn without_faults_nothing_is_unknown() {
    let mut sum = Tally::default();
    for seed in seeds(12) {
        let mut options = options(
            seed,
            Wishes {
                faults: Some(false),
                engine: Some(EngineKind::Sparkle),
                workload: Some(WorkloadKind::Bank),
                ..Wishes::default()
            },
        );
        options.timeout_ms = 60_000;
        let tally = pass(&options).tally;
        assert_eq!((tally.unknown, tally.ends), (0, 0), "{options}");
        sum.add(&tally);
    }
    println!("{sum:?}");
    assert!(sum.executed > 0 && sum.speculated * 2 > sum.executed);
}
