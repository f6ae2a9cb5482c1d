//! Commands against scenarios: text files of commands with the replies that they get.
//!
//! A scenario's line is a command, quoted as an inline command, then `=>` and the reply: a status as it is,
//! `! ` and an error's text, `"bytes"`, a number, `nil`, `nil*` (the null array), `[items]`, `{key: value}`,
//! `[(pairs, nested in RESP3)]`, `<members of a set>`. A line `sleep N` lets N milliseconds pass. Every block
//! of lines starts with an empty store. The replies were checked against Redis 7.0.15, but for those under a
//! line `# ours`, which says why they differ.

mod acting;
mod block;
mod collections;
mod hyperloglog;
mod idempotent;
mod long_strings;
mod memory;
mod procedures;
mod render;
mod sorted_sets;

use memory::Memory;
use ordo_redis::codec::inline;
use render::render;

/// Runs a scenario and compares every reply.
fn check(scenario: &str) {
    let mut memory = Memory::new();
    let mut wrong = String::new();
    for line in scenario.lines().map(str::trim_start) {
        if line.is_empty() {
            memory = Memory::new();
        } else if let Some(ms) = line.strip_prefix("sleep ") {
            memory.now_ms += ms.parse::<u64>().expect("a number of milliseconds");
        } else if !line.starts_with('#') {
            let (command, want) = line.split_once(" => ").unwrap_or((line.trim_end_matches(" =>"), ""));
            let argv = inline::split(command.as_bytes()).expect("balanced quotes");
            let got = render(&memory.run(argv));
            if got != want {
                wrong.push_str(&format!("{command}\n  wanted {want}\n  got    {got}\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn strings() {
    check(include_str!("strings.txt"));
}

#[test]
fn hashes() {
    check(include_str!("hashes.txt"));
}

#[test]
fn lists() {
    check(include_str!("lists.txt"));
}

#[test]
fn sets() {
    check(include_str!("sets.txt"));
}

#[test]
fn streams() {
    check(include_str!("streams.txt"));
}

#[test]
fn sorted_sets() {
    check(include_str!("sorted_sets.txt"));
}

#[test]
fn geo() {
    check(include_str!("geo.txt"));
}

#[test]
fn bits() {
    check(include_str!("bits.txt"));
}

#[test]
fn hyperloglogs() {
    check(include_str!("hyperloglog.txt"));
}

#[test]
fn keys() {
    check(include_str!("keys.txt"));
}

#[test]
fn sort() {
    check(include_str!("sort.txt"));
}

#[test]
fn dump() {
    check(include_str!("dump.txt"));
}

#[test]
fn expiry() {
    check(include_str!("expiry.txt"));
}

#[test]
fn functions() {
    check(include_str!("functions.txt"));
}

#[test]
fn about_commands() {
    check(include_str!("about_commands.txt"));
}

#[test]
fn acl() {
    check(include_str!("acl.txt"));
}

#[test]
fn command_info() {
    check(include_str!("command_info.txt"));
}

#[test]
fn idempotence() {
    check(include_str!("idempotent.txt"));
}
