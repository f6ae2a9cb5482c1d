//! A replicated register: the smallest certified protocol. All sites keep all keys, and agree in one group.
//!
//! A transaction begins once its site has every entry that was agreed on before ([`Effects::ask`]), so it
//! reads what was acknowledged to anybody. Each key has a version: the number of the entry that wrote it. A
//! transaction's commit is an entry with its name, the versions that it has read and its writes. Where that
//! entry stands in the group's order it is certified: if all that it read is still the newest version, its
//! writes take effect; if not, it has none. All sites decide the same, because all have the same versions
//! there. A transaction without writes is certified at its own site, when it ends: what it read was all there
//! at that moment. (A later attempt is ordered all the same, unless it is declared read-only.)
//!
//! So transactions are strictly serializable, in the order of their entries. A transaction that reads two
//! keys at different moments finds a conflict where a snapshot would have served it; [`crate::dur`] has
//! snapshots. Listings are refused: a key that is new has no version to compare.
//!
//! Each transaction takes effect once, however often it is proposed and run, while its session is known
//! ([`crate::sessions`]). An entry of a session that may have been forgotten has no effect.
//!
//! Invariants:
//! 1. A key's version only grows, and is at most the number of decided entries.
//! 2. The state is a function of the decided entries.

use crate::codec::{put_id, put_value, put_writes, take_id, take_last, take_value, take_writes};
use crate::proposals::{Proposals, make_room};
use crate::sessions::{SESSION_HORIZON, Sessions, is_unordered};
use crate::{Answer, Certifier, Conflict, Effects, Look, Malformed, ReadSet, WriteSet};
use std::collections::BTreeMap;
use txn::codec::{Reader, put_key, put_varint, take_key};
use txn::mutant::{Mutant, is_active};
use txn::tx::Read;
use txn::{Entry, Key, NodeId, PartitionId, Position, RequestId, Space};

/// The one group.
pub const GROUP: PartitionId = PartitionId(0);

/// One site's part. See the module's head.
#[derive(Debug)]
pub struct Register {
    state: State,
    /// Transactions of this site's clients, and whether they are declared read-only.
    open: BTreeMap<RequestId, bool>,
    proposals: Proposals,
}

/// What the sites agree on.
#[derive(Debug, PartialEq)]
struct State {
    /// Entries that were decided.
    decided: Position,
    /// What is there, and which entry wrote it. A deleted key keeps its version.
    keys: BTreeMap<Key, Read>,
    sessions: Sessions,
}

/// What an entry says.
struct Commit {
    id: RequestId,
    reads: BTreeMap<Key, Position>,
    writes: WriteSet,
}

impl Default for Register {
    fn default() -> Register {
        Register::remembering(SESSION_HORIZON)
    }
}

impl State {
    fn remembering(session_horizon: u64) -> State {
        let sessions = Sessions::known_for(session_horizon);
        State { decided: Position::NONE, keys: BTreeMap::new(), sessions }
    }

    fn read(&self, key: &Key) -> Read {
        self.keys.get(key).cloned().unwrap_or_default()
    }

    /// Whether something of this is not what it was.
    fn conflict(&self, reads: &BTreeMap<Key, Position>) -> Option<Conflict> {
        if is_active(Mutant::CertifyNothing) {
            return None;
        }
        let is_other = |key: &Key, version: Position| {
            self.keys.get(key).map_or(Position::NONE, |read| read.version) != version
        };
        let (key, _) = reads.iter().find(|&(key, &version)| is_other(key, version))?;
        Some(Conflict::Key(key.clone()))
    }

    /// Certifies a commit where it stands in the order.
    fn certify(&mut self, commit: Commit) -> Answer {
        if let Some(answer) = self.sessions.settled(commit.id, self.decided) {
            return answer;
        }
        let conflict = self.conflict(&commit.reads);
        self.sessions.certified(commit.id, conflict.is_none(), self.decided);
        if let Some(conflict) = conflict {
            return Answer::Conflict(conflict);
        }
        let version = self.decided;
        if commit.writes.clears {
            let users = self.keys.iter_mut().filter(|(key, _)| key.space() == Space::User);
            users.for_each(|(_, read)| *read = Read { entry: None, version });
        }
        for (key, entry) in commit.writes.records {
            self.keys.insert(key, Read { entry, version });
        }
        Answer::Committed
    }
}

impl Register {
    /// A site without data. A session is known for so many entries: the same number at all sites.
    pub fn remembering(session_horizon: u64) -> Register {
        let state = State::remembering(session_horizon);
        Register { state, open: BTreeMap::new(), proposals: Proposals::to(GROUP) }
    }

