//! Sites driven by hand: what is proposed is decided when a test says so.

use super::*;
use crate::session_opened;

const OPTIONS: TwoPhaseOptions =
    TwoPhaseOptions { me: NodeId(1), sites: 2, partitions: 2, session_horizon: 100 };

fn id(session: u64, attempt: u32) -> RequestId {
    RequestId { session: SessionId(session), sequence: 1, attempt }
}

/// A key of a partition.
fn key(site: &TwoPhase, group: u16, number: usize) -> Key {
    let keys = (0..1_000u32).map(|name| Key::new(format!("k{name}").as_bytes()));
    keys.filter(|key| site.group_of(key) == PartitionId(group)).nth(number).expect("a key")
}

/// Two sites, and what they have proposed.
struct Rig {
    sites: [TwoPhase; 2],
    proposed: Vec<(PartitionId, LogEntry)>,
    answers: Vec<(RequestId, Answer)>,
}

impl Rig {
    fn new() -> Rig {
        let site = |me| TwoPhase::new(TwoPhaseOptions { me: NodeId(me), ..OPTIONS });
        Rig { sites: [site(1), site(2)], proposed: Vec::new(), answers: Vec::new() }
    }

    fn take(&mut self, effects: Effects) {
        let entry = |(group, entry): (PartitionId, bytes::Bytes)| {
            (group, LogEntry::decode(&entry).expect("an entry"))
        };
        self.proposed.extend(effects.proposals.into_iter().map(entry));
        self.answers.extend(effects.answers);
    }

    /// A transaction at the first site that reads and writes these keys.
    fn update(&mut self, id: RequestId, keys: &[Key]) {
        let site = &self.sites[0];
        let version = |key: &Key| site.partitions[&site.group_of(key)].read(key).version;
        self.commit(id, keys.iter().map(|key| (key.clone(), version(key))).collect(), keys);
    }

    /// A transaction at the first site that writes these keys, and does not read them.
    fn write(&mut self, id: RequestId, keys: &[Key]) {
        self.commit(id, BTreeMap::new(), keys);
    }

    fn commit(&mut self, id: RequestId, reads: BTreeMap<Key, Position>, keys: &[Key]) {
        let effects = &mut Effects::default();
        let site = &mut self.sites[0];
        site.begin(id, false, effects);
        let records = keys.iter().map(|key| (key.clone(), Some(Entry::new("x")))).collect();
        let writes = WriteSet { records, ..WriteSet::default() };
        site.commit(id, ReadSet { keys: reads, ..ReadSet::default() }, writes, effects);
        let effects = std::mem::take(effects);
        self.take(effects);
        self.answers.retain(|(_, answer)| *answer != Answer::Begun);
    }

    /// Both sites are given an entry.
    fn decide(&mut self, group: PartitionId, entry: &LogEntry) {
        for site in 0..2 {
            let mut effects = Effects::default();
            self.sites[site].decided(group, &entry.encode(), &mut effects).expect("an entry");
            self.take(effects);
        }
    }

    /// Decides all that is proposed, and that is proposed then.
    fn decide_all(&mut self) {
        while !self.proposed.is_empty() {
            let (group, entry) = self.proposed.remove(0);
            self.decide(group, &entry);
        }
    }

    /// Time passes at the second site.
    fn wait(&mut self, ticks: u64) {
        let mut effects = Effects::default();
        (0..ticks).for_each(|_| self.sites[1].tick(&mut effects));
        self.take(effects);
    }

    /// A site begins anew with the states of its partitions.
    fn restart(&mut self, site: usize) {
        let before = &self.sites[site];
        let mut after = TwoPhase::new(before.options);
        for &group in before.partitions.keys() {
            let state = before.snapshot(group);
            after.restore(group, &state).expect("a state");
            assert_eq!(after.snapshot(group), state);
            assert_eq!(after.partitions[&group], before.partitions[&group]);
            for cut in 0..state.len() {
                let mut other = TwoPhase::new(before.options);
                assert_eq!(other.restore(group, &state[..cut]), Err(Malformed), "{cut}");
            }
        }
        self.sites[site] = after;
    }

