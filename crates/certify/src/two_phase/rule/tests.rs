//! Each rule at one partition: who is refused because of whom, and which timestamps are left.

use super::*;
use crate::two_phase::{ONLY_READ_MAX, Partition, Prepare, Used, Vote};
use crate::{Answer, Conflict, WriteSet};
use std::collections::BTreeSet;
use txn::tx::Read;
use txn::{Entry, Key, PartitionId, RequestId, SessionId, Space};

const GROUP: PartitionId = PartitionId(0);

fn key(name: &str) -> Key {
    Key::new(name.as_bytes())
}

fn id(session: u64) -> RequestId {
    RequestId { session: SessionId(session), sequence: 1, attempt: 0 }
}

/// One partition. Transactions are named by numbers, and write them.
struct Rig {
    partition: Partition,
}

/// What a transaction does, beside its number.
#[derive(Clone, Default)]
struct Access<'a> {
    /// The keys, as they are now if no version is given.
    reads: Vec<(&'a str, Option<Position>)>,
    writes: Vec<&'a str>,
    clears: bool,
}

fn reads<'a>(names: &[&'a str]) -> Access<'a> {
    Access { reads: names.iter().map(|&name| (name, None)).collect(), ..Access::default() }
}

fn writes<'a>(names: &[&'a str]) -> Access<'a> {
    Access { writes: names.to_vec(), ..Access::default() }
}

fn updates(name: &str) -> Access<'_> {
    Access { writes: vec![name], ..reads(&[name]) }
}

impl Rig {
    fn new(rule: Rule) -> Rig {
        Rig { partition: Partition::new(GROUP, rule, 1 << 30) }
    }

    fn used(&self, number: u64, timestamp: u64, access: &Access<'_>) -> Used {
        let newest = |name| self.partition.newest(&key(name)).version;
        let read = |&(name, version): &(_, Option<_>)| (key(name), version.unwrap_or_else(|| newest(name)));
        let entry = Entry::new(number.to_string().as_str());
        let records = access.writes.iter().map(|name| (key(name), Some(entry.clone()))).collect();
        Used {
            timestamp: Timestamp(timestamp),
            reads: access.reads.iter().map(read).collect(),
            writes: WriteSet { clears: access.clears, records },
        }
    }

    fn ask(&mut self, number: u64, timestamp: u64, access: &Access<'_>) -> Vote {
        let used = self.used(number, timestamp, access);
        let (behind, participants) = (Position::NONE, BTreeSet::from([GROUP]));
        self.partition.next_entry();
        let vote = self.partition.vote(Prepare { id: id(number), behind, participants, used }, false);
        self.check();
        vote
    }

    /// The vote is yes. Gives its range.
    fn prepare(&mut self, number: u64, timestamp: u64, access: &Access<'_>) -> (u64, u64) {
        match self.ask(number, timestamp, access) {
            Vote::Yes(range) => (range.lower.0, range.upper.0),
            vote => panic!("{number} at {timestamp}: {vote:?}"),
        }
    }

    /// The vote is no, because of this key.
    fn refuse(&mut self, number: u64, timestamp: u64, access: &Access<'_>, name: &str) {
        let vote = self.ask(number, timestamp, access);
        assert_eq!(vote, Vote::No(Conflict::Key(key(name))), "{number} at {timestamp}");
    }

    fn finish(&mut self, number: u64, at: Option<u64>) {
        self.partition.next_entry();
        self.partition.finish(id(number), at.map(Timestamp));
        self.check();
    }

    /// The invariants hold, and the state reads back.
    fn check(&self) {
        self.partition.check_invariants();
        assert_eq!(self.partition.decode(&self.partition.encode(), |_| true).as_ref(), Some(&self.partition));
    }

    /// Asks and commits. Gives the position of the writes.
    fn commit(&mut self, number: u64, at: u64, access: &Access<'_>) -> Position {
        let (lower, upper) = self.prepare(number, at, access);
        assert!((lower..upper).contains(&at), "{number} may commit from {lower} to {upper}");
        self.finish(number, Some(at));
        self.partition.decided
    }

    fn value(&self, name: &str) -> Option<String> {
        text(&self.partition.newest(&key(name)))
    }

    fn value_at(&self, name: &str, timestamp: u64) -> Result<Option<String>, Conflict> {
        self.partition.read(&key(name), Timestamp(timestamp)).map(|read| text(&read))
    }
}

