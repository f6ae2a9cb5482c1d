//! Holds the arrows of `ARCHITECTURE.md`: which of our crates may depend on which, and who may own clocks and
//! threads.

mod files;

use files::{files, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every crate, and the crates of ours that it may depend on, beside those that they may depend on.
/// Development dependencies are free: tests may use the simulator.
const ARROWS: &[(&str, &str)] = &[
    ("ordo-txn", ""),
    ("ordo-lua", ""),
    ("ordo-store", "ordo-txn"),
    ("ordo-log", "ordo-txn"),
    ("ordo-agree", "ordo-log"),
    ("ordo-order", "ordo-txn"),
    ("ordo-execute", "ordo-store"),
    ("ordo-certify", "ordo-txn"),
    ("ordo-node", "ordo-agree ordo-order ordo-execute ordo-certify"),
    ("ordo-redis", "ordo-txn ordo-lua"),
    ("ordo-workloads", "ordo-txn"),
    ("ordo-sim", "ordo-node ordo-redis ordo-workloads"),
    ("ordo-server", "ordo-node ordo-redis"),
    ("ordo-bench", "ordo-sim ordo-server"),
    ("ordo", "ordo-bench"),
];

/// What a crate may depend on.
fn allowed(name: &str) -> Option<BTreeSet<&'static str>> {
    let (_, direct) = ARROWS.iter().find(|(known, _)| *known == name)?;
    let mut all = BTreeSet::new();
    for other in direct.split_whitespace() {
        all.extend(allowed(other)?);
        all.insert(other);
    }
    Some(all)
}

/// The crates that may lift the ban on clocks and threads (`clippy.toml` has it) for themselves.
const OWN_CLOCKS_AND_THREADS: &[&str] = &["server", "bench", "ordo"];

/// What the table forbids and `found` has, one line each.
fn violations(found: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, dependencies) in found {
        let Some(allowed) = allowed(name) else {
            broken.push(format!("{name} is not in the table of crates: add it here and in ARCHITECTURE.md"));
            continue;
        };
        for dependency in dependencies {
            if !allowed.contains(dependency.as_str()) {
                broken.push(format!("{name} may not depend on {dependency}"));
            }
        }
    }
    broken
}

fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let ours: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"]
                .as_array()
                .expect("dependencies")
                .iter()
                .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
                .filter_map(|dependency| dependency["name"].as_str())
                .filter(|name| ours.contains(name))
                .map(str::to_owned)
                .collect();
            (package["name"].as_str().expect("a name").to_owned(), dependencies)
        })
        .collect()
}

#[test]
fn the_arrows_point_one_way() {
    let found = dependencies();
    assert_eq!(found.len(), ARROWS.len(), "every crate is in the table: {:?}", found.keys());
    let broken = violations(&found);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_wrong_arrow_would_be_noticed() {
    let mut found = dependencies();
    found.get_mut("ordo-store").expect("the store").insert("ordo-execute".to_owned());
    assert_eq!(violations(&found), ["ordo-store may not depend on ordo-execute"]);
}

#[test]
fn the_library_alone_needs_no_bench_and_no_simulator() {
    const CRATES_MAX: usize = 119;
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", "ordo", "--no-default-features"])
        .args(["--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(root())
        .output()
        .expect("cargo tree runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    // A crate that was shown before has a mark behind it.
    let crates: BTreeSet<&str> = text.lines().map(|line| line.split(" (").next().unwrap_or(line)).collect();
    assert!(crates.iter().any(|name| name.starts_with("ordo-server ")), "{text}");
    let unwanted =
        crates.iter().find(|name| ["ordo-bench ", "ordo-sim "].iter().any(|own| name.starts_with(own)));
    assert_eq!(unwanted, None);
    assert!(crates.len() <= CRATES_MAX, "{} crates: {crates:?}", crates.len());
}

#[test]
fn only_the_outermost_crates_own_clocks_and_threads() {
    for entry in std::fs::read_dir(root().join("crates")).expect("crates") {
        let krate = entry.expect("an entry").path();
        let name = krate.file_name().expect("a name").to_string_lossy().into_owned();
        let head = std::fs::read_to_string(krate.join("src/lib.rs")).expect("lib.rs");
        let head: String = head.split_whitespace().collect();
        let lifted = head.contains("#![allow(clippy::disallowed_methods");
        assert!(
            !lifted || OWN_CLOCKS_AND_THREADS.contains(&name.as_str()),
            "crate {name} lifts the ban on clocks and threads: take the time as an input instead"
        );
    }
}

/// The sources below a directory, without their tests.
fn sources(dir: &Path) -> Vec<(PathBuf, String)> {
    let is_tests =
        |path: &Path| path.iter().any(|part| Path::new(part).file_stem() == Some("tests".as_ref()));
    let paths = files(dir).into_iter();
    let own = paths.filter(|path| !is_tests(path.strip_prefix(dir).expect("a file below")));
    let found = own.map(|path| {
        let text = std::fs::read_to_string(&path).expect("a source");
        let own = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        (path, own)
    });
    found.collect()
}

#[test]
fn the_server_creates_files_for_its_own_user_only() {
    const OPEN_TO_OTHERS: &[&str] = &["File::create", "fs::write(", "fs::copy(", "fs::create_dir"];
    let all = sources(&root().join("crates/server/src"));
    assert!(all.iter().any(|(path, text)| path.ends_with("private.rs") && text.contains("0o600")));
    for (path, text) in all {
        let word = OPEN_TO_OTHERS.iter().find(|word| text.contains(**word));
        assert_eq!(word, None, "{}: use `private`, which sets the modes", path.display());
    }
}