    fn versions(&self) -> Vec<Vec<(Key, Position)>> {
        self.sites[1].partitions.values().map(Partition::versions).collect()
    }

    fn values(&self, keys: &[Key]) -> Vec<bool> {
        keys.iter().map(|key| self.sites[1].value(key).is_some()).collect()
    }
}

#[test]
fn a_session_has_one_home_whatever_it_was_opened_behind() {
    for (partitions, number) in [(3, 0), (3, 1), (3, 2), (4, 7), (1, 9)] {
        for behind in [0, 1, 2, 1_000] {
            let session = session_opened(Position(behind), number);
            assert_eq!(home_of(session, partitions), PartitionId(number % partitions), "{behind}");
        }
    }
}

#[test]
fn a_transaction_of_two_partitions_commits_and_nothing_of_it_stays() {
    let mut rig = Rig::new();
    let keys = [key(&rig.sites[0], 0, 0), key(&rig.sites[0], 1, 0)];
    rig.update(id(1, 0), &keys);
    rig.decide_all();
    assert_eq!(rig.answers, [(id(1, 0), Answer::Committed)]);
    assert_eq!(rig.values(&keys), [true, true]);
    assert!(rig.sites.iter().all(TwoPhase::is_idle));
    assert!(rig.sites[0].coordinated.is_empty() && rig.sites[0].open.is_empty());
}

#[test]
fn the_second_of_two_that_use_a_record_is_refused_and_its_locks_are_released() {
    let mut rig = Rig::new();
    let site = &rig.sites[0];
    let (a, b, c) = (key(site, 0, 0), key(site, 1, 0), key(site, 1, 1));
    rig.update(id(1, 0), &[a.clone(), b]);
    rig.update(id(2, 0), &[a.clone(), c.clone()]);
    rig.decide_all();
    let conflict = Answer::Conflict(Conflict::Key(a));
    assert_eq!(rig.answers, [(id(2, 0), conflict), (id(1, 0), Answer::Committed)]);
    assert!(rig.sites.iter().all(TwoPhase::is_idle));
    assert_eq!(rig.values(&[c]), [false]);
}

#[test]
fn another_site_finishes_what_a_silent_coordinator_has_begun() {
    // The number of entries that the coordinator sees decided before it is gone.
    for (seen, is_committed) in [(0, false), (1, false), (2, true), (3, true), (4, true)] {
        let mut rig = Rig::new();
        let keys = [key(&rig.sites[0], 0, 0), key(&rig.sites[0], 1, 0)];
        rig.update(id(1, 0), &keys);
        for _ in 0..seen {
            let (group, entry) = rig.proposed.remove(0);
            rig.decide(group, &entry);
        }
        let lost = std::mem::take(&mut rig.proposed);
        rig.restart(0);
        rig.restart(1);
        rig.wait(3 * SILENT_TICKS);
        rig.decide_all();
        rig.wait(3 * SILENT_TICKS);
        rig.decide_all();
        assert_eq!(rig.values(&keys), [is_committed; 2], "after {seen} entries");
        // What was under way comes late, and has no further effect.
        let positions = rig.versions();
        rig.proposed = lost;
        rig.decide_all();
        rig.wait(6 * SILENT_TICKS);
        rig.decide_all();
        rig.wait(6 * SILENT_TICKS);
        rig.decide_all();
        assert!(rig.sites[1].is_idle(), "after {seen} entries");
        if seen > 0 {
            assert_eq!(rig.versions(), positions, "after {seen} entries");
        }
    }
}

