//! Sites driven by hand: what is proposed is decided when a test says so.

use super::*;
use crate::{Job, session_opened};
use txn::SessionId;
use txn::tx::Read;

/// Four levels, each inner validator with two children.
fn binary_tree() -> Tree {
    Tree::new(8, &[8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14]).expect("a tree")
}

/// The paper's example (III-E): eight data nodes and three levels.
fn paper_tree() -> Tree {
    Tree::new(8, &[8, 8, 8, 8, 9, 9, 9, 9, 10, 10]).expect("a tree")
}

const UNBATCHED: BatchLimits = BatchLimits { transactions_max: 1, bytes_max: usize::MAX, wait_ticks_max: 1 };

/// A session that is at home in a leaf.
fn id(home: u16, session: u64) -> RequestId {
    let session = session_opened(Position(session), home);
    RequestId { session, sequence: 1, attempt: 0 }
}

/// Two sites; the first one speaks for all validators, and has all clients.
struct Rig {
    sites: [Hierarchy; 2],
    proposed: Vec<(PartitionId, bytes::Bytes)>,
    answers: Vec<(RequestId, Answer)>,
}

impl Rig {
    fn new(tree: Tree, control: Control, batches: BatchLimits) -> Rig {
        let site = |me| {
            let tree = tree.clone();
            Hierarchy::new(HierarchyOptions {
                me: NodeId(me),
                tree,
                control,
                batches,
                session_horizon: 10_000,
            })
        };
        let mut rig = Rig { sites: [site(1), site(2)], proposed: Vec::new(), answers: Vec::new() };
        rig.lead(NodeId(1));
        rig
    }

    /// A site leads all groups.
    fn lead(&mut self, leader: NodeId) {
        for site in &mut self.sites {
            (0..site.options.tree.groups()).for_each(|group| site.has_new_leader(PartitionId(group), leader));
        }
    }

    fn take(&mut self, effects: Effects) {
        self.proposed.extend(effects.proposals);
        self.answers.extend(effects.answers);
    }

    fn key(&self, leaf: u16, number: usize) -> Key {
        let keys = (0..100_000u32).map(|name| Key::new(format!("k{name}").as_bytes()));
        keys.filter(|key| self.sites[0].group_of(key) == PartitionId(leaf)).nth(number).expect("a key")
    }

    /// A transaction at the first site that reads and writes these keys.
    fn update(&mut self, id: RequestId, keys: &[Key]) {
        self.put(id, keys, "x");
    }

    fn put(&mut self, id: RequestId, keys: &[Key], text: &str) {
        let effects = &mut Effects::default();
        let site = &mut self.sites[0];
        site.begin(id, false, effects);
        assert_eq!(effects.answers.pop(), Some((id, Answer::Begun)));
        let version = |key: &Key| site.leaves[&site.group_of(key)].keys.newest(key).version;
        let reads = keys.iter().map(|key| (key.clone(), version(key))).collect();
        let records = keys.iter().map(|key| (key.clone(), Some(Entry::new(text)))).collect();
        let writes = WriteSet { records, ..WriteSet::default() };
        site.commit(id, ReadSet { keys: reads, ..ReadSet::default() }, writes, effects);
        let effects = std::mem::take(effects);
        self.take(effects);
    }

    /// Both sites are given an entry.
    fn decide(&mut self, group: PartitionId, entry: &[u8]) {
        for site in 0..2 {
            let mut effects = Effects::default();
            self.sites[site].decided(group, entry, &mut effects).expect("an entry");
            self.take(effects);
        }
    }

    /// All messages that are under way arrive: one step of communication.
    fn step(&mut self) {
        for (group, entry) in std::mem::take(&mut self.proposed) {
            self.decide(group, &entry);
        }
    }

    /// The steps of communication until a transaction is answered.
    fn steps_until_answered(&mut self, id: RequestId) -> u64 {
        let mut steps = 0;
        while !self.answers.iter().any(|(answered, _)| *answered == id) {
            assert!(!self.proposed.is_empty(), "{id:?} is never answered");
            self.step();
            steps += 1;
        }
        // The answer itself.
        steps + 1
    }

    fn decide_all(&mut self) {
        while !self.proposed.is_empty() {
            self.step();
        }
    }