    /// The last decided entry.
    pub fn position(&self) -> Position {
        self.state.decided
    }

    /// What a key has, behind the last decided entry.
    pub fn value(&self, key: &Key) -> Option<Entry> {
        self.state.read(key).entry
    }

    fn finish(&mut self, id: RequestId, answer: Answer, effects: &mut Effects) {
        self.proposals.forget(id);
        if self.open.remove(&id).is_some() {
            effects.answer(id, answer);
        }
    }
}

impl Certifier for Register {
    fn begin(&mut self, id: RequestId, is_read_only: bool, effects: &mut Effects) {
        if let Err(answer) = make_room(&mut self.open, id) {
            return effects.answer(id, answer);
        }
        self.proposals.forget_session(id.session);
        self.open.insert(id, is_read_only);
        effects.ask(GROUP, id);
    }

    fn reached(&mut self, id: RequestId, effects: &mut Effects) {
        let Some(&is_read_only) = self.open.get(&id) else { return };
        match self.state.sessions.committed(id) {
            Some(_) => self.finish(id, Answer::CommittedBefore, effects),
            None if !is_read_only && self.state.sessions.is_forgotten(id.session, self.state.decided) => {
                self.finish(id, Answer::Unknown, effects);
            }
            None => effects.answer(id, Answer::Begun),
        }
    }

    fn look(&mut self, id: RequestId, look: &Look, effects: &mut Effects) {
        if self.open.contains_key(&id) {
            effects.answer(
                id,
                match look {
                    Look::Key(key) => Answer::Value(self.state.read(key)),
                    Look::Scan(_) | Look::Count => {
                        Answer::Refused("ERR the register lists and counts no keys: read them by name".into())
                    }
                },
            );
        }
    }

    fn commit(&mut self, id: RequestId, reads: ReadSet, writes: WriteSet, effects: &mut Effects) {
        let Some(&is_read_only) = self.open.get(&id) else {
            return effects.answer(id, Answer::Conflict(Conflict::Superseded));
        };
        if is_unordered(id, is_read_only, &writes) {
            let now = || self.state.conflict(&reads.keys).map_or(Answer::Committed, Answer::Conflict);
            let answer = self.state.sessions.committed(id).unwrap_or_else(now);
            return self.finish(id, answer, effects);
        }
        // What is overwritten here is overwritten wherever the entry would stand.
        if let Some(conflict) = self.state.conflict(&reads.keys) {
            return self.finish(id, Answer::Conflict(conflict), effects);
        }
        let entry = put_commit(&Commit { id, reads: reads.keys, writes });
        self.proposals.propose(id, entry, effects);
    }

    fn has_new_leader(&mut self, _: PartitionId, _: NodeId) {
        self.proposals.propose_in_turn();
    }

    fn forget(&mut self, id: RequestId) {
        self.open.remove(&id);
        self.proposals.forget(id);
    }

    fn receive(&mut self, _: NodeId, _: &[u8], _: &mut Effects) -> Result<(), Malformed> {
        // Sites have nothing to say to each other beside what they agree on.
        Err(Malformed)
    }

    fn check(&self, _: PartitionId, entry: &[u8]) -> Result<(), Malformed> {
        take_commit(entry).map(drop).ok_or(Malformed)
    }

    fn decided(&mut self, _: PartitionId, entry: &[u8], effects: &mut Effects) -> Result<(), Malformed> {
        let commit = take_commit(entry).ok_or(Malformed)?;
        let id = commit.id;
        self.state.decided = self.state.decided.next();
        let answer = self.state.certify(commit);
        self.finish(id, answer, effects);
        Ok(())
    }

    fn tick(&mut self, effects: &mut Effects) {
        self.proposals.tick(effects);
    }

    fn snapshot(&self, _: PartitionId) -> Vec<u8> {
        let State { decided, keys, sessions } = &self.state;
        let mut out = Vec::new();
        put_varint(&mut out, decided.0);
        put_varint(&mut out, keys.len() as u64);
        for (key, read) in keys {
            put_key(&mut out, key);
            put_varint(&mut out, read.version.0);
            put_value(&mut out, read.entry.as_ref());
        }
        sessions.put(&mut out);
        out
    }

    fn restore(&mut self, _: PartitionId, state: &[u8]) -> Result<(), Malformed> {
        // Transactions that are open here go on: their entries may be decided yet, or be certified anew.
        let horizon = self.state.sessions.horizon();
        self.state = take_state(&mut Reader::new(state), horizon).ok_or(Malformed)?;
        Ok(())
    }
}