#[test]
fn a_vote_is_given_once_and_for_good() {
    let mut rig = Rig::new();
    let site = &rig.sites[0];
    let (a, b, c) = (key(site, 0, 0), key(site, 1, 0), key(site, 1, 1));
    // Nothing that it has read is in the way of a second vote.
    rig.write(id(1, 0), &[a.clone(), b.clone()]);
    rig.write(id(2, 0), &[a.clone(), c.clone()]);
    let entries = rig.proposed.clone();
    rig.decide_all();
    let (versions, answers) = (rig.versions(), rig.answers.clone());
    assert_eq!(answers.iter().filter(|(_, answer)| *answer == Answer::Committed).count(), 1);
    for age in [0, 2 * OPTIONS.session_horizon] {
        for _ in 0..age {
            let forget = LogEntry::Forget { id: id(1, 0) };
            rig.decide(PartitionId(1), &forget);
            for site in &mut rig.sites {
                let partition = site.partitions.get_mut(&PartitionId(0)).expect("a partition");
                partition.decided = partition.decided.next();
            }
        }
        rig.restart(0);
        rig.restart(1);
        for (group, entry) in &entries {
            rig.decide(*group, entry);
        }
        rig.decide_all();
        assert!(rig.sites.iter().all(TwoPhase::is_idle), "{age}");
        assert_eq!((rig.versions(), &rig.answers), (versions.clone(), &answers), "{age}");
    }
}

#[test]
fn the_first_decision_counts() {
    let mut rig = Rig::new();
    let keys = [key(&rig.sites[0], 0, 0), key(&rig.sites[0], 1, 0)];
    rig.update(id(1, 0), &keys);
    for _ in 0..2 {
        let (group, entry) = rig.proposed.remove(0);
        rig.decide(group, &entry);
    }
    let is_commit = |entry: &LogEntry| matches!(entry, LogEntry::Decide { votes, .. } if votes.len() == 2);
    assert!(matches!(&rig.proposed[..], [(PartitionId(1), entry)] if is_commit(entry)));
    rig.decide(PartitionId(1), &LogEntry::Decide { id: id(1, 0), votes: BTreeMap::new() });
    rig.decide_all();
    assert_eq!(rig.answers, [(id(1, 0), Answer::Conflict(Conflict::Superseded))]);
    assert_eq!(rig.values(&keys), [false, false]);
    assert!(rig.sites.iter().all(TwoPhase::is_idle));
}

#[test]
fn an_entry_of_another_partition_or_with_a_missing_byte_is_malformed() {
    let mut rig = Rig::new();
    let keys = [key(&rig.sites[0], 0, 0), key(&rig.sites[0], 1, 0)];
    rig.update(id(1, 0), &keys);
    let (group, entry) = rig.proposed.remove(0);
    let bytes = entry.encode();
    let site = &mut rig.sites[0];
    assert_eq!(site.check(group, &bytes), Ok(()));
    assert_eq!(site.check(PartitionId(1 - group.0), &bytes), Err(Malformed));
    assert_eq!(site.check(PartitionId(9), &bytes), Err(Malformed));
    let decide = LogEntry::Decide { id: id(1, 0), votes: BTreeMap::new() }.encode();
    assert_eq!(site.check(PartitionId(1), &decide), Ok(()));
    assert_eq!(site.check(PartitionId(0), &decide), Err(Malformed));
    for cut in 0..bytes.len() {
        assert_eq!(site.decided(group, &bytes[..cut], &mut Effects::default()), Err(Malformed), "{cut}");
    }
    assert_eq!(site.position(group), Position::NONE);
}

#[test]
fn a_loaded_record_is_as_if_the_first_entry_had_written_it() {
    let mut partition = Partition::new(PartitionId(0), 10);
    let (key, entry) = (Key::new(b"k"), Entry::new("x"));
    partition.load(key.clone(), entry.clone());
    let read = partition.read(&key);
    assert_eq!((read.entry, read.version, partition.count()), (Some(entry), Position::FIRST, 1));
    let used = Used { reads: [(key, Position::FIRST)].into(), writes: WriteSet::default() };
    assert_eq!(partition.conflict(&used), None);
    let again = Partition::decode(PartitionId(0), &partition.encode(), 10, |_| true);
    assert_eq!(again, Some(partition));
}
