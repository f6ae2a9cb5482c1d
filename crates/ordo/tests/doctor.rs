//! `ordo doctor` on this machine.

use crate::nodes::{Server, ZONES, address, described, description, ordo, word};
use serde_json::Value as Json;

/// Runs it. Gives its exit code and its findings by check, each with the grade.
fn examined(words: &[&str]) -> (i32, Vec<(String, String)>, String) {
    let output = ordo(&[&["doctor", "--json"], words].concat());
    let said = String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned();
    let report: Json =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let findings = report["findings"].as_array().expect("findings").iter();
    let text = |value: &Json| value.as_str().expect("a text").to_owned();
    let findings: Vec<_> = findings.map(|found| (text(&found["check"]), text(&found["grade"]))).collect();
    let worst = ["failed", "warning", "ok"].iter().find(|grade| findings.iter().any(|(_, of)| of == **grade));
    assert_eq!(report["grade"], **worst.expect("a finding"), "{said}");
    (output.status.code().expect("an exit code"), findings, said)
}

fn grade<'a>(findings: &'a [(String, String)], check: &str) -> &'a str {
    &findings.iter().find(|(found, _)| found == check).expect(check).1
}

#[test]
fn a_configuration_is_examined_with_the_words_of_serve() {
    let mut server = Server::new();
    let dir = server.data();
    let words = ["--port", server.port(), "--bind", "127.0.0.1", "--dir", word(&dir), "--maxmemory", "64mb"];
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (code, findings, said) = examined(&words);
    // What this machine is like nobody knows here.
    assert!(code == 0 || code == 1, "{said}");
    for check in ["configuration", "cluster", "ports", "directory", "memory"] {
        assert_eq!(grade(&findings, check), "ok", "{said}");
    }
    assert!(!dir.exists());

    // A server runs there.
    server.start(&[]);
    let (code, findings, said) = examined(&words);
    assert_eq!(
        (code, grade(&findings, "ports"), grade(&findings, "directory")),
        (2, "failed", "failed"),
        "{said}"
    );

    let (code, findings, said) = examined(&["--maxmemmory", "64mb"]);
    assert_eq!((code, grade(&findings, "configuration")), (2, "failed"), "{said}");
    assert!(said.contains("maxmemory"), "{said}");
    let lines = ordo(&["doctor", "--maxmemmory", "64mb"]);
    assert_eq!(lines.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&lines.stdout).starts_with("failed   configuration"));
}

#[test]
fn a_node_is_looked_for_in_its_clusters_description() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("cluster.toml");
    let mut text = description(3);
    for (name, zone) in ["a", "b", "c"].iter().zip(ZONES) {
        text += &described(name, zone, &address(), &address());
    }
    std::fs::write(&path, text).expect("written");
    let data = dir.path().join("data");
    let of_node = |node: &str| examined(&["--cluster", word(&path), "--node", node, "--dir", word(&data)]);
    let (_, findings, said) = of_node("b");
    assert_eq!((grade(&findings, "cluster"), grade(&findings, "ports")), ("ok", "ok"), "{said}");
    assert!(said.contains("3 nodes and 3 partitions"), "{said}");
    assert_eq!(findings.iter().filter(|(check, _)| check == "ports").count(), 2, "clients and peers: {said}");
    let (code, findings, said) = of_node("d");
    assert_eq!((code, grade(&findings, "configuration")), (2, "failed"), "{said}");
    assert!(said.contains("has no node 'd'"), "{said}");
}
