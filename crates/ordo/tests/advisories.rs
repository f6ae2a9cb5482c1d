//! Holds the crates that `Cargo.lock` takes from the registry against what is known to be wrong with versions
//! of them: `advisories.toml` beside this file, whose head tells where that comes from and how it is
//! refreshed.

use serde::Deserialize;
use std::path::Path;

/// What is known against a crate.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Advisory {
    id: String,
    package: String,
    #[serde(default)]
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
}

#[derive(Deserialize)]
struct Advisories {
    advisory: Vec<Advisory>,
}

/// A file of the database: `[advisory]` and `[versions]`.
#[derive(Deserialize)]
struct Entry {
    advisory: Head,
    versions: Versions,
}

#[derive(Deserialize)]
struct Head {
    id: String,
    package: String,
    #[serde(default)]
    withdrawn: Option<String>,
}

#[derive(Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    source: Option<String>,
}

type Version = (u64, u64, u64);

/// The numbers of a version; those that are not given are 0. What follows them (`-alpha.1`, `+spec`) is not
/// looked at.
fn version(text: &str) -> Version {
    let numbers = text.trim().split(['-', '+']).next().unwrap_or_default();
    let mut numbers = numbers.split('.').map(|number| {
        let number = number.parse();
        number.unwrap_or_else(|_| panic!("'{text}' is no version"))
    });
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// The first version that a caret does not allow any more.
fn behind_caret((major, minor, patch): Version) -> Version {
    match (major, minor) {
        (0, 0) => (0, 0, patch + 1),
        (0, _) => (0, minor + 1, 0),
        _ => (major + 1, 0, 0),
    }
}

/// Whether a version meets a requirement: all of its comparisons.
fn meets(found: Version, requirement: &str) -> bool {
    requirement.split(',').all(|comparison| {
        let comparison = comparison.trim();
        let (operator, wanted) = comparison.split_at(comparison.find(char::is_numeric).unwrap_or(0));
        let wanted = version(wanted);
        match operator.trim() {
            ">=" => found >= wanted,
            ">" => found > wanted,
            "<" => found < wanted,
            "<=" => found <= wanted,
            "=" => found == wanted,
            "^" | "" => found >= wanted && found < behind_caret(wanted),
            other => panic!("'{other}' of '{requirement}' is no comparison that is known here"),
        }
    })
}

/// The crates of a lock file that come from the registry.
fn locked(text: &str) -> Vec<(String, String)> {
    let lock: Lock = toml::from_str(text).expect("a lock file");
    let from_registry = |package: &Package| {
        let source = package.source.as_ref();
        source.is_some_and(|source| source.starts_with("registry+"))
    };
    let packages = lock.package.into_iter().filter(from_registry);
    packages.map(|package| (package.name, package.version)).collect()
}

/// What is known against crates of a lock file, one line each.
fn known(locked: &[(String, String)], advisories: &[Advisory]) -> Vec<String> {
    let mut known = Vec::new();
    for (name, found) in locked {
        for advisory in advisories.iter().filter(|advisory| advisory.package == *name) {
            let mut fine = advisory.patched.iter().chain(&advisory.unaffected);
            if !fine.any(|requirement| meets(version(found), requirement)) {
                known.push(format!("{name} {found}: {}, patched in {:?}", advisory.id, advisory.patched));
            }
        }
    }
    known
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn vendored() -> Vec<Advisory> {
    let path = here().join("tests/advisories.toml");
    let text = std::fs::read_to_string(path).expect("the advisories");
    let advisories: Advisories = toml::from_str(&text).expect("advisories");
    advisories.advisory
}

/// The advisories of a checkout of the database against these crates. The error tells that the path is no
/// such checkout.
fn of_database(database: &Path, names: &[(String, String)]) -> Result<Vec<Advisory>, String> {
    let crates = database.join("crates");
    let entries = std::fs::read_dir(&crates)
        .map_err(|error| format!("ORDO_ADVISORY_DB: {}: {error}", crates.display()))?;
    if !entries.flatten().any(|entry| holds_advisories(&entry.path())) {
        return Err(format!(
            "ORDO_ADVISORY_DB: {} has no directory with advisories: give a checkout of RustSec's advisory-db",
            crates.display()
        ));
    }
    let mut advisories = Vec::new();
    for (name, _) in names {
        let Ok(files) = std::fs::read_dir(database.join("crates").join(name)) else {
            continue;
        };
        for file in files {
            let text = std::fs::read_to_string(file.expect("a file").path()).expect("an advisory");
            let toml = text.split("```").nth(1).and_then(|toml| toml.strip_prefix("toml"));
            let entry: Entry = toml::from_str(toml.expect("it begins with TOML")).expect("an advisory");
            if entry.advisory.withdrawn.is_none() {
                advisories.push(Advisory {
                    id: entry.advisory.id,
                    package: entry.advisory.package,
                    patched: entry.versions.patched,
                    unaffected: entry.versions.unaffected,
                });
            }
        }
    }
    advisories.sort_by(|a, b| a.id.cmp(&b.id));
    advisories.dedup();
    Ok(advisories)
}

/// Whether a directory has a file that is named as the database names an advisory.
fn holds_advisories(path: &Path) -> bool {
    let is_advisory = |file: std::fs::DirEntry| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("RUSTSEC-") && name.ends_with(".md")
    };
    std::fs::read_dir(path).is_ok_and(|files| files.flatten().any(is_advisory))
}

/// The vendored advisories, and what a checkout of the database has beside them.
fn all(database: Option<&Path>, locked: &[(String, String)]) -> Result<Vec<Advisory>, String> {
    let mut advisories = vendored();
    let Some(database) = database else {
        return Ok(advisories);
    };
    for advisory in of_database(database, locked)? {
        if advisories.iter().all(|known| known.id != advisory.id) {
            println!("advisories.toml lacks {advisory:?}");
        }
        if !advisories.contains(&advisory) {
            advisories.push(advisory);
        }
    }
    Ok(advisories)
}

#[test]
fn no_crate_has_an_advisory() {
    let lock = std::fs::read_to_string(here().join("../../Cargo.lock")).expect("the lock file");
    let locked = locked(&lock);
    assert!(locked.len() > 100, "{} crates: the lock file was not read", locked.len());
    let database = std::env::var_os("ORDO_ADVISORY_DB");
    let advisories = match all(database.as_deref().map(Path::new), &locked) {
        Ok(advisories) => advisories,
        Err(problem) => panic!("{problem}"),
    };
    let known = known(&locked, &advisories);
    assert!(
        known.is_empty(),
        "advisories are known against crates that are built: update them, or replace them as \
         vendor/README.md tells:\n{}",
        known.join("\n")
    );
}

#[test]
fn what_is_known_against_a_version_is_found() {
    let lock = |name: &str, version: &str, source: &str| {
        locked(&format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n{source}"))
    };
    let registry = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    for (name, version, id) in [
        ("protobuf", "2.28.0", Some("RUSTSEC-2024-0437")),
        ("protobuf", "3.7.2", None),
        ("fxhash", "0.2.1", Some("RUSTSEC-2025-0057")),
        ("rand", "0.8.5", Some("RUSTSEC-2026-0097")),
        ("rand", "0.9.2", Some("RUSTSEC-2026-0097")),
        ("rand", "0.6.0", None),
        ("rand", "0.8.6", None),
        ("rustls", "0.23.44", Some("RUSTSEC-2026-0285")),
        ("tiny_http", "0.6.4", None),
        ("tiny_http", "0.7.0", Some("RUSTSEC-2020-0031")),
    ] {
        let known = known(&lock(name, version, registry), &vendored());
        let ids: Vec<&str> = known.iter().filter_map(|line| line.split([' ', ',']).nth(2)).collect();
        assert_eq!(ids, Vec::from_iter(id), "{name} {version}: {known:?}");
    }
    // A crate of the repository that stands in for a crate is not that crate.
    assert_eq!(lock("protobuf", "2.900.0", ""), []);
}

#[test]
fn the_database_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let of_crate = dir.path().join("crates/one");
    std::fs::create_dir_all(&of_crate).expect("a directory");
    let entry = "```toml\n[advisory]\nid = \"RUSTSEC-1\"\npackage = \
                 \"one\"\ndate = \"2026-01-01\"\n\n[versions]\npatched = [\">= 1.2.3\"]\n```\n\n# One\n";
    std::fs::write(of_crate.join("RUSTSEC-1.md"), entry).expect("a file");
    let withdrawn = entry.replace("date", "withdrawn = \"2026-02-02\"\ndate").replace("SEC-1", "SEC-2");
    std::fs::write(of_crate.join("RUSTSEC-2.md"), withdrawn).expect("a file");
    let locked =
        [("one", "1.2.2"), ("two", "1.0.0")].map(|(name, version)| (name.to_owned(), version.to_owned()));
    let advisories = of_database(dir.path(), &locked).expect("a database");
    assert_eq!(advisories.len(), 1);
    assert_eq!(known(&locked, &advisories).len(), 1);
}

#[test]
fn a_database_adds_to_the_vendored_advisories_and_must_be_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let names = [("sha2".to_owned(), "0.10.8".to_owned())];
    // A mistyped path, and a directory that is something else.
    for path in [dir.path().join("mistyped"), dir.path().to_owned()] {
        let problem = all(Some(&path), &names).expect_err("no database");
        assert!(problem.contains("ORDO_ADVISORY_DB"), "{problem}");
    }
    let of_crate = dir.path().join("crates/sha2");
    std::fs::create_dir_all(&of_crate).expect("a directory");
    let problem = all(Some(dir.path()), &names).expect_err("no advisories");
    assert!(problem.contains("no directory with advisories"), "{problem}");
    let text = "```toml\n[advisory]\nid = \"RUSTSEC-2099-0001\"\npackage = \"sha2\"\n\
                [versions]\npatched = [\">= 9.0.0\"]\n```\n# It was made up\n";
    std::fs::write(of_crate.join("RUSTSEC-2099-0001.md"), text).expect("written");
    let advisories = all(Some(dir.path()), &names).expect("a database");
    assert_eq!(advisories.len(), vendored().len() + 1);
    let found = known(&names, &advisories);
    assert!(matches!(&found[..], [one] if one.contains("RUSTSEC-2099-0001")), "{found:?}");
    // What is vendored counts as well, also where the database does not have it.
    let names = [("fxhash".to_owned(), "0.2.1".to_owned())];
    let advisories = all(Some(dir.path()), &names).expect("a database");
    assert_eq!(known(&names, &advisories).len(), 1);
}
