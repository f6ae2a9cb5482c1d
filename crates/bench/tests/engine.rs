//! Short runs of every engine: the driver feeds them, drains them, and their final states pass the workloads'
//! checks.

use ordo_bench::engine::{Options, Reads, Report, Settings, run};
use std::time::Duration;

/// Each workload, small and with conflicts.
const WORKLOADS: [(&str, &[(&str, &str)]); 5] = [
    ("bank", &[("accounts", "50"), ("read-percent", "20")]),
    ("synthetic", &[("contention", "medium"), ("dependent-percent", "50"), ("keys", "20000")]),
    ("tpcc", &[("warehouses", "1"), ("scale", "small")]),
    ("vacation", &[("relations", "50"), ("user-percent", "60")]),
    ("ycsb", &[("keys", "1000"), ("theta", "0.9"), ("operations", "4")]),
];

fn short(engines: &str, workload: &str, settings: &[(&str, &str)], reads: Reads) -> Report {
    let options = options(engines, workload, settings, reads);
    run(&options).unwrap_or_else(|error| panic!("{error:#}"))
}

fn options(engines: &str, workload: &str, settings: &[(&str, &str)], reads: Reads) -> Options {
    let mut chosen = Settings::new(workload);
    for (name, value) in settings {
        chosen.set(name, value);
    }
    Options {
        contenders: engines.split(',').map(|name| name.parse().expect("a known engine")).collect(),
        workers: vec![2],
        settings: chosen,
        duration: Duration::from_millis(100),
        slice: Duration::from_millis(50),
        seed: 7,
        batch: 16,
        run_ahead: 64,
        reads,
        confirm_lag: Duration::ZERO,
        reorder_percent: 0,
        rate: None,
        max_spec: None,
        qstore_mode: None,
    }
}

/// A site executes on snapshots while others are decided: at once, or later, with many on their way.
#[test]
fn deferred_update_replication_leaves_a_serial_state() {
    for (workload, settings) in WORKLOADS {
        for lag_ms in [0, 2] {
            let confirm_lag = Duration::from_millis(lag_ms);
            let options = Options { confirm_lag, ..options("dur,dur@1", workload, settings, Reads::Design) };
            let report = run(&options).unwrap_or_else(|error| panic!("{error:#}"));
            assert!(report.violations.is_empty(), "{:?}", report.violations);
            for record in &report.records {
                assert!(record.committed > 0 && record.latency_us.max > 0.0, "{record:?}");
                assert!(workload != "bank" || lag_ms == 0 || record.restarts > 0, "{record:?}");
            }
        }
    }
    let ordered = options("dur", "bank", &[], Reads::Order);
    let paced = Options { rate: Some(5.0), ..options("dur", "bank", &[], Reads::Design) };
    for (options, text) in [(ordered, "--reads order"), (paced, "--rate")] {
        let error = run(&options).expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    }
}

/// Engines that execute what is delivered do so while it is being decided; what is decided otherwise is
/// executed again, and the final state is a serial one all the same.
#[test]
fn what_is_decided_late_and_otherwise_leaves_a_serial_state() {
    let contenders = "parspec,parspec+final,sparkle,qstore,qstore+speculative,calvin,serial";
    let mut chosen = Settings::new("bank");
    chosen.set("accounts", "500");
    let options = Options {
        contenders: contenders.split(',').map(|name| name.parse().expect("a known engine")).collect(),
        workers: vec![2],
        settings: chosen,
        duration: Duration::from_millis(200),
        slice: Duration::from_millis(50),
        seed: 7,
        batch: 16,
        run_ahead: 256,
        reads: Reads::Order,
        confirm_lag: Duration::from_millis(5),
        reorder_percent: 10,
        rate: None,
        max_spec: Some(8),
        qstore_mode: None,
    };
    let report = run(&options).unwrap_or_else(|error| panic!("{error:#}"));
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    let early = |engine: &str| -> f64 {
        let record = report.records.iter().find(|record| record.engine == engine);
        record.expect("each engine has a record").options["early-percent"].parse().expect("a number")
    };
    for engine in ["parspec", "sparkle", "qstore", "qstore+speculative"] {
        assert!(early(engine) > 0.0, "{engine}: {report:?}");
    }
    // (Between its delivery and its confirmation a batch may be executed, however close these are.)
    for engine in ["calvin", "serial"] {
        assert_eq!(early(engine), 0.0, "{engine}: {report:?}");
    }
}

#[test]
fn every_engine_runs_and_leaves_a_serial_state() {
    for (workload, settings) in WORKLOADS {
        for reads in [Reads::Design, Reads::Order] {
            let report = short(
                "sparkle,sparkle@1,serial,calvin,calvin@1,ssmr,qstore,qstore@1,qstore+speculative,\
                 parspec,parspec@1",
                workload,
                settings,
                reads,
            );
            assert!(report.violations.is_empty(), "{:?}", report.violations);
            assert_eq!(report.records.len(), 11);
            for record in &report.records {
                assert!(record.committed > 0, "{record:?}");
                assert!(record.latency_us.max > 0.0, "{record:?}");
                assert!(record.ratio_to_first > 0.0, "{record:?}");
            }
        }
    }
}

#[test]
fn calls_arrive_at_their_rate() {
    let mut settings = Settings::new("ycsb");
    settings.set("keys", "1000");
    settings.set("operations", "2");
    let options = Options {
        contenders: ["serial", "parspec"].map(|name| name.parse().expect("a known engine")).to_vec(),
        workers: vec![2],
        settings,
        duration: Duration::from_millis(200),
        slice: Duration::from_millis(50),
        seed: 7,
        batch: 16,
        run_ahead: 64,
        reads: Reads::Order,
        confirm_lag: Duration::ZERO,
        reorder_percent: 0,
        rate: Some(2_000.0),
        max_spec: None,
        qstore_mode: None,
    };
    let report = run(&options).unwrap_or_else(|error| panic!("{error:#}"));
    for record in &report.records {
        // A call for each worker arrives at the very beginning of each of the four slices.
        let most = 2_000.0 * record.seconds + 8.0;
        assert!(record.committed > 0 && record.committed as f64 <= most, "{record:?}");
    }
}

#[test]
fn calvin_resubmits_what_it_found_too_late() {
    let settings = [("contention", "medium"), ("dependent-percent", "100"), ("keys", "2000")];
    let report = short("calvin", "synthetic", &settings, Reads::Design);
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    assert!(report.records[0].restarts > 0, "{:?}", report.records[0]);
}

#[test]
fn impossible_runs_are_refused() {
    let mut options = Options {
        contenders: vec!["serial@2".parse().expect("a known engine")],
        workers: vec![1, 2],
        settings: Settings::new("bank"),
        duration: Duration::from_millis(50),
        slice: Duration::from_millis(50),
        seed: 1,
        batch: 16,
        run_ahead: 64,
        reads: Reads::Design,
        confirm_lag: Duration::ZERO,
        reorder_percent: 0,
        rate: None,
        max_spec: None,
        qstore_mode: None,
    };
    let says = |options: &Options| run(options).map(drop).unwrap_err().to_string();
    assert!(says(&options).contains("not both"));
    options.workers = vec![0];
    assert!(says(&options).contains("at least 1"));
    options.workers = vec![1];
    options.rate = Some(0.0);
    assert!(says(&options).contains("a positive number"));
    options.rate = None;
    options.max_spec = Some(65);
    assert!(says(&options).contains("from 1 to 64"));
    options.max_spec = None;
    options.reorder_percent = 101;
    assert!(says(&options).contains("from 0 to 100"));
    options.batch = 0;
    assert!(says(&options).contains("--batch"));
}
