//! Scripts in `scripts/out/`: ticks of 50 ms.

use super::*;
use crate::cluster::script::{Scripted, number, run};
use log::{Entry, EntryKind};
use txn::PartitionId;

#[derive(Default)]
struct Part {
    out: Option<Out>,
    now_tick: u64,
}

fn cause(word: &str) -> Cause {
    Cause { operators: word.to_owned(), clients: format!("MISCONF {word}") }
}

fn record(index: u64, bytes: u64) -> Kept {
    let entry = Entry { index, term: 1, kind: EntryKind::Data, data: vec![0; bytes as usize].into() };
    Kept { entries: vec![entry], ..Kept::nothing(PartitionId(0)) }
}

fn told(record: &[Kept]) -> String {
    let indices = record.iter().flat_map(|kept| &kept.entries).map(|entry| entry.index);
    format!("record of entries {:?}", indices.collect::<Vec<_>>())
}

impl Scripted for Part {
    fn input(&mut self, words: &[&str]) -> Vec<String> {
        match *words {
            ["unwritten", why, index] => {
                let record = vec![record(number(index), 1)];
                match &mut self.out {
                    None => self.out = Some(Out::new(cause(why), Some(record), (self.now_tick, 0), 50)),
                    Some(out) => out.unwritten_again(cause(why), record),
                }
            }
            ["unsynced", why] => match &mut self.out {
                None => self.out = Some(Out::new(cause(why), None, (self.now_tick, 0), 50)),
                Some(out) => out.closed(cause(why)),
            },
            ["keep", index, bytes] => self.out().keep(vec![record(number(index), number(bytes))]),
            ["tick", tick] | ["tick", tick, "done"] => {
                self.now_tick = number(tick);
                let wish = self.out.as_mut().expect("out").tick(number(tick), words.len() == 3);
                let give_up = wish.give_up.then(|| "give up".to_owned());
                return give_up.into_iter().chain(wish.make_room.then(|| "make room".to_owned())).collect();
            }
            ["room"] => return self.out().take_unwritten().iter().map(|record| told(record)).collect(),
            ["waits"] => return self.out().unwritten().into_iter().map(|record| told(record)).collect(),
            ["how"] => {
                let out = self.out();
                return vec![format!(
                    "{}, mute {}, closed {}",
                    out.refusal(),
                    out.is_mute(),
                    out.is_closed()
                )];
            }
            _ => panic!("no input: {words:?}"),
        }
        Vec::new()
    }
}

impl Part {
    fn out(&mut self) -> &mut Out {
        self.out.as_mut().expect("it is out")
    }
}

#[test]
fn scripts_of_out_come_out_as_they_are_written() {
    run::<Part>("out");
}

#[test]
fn a_long_cause_is_cut_between_characters() {
    let long = "\u{e4}".repeat(CAUSE_BYTES_MAX);
    let cut = shortened(format!("x{long}"));
    assert!(cut.len() < CAUSE_BYTES_MAX && cut.len() >= CAUSE_BYTES_MAX - 2, "{}", cut.len());
}