    /// Time passes at a site, and what it proposes is decided.
    fn wait(&mut self, site: usize, ticks: u64) {
        for _ in 0..ticks {
            let mut effects = Effects::default();
            self.sites[site].tick(&mut effects);
            self.take(effects);
            self.decide_all();
        }
    }

    /// A site begins anew with the states of its validators.
    fn restart(&mut self, site: usize) {
        let before = &self.sites[site];
        let mut after = Hierarchy::new(before.options.clone());
        for group in (0..before.options.tree.groups()).map(PartitionId) {
            let state = before.snapshot(group);
            after.restore(group, &state).expect("a state");
            assert_eq!(after.snapshot(group), state);
            assert_eq!(after.leaves.get(&group), before.leaves.get(&group));
            assert_eq!(after.inners.get(&group), before.inners.get(&group));
            for cut in 0..state.len() {
                let mut other = Hierarchy::new(before.options.clone());
                assert_eq!(other.restore(group, &state[..cut]), Err(Malformed), "{cut}");
            }
        }
        self.sites[site] = after;
    }

    fn are_written(&self, keys: &[Key]) -> Vec<bool> {
        keys.iter().map(|key| self.sites[1].value(key).is_some()).collect()
    }

    fn versions(&self) -> Vec<Vec<(Key, Position)>> {
        self.sites[1].leaves.values().map(|leaf| leaf.keys.versions()).collect()
    }
}

/// Equations (6) and (7) of the paper, for `participants` leaves, of which the decider is `levels` above.
fn steps_of_paper(participants: u64, levels: f64, batch: f64) -> f64 {
    if participants == 1 { 2.0 } else { 2.0 + levels / batch }
}

fn messages_of_paper(participants: u64, levels: f64, batch: f64) -> f64 {
    let count = participants as f64;
    if participants == 1 { 2.0 } else { count + (levels * count + count) / batch + 1.0 }
}

/// Equation (3): two-phase commit.
fn messages_of_two_phase(participants: u64) -> f64 {
    if participants == 1 { 2.0 } else { 4.0 * participants as f64 }
}

#[test]
fn messages_and_steps_without_batches_are_those_of_the_paper() {
    for control in [Control::Locks, Control::Timestamps] {
        for (tree, leaves, levels) in [
            (Tree::leaf(), &[0][..], 0),
            (paper_tree(), &[3], 0),
            (paper_tree(), &[0, 1], 1),
            (paper_tree(), &[4, 5, 6], 1),
            (paper_tree(), &[0, 1, 2, 3], 1),
            (paper_tree(), &[2, 7], 2),
            (binary_tree(), &[6, 7], 1),
            (binary_tree(), &[0, 2], 2),
            (binary_tree(), &[0, 7], 3),
        ] {
            let mut rig = Rig::new(tree, control, UNBATCHED);
            let keys: Vec<Key> = leaves.iter().map(|&leaf| rig.key(leaf, 0)).collect();
            let id = id(leaves[0], 1);
            rig.update(id, &keys);
            let steps = rig.steps_until_answered(id);
            rig.decide_all();
            let (participants, levels) = (leaves.len() as u64, f64::from(levels));
            assert_eq!(rig.answers, [(id, Answer::Committed)], "{leaves:?}");
            assert_eq!(steps as f64, steps_of_paper(participants, levels, 1.0), "{leaves:?}");
            let messages = rig.sites[0].messages();
            assert_eq!(messages.total() as f64, messages_of_paper(participants, levels, 1.0), "{messages:?}");
            assert_eq!(rig.sites[1].messages(), Messages::default());
            rig.wait(0, 10 * AGAIN_TICKS);
            assert!(rig.sites.iter().all(Hierarchy::is_idle), "{leaves:?}");
            assert_eq!(rig.sites[0].messages(), messages, "nothing is said twice");
        }
    }
}

/// The paper's formula is for the worst case: an inner validator that hears several children says one thing.
#[test]
fn an_inner_validator_sends_one_message_for_all_its_children() {
    let mut rig = Rig::new(paper_tree(), Control::Locks, UNBATCHED);
    let keys: Vec<Key> = (0..8).map(|leaf| rig.key(leaf, 0)).collect();
    rig.update(id(0, 1), &keys);
    rig.decide_all();
    let messages = Messages { requests: 8, partials: 8 + 2, verdicts: 8, answers: 1 };
    assert_eq!(rig.sites[0].messages(), messages);
    assert!((messages.total() as f64) < messages_of_paper(8, 2.0, 1.0));
}

