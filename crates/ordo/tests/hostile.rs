//! `ordo bench hostile`, a short run of it: hostile clients do no harm to one node and to three.
//!
//! `ORDO_SEED` replays what is sent, `ORDO_COMMANDS` sets how many commands that are.

use bench::faults::processes::Setting;
use bench::hostile::{Options, run, summary};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn attack(nodes: usize, commands: u64) {
    let seed = number("ORDO_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("replay with ORDO_SEED={seed}");
    let directory = tempfile::tempdir().expect("a directory");
    let arguments =
        ["--maxmemory", "128mb", "--maxmemory-policy", "allkeys-random", "--maxmemory-clients", "128mb"];
    let options = Options {
        setting: Setting {
            ordo: env!("CARGO_BIN_EXE_ordo").into(),
            nodes,
            zones: nodes,
            partitions: 1,
            delivery: server::cluster::Delivery::Raft,
            appendfsync: "no".to_owned(),
            faketime: None,
            arguments: arguments.map(str::to_owned).into(),
            directory: directory.path().to_owned(),
        },
        commands: number("ORDO_COMMANDS").unwrap_or(commands),
        clients: 2,
        resident_max: 2 << 30,
        seed,
    };
    let report = run(&options).unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    println!("{}", summary(&report));
    assert!(report.problems.is_empty(), "seed {seed}: {:#?}", report.problems);
    assert!(report.witnessed > 0 && report.received_bytes > 0);
}

#[test]
fn hostile_clients_do_no_harm_to_a_node() {
    attack(1, 5_000);
}

#[test]
fn hostile_clients_do_no_harm_to_a_cluster() {
    attack(3, 2_000);
}