fn text(read: &Read) -> Option<String> {
    let text = read.entry.as_ref()?.value.as_string()?;
    Some(String::from_utf8_lossy(text.as_ref()).into_owned())
}

fn some(text: &str) -> Result<Option<String>, Conflict> {
    Ok(Some(text.to_owned()))
}

#[test]
fn no_wait_refuses_whoever_meets_a_lock() {
    let rig = &mut Rig::new(Rule::NoWait);
    rig.prepare(1, 0, &reads(&["a"]));
    rig.prepare(2, 0, &reads(&["a"]));
    rig.refuse(3, 0, &writes(&["a"]), "a");
    rig.prepare(4, 0, &writes(&["b"]));
    rig.refuse(5, 0, &reads(&["b"]), "b");
    rig.refuse(6, 0, &writes(&["b"]), "b");
    assert_eq!(rig.value_at("b", 0), Err(Conflict::Key(key("b"))));
    rig.finish(4, Some(0));
    assert_eq!(rig.value_at("b", 0), some("4"));
    let old = Access { reads: vec![("b", Some(Position::NONE))], ..Access::default() };
    rig.refuse(7, 0, &old, "b");
}

#[test]
fn timestamp_refuses_late_reads_and_late_writes() {
    let rig = &mut Rig::new(Rule::Timestamp);
    rig.commit(1, 20, &writes(&["a"]));
    rig.refuse(2, 10, &reads(&["a"]), "a");
    rig.refuse(3, 10, &writes(&["a"]), "a");
    rig.refuse(4, 20, &writes(&["a"]), "a");
    rig.commit(5, 40, &reads(&["a"]));
    rig.refuse(6, 30, &writes(&["a"]), "a");
    rig.refuse(7, 40, &writes(&["a"]), "a");
    // A reader that is prepared counts like one that has committed, until it aborts.
    rig.prepare(8, 60, &reads(&["a"]));
    rig.refuse(9, 50, &writes(&["a"]), "a");
    rig.finish(8, None);
    rig.commit(10, 50, &updates("a"));
    // The same version, of which a replica knew nothing.
    let old = Access { reads: vec![("a", Some(Position(2)))], ..Access::default() };
    rig.refuse(11, 70, &old, "a");
}

#[test]
fn timestamp_minds_earlier_prepared_writes_and_no_later_ones() {
    let rig = &mut Rig::new(Rule::Timestamp);
    rig.prepare(1, 20, &writes(&["a"]));
    rig.refuse(2, 30, &reads(&["a"]), "a");
    rig.refuse(3, 20, &reads(&["a"]), "a");
    assert_eq!(rig.value_at("a", 30), Err(Conflict::Key(key("a"))));
    assert_eq!(rig.value_at("a", 10), Ok(None));
    rig.commit(4, 10, &reads(&["a"]));
    // Of two prepared writes the later stays, whichever finishes first.
    rig.refuse(5, 20, &writes(&["a"]), "a");
    rig.commit(6, 40, &writes(&["a"]));
    assert_eq!(rig.value_at("a", 50), some("6"), "the prepared write comes before this version");
    rig.finish(1, Some(20));
    assert_eq!(rig.value("a").as_deref(), Some("6"));
}

#[test]
fn mvcc_reads_the_version_before_a_timestamp() {
    let rig = &mut Rig::new(Rule::Mvcc);
    let first = rig.commit(1, 10, &writes(&["a"]));
    rig.commit(2, 30, &writes(&["a"]));
    for (timestamp, value) in
        [(9, Ok(None)), (11, some("1")), (30, Err(Conflict::Key(key("a")))), (31, some("2"))]
    {
        assert_eq!(rig.value_at("a", timestamp), value, "at {timestamp}");
    }
    let at_first = Access { reads: vec![("a", Some(first))], ..Access::default() };
    rig.commit(3, 20, &at_first);
    rig.refuse(4, 10, &at_first, "a");
    rig.refuse(5, 31, &at_first, "a");
    // A write is late where the version before it was read at a later timestamp.
    rig.refuse(6, 15, &writes(&["a"]), "a");
    rig.commit(7, 25, &writes(&["a"]));
    assert_eq!(rig.value_at("a", 29), some("7"));
    assert_eq!(rig.value("a").as_deref(), Some("2"));
    // A prepared write between a version and a reader is in the way, and a prepared reader of a write.
    rig.prepare(8, 40, &writes(&["a"]));
    assert_eq!(rig.value_at("a", 50), Err(Conflict::Key(key("a"))));
    rig.refuse(9, 50, &reads(&["a"]), "a");
    rig.prepare(10, 38, &reads(&["a"]));
    rig.refuse(11, 35, &writes(&["a"]), "a");
    rig.commit(12, 39, &writes(&["a"]));
    rig.refuse(13, 40, &writes(&["a"]), "a");
    rig.commit(14, 5, &writes(&["a"]));
    assert_eq!(rig.value_at("a", 7), some("14"), "nobody had read what was there before");
}

