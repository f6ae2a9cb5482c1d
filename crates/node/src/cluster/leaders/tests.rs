//! Scripts in `scripts/leaders/`: node 1 leads some groups, of which all nodes keep replicas.

use super::*;
use crate::cluster::script::{Scripted, node, number, partition, run};
use std::collections::BTreeSet;

#[derive(Default)]
struct Part {
    leaders: Leaders,
    now_tick: u64,
    led: BTreeSet<PartitionId>,
    preferred: BTreeMap<PartitionId, NodeId>,
    replicas: BTreeMap<PartitionId, Vec<NodeId>>,
    able: BTreeSet<NodeId>,
}

impl Scripted for Part {
    fn input(&mut self, words: &[&str]) -> Vec<String> {
        match *words {
            ["tick", tick] => self.now_tick = number(tick),
            ["group", of, "replicas", ref nodes @ ..] => {
                self.replicas.insert(partition(of), nodes.iter().map(|word| node(word)).collect());
            }
            ["prefer", of, to] => _ = self.preferred.insert(partition(of), node(to)),
            ["lead", of] => _ = self.led.insert(partition(of)),
            ["able", ref nodes @ ..] => self.able = nodes.iter().map(|word| node(word)).collect(),
            ["wish", of, to, "until", tick] => self.leaders.wish(partition(of), node(to), number(tick)),
            ["balance"] => {
                let group = |of| Placement {
                    replicas: self.replicas.get(&of).cloned().unwrap_or_default(),
                    preferred: self.preferred.get(&of).copied(),
                };
                let led = self.led.iter().copied();
                let due = self
                    .leaders
                    .handovers(NodeId(1), led, self.now_tick, group, |_, to| self.able.contains(&to));
                let tell = |Handover { partition, to, wished_ticks }| {
                    let wished = wished_ticks.map(|ticks: u64| format!(", wished for {ticks} ticks"));
                    format!("hand p{} to n{}{}", partition.0, to.0, wished.unwrap_or_default())
                };
                return due.into_iter().map(tell).collect();
            }
            ["learn", of, "nobody"] => return said(self.leaders.learn(partition(of), None)),
            ["learn", of, leader, "term", term] => {
                return said(self.leaders.learn(partition(of), Some((node(leader), number(term)))));
            }
            ["changed?"] => return said(self.leaders.take_changed()),
            ["redirected", of] => return said(self.leaders.redirects(partition(of), self.now_tick)),
            _ => panic!("no input: {words:?}"),
        }
        Vec::new()
    }
}

fn said(yes: bool) -> Vec<String> {
    vec![if yes { "yes" } else { "no" }.to_owned()]
}

#[test]
fn scripts_of_leaders_come_out_as_they_are_written() {
    run::<Part>("leaders");
}