#[test]
fn batches_of_fifty_save_two_thirds_of_the_messages() {
    let transactions = 100;
    for (limit, saved_min) in [(1, 0.18), (10, 0.60), (50, 0.67)] {
        let batches = BatchLimits { transactions_max: limit, ..UNBATCHED };
        let batches = BatchLimits { wait_ticks_max: 5, ..batches };
        let mut rig = Rig::new(paper_tree(), Control::Locks, batches);
        for number in 0..transactions {
            let keys: Vec<Key> = (0..4).map(|leaf| rig.key(leaf, number)).collect();
            rig.update(id(number as u16 % 4, 1 + number as u64), &keys);
        }
        rig.decide_all();
        assert_eq!(rig.answers.len(), transactions);
        assert!(rig.answers.iter().all(|(_, answer)| *answer == Answer::Committed));
        let messages = rig.sites[0].messages();
        let saved = 1.0 - messages.total() as f64 / (transactions as f64 * messages_of_two_phase(4));
        println!("batches of {limit}: {messages:?}, {:.2} % saved", 100.0 * saved);
        assert!(saved >= saved_min, "batches of {limit}: {saved}, {messages:?}");
    }
}

#[test]
fn batches_add_no_step_to_a_transaction_that_is_alone() {
    let mut rig = Rig::new(binary_tree(), Control::Locks, BatchLimits::default());
    for session in 1..5 {
        let keys = [rig.key(0, 0), rig.key(7, 0)];
        rig.update(id(0, session), &keys);
        assert_eq!(rig.steps_until_answered(id(0, session)), 5);
        rig.decide_all();
    }
}

#[test]
fn what_is_too_large_for_a_leaf_is_refused_before_any_leaf_is_asked() {
    let mut rig = Rig::new(binary_tree(), Control::Locks, BatchLimits::default());
    let keys = [rig.key(0, 0), rig.key(7, 0)];
    rig.put(id(0, 1), &keys, &"x".repeat(REQUEST_BYTES_MAX));
    assert!(matches!(rig.answers.pop(), Some((_, Answer::Refused(text))) if text.contains("16 MiB")));
    assert!(rig.proposed.is_empty() && rig.sites[0].is_idle());
    rig.put(id(0, 2), &keys, &"x".repeat(REQUEST_BYTES_MAX / 2));
    rig.decide_all();
    assert_eq!(rig.answers.pop(), Some((id(0, 2), Answer::Committed)));
}

#[test]
fn the_second_of_two_that_meet_is_refused_and_told_at_once() {
    for control in [Control::Locks, Control::Timestamps] {
        let mut rig = Rig::new(binary_tree(), control, BatchLimits::default());
        let (a, b, c) = (rig.key(0, 0), rig.key(7, 0), rig.key(7, 1));
        rig.update(id(0, 1), &[a.clone(), b.clone()]);
        rig.update(id(0, 2), &[a.clone(), c.clone()]);
        rig.step();
        // Three levels below the decider.
        assert_eq!(rig.answers, [(id(0, 2), Answer::Conflict(Conflict::Key(a.clone())))]);
        rig.decide_all();
        assert_eq!(rig.answers.pop(), Some((id(0, 1), Answer::Committed)));
        rig.wait(0, 10 * AGAIN_TICKS);
        assert!(rig.sites.iter().all(Hierarchy::is_idle));
        assert_eq!(rig.are_written(&[a, b, c]), [true, true, false]);
    }
}

/// With timestamps a leaf lets a writer come behind a tentative reader; so two transactions can meet at two
/// leaves in different orders.
#[test]
fn of_two_that_meet_in_different_orders_the_second_check_refuses_one() {
    let mut rig = Rig::new(Tree::new(2, &[2, 2]).expect("a tree"), Control::Timestamps, UNBATCHED);
    let (a, b) = (rig.key(0, 0), rig.key(1, 0));
    let ask = |rig: &mut Rig, id: RequestId, reads: &Key, writes: &Key| {
        let effects = &mut Effects::default();
        let site = &mut rig.sites[0];
        site.begin(id, false, effects);
        let reads = ReadSet { keys: [(reads.clone(), Position::NONE)].into(), ..ReadSet::default() };
        let writes = [(writes.clone(), Some(Entry::new("x")))].into();
        site.commit(id, reads, WriteSet { records: writes, ..WriteSet::default() }, effects);
        std::mem::take(&mut effects.proposals)
    };
    let first = ask(&mut rig, id(0, 1), &a, &b);
    let second = ask(&mut rig, id(1, 2), &b, &a);
    let [(at_a, first_at_a), (at_b, first_at_b)] = &first[..] else { panic!("{first:?}") };
    let [(_, second_at_a), (_, second_at_b)] = &second[..] else { panic!("{second:?}") };
    rig.decide(*at_a, first_at_a);
    rig.decide(*at_b, second_at_b);
    rig.decide(*at_b, first_at_b);
    rig.decide(*at_a, second_at_a);
    rig.decide_all();
    let committed = rig.answers.iter().filter(|(_, answer)| *answer == Answer::Committed).count();
    assert!(rig.answers.len() == 2 && committed < 2, "{:?}", rig.answers);
}

