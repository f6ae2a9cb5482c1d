//! Sites driven by hand: what is proposed is decided when a test says so.

use super::*;
use crate::session_opened;
use txn::SessionId;

const OPTIONS: TwoPhaseOptions =
    TwoPhaseOptions { me: NodeId(1), sites: 2, partitions: 2, rule: Rule::NoWait, session_horizon: 100 };

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
    fn new(rule: Rule) -> Rig {
        let site = |me| TwoPhase::new(TwoPhaseOptions { me: NodeId(me), rule, ..OPTIONS });
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
        let version = |key: &Key| site.partitions[&site.group_of(key)].newest(key).version;
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
    for rule in Rule::ALL {
        let mut rig = Rig::new(rule);
        let keys = [key(&rig.sites[0], 0, 0), key(&rig.sites[0], 1, 0)];
        rig.update(id(1, 0), &keys);
        rig.decide_all();
        assert_eq!(rig.answers, [(id(1, 0), Answer::Committed)]);
        assert_eq!(rig.values(&keys), [true, true]);
        assert!(rig.sites.iter().all(TwoPhase::is_idle));
        assert!(rig.sites[0].coordinated.is_empty() && rig.sites[0].open.is_empty());
    }
}

#[test]
fn the_second_of_two_that_use_a_record_is_refused_and_its_locks_are_released() {
    for rule in Rule::ALL {
        let mut rig = Rig::new(rule);
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
}

#[test]
fn another_site_finishes_what_a_silent_coordinator_has_begun() {
    // The number of entries that the coordinator sees decided before it is gone.
    let seen = [(0, false), (1, false), (2, true), (3, true), (4, true)];
    for (rule, (seen, is_committed)) in Rule::ALL.into_iter().flat_map(|rule| seen.map(|seen| (rule, seen))) {
        let mut rig = Rig::new(rule);
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
    for rule in Rule::ALL {
        let mut rig = Rig::new(rule);
        let site = &rig.sites[0];
        let (a, b, c) = (key(site, 0, 0), key(site, 1, 0), key(site, 1, 1));
        // Nothing that it has read is in the way of a second vote.
        rig.write(id(1, 0), &[a.clone(), b.clone()]);
        rig.write(id(2, 0), &[a.clone(), c.clone()]);
        let entries = rig.proposed.clone();
        rig.decide_all();
        let (versions, answers) = (rig.versions(), rig.answers.clone());
        let committed = answers.iter().filter(|(_, answer)| *answer == Answer::Committed).count();
        // Timestamp ordering minds no prepared write where nothing is read. With MaaT the second one has to
        // commit behind the first one's range where both write, and before the end of its own elsewhere.
        assert_eq!(committed, if rule.begins_at_timestamp() { 2 } else { 1 }, "{rule:?}");
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
}

#[test]
fn the_first_decision_counts() {
    for rule in Rule::ALL {
        let mut rig = Rig::new(rule);
        let keys = [key(&rig.sites[0], 0, 0), key(&rig.sites[0], 1, 0)];
        rig.update(id(1, 0), &keys);
        for _ in 0..2 {
            let (group, entry) = rig.proposed.remove(0);
            rig.decide(group, &entry);
        }
        let is_commit = |entry: &LogEntry| match entry {
            LogEntry::Decide { decision, .. } => decision.votes.len() == 2,
            _ => false,
        };
        assert!(matches!(&rig.proposed[..], [(PartitionId(1), entry)] if is_commit(entry)));
        rig.decide(PartitionId(1), &LogEntry::Decide { id: id(1, 0), decision: Decision::abort() });
        rig.decide_all();
        assert_eq!(rig.answers, [(id(1, 0), Answer::Conflict(Conflict::Superseded))]);
        assert_eq!(rig.values(&keys), [false, false]);
        assert!(rig.sites.iter().all(TwoPhase::is_idle));
    }
}

#[test]
fn an_entry_of_another_partition_or_with_a_missing_byte_is_malformed() {
    let mut rig = Rig::new(Rule::Maat);
    let keys = [key(&rig.sites[0], 0, 0), key(&rig.sites[0], 1, 0)];
    rig.update(id(1, 0), &keys);
    let (group, entry) = rig.proposed.remove(0);
    let bytes = entry.encode();
    let site = &mut rig.sites[0];
    assert_eq!(site.check(group, &bytes), Ok(()));
    assert_eq!(site.check(PartitionId(1 - group.0), &bytes), Err(Malformed));
    assert_eq!(site.check(PartitionId(9), &bytes), Err(Malformed));
    let decide = LogEntry::Decide { id: id(1, 0), decision: Decision::abort() }.encode();
    assert_eq!(site.check(PartitionId(1), &decide), Ok(()));
    assert_eq!(site.check(PartitionId(0), &decide), Err(Malformed));
    for cut in 0..bytes.len() {
        assert_eq!(site.decided(group, &bytes[..cut], &mut Effects::default()), Err(Malformed), "{cut}");
    }
    assert_eq!(site.position(group), Position::NONE);
}

/// A transaction at the first site that reads some keys as they are there now, and writes others.
fn ask(rig: &mut Rig, id: RequestId, reads: &[Key], writes: &[Key]) {
    let site = &rig.sites[0];
    let version = |key: &Key| site.partitions[&site.group_of(key)].newest(key).version;
    rig.commit(id, reads.iter().map(|key| (key.clone(), version(key))).collect(), writes);
}

#[test]
fn ranges_that_have_nothing_in_common_are_aborted() {
    let mut rig = Rig::new(Rule::Maat);
    let site = &rig.sites[0];
    let (a, b) = (key(site, 0, 0), key(site, 1, 0));
    ask(&mut rig, id(1, 0), &[], &[a.clone(), b.clone()]);
    rig.decide_all();
    // It asks first, so that it has read the versions before the others' writes of `a`. Those of `b` are
    // newer, but it has seen them: its vote there is behind the others' timestamps.
    ask(&mut rig, id(2, 0), &[a.clone(), b.clone()], &[]);
    let [at_a, at_b] = &rig.proposed[..] else { panic!("{:?}", rig.proposed) };
    let (at_a, mut at_b) = (at_a.clone(), at_b.clone());
    rig.proposed.clear();
    ask(&mut rig, id(3, 0), &[], &[a, b.clone()]);
    rig.decide_all();
    rig.decide(at_a.0, &at_a.1);
    let LogEntry::Prepare(prepare) = &mut at_b.1 else { panic!("{at_b:?}") };
    let newest = rig.sites[0].partitions[&PartitionId(1)].newest(&b).version;
    prepare.used.reads.insert(b, newest);
    rig.answers.clear();
    rig.decide(at_b.0, &at_b.1);
    let ranges: Vec<Range> =
        rig.sites[0].partitions.values().map(|partition| partition.prepared[&id(2, 0)].range).collect();
    assert!(!ranges[0].overlaps(ranges[1]), "{ranges:?}");
    assert!(matches!(&rig.proposed[..], [(_, LogEntry::Decide { decision, .. })] if decision.is_abort()));
    rig.restart(0);
    rig.restart(1);
    rig.wait(3 * SILENT_TICKS);
    rig.decide_all();
    assert!(rig.sites.iter().all(TwoPhase::is_idle));
}

#[test]
fn a_site_that_lags_takes_a_higher_timestamp_once_it_has_lost() {
    for rule in [Rule::Timestamp, Rule::Mvcc] {
        let mut rig = Rig::new(rule);
        let (a, b) = (key(&rig.sites[0], 0, 0), key(&rig.sites[0], 1, 0));
        // Another site's transactions, of which this one knows nothing when it begins.
        rig.sites.swap(0, 1);
        for session in 10..20 {
            ask(&mut rig, id(session, 0), &[], &[a.clone(), b.clone()]);
        }
        rig.sites.swap(0, 1);
        let others = std::mem::take(&mut rig.proposed);
        ask(&mut rig, id(1, 0), std::slice::from_ref(&a), &[a.clone(), b.clone()]);
        let own = std::mem::replace(&mut rig.proposed, others);
        rig.decide_all();
        rig.answers.clear();
        rig.proposed = own;
        rig.decide_all();
        assert_eq!(rig.answers, [(id(1, 0), Answer::Conflict(Conflict::Key(a.clone())))], "{rule:?}");
        rig.answers.clear();
        ask(&mut rig, id(1, 1), std::slice::from_ref(&a), &[a.clone(), b.clone()]);
        rig.decide_all();
        assert_eq!(rig.answers, [(id(1, 1), Answer::Committed)], "{rule:?}");
    }
}

#[test]
fn a_home_commits_nothing_before_the_sessions_last_transaction() {
    for rule in [Rule::Timestamp, Rule::Mvcc, Rule::Maat] {
        let mut rig = Rig::new(rule);
        let (a, b) = (key(&rig.sites[0], 0, 0), key(&rig.sites[0], 1, 0));
        ask(&mut rig, id(1, 0), &[], &[a.clone(), b.clone()]);
        let entries: Vec<_> = rig.proposed.clone();
        rig.decide_all();
        let at = rig.sites[0].greatest_timestamp();
        rig.answers.clear();
        // The same votes for the session's next transaction, and a decision at the same timestamp.
        let next = RequestId { sequence: 2, ..id(1, 0) };
        let home = &rig.sites[0].partitions[&PartitionId(1)];
        assert_eq!(home.first_of(next.session), at.next(), "{rule:?}");
        let position = home.decided;
        let votes = entries.iter().map(|(group, _)| (*group, position)).collect();
        rig.decide(PartitionId(1), &LogEntry::Decide { id: next, decision: Decision { at, votes } });
        let home = &rig.sites[0].partitions[&PartitionId(1)];
        assert!(home.unfinished.is_empty() && home.sessions.committed(next).is_none(), "{rule:?}");
        rig.restart(0);
    }
}

#[test]
fn a_loaded_record_is_as_if_the_first_entry_had_written_it() {
    for rule in Rule::ALL {
        let mut partition = Partition::new(PartitionId(0), rule, 10);
        let (key, entry) = (Key::new(b"k"), Entry::new("x"));
        partition.load(key.clone(), entry.clone());
        let read = partition.newest(&key);
        assert_eq!((read.entry, read.version, partition.count()), (Some(entry), Position::FIRST, 1));
        let used = Used {
            timestamp: Timestamp(2),
            reads: [(key, Position::FIRST)].into(),
            writes: WriteSet::default(),
        };
        assert!(partition.range(&used).is_ok(), "{rule:?}");
        assert_eq!(partition.decode(&partition.encode(), |_| true).as_ref(), Some(&partition));
    }
}