fn put_commit(commit: &Commit) -> Vec<u8> {
    let mut out = Vec::new();
    put_id(&mut out, commit.id);
    put_varint(&mut out, commit.reads.len() as u64);
    for (key, version) in &commit.reads {
        put_key(&mut out, key);
        put_varint(&mut out, version.0);
    }
    put_writes(&mut out, &commit.writes);
    out
}

fn take_commit(entry: &[u8]) -> Option<Commit> {
    let reader = &mut Reader::new(entry);
    let id = take_id(reader)?;
    let reads = (0..reader.varint()?).map(|_| Some((take_key(reader)?, Position(reader.varint()?))));
    let reads = reads.collect::<Option<_>>()?;
    let writes = take_writes(reader)?;
    reader.is_empty().then_some(Commit { id, reads, writes })
}

fn take_state(reader: &mut Reader<'_>, session_horizon: u64) -> Option<State> {
    let mut state = State::remembering(session_horizon);
    state.decided = take_last(reader)?;
    for _ in 0..reader.varint()? {
        let key = take_key(reader)?;
        let version = Position(reader.varint()?);
        let entry = take_value(reader)?;
        if version == Position::NONE || version > state.decided {
            return None;
        }
        if state.keys.insert(key, Read { version, entry }).is_some() {
            return None;
        }
    }
    state.sessions = Sessions::take(reader, session_horizon, state.decided)?;
    reader.is_empty().then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::SessionId;

    fn id(session: u64, sequence: u64, attempt: u32) -> RequestId {
        RequestId { session: SessionId(session), sequence, attempt }
    }

    fn entry(text: &str) -> Option<Entry> {
        Some(Entry::new(text))
    }

    fn read(version: u64, text: &str) -> Read {
        Read { entry: entry(text), version: Position(version) }
    }

    /// Has a transaction read and propose; gives its entry.
    fn proposed(register: &mut Register, id: RequestId, writes: &[(&str, &str)]) -> Vec<u8> {
        let effects = &mut Effects::default();
        register.begin(id, false, effects);
        register.reached(id, effects);
        let key = |name: &str| Key::new(name.as_bytes());
        let keys = writes.iter().map(|(name, _)| (key(name), register.state.read(&key(name)).version));
        let reads = ReadSet { keys: keys.collect(), ..ReadSet::default() };
        let records = writes.iter().map(|(name, value)| (key(name), entry(value))).collect();
        register.commit(id, reads, WriteSet { records, ..WriteSet::default() }, effects);
        effects.proposals.pop().expect("a proposal").1.to_vec()
    }

    fn decide(register: &mut Register, entry: &[u8]) -> Option<Answer> {
        let effects = &mut Effects::default();
        register.decided(GROUP, entry, effects).expect("an entry");
        effects.answers.pop().map(|(_, answer)| answer)
    }

    #[test]
    fn the_first_of_two_that_read_the_same_commits() {
        let mut register = Register::default();
        let (one, two) = (
            proposed(&mut register, id(1, 1, 0), &[("a", "1")]),
            proposed(&mut register, id(2, 1, 0), &[("a", "2")]),
        );
        assert_eq!(decide(&mut register, &two), Some(Answer::Committed));
        assert_eq!(decide(&mut register, &one), Some(Answer::Conflict(Conflict::Key(Key::new(b"a")))));
        let again = proposed(&mut register, id(1, 1, 1), &[("a", "1")]);
        assert_eq!(decide(&mut register, &again), Some(Answer::Committed));
        assert_eq!(register.state.keys[&Key::new(b"a")], read(3, "1"));
    }

    #[test]
    fn what_has_committed_has_no_effect_again() {
        let mut register = Register::default();
        let first = proposed(&mut register, id(1, 1, 0), &[("a", "1")]);
        // Its client has heard nothing, and ran it again elsewhere.
        let second = proposed(&mut register, id(1, 1, 1), &[("a", "1")]);
        assert_eq!(decide(&mut register, &first), None);
        let between = proposed(&mut register, id(2, 1, 0), &[("a", "2")]);
        assert_eq!(decide(&mut register, &between), Some(Answer::Committed));
        assert_eq!(decide(&mut register, &second), Some(Answer::CommittedBefore), "it has read what is new");
        assert_eq!(register.state.keys[&Key::new(b"a")], read(2, "2"));
        let effects = &mut Effects::default();
        register.begin(id(1, 1, 2), false, effects);
        register.reached(id(1, 1, 2), effects);
        assert_eq!(effects.answers, [(id(1, 1, 2), Answer::CommittedBefore)], "it need not read");
    }

    #[test]
    fn a_transaction_of_a_forgotten_session_takes_effect_once() {
        let mut register = Register::remembering(4);
        let first = proposed(&mut register, id(1, 1, 0), &[("a", "1")]);
        let late = proposed(&mut register, id(1, 1, 1), &[("a", "1")]);
        assert_eq!(decide(&mut register, &late), Some(Answer::Committed));
        for session in 2..6 {
            // As if each had been opened now.
            let session = crate::session_opened(register.position(), session).0;
            let other = proposed(&mut register, id(session, 1, 0), &[("b", "2")]);
            assert_eq!(decide(&mut register, &other), Some(Answer::Committed));
        }
        let effects = &mut Effects::default();
        register.begin(id(1, 1, 2), false, effects);
        register.reached(id(1, 1, 2), effects);
        assert_eq!(effects.answers, [(id(1, 1, 2), Answer::Unknown)]);
        decide(&mut register, &first);
        decide(&mut register, &late);
        assert_eq!(register.state.keys[&Key::new(b"a")], read(1, "1"));
    }

    #[test]
    fn what_conflicts_with_its_own_site_is_not_proposed_and_a_late_attempt_voids_nothing() {
        let mut register = Register::default();
        let effects = &mut Effects::default();
        register.begin(id(1, 1, 1), false, effects);
        register.begin(id(1, 1, 0), false, effects);
        assert_eq!(effects.answers.pop(), Some((id(1, 1, 0), Answer::Conflict(Conflict::Superseded))));
        let write = proposed(&mut register, id(2, 1, 0), &[("a", "2")]);
        decide(&mut register, &write);
        let keys = BTreeMap::from([(Key::new(b"a"), Position::NONE)]);
        let records = BTreeMap::from([(Key::new(b"b"), None)]);
        let reads = ReadSet { keys, ..ReadSet::default() };
        register.commit(id(1, 1, 1), reads, WriteSet { records, ..WriteSet::default() }, effects);
        let conflict = Answer::Conflict(Conflict::Key(Key::new(b"a")));
        assert_eq!(effects.answers.pop(), Some((id(1, 1, 1), conflict)));
        assert!(effects.proposals.is_empty());
    }

    #[test]
    fn an_attempt_that_was_decided_while_its_site_lagged_has_committed() {
        let (mut register, mut other) = (Register::default(), Register::default());
        let write = proposed(&mut register, id(1, 1, 3), &[("a", "1")]);
        decide(&mut other, &write);
        register.restore(GROUP, &other.snapshot(GROUP)).expect("a state");
        assert_eq!(decide(&mut register, &write), Some(Answer::Committed));
    }

    #[test]
    fn a_reader_that_was_overtaken_conflicts() {
        let mut register = Register::default();
        let (effects, key) = (&mut Effects::default(), Key::new(b"a"));
        register.begin(id(1, 1, 0), true, effects);
        register.look(id(1, 1, 0), &Look::Key(key.clone()), effects);
        assert_eq!(effects.answers.pop(), Some((id(1, 1, 0), Answer::Value(Read::default()))));
        let write = proposed(&mut register, id(2, 1, 0), &[("a", "2")]);
        decide(&mut register, &write);
        let reads = ReadSet { keys: BTreeMap::from([(key.clone(), Position::NONE)]), ..ReadSet::default() };
        register.commit(id(1, 1, 0), reads, WriteSet::default(), effects);
        assert_eq!(effects.answers.pop(), Some((id(1, 1, 0), Answer::Conflict(Conflict::Key(key)))));
    }

    #[test]
    fn a_snapshot_reads_back_and_nothing_else_does() {
        let mut register = Register::default();
        let write = proposed(&mut register, id(7, 3, 0), &[("a", "1"), ("b", "2")]);
        decide(&mut register, &write);
        let effects = &mut Effects::default();
        register.begin(id(7, 4, 0), false, effects);
        let records = BTreeMap::from([(Key::new(b"b"), None)]);
        let writes = WriteSet { records, ..WriteSet::default() };
        register.commit(id(7, 4, 0), ReadSet::default(), writes, effects);
        let delete = effects.proposals.pop().expect("a proposal").1;
        decide(&mut register, &delete);
        let state = register.snapshot(GROUP);
        let mut other = Register::default();
        other.restore(GROUP, &state).expect("a state");
        assert_eq!(other.snapshot(GROUP), state);
        assert_eq!(other.state, register.state);
        for cut in 0..state.len() {
            assert_eq!(other.restore(GROUP, &state[..cut]), Err(Malformed), "{cut}");
        }
        for cut in 0..write.len() {
            assert_eq!(other.decided(GROUP, &write[..cut], effects), Err(Malformed), "{cut}");
        }
        assert_eq!(other.snapshot(GROUP), state, "what is refused has no effect");
    }
}