#[test]
fn another_site_ends_what_a_speaker_has_begun() {
    // The number of entries that the first site sees decided before it is gone: two requests, two partial
    // results, and two verdicts.
    let seen = [(0, false), (1, false), (2, true), (3, true), (4, true), (5, true), (6, true)];
    for control in [Control::Locks, Control::Timestamps] {
        for (seen, is_committed) in seen {
            let mut rig = Rig::new(Tree::new(2, &[2, 2]).expect("a tree"), control, UNBATCHED);
            let keys = [rig.key(0, 0), rig.key(1, 0)];
            rig.update(id(0, 1), &keys);
            for _ in 0..seen {
                let (group, entry) = rig.proposed.remove(0);
                rig.decide(group, &entry);
            }
            let lost = std::mem::take(&mut rig.proposed);
            rig.restart(0);
            rig.restart(1);
            rig.lead(NodeId(2));
            rig.wait(1, 4 * GATHER_TICKS);
            assert_eq!(rig.are_written(&keys), [is_committed; 2], "after {seen} entries");
            assert!(rig.sites[1].is_idle(), "after {seen} entries");
            // What was under way comes late.
            let versions = rig.versions();
            rig.proposed = lost;
            rig.decide_all();
            rig.wait(1, 4 * GATHER_TICKS);
            assert!(rig.sites[1].is_idle(), "after {seen} entries");
            if seen > 0 {
                assert_eq!(rig.versions(), versions, "after {seen} entries");
            }
        }
    }
}

#[test]
fn a_reader_waits_for_a_tentative_version_and_reads_beside_it() {
    let mut rig = Rig::new(Tree::new(2, &[2, 2]).expect("a tree"), Control::Locks, UNBATCHED);
    let (a, b, other) = (rig.key(0, 0), rig.key(1, 0), rig.key(0, 1));
    rig.update(id(0, 1), &[a.clone(), b.clone()]);
    rig.step();
    let reader = id(1, 2);
    let effects = &mut Effects::default();
    rig.sites[0].begin(reader, true, effects);
    assert_eq!(effects.questions, [(PartitionId(1), reader)]);
    rig.sites[0].reached(reader, effects);
    rig.sites[0].look(reader, &Look::Key(other), effects);
    rig.sites[0].look(reader, &Look::Key(a), effects);
    let answers = [(reader, Answer::Begun), (reader, Answer::Value(Read::default()))];
    assert_eq!(effects.answers, answers);
    rig.decide_all();
    let read = rig.answers.iter().find_map(|(id, answer)| match answer {
        Answer::Value(read) if *id == reader => Some(read.entry.is_some()),
        _ => None,
    });
    assert_eq!(read, Some(true), "{:?}", rig.answers);
}

