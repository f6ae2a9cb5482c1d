//! The scale model: what it promises whatever it is asked.

use certify::two_phase::Rule;
use execute::EngineKind;
use ordo_sim::draw::seeds;
use ordo_sim::scale::{
    Contender, Costs, Delivery, Feed, Options, Replication, Report, SparkleVariant, Times, run,
};
use std::sync::Arc;
use std::thread;
use txn::mutant::{Mutant, with};
use workloads::tpcc::{Mix, Scale};
use workloads::{Synthetic, Tpcc, Workload};

const QUICK: Times = Times {
    epoch_ns: 1_000_000,
    epoch_calls: None,
    order_ns: 5_000_000,
    confirm_ns: 0,
    latency_ns: 50_000,
    jitter_ns: 10_000,
    round_ns: 20_000,
    warm_up_ns: 2_000_000,
    measured_ns: 6_000_000,
};

fn synthetic(nodes: u16, multi_partition_percent: u32) -> Arc<dyn Workload> {
    Arc::new(Synthetic {
        keys: 600,
        index_keys: 100,
        dependent_percent: 30,
        partitions: nodes,
        multi_partition_percent,
    })
}

fn tpcc(nodes: u16) -> Arc<dyn Workload> {
    Arc::new(Tpcc {
        warehouses: 2 * u32::from(nodes),
        mix: Mix::Full { update_percent: 90 },
        remote: true,
        scale: Scale { items: 100, customers: 10 },
        partitions: nodes,
        ..Tpcc::default()
    })
}

fn options(nodes: u16, contender: Contender, workload: Arc<dyn Workload>, seed: u64) -> Options {
    Options {
        nodes,
        workers: 2,
        contender,
        workload,
        clients: 60,
        times: QUICK,
        costs: Costs::default(),
        seed,
        judged: true,
        replication: None,
    }
}

fn judged(options: &Options) -> Report {
    match run(options) {
        Ok(report) => report,
        Err(wrong) => panic!("{}, seed {}: {wrong}", options.contender, options.seed),
    }
}

#[test]
fn every_variant_leaves_the_state_of_the_serial_execution_and_keeps_busy() {
    for seed in seeds(2) {
        println!("seed {seed}: replay with ORDO_SEED={seed}");
        thread::scope(|scope| {
            for variant in SparkleVariant::ALL {
                scope.spawn(move || keeps_busy(variant, seed));
            }
        });
    }
}

fn keeps_busy(variant: SparkleVariant, seed: u64) {
    let contender = Contender::sparkle(variant);
    for workload in [synthetic(3, 50), tpcc(3)] {
        for confirm_ns in [0, 300_000] {
            let mut options = options(3, contender, workload.clone(), seed);
            options.times.confirm_ns = confirm_ns;
            let report = judged(&options);
            assert!(report.committed > 50, "{variant:?}: {report:?}");
            assert!(report.multi_partition > 5, "{variant:?}: {report:?}");
            // One message for each destination and round, whatever there is to tell.
            assert_eq!(report.messages_of_round_max, 1);
            assert!(report.messages <= 2 * report.rounds);
            assert_eq!(report.idle_with_work_ns, 0, "{variant:?}: {report:?}");
        }
    }
}

#[test]
fn the_same_options_give_the_same_run() {
    for seed in seeds(3) {
        let contender = Contender::SPARKLE;
        let first = options(3, contender, synthetic(3, 50), seed);
        let mut other = first.clone();
        other.seed += 1;
        assert_eq!(judged(&first), judged(&first), "seed {seed}");
        assert_ne!(judged(&first).digest, judged(&other).digest, "seed {seed}");
    }
}

#[test]
fn baselines_leave_the_state_of_the_serial_execution_over_partitions_too() {
    for seed in seeds(2) {
        for contender in [EngineKind::Calvin, EngineKind::QStore, EngineKind::Ssmr].map(Contender::of) {
            for workload in [synthetic(3, 50), tpcc(3)] {
                let report = judged(&options(3, contender, workload, seed));
                assert!(report.committed > 50, "{contender}: {report:?}");
                assert!(report.multi_partition > 5, "{contender}: {report:?}");
            }
        }
    }
}

/// Epochs of so many calls are the same order, by another clock.
#[test]
fn epochs_may_be_counted_instead_of_timed() {
    for seed in seeds(2) {
        for kind in [EngineKind::Calvin, EngineKind::QStore] {
            let mut counted = options(3, Contender::of(kind), synthetic(3, 50), seed);
            counted.times.epoch_calls = Some(90);
            let report = judged(&counted);
            assert!(report.committed > 50, "seed {seed}, {kind}: {report:?}");
            // Fewer calls than an epoch has are under way: none is ever made.
            counted.times.epoch_calls = Some(181);
            counted.judged = false;
            assert_eq!(judged(&counted).committed, 0, "seed {seed}, {kind}");
        }
    }
}

