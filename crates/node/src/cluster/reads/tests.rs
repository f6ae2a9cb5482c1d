//! Scripts in `scripts/reads/`.

use super::*;
use crate::cluster::script::{Scripted, number, partition, run};
use txn::SessionId;

/// Reads of partition 0. Questions have the names 1, 2, ...
#[derive(Default)]
struct Part {
    reads: Reads,
    now_tick: u64,
}

fn list<T: std::fmt::Display>(what: &str, all: impl IntoIterator<Item = T>) -> Vec<String> {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    if all.is_empty() { Vec::new() } else { vec![format!("{what} {}", all.join(" "))] }
}

impl Scripted for Part {
    fn input(&mut self, words: &[&str]) -> Vec<String> {
        let wishes = match *words {
            ["tick", tick] => {
                self.now_tick = number(tick);
                Vec::new()
            }
            ["read", sequence] => {
                let id = RequestId { session: SessionId(1), sequence: number(sequence), attempt: 0 };
                self.reads.add(Read { id, partition: PartitionId(0), since_tick: self.now_tick });
                Vec::new()
            }
            ["ask"] => {
                let asks = self.reads.wants_question();
                list("question", asks.then(|| self.reads.ask(self.now_tick)))
            }
            ["ask", "again", "upto", tick] => {
                list("question", self.reads.ask_again(number(tick), self.now_tick))
            }
            ["index", of, question, index] => {
                self.reads.learn(number(question), partition(of), number(index));
                Vec::new()
            }
            ["agreed", of, index] => {
                let reached = self.reads.reached(partition(of), number(index));
                list("reached", reached.iter().map(|(question, index)| format!("{question} at {index}")))
            }
            ["answer", question, epoch] => {
                self.reads.answer(number(question), Epoch(number(epoch)));
                Vec::new()
            }
            ["confirmed", epoch] => {
                let ready = self.reads.confirmed(Epoch(number(epoch)));
                list("readable", ready.iter().map(|read| read.id.sequence))
            }
            ["give", "up", "before", tick] => {
                list("given up", self.reads.give_up(number(tick)).iter().map(|id| id.sequence))
            }
            ["count"] => list("waiting", [self.reads.count()]),
            _ => panic!("no input: {words:?}"),
        };
        self.reads.check_invariants();
        wishes
    }
}

#[test]
fn scripts_of_reads_come_out_as_they_are_written() {
    run::<Part>("reads");
}