#[test]
fn what_uses_other_keys_is_validated_in_any_order_with_the_same_end() {
    let leaf = || Leaf::new(PartitionId(0), 1, Control::Locks, 100);
    let request = |session: u64, names: &[&str]| {
        let keys = names.iter().map(|name| Key::new(name.as_bytes()));
        let reads = keys.clone().map(|key| (key, Position::NONE)).collect();
        let records = keys.map(|key| (key, Some(Entry::new("x")))).collect();
        let writes = WriteSet { records, ..WriteSet::default() };
        let participants = [PartitionId(0), PartitionId(1)].into();
        let id = RequestId { session: SessionId(session), sequence: 1, attempt: 0 };
        Prepare { id, behind: Position::NONE, participants, used: Used { reads, writes, ..Used::default() } }
    };
    let requests = [request(1, &["a", "b"]), request(2, &["c"]), request(3, &["b", "d"]), request(4, &["e"])];
    let orders = [[0, 1, 2, 3], [1, 0, 3, 2], [3, 1, 0, 2], [0, 2, 1, 3]];
    let ends = orders.map(|order| {
        let mut leaf = leaf();
        let replies = order.map(|place| (place, leaf.request(requests[place].clone(), false)));
        for (place, at) in (0..).zip(10..14) {
            let place: usize = place;
            leaf.finish(requests[place].id, Some(Timestamp(at)), false);
        }
        (BTreeMap::from(replies.map(|(place, reply)| (place, format!("{reply:?}")))), leaf.keys)
    });
    let refused = |(replies, _): &(BTreeMap<usize, String>, _)| {
        replies.values().filter(|reply| reply.starts_with("No")).count()
    };
    assert!(ends.iter().all(|end| refused(end) == 1), "{ends:?}");
    ends[1..].iter().for_each(|end| assert_eq!(*end, ends[0]));
}

#[test]
fn an_entry_of_another_validator_or_with_a_missing_byte_is_malformed() {
    let mut rig = Rig::new(paper_tree(), Control::Timestamps, UNBATCHED);
    let keys = [rig.key(0, 0), rig.key(5, 0)];
    rig.update(id(0, 1), &keys);
    let mut kinds = BTreeSet::new();
    for _ in 0..40 {
        for (group, entry) in std::mem::take(&mut rig.proposed) {
            kinds.insert(entry[0]);
            let site = &mut rig.sites[0];
            assert_eq!(site.check(group, &entry), Ok(()));
            let is_leaf = site.options.tree.is_leaf(group);
            let wrong = if is_leaf { PartitionId(10) } else { PartitionId(0) };
            assert_eq!(site.check(wrong, &entry), Err(Malformed));
            assert_eq!(site.check(PartitionId(11), &entry), Err(Malformed));
            for cut in 0..entry.len() {
                let cut = &entry[..cut];
                assert_eq!(site.decided(group, cut, &mut Effects::default()), Err(Malformed));
            }
            rig.decide(group, &entry);
        }
        let mut effects = Effects::default();
        rig.sites[0].tick(&mut effects);
        rig.take(effects);
    }
    assert_eq!(kinds.len(), 4, "requests, partial results, verdicts and what is forgotten");
}

/// Threads that run jobs in the reverse order, one after the other.
#[derive(Debug)]
struct Backwards {
    count: usize,
}

impl Workers for Backwards {
    fn count(&self) -> usize {
        self.count
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        jobs.into_iter().rev().for_each(|job| job());
    }
}

/// Entries of leaf 0 of two, by chance: requests that meet each other, come twice and come late, verdicts,
/// and pushes. Each is applied to `site`.
fn random_entries(site: &mut Hierarchy, count: u64, mut bits: impl FnMut() -> u64) -> Vec<Vec<u8>> {
    let leaf = PartitionId(0);
    let names = (0..100_000u32).map(|name| Key::new(format!("k{name}").as_bytes()));
    let keys: Vec<Key> = names.filter(|key| site.group_of(key) == leaf).take(60).collect();
    let mut entries: Vec<Vec<u8>> = Vec::new();
    for number in 0..count {
        let mut below = |bound: u64| bits() % bound;
        let state = &site.leaves[&leaf];
        let entry = match below(20) {
            0 if !entries.is_empty() => entries[below(entries.len() as u64) as usize].clone(),
            1 => LogEntry::Push { to: Timestamp(state.clock.0 + below(3)) }.encode(),
            2..6 if !state.tentative.is_empty() => {
                let place = below(state.tentative.len() as u64) as usize;
                let (&id, tentative) = state.tentative.iter().nth(place).expect("one of them");
                let at = (below(3) > 0).then_some(tentative.range.lower);
                let unknown = RequestId { sequence: number, ..id };
                let verdicts = [Verdict { id, at }, Verdict { id: unknown, at: None }];
                let verdicts = verdicts[..1 + below(2) as usize].to_vec();
                LogEntry::Verdicts { from: PartitionId(2), verdicts }.encode()
            }
            _ => {
                let session = session_opened(Position(state.decided.0 / 8 * 8), below(12) as u16);
                let id = RequestId { session, sequence: 1 + below(3), attempt: below(2) as u32 };
                let is_shared = home_of(session, 2) != leaf || below(2) == 0;
                let participants =
                    [0, 1].map(PartitionId).into_iter().filter(|group| is_shared || *group == leaf);
                let mut used = Used { timestamp: state.clock, ..Used::default() };
                for _ in 0..1 + below(3) {
                    let key = keys[below(keys.len() as u64) as usize].clone();
                    let version = state.keys.newest(&key).version;
                    match below(3) {
                        0 => drop(used.reads.insert(key, version)),
                        1 => drop(used.writes.records.insert(key, None)),
                        _ => {
                            used.reads.insert(key.clone(), version);
                            used.writes.records.insert(key, Some(Entry::new("x")));
                        }
                    }
                }
                let behind = Position(state.decided.0.saturating_sub(below(50)));
                LogEntry::Request(Prepare { id, behind, participants: participants.collect(), used }).encode()
            }
        };
        site.decided(leaf, &entry, &mut Effects::default()).expect("an entry");
        entries.push(entry);
    }
    entries
}

