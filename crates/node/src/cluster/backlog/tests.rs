//! Scripts in `scripts/backlog/`: 100 bytes may wait, and there is one local partition.

use super::*;
use crate::cluster::script::{Scripted, number, run};

struct Part(Backlog);

impl Default for Part {
    fn default() -> Part {
        Part(Backlog::new(100))
    }
}

fn said(yes: bool) -> Vec<String> {
    vec![if yes { "yes" } else { "no" }.to_owned()]
}

impl Scripted for Part {
    fn input(&mut self, words: &[&str]) -> Vec<String> {
        let epoch = |word| Epoch(number(word));
        let partition = |word: &str| PartitionId(number(word.trim_start_matches('g')) as u16);
        let wishes = match *words {
            ["undelivered", bytes, "at", ms] => {
                let refused_ms = self.0.look(number(bytes), number(ms));
                refused_ms.map(|ms| format!("batches were refused for {ms} ms")).into_iter().collect()
            }
            ["refuses", "agreed", agreed, "delivered", delivered] => {
                said(self.0.refuses(epoch(agreed), epoch(delivered)))
            }
            ["refused", "at", ms] => said(self.0.refused(PartitionId(0), number(ms))),
            ["refused", group, "at", ms] => said(self.0.refused(partition(group), number(ms))),
            ["took", group] => {
                self.0.took(partition(group));
                Vec::new()
            }
            ["missed"] => said(self.0.has_missed()),
            ["slow", "at", ms] => said(self.0.is_slow(number(ms))),
            ["room"] => said(self.0.has_room()),
            ["deliver", of, "upto", position, "bytes", bytes] => {
                self.0.deliver(epoch(of), vec![Position(number(position)).next()], number(bytes));
                Vec::new()
            }
            ["retract", from] => {
                self.0.retract(epoch(from));
                Vec::new()
            }
            ["final", position, "confirmed", confirmed] => {
                let settled = self.0.executed(&[Position(number(position))], epoch(confirmed));
                settled.map(|epoch| format!("settled {}", epoch.0)).into_iter().collect()
            }
            _ => panic!("no input: {words:?}"),
        };
        self.0.check_invariants();
        wishes
    }
}

#[test]
fn scripts_of_backlog_come_out_as_they_are_written() {
    run::<Part>("backlog");
}