#[test]
fn mvcc_refuses_what_lies_before_the_versions_that_are_kept() {
    let rig = &mut Rig::new(Rule::Mvcc);
    let kept = Rule::Mvcc.versions_max() as u64;
    for number in 1..=2 * kept {
        rig.commit(number, 10 * number, &writes(&["a"]));
    }
    let oldest = 10 * (kept + 1);
    assert_eq!(rig.value_at("a", oldest + 1), some(&(kept + 1).to_string()));
    assert_eq!(rig.value_at("a", oldest), Err(Conflict::Snapshot));
    rig.refuse(100, oldest, &writes(&["a"]), "a");
}

#[test]
fn maat_narrows_ranges_and_refuses_where_nothing_is_left() {
    let rig = &mut Rig::new(Rule::Maat);
    let first = rig.commit(1, 1_000, &writes(&["a"]));
    let (lower, upper) = rig.prepare(2, 3_000, &writes(&["a"]));
    assert_eq!(lower, 3_000);
    // A reader comes before the prepared writer, and a writer behind it.
    assert_eq!(rig.prepare(3, 0, &reads(&["a"])), (1_001, 2_025));
    rig.finish(3, Some(2_000));
    assert_eq!(rig.prepare(4, 2_500, &reads(&["a"])), (2_500, 3_000));
    rig.refuse(5, 3_000, &reads(&["a"]), "a");
    rig.refuse(6, 0, &updates("a"), "a");
    assert_eq!(rig.prepare(7, 0, &writes(&["a"])).0, upper);
    rig.finish(7, None);
    rig.finish(2, Some(3_500));
    // A reader of an old version comes before the next one's writer.
    let old = |writes| Access { reads: vec![("a", Some(first))], writes, clears: false };
    assert_eq!(rig.prepare(8, 2_600, &old(vec![])), (2_600, 3_500));
    rig.refuse(9, 3_500, &old(vec![]), "a");
    rig.refuse(10, 0, &old(vec!["a"]), "a");
    // A writer comes behind all that was written and read, and behind the prepared readers.
    assert_eq!(rig.prepare(11, 0, &writes(&["a"])).0, 3_501);
    rig.finish(11, None);
    rig.commit(12, 4_000, &reads(&["a"]));
    assert_eq!(rig.prepare(13, 0, &writes(&["a"])).0, 4_001);
    rig.finish(13, None);
    let upper = rig.prepare(14, 5_000, &reads(&["a"])).1;
    assert_eq!(rig.prepare(15, 0, &writes(&["a"])).0, upper);
}

#[test]
fn maat_installs_versions_in_the_order_of_timestamps() {
    let rig = &mut Rig::new(Rule::Maat);
    rig.prepare(1, 1_000, &writes(&["a"]));
    let (later, _) = rig.prepare(2, 0, &writes(&["a"]));
    rig.finish(2, Some(later));
    assert_eq!(rig.prepare(3, 0, &reads(&["a"])).0, later + 1);
    let missed = Access { reads: vec![("a", Some(Position::NONE))], ..Access::default() };
    assert_eq!(rig.prepare(4, 0, &missed).1, 1_000);
    rig.finish(1, Some(1_500));
    assert_eq!(rig.value("a").as_deref(), Some("2"));
    assert_eq!(rig.prepare(5, 0, &missed).1, 1_025, "no range is longer");
    rig.refuse(6, 1_500, &missed, "a");
}