#[test]
fn entries_that_come_together_are_decided_as_if_they_came_in_turn() {
    let mut bits = 0;
    let mut bits = move || {
        bits += 1;
        txn::hash::mix(bits)
    };
    let (mut committed, mut tentative) = (0, 0);
    for control in [Control::Locks, Control::Timestamps] {
        for run in 0..60 {
            let tree = Tree::new(2, &[2, 2]).expect("a tree");
            let options =
                HierarchyOptions { tree, control, session_horizon: 40, ..HierarchyOptions::default() };
            let mut in_turn = Hierarchy::new(options.clone());
            let mut together = Hierarchy::new(options);
            let entries = random_entries(&mut in_turn, 400, &mut bits);
            let mut entries: &[Vec<u8>] = &entries;
            let leaf = PartitionId(0);
            while !entries.is_empty() {
                let (now, later) = entries.split_at(entries.len().min(1 + bits() as usize % 150));
                let now: Vec<&[u8]> = now.iter().map(Vec::as_slice).collect();
                let workers = Backwards { count: 2 + bits() as usize % 4 };
                assert_eq!(together.decided_all(leaf, &now, &workers, &mut Effects::default()), Ok(()));
                entries = later;
            }
            assert_eq!(together.leaves[&leaf], in_turn.leaves[&leaf], "{control:?}, run {run}");
            assert_eq!(together.snapshot(leaf), in_turn.snapshot(leaf));
            committed += in_turn.leaves[&leaf].keys.versions().len();
            tentative += in_turn.leaves[&leaf].tentative.len();
        }
    }
    assert!(committed > 2_000 && tentative > 100, "{committed} keys are written, {tentative} are tentative");
}

#[test]
fn what_means_nothing_among_entries_that_come_together_is_named() {
    let mut site = Hierarchy::default();
    let push = LogEntry::Push { to: Timestamp(9) }.encode();
    for workers in [&crate::Alone as &dyn Workers, &crate::Threads { count: 3 }] {
        let mut entries = vec![&push[..]; 60];
        entries[43] = &[77];
        let before = site.position(PartitionId(0)).0;
        let decided = site.decided_all(PartitionId(0), &entries, workers, &mut Effects::default());
        assert_eq!((decided, site.position(PartitionId(0)).0), (Err(43), before + 43));
    }
}

/// The votes of a transaction's leaves come at different times, and each leaf may use every so many-th
/// timestamp only.
#[test]
fn a_leaf_may_decide_hundreds_of_others_between_two_votes_however_many_leaves_there_are() {
    let leaves = 64;
    let tree = Tree::new(leaves, &vec![leaves; usize::from(leaves)]).expect("a tree");
    let mut rig = Rig::new(tree, Control::Timestamps, UNBATCHED);
    let keys = [rig.key(0, 0), rig.key(63, 0)];
    rig.update(id(0, 1), &keys);
    let late = rig.proposed.pop().expect("the request to the second leaf");
    rig.decide_all();
    for session in 2..402 {
        let key = rig.key(63, 1);
        rig.update(id(63, session), &[key]);
        rig.decide_all();
    }
    rig.proposed.push(late);
    rig.decide_all();
    assert_eq!(rig.answers.last(), Some(&(id(0, 1), Answer::Committed)));
}

