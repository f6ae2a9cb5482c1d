//! Scripts in `scripts/followers/`: followers of partition 0 that keep partition 1, with windows of 100
//! bytes.

use super::*;
use crate::cluster::script::{Scripted, node, number, run};
use txn::{Position, Reply, SessionId};

struct Part {
    followers: Followers,
    now_tick: u64,
    /// What the group's log has: batches of 10 bytes, one an epoch, whose index is the epoch's number.
    held: u64,
    agreed: u64,
}

const GROUP: PartitionId = PartitionId(0);

impl Default for Part {
    fn default() -> Part {
        let room = Room { window_bytes: 100, part_bytes: 1000 };
        Part { followers: Followers::new(0, room), now_tick: 0, held: 0, agreed: 0 }
    }
}

fn id(word: &str) -> RequestId {
    RequestId { session: SessionId(1), sequence: number(word), attempt: 0 }
}

impl Part {
    fn fed(&self, epoch: u64) -> Fed {
        Fed { epoch: Epoch(epoch), index: epoch, term: 1, digest: 0, bytes: 10, noted: 0, part: Bytes::new() }
    }

    /// Tells all followers all that there is room for.
    fn feed(&mut self) -> Vec<String> {
        let (room, mut wishes) = (self.followers.room(), Vec::new());
        let mut followers = self.followers.take();
        followers.retain(|(_, node), follower| {
            loop {
                let behind = follower.place().0.0 + 1..=self.held;
                let batches: Vec<Fed> = match follower.takes_batches(room) {
                    true => behind.map(|epoch| self.fed(epoch)).take(3).collect(),
                    false => Vec::new(),
                };
                let has_more = batches.last().is_some_and(|last| last.epoch.0 < self.held);
                let pending = Pending { batches, has_more, agreed: self.agreed, leader: None };
                let Some(told) = follower.tell(pending, room, self.now_tick) else {
                    break;
                };
                wishes.push(tell(*node, &told));
                if !told.has_more {
                    break;
                }
            }
            if follower.is_over() {
                wishes.push(format!("n{} is not told anything any more", node.0));
            }
            !follower.is_over()
        });
        self.followers.put_back(followers, 0);
        wishes
    }
}

fn tell(node: NodeId, told: &Told) -> String {
    let epochs: Vec<u64> = told.batches.iter().map(|fed| fed.epoch.0).collect();
    let answers: Vec<u64> = told.answers.iter().map(|answered| answered.id.sequence).collect();
    let messages: Vec<usize> = told.messages.iter().map(|(_, message)| message.len()).collect();
    let part = told.part.as_ref().map_or(String::new(), |part| format!(", part from {}", part.offset));
    let asks = if told.asks { ", asks" } else { "" };
    format!(
        "n{} frame {}: epochs {epochs:?}, agreed {}, answers {answers:?}, messages {messages:?}{part}{asks}",
        node.0, told.number, told.agreed
    )
}

impl Scripted for Part {
    fn input(&mut self, words: &[&str]) -> Vec<String> {
        let mut wishes = Vec::new();
        match *words {
            ["tick", tick] => self.now_tick = number(tick),
            ["held", epoch] => self.held = number(epoch),
            ["agreed", index] => self.agreed = number(index),
            ["rewind", epoch] => self.followers.rewind(GROUP, Epoch(number(epoch))),
            ["follow", from, name, "after", epoch, "waits", ref waits @ ..] => {
                let wish = Wish {
                    subscription: number(name),
                    boot: BootId(1),
                    after: Epoch(number(epoch)),
                    waits: waits.iter().map(|word| id(word)).collect(),
                    kept: vec![PartitionId(1)],
                    settled: Epoch(0),
                    heard: Epoch(0),
                };
                if !self.followers.is_new(GROUP, node(from), &wish) {
                    return vec!["it is known".to_owned()];
                }
                self.followers.follow(GROUP, node(from), wish, self.now_tick);
            }
            ["unfollow", from, name] => self.followers.unfollow(GROUP, node(from), number(name)),
            ["lost", from] => self.followers.lost(node(from)),
            ["heard", from, name, frame] => {
                self.followers.heard(GROUP, node(from), number(name), number(frame), false);
            }
            ["heard", from, name, frame, "full"] => {
                self.followers.heard(GROUP, node(from), number(name), number(frame), true);
            }
            ["answer", from, sequence, "confirmed", epoch] => {
                let outcome = Ok(Reply::Integer(1));
                let answered =
                    Answered { id: id(sequence), partition: GROUP, position: Position::FIRST, outcome };
                self.followers.answer(node(from), Epoch(number(epoch)), answered, self.now_tick);
            }
            ["say", bytes, "times", times] => {
                let piece = Bytes::from(vec![0; number(bytes) as usize]);
                let pieces = vec![piece; number(times) as usize];
                let saying = Saying { from: GROUP, to: PartitionId(1), pieces, notes: 1 };
                self.followers.say(&[saying], self.now_tick);
            }
            ["feed"] => wishes = self.feed(),
            ["said"] => wishes.push(format!("{:?}", self.followers.said())),
            _ => panic!("no input: {words:?}"),
        }
        self.followers.check_invariants();
        wishes
    }
}

#[test]
fn scripts_of_followers_come_out_as_they_are_written() {
    run::<Part>("followers");
}
