//! What the figures are made of, and what is printed.

use super::*;

const INFO: &str = "# Ordo_cluster\r\ncluster:local\r\nnode:1\r\nepoch:9000\r\npartitions:2\r\n\
                    partitions_kept:2\r\n\
                    epochs_confirmed:100\r\nepochs_retracted:1\r\ntransactions:1000\r\n\
                    speculated_before_confirmation:800\r\n\
                    restarts:7\r\nsibling_rounds:10\r\nsibling_messages:9\r\nsibling_notes:50\r\n\
                    messages_sent:400\r\nmessage_bytes_sent:50000\r\n";

fn later(counters: &Counters) -> Counters {
    Counters {
        epochs: counters.epochs + 300,
        transactions: counters.transactions + 6_000,
        speculated: counters.speculated + 4_500,
        restarts: counters.restarts + 3,
        sibling_rounds: counters.sibling_rounds + 500,
        sibling_messages: counters.sibling_messages + 400,
        sibling_notes: counters.sibling_notes + 2_000,
        messages: counters.messages + 1_000,
        message_bytes: counters.message_bytes + 200_000,
        ..*counters
    }
}

#[test]
fn figures_are_of_the_whole_cluster_and_of_all_slices() {
    let node = Counters::parse(INFO).expect("an INFO");
    let mut all = node;
    all.add(&node);
    all.add(&node);
    let slice = later(&all).since(&all).expect("it went on");
    let mut slices = Counters::default();
    slices.add(&slice);
    slices.add(&slice);
    // Three nodes confirmed 200 epochs in 2 seconds; 4,000 transactions were executed by each of them.
    let figures = slices.figures(3, Duration::from_secs(2), 2_000.0);
    let wanted = ClusterFigures {
        nodes: 3,
        partitions: 2,
        messages_per_transaction: 0.5,
        message_bytes_per_transaction: 100.0,
        epochs_per_s: 100.0,
        transactions_per_epoch: 20.0,
        speculated_share: 0.75,
        epochs_retracted: 0,
        messages_per_round: 0.8,
        notes_per_message: 5.0,
    };
    assert_eq!(figures, wanted);
}

#[test]
fn counters_that_are_missing_or_fall_are_told() {
    let error = Counters::parse("partitions:2\r\npartitions_kept:2\r\n").expect_err("no epochs");
    assert!(error.to_string().contains("epochs_confirmed"), "{error}");
    let node = Counters::parse(INFO).expect("an INFO");
    let error = node.since(&later(&node)).expect_err("fewer");
    assert!(error.to_string().contains("started anew"), "{error}");
}

/// A run of three nodes and of one, with the aim's setting.
fn report() -> Report {
    let record = |engine: &str, throughput_per_s: f64| Record {
        engine: engine.to_owned(),
        workload: "set".to_owned(),
        workers: 50,
        seconds: 4.0,
        committed: 4_000,
        aborted_by_logic: 0,
        restarts: 0,
        throughput_per_s,
        latency_us: report::LatencySummary::default(),
        processor_us: None,
        memory_bytes: 0,
        seed: 1,
        ratio_to_first: throughput_per_s / 1_000.0,
        ratio_spread: Spread::of(&[throughput_per_s / 1_000.0]),
        throughput_spread: Spread::of(&[throughput_per_s]),
        undisturbed_spread: None,
        options: BTreeMap::new(),
    };
    Report {
        records: vec![
            ClusterRecord { record: record("single", 1_000.0), cluster: None },
            ClusterRecord {
                record: record("cluster", 250.0),
                cluster: Some(ClusterFigures {
                    messages_per_transaction: 0.125,
                    ..ClusterFigures::default()
                }),
            },
        ],
        ratios: vec![(Work::Set, "cluster / single".to_owned(), Spread::of(&[0.25]))],
        aim: Some(AIM),
    }
}

/// The names of an object's fields in JSON.
fn fields(value: &impl Serialize) -> Vec<String> {
    let value = serde_json::to_value(value).expect("JSON");
    let object = value.as_object().expect("an object");
    object.keys().cloned().collect()
}

#[test]
fn a_record_has_the_fields_of_bench_engine_and_those_of_a_cluster() {
    let report = report();
    let engine = fields(&report.records[0].record);
    for record in &report.records {
        let found = fields(record);
        assert!(engine.iter().all(|name| found.contains(name)), "{found:?}");
        assert!(found.contains(&"cluster".to_owned()), "{found:?}");
    }
    let json = serde_json::to_value(&report.records[1]).expect("JSON");
    assert_eq!(json["cluster"]["messages_per_transaction"], 0.125);
    assert_eq!(json["throughput_per_s"], 250.0);
    assert!(
        serde_json::to_value(&report.records[0]).expect("JSON")["cluster"].is_null(),
        "a server by itself sends no messages"
    );
}

#[test]
fn the_aim_is_told_where_it_was_set() {
    let mut report = report();
    let text = summary(&report);
    assert_eq!(text, "set, cluster / single: 0.250 (0.250 - 0.250); aim: 0.3, NOT met");
    report.aim = None;
    assert!(!summary(&report).contains("aim"));
    assert!(table(&report).to_string().contains("0.125"));
}

#[test]
fn works_have_names() {
    for (name, work) in [
        ("get", Work::Get),
        ("set", Work::Set),
        ("incr", Work::Incr),
        ("transfer", Work::Transfer),
        ("transfer-across", Work::TransferAcross),
    ] {
        assert_eq!(name.parse::<Work>().expect("known"), work);
        assert_eq!(work.name(), name);
    }
    let error = "del".parse::<Work>().expect_err("unknown").to_string();
    assert!(error.contains("get, set, incr, transfer or transfer-across"), "{error}");
}
