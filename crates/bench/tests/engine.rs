//! Short runs of every engine: the driver feeds them, drains them, and their final states pass the workloads'
//! checks.

use ordo_bench::engine::{Options, Reads, Report, Settings, run};
use std::time::Duration;

fn short(engines: &str, workload: &str, settings: &[(&str, &str)], reads: Reads) -> Report {
    let mut chosen = Settings::new(workload);
    for (name, value) in settings {
        chosen.set(name, value);
    }
    let options = Options {
        contenders: engines.split(',').map(|name| name.parse().expect("a known engine")).collect(),
        workers: vec![2],
        settings: chosen,
        duration: Duration::from_millis(100),
        slice: Duration::from_millis(50),
        seed: 7,
        batch: 16,
        run_ahead: 64,
        reads,
    };
    run(&options).unwrap_or_else(|error| panic!("{error:#}"))
}

#[test]
fn every_engine_runs_and_leaves_a_serial_state() {
    let workloads: [(&str, &[(&str, &str)]); 5] = [
        ("bank", &[("accounts", "50"), ("read-percent", "20")]),
        ("synthetic", &[("contention", "medium"), ("dependent-percent", "50"), ("keys", "20000")]),
        ("tpcc", &[("warehouses", "1"), ("scale", "small")]),
        ("vacation", &[("relations", "50"), ("user-percent", "60")]),
        ("ycsb", &[("keys", "1000"), ("theta", "0.9"), ("operations", "4")]),
    ];
    for (workload, settings) in workloads {
        for reads in [Reads::Design, Reads::Order] {
            let report = short(
                "sparkle,sparkle@1,serial,calvin,calvin@1,ssmr,qstore,qstore@1,parspec,parspec@1",
                workload,
                settings,
                reads,
            );
            assert!(report.violations.is_empty(), "{:?}", report.violations);
            assert_eq!(report.records.len(), 10);
            for record in &report.records {
                assert!(record.committed > 0, "{record:?}");
                assert!(record.latency_us.max > 0.0, "{record:?}");
                assert!(record.ratio_to_first > 0.0, "{record:?}");
            }
        }
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
    };
    let says = |options: &Options| run(options).map(drop).unwrap_err().to_string();
    assert!(says(&options).contains("not both"));
    options.workers = vec![0];
    assert!(says(&options).contains("at least 1"));
    options.workers = vec![1];
    options.batch = 0;
    assert!(says(&options).contains("--batch"));
}