#[test]
fn a_clear_writes_all_keys_whether_they_are_known_or_not() {
    let clear = Access { clears: true, ..Access::default() };
    for rule in Rule::ALL {
        let rig = &mut Rig::new(rule);
        let has_order = rule != Rule::NoWait;
        let at = |timestamp| if has_order { timestamp } else { 0 };
        rig.commit(1, at(10), &writes(&["a", "b"]));
        rig.prepare(2, at(30), &reads(&["c"]));
        if rule != Rule::Maat {
            rig.refuse(3, at(20), &writes(&["a", "c"]), "c");
            rig.refuse(4, at(20), &clear, "c");
        }
        rig.finish(2, Some(at(30)));
        rig.prepare(5, at(2_000), &clear);
        // It is a prepared write of every key.
        rig.refuse(6, at(2_000), &reads(&["a"]), "a");
        let begun = if rule.begins_at_timestamp() { 2_000 } else { 0 };
        assert_eq!(rig.value_at("d", begun).is_err(), rule != Rule::Maat, "{rule:?}");
        rig.finish(5, Some(at(2_000)));
        assert_eq!([rig.value("a"), rig.value("b")], [None, None]);
        match rule {
            Rule::NoWait => {}
            Rule::Maat => assert_eq!(rig.prepare(7, 0, &writes(&["d"])).0, 2_001),
            Rule::Timestamp | Rule::Mvcc => rig.refuse(7, 1_500, &writes(&["d"]), "d"),
        }
        rig.finish(7, None);
        rig.prepare(8, at(3_000), &clear);
        let second = rig.ask(9, at(3_000), &clear);
        match rule {
            Rule::Maat => assert!(matches!(second, Vote::Yes(range) if range.lower.0 == 4_024)),
            _ => assert!(matches!(second, Vote::No(_)), "{rule:?}: {second:?}"),
        }
    }
}

#[test]
fn a_clear_spares_what_is_not_the_users() {
    let clear = Access { clears: true, ..Access::default() };
    for rule in Rule::ALL {
        let rig = &mut Rig::new(rule);
        let key = Key::in_space(Space::System, b"s");
        let entry = Entry::new("kept");
        let mut used = rig.used(1, 0, &Access::default());
        used.writes.records.insert(key.clone(), Some(entry.clone()));
        rig.partition.next_entry();
        let at = if rule == Rule::NoWait { 0 } else { 10 };
        used.timestamp = Timestamp(at);
        assert_eq!(rig.partition.whole(id(1), used), Answer::Committed);
        rig.commit(2, 2 * at, &clear);
        assert_eq!(rig.partition.newest(&key).entry, Some(entry), "{rule:?}");
    }
}

#[test]
fn notes_of_reads_without_versions_are_bounded() {
    for rule in [Rule::Timestamp, Rule::Mvcc, Rule::Maat] {
        let rig = &mut Rig::new(rule);
        for number in 0..=ONLY_READ_MAX as u64 {
            let name = format!("k{number}");
            let used = rig.used(number, 10 + number, &reads(&[&name]));
            rig.partition.next_entry();
            assert_eq!(rig.partition.whole(id(number), used), Answer::Committed);
        }
        let number = ONLY_READ_MAX as u64 + 1;
        // The first key's note is gone, and stands for all keys of which nothing is known.
        for name in ["k0", "other"] {
            let vote = |rig: &mut Rig, timestamp| {
                let used = rig.used(number, timestamp, &writes(&[name]));
                rig.partition.range(&used).map(|range| range.lower.0)
            };
            match rule {
                Rule::Maat => assert_eq!(vote(rig, 0), Ok(11)),
                _ => assert_eq!(vote(rig, 10), Err(Conflict::Key(key(name)))),
            }
            assert_eq!(vote(rig, 11), Ok(11));
        }
    }
}

#[test]
fn a_sessions_transactions_are_in_the_order_of_their_timestamps() {
    for rule in [Rule::Timestamp, Rule::Mvcc] {
        let rig = &mut Rig::new(rule);
        let request = |sequence| RequestId { sequence, ..id(1) };
        for (sequence, timestamp, expected) in [
            (1, 20, Answer::Committed),
            (2, 10, Answer::Conflict(Conflict::Timestamp)),
            (3, 20, Answer::Conflict(Conflict::Timestamp)),
            (4, 21, Answer::Committed),
        ] {
            let used = rig.used(1, timestamp, &reads(&["a"]));
            rig.partition.next_entry();
            assert_eq!(rig.partition.whole(request(sequence), used), expected, "{rule:?}, {sequence}");
        }
    }
    let rig = &mut Rig::new(Rule::Maat);
    for sequence in 1..=3 {
        let used = rig.used(1, 0, &reads(&["a"]));
        rig.partition.next_entry();
        assert_eq!(rig.partition.whole(RequestId { sequence, ..id(1) }, used), Answer::Committed);
        assert_eq!(
            rig.partition.greatest_timestamp(),
            Timestamp(sequence),
            "each commits behind the one before"
        );
    }
}