fn ycsb(nodes: u16, theta: f64) -> Arc<dyn Workload> {
    let options = workloads::ycsb::Options {
        keys: 300,
        operations: 6,
        theta,
        payload_bytes: 20,
        partitions: nodes,
        multi_partition_percent: 50,
        partitions_each: nodes.min(3),
        ..Default::default()
    };
    Arc::new(workloads::Ycsb::new(options).unwrap())
}

fn new_order_payment(nodes: u16) -> Arc<dyn Workload> {
    let mix = Mix::NewOrderPayment { payment_percent: 50, elsewhere_percent: Some(40) };
    let scale = Scale { items: 100, customers: 10 };
    Arc::new(Tpcc {
        warehouses: 2 * u32::from(nodes),
        mix,
        remote: true,
        scale,
        partitions: nodes,
        ..Tpcc::default()
    })
}

/// Two-phase commit has no order but that of its timestamps, or decisions: they explain all replies and the
/// records.
#[test]
fn two_phase_commit_leaves_the_state_of_the_serial_execution_of_its_commits() {
    for (seed, rule) in seeds(3).flat_map(|seed| Rule::ALL.map(|rule| (seed, rule))) {
        println!("seed {seed}, {rule:?}: replay with ORDO_SEED={seed}");
        for workload in [ycsb(3, 0.0), ycsb(3, 0.99), new_order_payment(3), synthetic(3, 50)] {
            let report = judged(&options(3, Contender::TwoPhase(rule), workload.clone(), seed));
            assert!(report.committed > 50, "{}: {report:?}", workload.name());
            assert!(report.multi_partition > 5, "{}: {report:?}", workload.name());
            assert!(report.restarts > 0, "{}: {report:?}", workload.name());
            assert_eq!(report.messages_of_round_max, 1);
            assert!(report.messages <= 2 * report.rounds);
        }
        let one = judged(&options(1, Contender::TwoPhase(rule), ycsb(1, 0.9), seed));
        assert!(one.committed > 50 && one.messages == 0, "one partition needs no message: {one:?}");
    }
}

#[test]
fn a_judged_run_finds_what_two_phase_commit_must_not_leave_out() {
    for rule in Rule::ALL {
        for mutant in [Mutant::CertifyNothing, Mutant::UnlockAtVote] {
            let found = seeds(5).into_iter().any(|seed| {
                let options = options(3, Contender::TwoPhase(rule), ycsb(3, 0.99), seed);
                with(mutant, || run(&options)).is_err()
            });
            assert!(found, "{mutant:?}, {rule:?}");
        }
    }
}

#[test]
fn two_phase_commit_runs_alike_twice_and_has_no_replicas() {
    for (seed, rule) in seeds(2).flat_map(|seed| Rule::ALL.map(|rule| (seed, rule))) {
        let first = options(3, Contender::TwoPhase(rule), ycsb(3, 0.9), seed);
        let mut other = first.clone();
        other.seed += 1;
        assert_eq!(judged(&first), judged(&first), "seed {seed}");
        assert_ne!(judged(&first).digest, judged(&other).digest, "seed {seed}");
    }
    let mut replicated = replicated(EngineKind::Serial, Delivery::Raft, Feed::Final);
    replicated.contender = Contender::TwoPhase(Rule::NoWait);
    assert!(run(&replicated).unwrap_err().contains("no replicas"));
}

#[test]
fn contenders_are_read_back_from_their_names() {
    for contender in
        [Contender::TwoPhase(Rule::NoWait), Contender::SPARKLE, Contender::of(EngineKind::QStore)]
    {
        assert_eq!(contender.to_string().parse(), Ok(contender));
    }
    let wrong = "wait".parse::<Contender>().unwrap_err();
    assert!(wrong.contains("no-wait") && wrong.contains("calvin"), "{wrong}");
}

#[test]
fn the_bound_runs_on_one_node_only() {
    let one = Options {
        // Without conflicts being minded, the state is nobody's business.
        judged: false,
        ..options(1, Contender::of(EngineKind::NoCc), tpcc(1), 1)
    };
    assert!(judged(&one).committed > 50);
    assert!(run(&options(2, Contender::of(EngineKind::NoCc), tpcc(2), 1)).is_err());
    assert!(judged(&options(1, Contender::of(EngineKind::Calvin), tpcc(1), 1)).committed > 50);
}

