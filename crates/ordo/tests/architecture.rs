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
    ("ordo-certify", "ordo-store"),
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

/// The module that a file below `src` is, from the crate's root on.
fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    module
}

/// What a tree of a `use` declaration names, one path after the other.
fn paths_of(tree: &str, prefix: &str, found: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        return found.push(format!("{prefix}{}", tree.split(" as ").next().unwrap_or_default()));
    };
    let prefix = format!("{prefix}{head}");
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut begin) = (0, 0);
    for (place, sign) in inner.char_indices().chain([(inner.len(), ',')]) {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let branch = &inner[begin..place];
                if !branch.is_empty() {
                    paths_of(branch, &prefix, found);
                }
                begin = place + 1;
            }
            _ => {}
        }
    }
}

/// The paths of a source that begin in its crate, in `use` declarations and elsewhere.
fn paths_in(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for declaration in code.split("use ").skip(1) {
        let tree: String = declaration.split(';').next().unwrap_or_default().split_whitespace().collect();
        if tree.starts_with("super::") || tree.starts_with("crate::") {
            paths_of(&tree, "", &mut found);
        }
    }
    let is_word = |sign: char| sign.is_alphanumeric() || sign == '_' || sign == ':';
    let words = code.split(|sign: char| !is_word(sign));
    found.extend(
        words.filter(|word| word.starts_with("super::") || word.starts_with("crate::")).map(str::to_owned),
    );
    found
}

/// The files of a crate, and the files that each of them names.
fn arrows(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let sources = sources(src);
    let own = sources.iter().map(|(path, text)| (path.strip_prefix(src).expect("below"), text));
    let modules: BTreeMap<Vec<String>, String> =
        own.clone().map(|(path, _)| (module_of(path), path.display().to_string())).collect();
    let named = |module: &[String], path: &str| {
        let mut at = module.to_vec();
        for part in path.split("::") {
            match part {
                "crate" => at.clear(),
                "super" => _ = at.pop(),
                name => {
                    at.push(name.to_owned());
                    if !modules.contains_key(&at) {
                        at.pop();
                        break;
                    }
                }
            }
        }
        modules.get(&at).cloned()
    };
    own.map(|(path, text)| {
        let (module, file) = (module_of(path), path.display().to_string());
        let mut named: BTreeSet<String> =
            paths_in(text).iter().filter_map(|path| named(&module, path)).collect();
        named.remove(&file);
        (file, named)
    })
    .collect()
}

/// Files that name each other in a circle, if there are any.
fn circle(arrows: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk<'a>(
        file: &'a str,
        arrows: &'a BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<String>> {
        if let Some(begin) = way.iter().position(|before| *before == file) {
            return Some(way[begin..].iter().map(|file| (*file).to_owned()).collect());
        }
        if !done.insert(file) {
            return None;
        }
        way.push(file);
        let found = arrows.get(file).into_iter().flatten().find_map(|next| walk(next, arrows, way, done));
        way.pop();
        found
    }
    let (mut way, mut done) = (Vec::new(), BTreeSet::new());
    arrows.keys().find_map(|file| walk(file, arrows, &mut way, &mut done))
}

#[test]
fn no_files_of_node_name_each_other_in_a_circle() {
    let mut arrows = arrows(&root().join("crates/node/src"));
    assert!(arrows["cluster/machine/transfer.rs"].contains("cluster/machine.rs"), "{arrows:#?}");
    assert!(arrows["cluster/machine.rs"].contains("cluster/transfer.rs"), "{arrows:#?}");
    assert_eq!(circle(&arrows), None, "a part names no whole: what both need goes into a file of its own");
    arrows.get_mut("cluster/transfer.rs").expect("it is there").insert("cluster/machine.rs".to_owned());
    assert!(circle(&arrows).is_some(), "the test notices one");
}

/// Files of integration tests that no binary of their crate has: cargo does not look for them where a crate
/// says `autotests = false`.
fn left_out(manifest: &str, all: &str, names: &[String]) -> Vec<String> {
    let is_binary = |name: &str| manifest.contains(&format!("[[test]]\nname = \"{name}\"\n"));
    let is_module = |name: &str| all.lines().any(|line| line == format!("mod {name};"));
    let is_in =
        |name: &&String| !manifest.contains("autotests = false") || is_binary(name) || is_module(name);
    names.iter().filter(|name| !is_in(name)).cloned().collect()
}

#[test]
fn every_file_of_tests_is_run() {
    for entry in std::fs::read_dir(root().join("crates")).expect("crates") {
        let krate = entry.expect("an entry").path();
        let manifest = std::fs::read_to_string(krate.join("Cargo.toml")).expect("a manifest");
        let all = std::fs::read_to_string(krate.join("tests/all.rs")).unwrap_or_default();
        let entries = std::fs::read_dir(krate.join("tests")).into_iter().flatten();
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let sources = paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        let names: Vec<String> =
            sources.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
        assert_eq!(left_out(&manifest, &all, &names), [""; 0], "{}", krate.display());
    }
    let (manifest, all) = ("autotests = false\n\n[[test]]\nname = \"all\"\n", "mod one;\n");
    let names = ["all", "one", "two"].map(str::to_owned);
    assert_eq!(left_out(manifest, all, &names), ["two"], "the test notices one");
}