#[test]
fn inner_validators_forget_as_soon_as_leaves_have_finished() {
    let mut rig = Rig::new(binary_tree(), Control::Locks, BatchLimits::default());
    for session in 1..=300 {
        let keys = [rig.key(0, session), rig.key(7, session)];
        rig.update(id(0, session as u64), &keys);
    }
    rig.decide_all();
    assert_eq!(rig.answers.len(), 300);
    rig.wait(0, 1);
    assert!(rig.sites.iter().all(Hierarchy::is_idle), "{:?}", rig.sites[0].inners);
}

/// A leaf is away. What needs it is aborted; and when the leaf comes back, it finds that out, although the
/// inner validator has forgotten the transactions.
#[test]
fn aborted_transactions_are_forgotten_although_a_leaf_is_away() {
    let mut rig = Rig::new(Tree::new(2, &[2, 2]).expect("a tree"), Control::Locks, UNBATCHED);
    let mut away = Vec::new();
    let keys: Vec<[Key; 2]> = (0..20).map(|number| [rig.key(0, number), rig.key(1, number)]).collect();
    for (keys, session) in keys.iter().zip(1..) {
        rig.update(id(0, session), keys);
        away.extend(rig.proposed.extract_if(.., |(group, _)| *group == PartitionId(1)));
    }
    for _ in 0..3 * GATHER_TICKS {
        let mut effects = Effects::default();
        rig.sites[0].tick(&mut effects);
        rig.take(effects);
        while !rig.proposed.is_empty() {
            rig.proposed.retain(|(group, _)| *group != PartitionId(1));
            rig.step();
        }
    }
    let answers = rig.answers.iter().filter(|(_, answer)| matches!(answer, Answer::Conflict(_)));
    assert_eq!(answers.count(), keys.len());
    let remembered = rig.sites.iter().map(|site| site.inners[&PartitionId(2)].records.len());
    assert_eq!(remembered.collect::<Vec<_>>(), [0, 0]);
    rig.proposed = away;
    rig.decide_all();
    assert!(!rig.sites[0].is_idle(), "the leaf has voted");
    rig.wait(0, 2 * AGAIN_TICKS);
    assert!(rig.sites.iter().all(Hierarchy::is_idle));
    keys.iter().for_each(|keys| assert_eq!(rig.are_written(keys), [false, false]));
}

/// The root gives a transaction up, and one of its leaves does not hear of that until the root has forgotten
/// it.
#[test]
fn a_leaf_learns_of_an_abort_that_the_root_has_forgotten() {
    let mut rig = Rig::new(binary_tree(), Control::Locks, UNBATCHED);
    let keys = [rig.key(0, 0), rig.key(7, 0)];
    rig.update(id(0, 1), &keys);
    rig.proposed.retain(|(group, _)| *group == PartitionId(0));
    rig.decide_all();
    // First both leaves are away, so that the root gives up, and then the one that has voted.
    let away = [&[0, 7][..], &[0]];
    for away in away {
        for _ in 0..3 * GATHER_TICKS {
            let mut effects = Effects::default();
            rig.sites[0].tick(&mut effects);
            rig.take(effects);
            while !rig.proposed.is_empty() {
                rig.proposed.retain(|(group, _)| !away.contains(&group.0));
                rig.step();
            }
        }
    }
    assert_eq!(rig.sites[0].inners[&PartitionId(14)].records.len(), 0, "the root has forgotten it");
    assert_eq!(rig.sites[0].leaves[&PartitionId(0)].tentative.len(), 1);
    rig.wait(0, 2 * AGAIN_TICKS_MAX);
    assert!(rig.sites.iter().all(Hierarchy::is_idle));
}

