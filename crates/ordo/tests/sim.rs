//! `ordo sim` as people run it.

use std::path::Path;
use std::process::{Command, Output};

fn sim(dir: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ordo"))
        .arg("sim")
        .args(words)
        .current_dir(dir)
        .output()
        .expect("the binary runs")
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], b"\n", &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn line<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines()
        .find(|line| line.starts_with(start))
        .unwrap_or_else(|| panic!("no line starts with '{start}':\n{text}"))
}

#[test]
fn a_seed_is_printed_with_its_options_and_replayed_to_the_same_digest() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["--seed", "12", "--system", "ordo", "--operations", "30"];
    let first = sim(dir.path(), &words);
    let told = text(&first);
    assert!(first.status.success(), "{told}");
    assert!(told.starts_with("seed 12: ordo, "), "{told}");
    assert!(told.contains("with 30 commands each"), "{told}");
    assert!(told.contains("no oracle has found anything"), "{told}");
    assert_eq!(line(&told, "digest"), line(&text(&sim(dir.path(), &words)), "digest"));

    let json = sim(dir.path(), &[&words[..], &["--json"]].concat());
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(object["seed"], 12);
    assert!(object["violation"].is_null() && object["committed"].as_u64() > Some(0));
    assert!(line(&told, "digest").contains(object["digest"].as_str().unwrap()));
}

#[test]
fn a_failure_is_replayed_traced_and_shrunk() {
    let dir = tempfile::tempdir().unwrap();
    // A sync takes longer than a run may after its last fault: liveness, on purpose.
    let scenario = "seed = 3\nsystem = \"ordo\"\nworkload = \"bank\"\nnodes = 1\nclients = 2\noperations = \
                    40\nfsync = \"always\"\ncosts = { sync_ns = 30000000000 }\n\
                    [[faults]]\nat_ms = 5\nfault = \"pause\"\nhost = 0\nfor_ms = 20\n";
    std::fs::write(dir.path().join("slow.toml"), scenario).unwrap();
    let failed = sim(
        dir.path(),
        &[
            "--scenario",
            "slow.toml",
            "--trace",
            "slow.html",
            "--minimize",
            "small.toml",
            "--minimize-runs",
            "60",
        ],
    );
    let told = text(&failed);
    assert_eq!(failed.status.code(), Some(1), "{told}");
    assert!(told.contains("liveness: "), "{told}");
    assert!(told.contains("replay it: ordo sim --scenario slow.toml"), "{told}");
    let page = std::fs::read_to_string(dir.path().join("slow.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("host 0 freezes for 20 ms"));

    let small = std::fs::read_to_string(dir.path().join("small.toml")).unwrap();
    assert!(!small.contains("[[faults]]") && small.contains("clients = 1"), "{small}");
    let again = sim(dir.path(), &["--scenario", "small.toml"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again).contains("liveness: "));
}

#[test]
fn many_seeds_end_in_a_summary() {
    let dir = tempfile::tempdir().unwrap();
    let output =
        sim(dir.path(), &["--seeds", "1..10", "--jobs", "2", "--system", "ordo", "--operations", "10"]);
    let told = text(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("10 seeds in ") && told.contains("1 of them run twice"), "{told}");
}

#[test]
fn a_model_says_that_it_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let output = sim(dir.path(), &["model", "--workers", "1,2", "--clients", "4", "--operations", "50"]);
    let told = text(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("modelled, not measured"), "{told}");
}

#[test]
fn what_cannot_be_run_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("bad.toml"), "worker = 3\n").unwrap();
    for (words, expected) in [
        (&["--seeds", "9..2"][..], "the first must not be larger"),
        (&["--seeds", "a..b"], "'a' is no number"),
        (&["--scenario", "bad.toml"], "'worker' is no option of a scenario"),
        (&["--scenario", "none.toml"], "reading none.toml"),
        (&["--seed", "1", "--engine", "nocc"], "has no concurrency control"),
        (&["--scenario", "bad.toml", "--nodes", "2"], "a scenario file says"),
        (&["--seed", "1", "--costs", "bad.toml"], "`ordo sim calibrate` prints one"),
        (&["--nodes", "3"], "required"),
        (&["--seeds", "1..3", "--trace"], "cannot be used with"),
        (&["--seeds", "1..3", "--minimize"], "cannot be used with"),
    ] {
        let output = sim(dir.path(), words);
        let told = text(&output);
        assert!(!output.status.success(), "{words:?}: {told}");
        assert!(told.contains(expected), "{words:?}: {told}");
    }
}
