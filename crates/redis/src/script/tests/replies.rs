//! Replies of scripts, compared with a file of cases whose replies are those of a Redis 7.0.15 server.
//!
//! A case is a line that starts with `> `: a script, or a script and its words (the number of keys first),
//! separated by tabs, `\n` standing for a line's end. The reply follows, up to an empty line. All run in one
//! store, one after another. `ORDO_REWRITE=1 cargo test` writes what we reply into the file, for review.

use super::double::{Disturbance, Double, show};
use std::fmt::Write;

const CASES: &str = include_str!("replies.txt");

pub(super) struct Case {
    pub line: &'static str,
    pub words: Vec<String>,
    pub reply: String,
}

impl Case {
    pub fn run(&self, double: &mut Double) -> String {
        let words: Vec<&[u8]> = self.words.iter().map(|word| word.as_bytes()).collect();
        show(&double.run("redis.eval", &words))
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for block in CASES.split("\n\n") {
        let lines = block.trim_matches('\n');
        let Some((line, reply)) =
            lines.strip_prefix("> ").map(|case| case.split_once('\n').unwrap_or((case, "")))
        else {
            assert!(lines.is_empty() || lines.starts_with("# "), "not a case and not a comment: {lines}");
            continue;
        };
        let mut words: Vec<String> = line.split('\t').map(|word| word.replace("\\n", "\n")).collect();
        if words.len() == 1 {
            words.push("0".to_owned());
        }
        cases.push(Case { line, words, reply: reply.to_owned() });
    }
    cases
}

#[test]
fn scripts_reply_as_in_redis() {
    let mut double = Double::new(Disturbance::default());
    let mut wrong = String::new();
    let mut rewritten = String::new();
    for case in cases() {
        let reply = case.run(&mut double);
        if reply != case.reply {
            let _ = writeln!(wrong, "> {}\nexpected {}\nreplied  {reply}\n", case.line, case.reply);
        }
        let _ = write!(rewritten, "> {}\n{reply}\n\n", case.line);
    }
    if std::env::var_os("ORDO_REWRITE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/script/tests/replies.txt");
        std::fs::write(path, rewritten.trim_end().to_owned() + "\n")
            .expect("the file of cases is in the source tree");
    } else {
        assert!(wrong.is_empty(), "\n{wrong}");
    }
}

#[test]
fn a_reply_depends_neither_on_the_vm_nor_on_what_it_ran_before() {
    let cases = cases();
    let first: Vec<String> =
        cases.iter().map(|case| case.run(&mut Double::new(Disturbance::default()))).collect();
    // Backwards, in a VM that has run everything.
    let mut backwards: Vec<String> =
        cases.iter().rev().map(|case| case.run(&mut Double::new(Disturbance::default()))).collect();
    backwards.reverse();
    for ((case, first), second) in cases.iter().zip(&first).zip(&backwards) {
        assert_eq!(first, second, "warm: > {}", case.line);
    }
    // In a VM of its own: each thread has one.
    for (case, first) in cases.iter().zip(&first).step_by(7) {
        let fresh = std::thread::scope(|scope| {
            let run = scope.spawn(|| case.run(&mut Double::new(Disturbance::default())));
            run.join().expect("a script does not panic")
        });
        assert_eq!(first, &fresh, "fresh: > {}", case.line);
    }
}
