//! What is searched.

use super::world::{Failure, Named, Program, Scenario};

fn program(partitions: &[u16], reads: &[Named], writes: &[Named]) -> Program {
    Program { partitions: partitions.to_vec(), reads: reads.to_vec(), writes: writes.to_vec() }
}

/// Reads and writes one key at each of its partitions.
fn all_of(partitions: &[u16]) -> Program {
    let keys: Vec<_> = partitions.iter().map(|&at| Named::Fixed(at, 0)).collect();
    program(partitions, &keys, &keys)
}

/// Reads a key of the first partition, and then the key of the second that it names; writes both.
fn dependent(first: u16, second: u16) -> Program {
    let keys = [Named::Fixed(first, 0), Named::Dependent(second)];
    program(&[first.min(second), first.max(second)], &keys, &keys)
}

/// Reads at one partition and writes at another; involves these, and perhaps more.
fn carry(partitions: &[u16], from: u16, to: u16) -> Program {
    program(partitions, &[Named::Fixed(from, 0)], &[Named::Fixed(to, 0)])
}

/// The transactions of the scenarios, by name.
pub fn programs(name: &str) -> Vec<Program> {
    match name {
        // One group: each transaction conflicts with the one before at both partitions.
        "pair" => vec![all_of(&[0, 1]), all_of(&[0, 1])],
        // A single-partition transaction conflicts with both members of the group behind it.
        "one, then pair" => vec![all_of(&[0]), all_of(&[0, 1]), all_of(&[0, 1])],
        // What is read at one partition says which key of the other is read.
        "one, then dependent" => vec![all_of(&[0]), dependent(0, 1)],
        "dependent both ways" => vec![dependent(0, 1), dependent(1, 0)],
        // A value goes from partition to partition and back.
        "one, then to and fro" => vec![all_of(&[0]), carry(&[0, 1], 0, 1), carry(&[0, 1], 1, 0)],
        "to, fro and to" => vec![carry(&[0, 1], 0, 1), carry(&[0, 1], 1, 0), carry(&[0, 1], 0, 1)],
        "one, then to, fro and to" => {
            vec![all_of(&[0]), carry(&[0, 1], 0, 1), carry(&[0, 1], 1, 0), carry(&[0, 1], 0, 1)]
        }
        "triple" => vec![all_of(&[0, 1]), all_of(&[0, 1]), all_of(&[0, 1])],
        // Three groups over three partitions.
        "cycle" => vec![all_of(&[0, 1]), all_of(&[1, 2]), all_of(&[0, 2])],
        "round" => vec![carry(&[0, 1], 0, 1), carry(&[1, 2], 1, 2), carry(&[0, 2], 2, 0)],
        // A group of three partitions: one is told by the second what the second had from the first.
        "one, then three in a row" => vec![all_of(&[0]), carry(&[0, 1, 2], 0, 1), carry(&[0, 1, 2], 1, 2)],
        other => panic!("there is no scenario {other:?}"),
    }
}

/// All of them.
pub const ALL: [&str; 11] = [
    "pair",
    "one, then dependent",
    "dependent both ways",
    "one, then to and fro",
    "round",
    "cycle",
    "one, then pair",
    "to, fro and to",
    "one, then to, fro and to",
    "triple",
    "one, then three in a row",
];

/// What may happen to partition 0.
pub const FAILURES: [Failure; 3] = [Failure::Nothing, Failure::Crash(0), Failure::Loss(0)];

/// A scenario as it is searched by default.
pub fn scenario(name: &str) -> Scenario {
    Scenario::new(programs(name))
}