/// Calls that all begin with a reconnaissance, or that all read at snapshots, leave nothing for the first
/// epoch: the model must begin without one.
#[test]
fn calls_that_wait_for_no_epoch_begin_too() {
    for seed in seeds(2) {
        for nodes in [1, 3] {
            let all_dependent: Arc<dyn Workload> = Arc::new(Synthetic {
                keys: 600,
                index_keys: 100,
                dependent_percent: 100,
                partitions: nodes,
                multi_partition_percent: 20,
            });
            let report = judged(&options(nodes, Contender::of(EngineKind::Calvin), all_dependent, seed));
            assert!(report.committed > 0, "seed {seed}: {report:?}");
        }
    }
}

/// A read at a snapshot does not wait until its engine has nothing to do. A busy engine would run all
/// clients' updates first and no read, so that steps would be told of other calls than clients make.
#[test]
fn reads_at_snapshots_have_their_share_of_a_busy_node() {
    for seed in seeds(2) {
        for contender in [Contender::SPARKLE, Contender::of(EngineKind::NoCc)] {
            let busy =
                Options { judged: false, workers: 1, clients: 2_000, ..options(1, contender, tpcc(1), seed) };
            let report = judged(&busy);
            let share = report.snapshot_reads as f64 / (report.committed + report.rolled_back) as f64;
            assert!((0.05..0.2).contains(&share), "seed {seed}, {contender}: {share}: {report:?}");
        }
    }
}

/// However many clients there are, and however short the time is that was asked for.
#[test]
fn every_client_has_had_a_call_ended_in_the_measured_time() {
    let report = judged(&Options {
        judged: false,
        workers: 1,
        clients: 500,
        ..options(1, Contender::of(EngineKind::Calvin), tpcc(1), 1)
    });
    assert!(report.committed + report.rolled_back >= 500, "{report:?}");
    assert!(report.measured_ns > QUICK.measured_ns, "{report:?}");
}

/// Without conflicts and siblings, the work of so many workers takes so much less time.
#[test]
fn throughput_without_siblings_is_that_of_the_workers() {
    let at = |workers: usize, step_ns: u64| {
        let workload = Arc::new(Synthetic {
            keys: 60_000,
            index_keys: 50_000,
            dependent_percent: 0,
            partitions: 1,
            multi_partition_percent: 0,
        });
        let contender = Contender::SPARKLE;
        let mut options = options(1, contender, workload, 1);
        options.judged = false;
        options.clients = 4_000;
        options.workers = workers;
        options.costs.step_ns = step_ns;
        let report = judged(&options);
        assert!(report.busy > 0.9, "{report:?}");
        report.throughput_per_s()
    };
    let one = at(1, 200);
    for (workers, step_ns, factor) in [(1, 400, 0.5), (4, 200, 4.0), (8, 400, 4.0)] {
        let ratio = at(workers, step_ns) / one;
        assert!((0.9..1.1).contains(&(ratio / factor)), "{workers}: {ratio}");
    }
}

/// A bank on nine replicas, with a tenth of reads.
fn replicated(kind: EngineKind, delivery: Delivery, feed: Feed) -> Options {
    let workload = Arc::new(workloads::Bank { accounts: 500, branch_accounts: 10, audit_percent: 10 });
    let replication = Replication {
        replicas: 9,
        delivery,
        feed,
        readers: 2,
        request_bytes: 14,
        request_ns: 60,
        batch_ns: 250,
    };
    Options {
        replication: Some(replication),
        workers: 4,
        clients: 600,
        times: Times { warm_up_ns: 20_000_000, measured_ns: 40_000_000, ..QUICK },
        ..options(1, Contender::of(kind), workload, 7)
    }
}

#[test]
fn replicas_leave_the_state_of_the_serial_execution_whenever_they_are_fed() {
    for (kind, delivery, feed) in [
        (EngineKind::ParSpec, Delivery::Mimox, Feed::Optimistic),
        (EngineKind::ParSpec, Delivery::Mimox, Feed::Final),
        (EngineKind::Serial, Delivery::Raft, Feed::Final),
        (EngineKind::ParSpec, Delivery::Raft, Feed::Optimistic),
    ] {
        judged(&replicated(kind, delivery, feed));
    }
}

#[test]
fn only_an_engine_that_is_fed_early_commits_speculatively_before_the_order_is_final() {
    let early = |feed| {
        let report = judged(&replicated(EngineKind::ParSpec, Delivery::Mimox, feed));
        let order = report.order.expect("replicas have an order");
        assert!(order.overlap_ns > 1e6, "{order:?}");
        order.speculated
    };
    let (ahead, behind) = (early(Feed::Optimistic), early(Feed::Final));
    assert!(ahead > 0.9, "{ahead}");
    assert_eq!(behind, 0.0);
}