#[test]
fn nobody_waits_for_ever() {
    let mut rig = Rig::new(Tree::new(2, &[2, 2]).expect("a tree"), Control::Locks, UNBATCHED);
    let [asks, looks, ends, runs] = [1, 2, 3, 4].map(|session| id(1, session));
    let [keys, other] = [0, 1].map(|number| [rig.key(0, number), rig.key(1, number)]);
    let undecided = id(0, 9);
    rig.update(undecided, &keys);
    rig.step();
    let next = RequestId { sequence: 2, ..undecided };
    for site in &mut rig.sites {
        let effects = &mut Effects::default();
        // Its group has no majority that could say how far it is.
        site.begin(asks, true, effects);
        // A tentative version is in the way. The snapshot lies above it.
        site.begin(looks, false, effects);
        site.look(looks, &Look::Key(keys[0].clone()), effects);
        // Its leaf has no majority.
        site.begin(ends, false, effects);
        let records = [(other[1].clone(), None)].into();
        site.commit(ends, ReadSet::default(), WriteSet { records, ..WriteSet::default() }, effects);
        site.begin(runs, false, effects);
        // The session's last transaction is undecided.
        if site.options.me == NodeId(2) {
            site.begin(next, false, effects);
        }
        assert!(effects.answers.iter().all(|(_, answer)| *answer == Answer::Begun), "{effects:?}");
        effects.answers.clear();
        for _ in 0..WAIT_TICKS_MAX {
            site.tick(effects);
        }
        let answers: BTreeMap<RequestId, Answer> = std::mem::take(&mut effects.answers).into_iter().collect();
        let last = match site.options.me {
            NodeId(1) => (undecided, Answer::Unknown),
            _ => (next, Answer::Unavailable),
        };
        let expected =
            [(asks, Answer::Unavailable), (looks, Answer::Unavailable), (ends, Answer::Unknown), last];
        assert_eq!(answers, expected.into(), "a transaction that its own client works on waits for nobody");
    }
}

#[test]
fn a_state_that_cannot_be_is_refused() {
    let tree = || Tree::new(2, &[2, 2]).expect("a tree");
    type Change = fn(&mut Hierarchy);
    let root = PartitionId(2);
    fn leaf(site: &mut Hierarchy) -> &mut Leaf {
        site.leaves.get_mut(&PartitionId(0)).expect("a leaf")
    }
    fn first(site: &mut Hierarchy) -> (RequestId, leaf::Tentative) {
        let (&id, tentative) = leaf(site).tentative.first_key_value().expect("a tentative transaction");
        (id, tentative.clone())
    }
    let changes: [(PartitionId, Change); 9] = [
        (PartitionId(0), |_| {}),
        (PartitionId(0), |site| {
            let (id, mut other) = first(site);
            other.prepare.id = RequestId { sequence: 7, ..id };
            other.prepare.used = Used::default();
            leaf(site).tentative.insert(other.prepare.id, other);
        }),
        (PartitionId(0), |site| {
            let (_, mut other) = first(site);
            other.prepare.id = id(1, 77);
            leaf(site).tentative.insert(other.prepare.id, other);
        }),
        (PartitionId(0), |site| {
            let (id, mut other) = first(site);
            other.prepare.participants.remove(&PartitionId(1));
            leaf(site).tentative.insert(id, other);
        }),
        (PartitionId(0), |site| {
            let (id, mut other) = first(site);
            other.range.upper = other.range.lower.next();
            leaf(site).tentative.insert(id, other);
        }),
        (PartitionId(0), |site| {
            let (id, _) = first(site);
            let at = leaf(site).decided;
            leaf(site).attempts.note(attempts::Note { id, at, vote: false, end: None });
        }),
        (root, |site| {
            let inner = site.inners.get_mut(&PartitionId(2)).expect("an inner validator");
            inner.records.values_mut().for_each(|record| record.gathered.clear());
        }),
        (root, |site| {
            let inner = site.inners.get_mut(&PartitionId(2)).expect("an inner validator");
            let votes = inner.records.values_mut().flat_map(|record| record.gathered.values_mut());
            votes.for_each(|vote| vote.votes.clear());
        }),
        (root, |site| {
            let inner = site.inners.get_mut(&PartitionId(2)).expect("an inner validator");
            let id = *inner.records.first_key_value().expect("a record").0;
            let record = inner.records[&id].clone();
            inner.forget(id);
            inner.records.insert(id, record);
        }),
    ];
    for control in [Control::Locks, Control::Timestamps] {
        for (number, (group, change)) in changes.iter().enumerate() {
            let mut rig = Rig::new(tree(), control, UNBATCHED);
            let keys = [rig.key(0, 0), rig.key(1, 0)];
            rig.update(id(0, 1), &keys);
            rig.proposed.retain(|(group, _)| *group == PartitionId(0));
            rig.decide_all();
            let site = &mut rig.sites[0];
            change(site);
            let state = site.snapshot(*group);
            let restored = Hierarchy::new(site.options.clone()).restore(*group, &state);
            assert_eq!(restored.is_ok(), number == 0, "{control:?}, change {number}");
        }
    }
}
