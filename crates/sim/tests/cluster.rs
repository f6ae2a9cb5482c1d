//! Clusters in the world: every oracle watches, whatever goes wrong.

use execute::EngineKind;
use execute::sparkle::Mutant;
use node::FsyncPolicy;
use ordo_sim::draw::{one_seed, seeds, tracing};
use ordo_sim::options::{Options, SystemKind, Wishes};
use ordo_sim::run::{Report, run, run_defective};
use ordo_sim::tally::Tally;
use ordo_sim::trace::Trace;
use ordo_sim::traffic::WorkloadKind;
use ordo_sim::world::{Fault, TimedFault};

fn options(seed: u64, wishes: Wishes) -> Options {
    let wishes = Wishes { system: Some(SystemKind::Cluster), ..wishes };
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
    for seed in seeds(20) {
        let tally = pass(&options(seed, Wishes::default())).tally;
        assert!(
            tally.speculated <= tally.executed,
            "seed {seed}: {} of {} executions had speculatively committed",
            tally.speculated,
            tally.executed
        );
        sum.add(&tally);
    }
    println!("{sum:?}");
    if !one_seed() {
        assert!(sum.compared > 0);
        assert!(sum.committed > 1_000 && sum.rolled_back > 0 && sum.snapshot_reads > 100);
        assert!(sum.unknown > 0 && sum.ends > 10);
        assert!(sum.restarts > 0 && sum.suspensions > 0 && sum.speculated > 1_000);
    }
}

/// Partitions of one key space: transactions over several of them, in clusters whose nodes have all of them
/// or some.
#[test]
fn transactions_over_several_partitions_keep_them_too() {
    let mut sum = Tally::default();
    for seed in seeds(20) {
        let wishes = Wishes { across: Some(true), ..Wishes::default() };
        sum.add(&pass(&options(seed, wishes)).tally);
    }
    println!("{sum:?}");
    if !one_seed() {
        assert!(sum.shared > 1_000 && sum.widened > 100 && sum.snapshot_reads > 100);
        assert!(sum.unknown > 0 && sum.ends > 10 && sum.speculated > 1_000);
    }
}

/// A host's engine loses writes that all others install: the others' state digests convict it, and its node
/// ends, whichever partitions it keeps.
#[test]
fn a_replica_that_loses_writes_is_halted() {
    for seed in seeds(6) {
        let wishes = Wishes {
            nodes: Some(3),
            partitions: Some(1 + (seed % 3) as u16),
            engine: Some(EngineKind::Sparkle),
            operations: Some(400),
            faults: Some(false),
            ..Wishes::default()
        };
        let options = Options { think_us: 10_000, moves: 0, ..options(seed, wishes) };
        let violation = run_defective(&options, Some(Mutant::LoseWrite), None).violation;
        let violation = violation.unwrap_or_else(|| panic!("nobody noticed: {options}"));
        let wanted = "node 2 ends, and has no reason to: this node holds something else than the others";
        assert!(violation.oracle == "states" && violation.text.starts_with(wanted), "{options}\n{violation}");
        let tally = pass(&options).tally;
        assert!(tally.compared > 0, "{options}\n{tally:?}");
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

/// Where nothing goes wrong, no replica moves and no answer takes longer than clients wait, every client
/// learns how each command ended, and most transactions are executed before they are agreed on.
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
        // A node that gives a replica away, or gets one, starts anew.
        options.moves = 0;
        let tally = pass(&options).tally;
        assert_eq!((tally.unknown, tally.ends), (0, 0), "{options}");
        sum.add(&tally);
    }
    println!("{sum:?}");
    assert!(sum.executed > 0 && sum.speculated * 2 > sum.executed);
}

/// A world in which one thing goes wrong, while clients are at work.
fn with_fault(seed: u64, wishes: Wishes, fault: Fault) -> Options {
    let mut options = options(
        seed,
        Wishes { faults: Some(false), fsync: Some(FsyncPolicy::Always), operations: Some(60), ..wishes },
    );
    let at_ms = 400;
    options.think_us = options.think_us.max(40_000);
    options.faults = vec![TimedFault { at_ms, fault }];
    options
}

#[test]
fn a_node_whose_disk_was_lost_is_refused_and_replaced() {
    let mut sum = Tally::default();
    for seed in seeds(8) {
        let lost = Fault::Crash {
            host: (seed % 3) as u16,
            power: true,
            at_disk_operation: 0,
            flip_bit: false,
            lose_disk: true,
            down_ms: 20,
        };
        let wishes = Wishes { nodes: Some(3), ..Wishes::default() };
        let options = with_fault(seed, wishes, lost);
        let tally = pass(&options).tally;
        assert!(tally.disks_refused > 0 && tally.replaced == 1 && tally.changes >= 2, "{options}\n{tally:?}");
        sum.add(&tally);
    }
    println!("{sum:?}");
    assert!(sum.committed > 0);
}

#[test]
fn a_healthy_node_of_a_zone_of_two_is_replaced_and_ends() {
    let mut sum = Tally::default();
    for seed in seeds(8) {
        let wishes = Wishes { nodes: Some(6), zones: Some(3), partitions: Some(3), ..Wishes::default() };
        let host = (seed % 6) as u16;
        let options = with_fault(seed, wishes, Fault::Replace { host });
        let tally = pass(&options).tally;
        assert_eq!((tally.left, tally.replaced, tally.disks_refused), (1, 1, 0), "{options}\n{tally:?}");
        sum.add(&tally);
    }
    println!("{sum:?}");
    assert!(sum.committed > 0);
}

#[test]
fn what_a_crash_leaves_unconfirmed_is_not_counted_as_speculated() {
    let text = "seed = 7\nsystem = \"cluster\"\nworkload = \"bank\"\nengine = \"sparkle\"\nnodes = 1\n\
                workers = 4\nclients = 3\n\
                operations = 100\npipeline = 4\nfsync = \"always\"\n\
                [[faults]]\nat_ms = 20\nfault = \"crash\"\nhost = 0\npower = true\nat_disk_operation = 3\n\
                down_ms = 50\n\
                [[faults]]\nat_ms = 400\nfault = \"disk-full\"\nhost = 0\nafter_bytes = 2000\nfor_ms = \
                300\n";
    let tally = pass(&Options::from_toml(text).expect("a scenario")).tally;
    assert!(tally.executed > 100, "{tally:?}");
    assert!(tally.speculated <= tally.executed, "{tally:?}");
}
