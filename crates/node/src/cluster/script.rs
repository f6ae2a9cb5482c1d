//! Runs the text scripts of a part: what is put into it, and what it wishes for.
//!
//! `UPDATE_EXPECT=1` rewrites what the parts wish for; look at the difference before you commit it.
//!
//! ```text
//! = A title: a new part
//! # a comment
//! words of an input
//!   a wish of the part, one a line
//! ```

use expect_test::expect_file;
use std::fmt::Write;
use std::path::Path;
use txn::{NodeId, PartitionId};

/// A part under test: takes an input, and says what it wishes for.
pub(super) trait Scripted: Default {
    /// One word after the other. Gives a line for each wish.
    ///
    /// # Panics
    /// The words are no input.
    fn input(&mut self, words: &[&str]) -> Vec<String>;
}

/// Runs all scripts in `scripts/<part>/`.
pub(super) fn run<P: Scripted>(part: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(part);
    let entries = directory.read_dir().expect("the scripts are there");
    let paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    assert!(!paths.is_empty());
    for path in paths {
        let written = std::fs::read_to_string(&path).expect("a text");
        expect_file![path].assert_eq(&come_out::<P>(&written));
    }
}

fn come_out<P: Scripted>(written: &str) -> String {
    let mut out = String::new();
    let mut part = P::default();
    for line in written.lines().filter(|line| !line.starts_with("  ")) {
        let _ = writeln!(out, "{line}");
        if line.starts_with("= ") {
            part = P::default();
        } else if !line.is_empty() && !line.starts_with('#') {
            let words: Vec<&str> = line.split(' ').collect();
            for wish in part.input(&words) {
                let _ = writeln!(out, "  {wish}");
            }
        }
    }
    out
}

/// A number behind a letter: `7`, `n7` or `p7`.
pub(super) fn number(word: &str) -> u64 {
    let digits = word.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    digits.parse().unwrap_or_else(|_| panic!("no number: {word}"))
}

/// A node: `n7`.
pub(super) fn node(word: &str) -> NodeId {
    NodeId(number(word) as u16)
}

/// A partition: `p7`.
pub(super) fn partition(word: &str) -> PartitionId {
    PartitionId(number(word) as u16)
}
