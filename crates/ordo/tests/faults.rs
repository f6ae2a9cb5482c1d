//! `ordo bench faults`, tried on one real node: it finds nothing where nothing is wrong, and finds what is.
//!
//! `ORDO_SEED` replays a script, `ORDO_ROUNDS` sets the number of rounds.

use bench::faults::network::Network;
use bench::faults::processes::Setting;
use bench::faults::script::Fault;
use bench::faults::{Options, Report, run};
use server::cluster::Delivery;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs the script against a program that takes the arguments of `ordo`.
fn trial(ordo: PathBuf, directory: &Path, only: &[Fault], rounds: u64) -> Report {
    trial_of(1, ordo, directory, only, rounds)
}

/// The same of several nodes.
fn trial_of(nodes: usize, ordo: PathBuf, directory: &Path, only: &[Fault], rounds: u64) -> Report {
    let seed = number("ORDO_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("replay with ORDO_SEED={seed}");
    let missing = Network::missing();
    if let Some(missing) = &missing {
        println!("on the loopback interface: {missing}");
    }
    let options = Options {
        setting: Setting {
            ordo,
            nodes,
            zones: nodes,
            partitions: nodes as u16,
            delivery: Delivery::ALL[(seed % 2) as usize],
            appendfsync: "always".to_owned(),
            arguments: Vec::new(),
            directory: directory.to_owned(),
            faketime: None,
        },
        namespaces: missing.is_none() && nodes == 1,
        rounds: rounds as usize,
        clients: 6,
        only: only.to_vec(),
        seed,
    };
    run(&options).unwrap_or_else(|error| panic!("seed {seed}: {error:#}"))
}

/// A program that does something to the directory of a node, `$dir`, and then is `ordo`.
fn ordo_after(directory: &Path, what: &str) -> PathBuf {
    let program = directory.join("ordo-after");
    let ordo = env!("CARGO_BIN_EXE_ordo");
    let script = format!("#!/bin/sh\nfor dir; do :; done\n{what}\nexec '{ordo}' \"$@\"\n");
    std::fs::write(&program, script).expect("a script");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a program");
    program
}

fn problems(report: &Report) -> String {
    let problems: Vec<String> = report.rounds.iter().flat_map(|round| round.problems.clone()).collect();
    problems.join("\n")
}

#[test]
fn a_node_that_is_killed_and_frozen_stands_the_trial() {
    let directory = tempfile::tempdir().expect("a directory");
    let rounds = number("ORDO_ROUNDS").unwrap_or(3);
    let report = trial(
        env!("CARGO_BIN_EXE_ordo").into(),
        directory.path(),
        &[Fault::KillLeader, Fault::KillAll, Fault::FreezeLeader],
        rounds,
    );
    assert_eq!(problems(&report), "");
    assert_eq!(report.rounds.len(), rounds as usize);
    for round in &report.rounds {
        assert!(round.acknowledged > 200 && round.history > 50, "{round:?}");
        assert!(round.resumed_ms.is_some(), "{round:?}");
        // Whoever waited for the only node learned nothing, or learned it late.
        let stood_still = round.fault == "freeze-leader";
        assert!(if stood_still { round.pause_ms >= 2_900.0 } else { round.unknown > 0 }, "{round:?}");
    }
}

#[test]
fn nodes_whose_disks_refuse_stand_the_trial() {
    let directory = tempfile::tempdir().expect("a directory");
    let faults =
        [Fault::FullLeader, Fault::FullFollower, Fault::FullAll, Fault::SyncLeader, Fault::SyncFollower];
    let ordo = env!("CARGO_BIN_EXE_ordo");
    let report = trial_of(3, ordo.into(), directory.path(), &faults, 5);
    assert_eq!(problems(&report), "");
    assert_eq!(report.rounds.len(), 5);
    for round in &report.rounds {
        println!("{round:?}");
        assert!(round.victim_ms.is_some(), "its reads were answered: {round:?}");
        assert_eq!(round.stop_ms.is_some(), round.fault.starts_with("sync"), "{round:?}");
    }
}

#[test]
fn a_node_that_forgets_is_found_out() {
    let directory = tempfile::tempdir().expect("a directory");
    // All is gone: what clients were told, and the money.
    let forgetful = ordo_after(directory.path(), "rm -rf \"$dir\"");
    let report = trial(forgetful, directory.path(), &[Fault::KillAll], 2);
    let problems = problems(&report);
    // On a busy machine there may be more of them afterwards than had been acknowledged: then they got old
    // numbers.
    assert!(
        problems.contains("increments were acknowledged") || problems.contains("got what others had got"),
        "{problems}"
    );
    assert!(problems.contains("together"), "{problems}");
    assert!(problems.contains("not strictly serializable"), "{problems}");
    assert_eq!((report.rounds.len(), report.failed), (1, 1), "the first such round is the last");
}

#[test]
fn a_node_that_loses_a_moment_is_found_out() {
    let directory = tempfile::tempdir().expect("a directory");
    // The first start copies nothing; the second goes on with what the first had begun with, which has the
    // money.
    let kept = directory.path().join("kept");
    let kept = kept.display();
    let stale = format!(
        "if [ -d '{kept}' ]; then rm -rf \"$dir\"; cp -r '{kept}' \"$dir\"; else if [ -d \"$dir\" ]; then \
         cp -r \"$dir\" '{kept}'; fi; fi"
    );
    let stale = ordo_after(directory.path(), &stale);
    let report = trial(stale, directory.path(), &[Fault::KillAll], 4);
    let problems = problems(&report);
    assert_eq!((report.rounds.len(), report.failed), (2, 1), "{problems}");
    assert!(problems.contains("increments were acknowledged"), "{problems}");
    assert!(!problems.contains("together"), "no money was lost: {problems}");
}

#[test]
fn a_program_that_ends_is_told_with_its_last_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let broken = ordo_after(directory.path(), "echo 'out of order' >&2; exit 3");
    let options = Options {
        setting: Setting {
            ordo: broken,
            nodes: 1,
            zones: 1,
            partitions: 1,
            delivery: Delivery::Raft,
            appendfsync: "always".to_owned(),
            arguments: Vec::new(),
            directory: directory.path().to_owned(),
            faketime: None,
        },
        namespaces: false,
        rounds: 1,
        clients: 1,
        only: Vec::new(),
        seed: 1,
    };
    let Err(error) = run(&options) else { panic!("there is no node") };
    let error = format!("{error:#}");
    assert!(error.contains("ended by itself") && error.contains("out of order"), "{error}");
    let impossible = Options { only: vec![Fault::CutLink], ..options };
    let Err(error) = run(&impossible) else { panic!("there is no link") };
    assert!(error.to_string().contains("cut-link"), "{error}");
}
