//! `ordo bench cluster` on real processes: short runs.

use std::process::Command;

/// Runs it and reads its JSON lines.
fn run(words: &[&str]) -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_ordo"))
        .args(["bench", "cluster", "--json", "--seconds", "0.2"])
        .args(["--rounds", "1", "--keys", "200"])
        .args(words)
        .output()
        .expect("it ran");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_cluster_and_a_server_by_itself_take_turns() {
    let words = ["--against-single", "--appendfsync", "no", "--nodes", "3", "--clients", "6"];
    let records = run(&[&words[..], &["--partitions", "2", "--workload", "incr"]].concat());
    let [single, cluster] = &records[..] else { panic!("{records:?}") };
    assert_eq!((&single["engine"], &cluster["engine"]), (&"single".into(), &"cluster".into()));
    for record in [single, cluster] {
        assert_eq!(record["workload"], "incr");
        assert!(number(&record["committed"]) > 0.0, "{record}");
        assert!(number(&record["latency_us"]["p50"]) > 0.0, "{record}");
    }
    assert!(single["cluster"].is_null(), "{single}");
    let figures = &cluster["cluster"];
    assert_eq!((&figures["nodes"], &figures["partitions"]), (&3.into(), &2.into()));
    for name in [
        "messages_per_transaction",
        "message_bytes_per_transaction",
        "epochs_per_s",
        "transactions_per_epoch",
    ] {
        assert!(number(&figures[name]) > 0.0, "{name}: {cluster}");
    }
    assert_eq!(number(&figures["messages_per_round"]), 0.0, "{cluster}");
    let share = number(&figures["speculated_share"]);
    assert!((0.0..=1.0).contains(&share), "{cluster}");
    let ratio = number(&cluster["ratio_to_first"]);
    let quotient = number(&cluster["throughput_per_s"]) / number(&single["throughput_per_s"]);
    assert!((ratio - quotient).abs() < 1e-6, "{ratio} is not {quotient}");
}

/// Siblings at different nodes: each node keeps one of two partitions.
#[test]
fn siblings_send_one_message_for_each_destination_and_round() {
    let words = ["--nodes", "2", "--zones", "1", "--partitions", "2"];
    for clients in ["1", "60"] {
        let load = ["--workload", "transfer-across", "--clients", clients];
        let records = run(&[&words[..], &load].concat());
        let [cluster] = &records[..] else { panic!("{records:?}") };
        let figures = &cluster["cluster"];
        let messages = number(&figures["messages_per_round"]);
        assert!(0.0 < messages && messages <= 1.0, "{cluster}");
        assert!(number(&figures["notes_per_message"]) >= 1.0, "{cluster}");
    }
}
