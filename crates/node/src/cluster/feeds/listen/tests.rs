//! Scripts in `scripts/sources/`: group 0 is followed, and nodes 1 to 3 keep it.

use super::*;
use crate::cluster::feeds::Fed;
use crate::cluster::script::{Scripted, node, number, run};
use bytes::Bytes;
use std::collections::BTreeSet;
use txn::SessionId;

struct Part {
    sources: Sources,
    now_tick: u64,
    live: BTreeSet<NodeId>,
    view: View,
    confirmed: Epoch,
    newest: Epoch,
}

const GROUP: PartitionId = PartitionId(0);

impl Default for Part {
    fn default() -> Part {
        let (sources, live, view) = (Sources::new(0, 100), BTreeSet::new(), View::default());
        Part { sources, now_tick: 0, live, view, confirmed: Epoch(0), newest: Epoch(0) }
    }
}

fn id(word: &str) -> RequestId {
    RequestId { session: SessionId(1), sequence: number(word), attempt: 0 }
}

impl Part {
    fn came(
        &mut self,
        from: &str,
        name: &str,
        frame: &str,
        news: News,
        is_told_something: bool,
    ) -> Vec<String> {
        let (from, subscription) = (node(from), number(name));
        let place = Place { group: GROUP, from, subscription, number: number(frame) };
        let known = (self.confirmed, self.newest);
        let ends = self.sources.came(place, news, is_told_something, known, self.now_tick);
        ends.map(|(node, name)| format!("end {name} of n{}", node.0)).into_iter().collect()
    }

    fn taken(&mut self) -> Vec<String> {
        let mut taken = Vec::new();
        while let Some((from, news)) = self.sources.next(GROUP, self.now_tick) {
            taken.push(format!("take epoch {} of n{}", news.held.0, from.0));
        }
        taken
    }

    fn ask(&mut self) -> Vec<String> {
        self.sources.tick(self.now_tick);
        self.view.doubt = self.sources.doubtful(self.now_tick).get(&GROUP).copied();
        let live = &self.live;
        let asks = self.sources.ask(GROUP, &self.view, |node| live.contains(&node), self.now_tick);
        asks.map(|(node, name)| format!("ask n{} as {name}", node.0)).into_iter().collect()
    }
}

impl Scripted for Part {
    fn input(&mut self, words: &[&str]) -> Vec<String> {
        let mut wishes = Vec::new();
        match *words {
            ["tick", tick] => {
                self.now_tick = number(tick);
                wishes = self.ask();
            }
            ["live", ref live @ ..] => {
                self.live = live.iter().map(|word| node(word)).collect();
                self.view.able = self.live.iter().copied().collect();
            }
            ["neighbour", of] => self.view.neighbour = Some(node(of)),
            ["missed"] => self.view.is_missed = true,
            ["confirmed", epoch] => self.confirmed = Epoch(number(epoch)),
            ["newest", epoch] => self.newest = Epoch(number(epoch)),
            // A frame that tells of no batch, but brings something for siblings.
            ["frame", from, name, frame, "held", epoch, "notes"] => {
                let news = News {
                    batches: Vec::new(),
                    held: Epoch(number(epoch)),
                    agreed: 0,
                    leader: None,
                    answers: Vec::new(),
                    messages: Vec::new(),
                    part: None,
                };
                wishes = self.came(from, name, frame, news, true);
                self.taken();
            }
            ["wait", sequence] => self.sources.expect(id(sequence), GROUP, self.now_tick),
            ["answered", sequence] => wishes.push(self.sources.forget(id(sequence)).to_string()),
            // A frame that tells of one epoch, whose batch has so many bytes.
            ["frame", from, name, frame, "epoch", epoch, "bytes", bytes] => {
                let epoch = Epoch(number(epoch));
                let fed = Fed {
                    epoch,
                    index: epoch.0,
                    term: 1,
                    digest: 0,
                    bytes: 0,
                    noted: 0,
                    part: Bytes::from(vec![0; number(bytes) as usize]),
                };
                let news = News {
                    batches: vec![fed],
                    held: epoch,
                    agreed: 0,
                    leader: None,
                    answers: Vec::new(),
                    messages: Vec::new(),
                    part: None,
                };
                wishes = self.came(from, name, frame, news, false);
                wishes.extend(self.taken());
            }
            ["lost", from] => self.sources.lost(node(from)),
            ["retell"] => self.sources.retell(),
            ["renew"] => self.sources.renew(),
            ["hears"] => wishes.push(self.sources.hears(GROUP, self.now_tick).to_string()),
            _ => panic!("no input: {words:?}"),
        }
        self.sources.check_invariants();
        wishes
    }
}

#[test]
fn scripts_of_sources_come_out_as_they_are_written() {
    run::<Part>("sources");
}
