//! A replicated register: the smallest certified protocol. All sites keep all keys, and agree in one group.
//!
//! A transaction begins once its site has every entry that was agreed on before ([`Effects::ask`]), so it
//! reads what was acknowledged to anybody. It notes the version of each key that it reads: the number of the
//! entry that wrote it. Its commit is an entry with the transaction's name, the versions and the writes.
//! Where that entry stands in the group's order it is certified: if all that it read is still the newest
//! version, its writes take effect; if not, it has none. All sites decide the same, because all have the same
//! versions there. A transaction without writes is certified at its own site, when it ends: what it read was
//! all there at that moment.
//!
//! So transactions are strictly serializable, in the order of their entries. (This is deferred update
//! replication without multi-version reads: a transaction that reads two keys at different moments finds a
//! conflict where a snapshot would have served it.)
//!
//! # Exactly once
//!
//! A site proposes an entry again until it is decided, and a client runs its transaction again at another
//! site when it hears nothing. So the replicated state knows the newest committed transaction of each
//! session, and which attempt of it that was: an entry of a transaction that has committed has no further
//! effect, and its client is told that it has committed, and whether by this attempt.
//!
//! Invariants:
//! 1. A key's version only grows, and is at most the number of decided entries.
//! 2. The state is a function of the decided entries.

use crate::{Answer, Certifier, Effects, Malformed};
use std::collections::BTreeMap;
use txn::codec::{Reader, put_entry, put_key, put_varint, take_entry, take_key};
use txn::mutant::{Mutant, is_active};
use txn::{Entry, Key, NodeId, PartitionId, RequestId, SessionId};

/// The one group.
pub const GROUP: PartitionId = PartitionId(0);
/// An entry that is not decided after so many ticks is proposed again, and then after twice as many: a site
/// that lags would otherwise make the log longer with every proposal, and lag more.
const PROPOSE_AGAIN_TICKS: u64 = 20;
/// At last it is proposed again at this interval.
const PROPOSE_AGAIN_TICKS_MAX: u64 = 32 * PROPOSE_AGAIN_TICKS;

/// One site's part. See the module's head.
#[derive(Debug, Default)]
pub struct Register {
    /// Entries that were decided.
    decided: u64,
    /// What is there, and which entry wrote it. A deleted key keeps its version.
    keys: BTreeMap<Key, (u64, Option<Entry>)>,
    /// The newest transaction of each session that has committed, and by which attempt.
    committed: BTreeMap<SessionId, (u64, u32)>,
    /// Transactions of this site's clients: not part of the replicated state.
    open: BTreeMap<RequestId, Open>,
    ticks: u64,
}

/// A transaction that has begun.
#[derive(Debug, Default)]
struct Open {
    /// The keys that it has read, and their versions.
    reads: BTreeMap<Key, u64>,
    proposed: Option<Proposed>,
}

/// A transaction's entry, which is not decided here.
#[derive(Debug)]
struct Proposed {
    entry: Vec<u8>,
    again_tick: u64,
    /// For so long it waits after that.
    wait_ticks: u64,
}

/// What an entry says.
struct Commit {
    id: RequestId,
    reads: Vec<(Key, u64)>,
    writes: Vec<(Key, Option<Entry>)>,
}

impl Register {
    /// What a key has, behind the last decided entry.
    pub fn value(&self, key: &Key) -> Option<&Entry> {
        self.keys.get(key)?.1.as_ref()
    }

    fn version(&self, key: &Key) -> u64 {
        self.keys.get(key).map_or(0, |(version, _)| *version)
    }

    /// The first key of these that is not what it was.
    fn conflict<'a>(&self, mut reads: impl Iterator<Item = (&'a Key, &'a u64)>) -> Option<Key> {
        if is_active(Mutant::CertifyNothing) {
            return None;
        }
        reads.find(|&(key, &version)| self.version(key) != version).map(|(key, _)| key.clone())
    }

    /// What a transaction is told that has committed.
    fn committed(&self, id: RequestId) -> Option<Answer> {
        let &(newest, attempt) = self.committed.get(&id.session)?;
        let by_this = (id.sequence, id.attempt) == (newest, attempt) || is_active(Mutant::MistakeAttempts);
        let answer = if by_this { Answer::Committed } else { Answer::CommittedBefore };
        (id.sequence <= newest && !is_active(Mutant::CertifyTwice)).then_some(answer)
    }

    /// Certifies a commit where it stands in the order.
    fn certify(&mut self, commit: Commit) -> Answer {
        let RequestId { session, sequence, attempt } = commit.id;
        if let Some(answer) = self.committed(commit.id) {
            return answer;
        }
        if let Some(key) = self.conflict(commit.reads.iter().map(|(key, version)| (key, version))) {
            return Answer::Conflict(key);
        }
        self.committed.insert(session, (sequence, attempt));
        for (key, value) in commit.writes {
            self.keys.insert(key, (self.decided, value));
        }
        Answer::Committed
    }

    fn finish(&mut self, id: RequestId, answer: Answer, effects: &mut Effects) {
        if self.open.remove(&id).is_some() {
            effects.answer(id, answer);
        }
    }
}

impl Certifier for Register {
    fn begin(&mut self, id: RequestId, effects: &mut Effects) {
        self.open.retain(|other, _| other.session != id.session);
        self.open.insert(id, Open::default());
        effects.ask(GROUP, id);
    }

    fn reached(&mut self, id: RequestId, effects: &mut Effects) {
        match self.committed(id) {
            Some(_) => self.finish(id, Answer::CommittedBefore, effects),
            None if self.open.contains_key(&id) => effects.answer(id, Answer::Begun),
            None => {}
        }
    }

    fn read(&mut self, id: RequestId, key: &Key, effects: &mut Effects) {
        let version = self.version(key);
        if let Some(open) = self.open.get_mut(&id) {
            open.reads.entry(key.clone()).or_insert(version);
            let value = self.keys.get(key).and_then(|(_, value)| value.clone());
            effects.answer(id, Answer::Value(value));
        }
    }

    fn commit(&mut self, id: RequestId, writes: Vec<(Key, Option<Entry>)>, effects: &mut Effects) {
        let (ticks, before) = (self.ticks, self.committed(id));
        let Some(open) = self.open.get_mut(&id) else { return };
        if writes.is_empty() {
            let reads = std::mem::take(&mut open.reads);
            let now = || self.conflict(reads.iter()).map_or(Answer::Committed, Answer::Conflict);
            let answer = before.unwrap_or_else(now);
            return self.finish(id, answer, effects);
        }
        let entry = put_commit(id, &open.reads, &writes);
        effects.propose(GROUP, entry.clone());
        let wait_ticks = PROPOSE_AGAIN_TICKS;
        open.proposed = Some(Proposed { entry, again_tick: ticks + wait_ticks, wait_ticks });
    }

    fn forget(&mut self, id: RequestId) {
        self.open.remove(&id);
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
        self.decided += 1;
        let answer = self.certify(commit);
        self.finish(id, answer, effects);
        Ok(())
    }

    fn tick(&mut self, effects: &mut Effects) {
        self.ticks += 1;
        for proposed in self.open.values_mut().filter_map(|open| open.proposed.as_mut()) {
            if self.ticks >= proposed.again_tick {
                proposed.wait_ticks = (proposed.wait_ticks * 2).min(PROPOSE_AGAIN_TICKS_MAX);
                proposed.again_tick = self.ticks + proposed.wait_ticks;
                effects.propose(GROUP, proposed.entry.clone());
            }
        }
    }

    fn snapshot(&self, _: PartitionId) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.decided);
        put_varint(&mut out, self.keys.len() as u64);
        for (key, (version, value)) in &self.keys {
            put_key(&mut out, key);
            put_varint(&mut out, *version);
            put_value(&mut out, value.as_ref());
        }
        put_varint(&mut out, self.committed.len() as u64);
        for (session, &(sequence, attempt)) in &self.committed {
            [session.0, sequence, u64::from(attempt)].into_iter().for_each(|part| put_varint(&mut out, part));
        }
        out
    }

    fn restore(&mut self, _: PartitionId, state: &[u8]) -> Result<(), Malformed> {
        let restored = take_state(&mut Reader::new(state)).ok_or(Malformed)?;
        // Transactions that are open here go on: their entries may be decided yet, or be certified anew.
        let (open, ticks) = (std::mem::take(&mut self.open), self.ticks);
        *self = Register { open, ticks, ..restored };
        Ok(())
    }
}

fn put_value(out: &mut Vec<u8>, value: Option<&Entry>) {
    out.push(u8::from(value.is_some()));
    value.iter().for_each(|value| put_entry(out, value));
}

fn take_value(reader: &mut Reader<'_>) -> Option<Option<Entry>> {
    match reader.u8()? {
        0 => Some(None),
        1 => take_entry(reader).map(Some),
        _ => None,
    }
}

fn put_commit(id: RequestId, reads: &BTreeMap<Key, u64>, writes: &[(Key, Option<Entry>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in [id.session.0, id.sequence, u64::from(id.attempt), reads.len() as u64] {
        put_varint(&mut out, part);
    }
    for (key, version) in reads {
        put_key(&mut out, key);
        put_varint(&mut out, *version);
    }
    put_varint(&mut out, writes.len() as u64);
    for (key, value) in writes {
        put_key(&mut out, key);
        put_value(&mut out, value.as_ref());
    }
    out
}

fn take_commit(entry: &[u8]) -> Option<Commit> {
    let reader = &mut Reader::new(entry);
    let (session, sequence) = (SessionId(reader.varint()?), reader.varint()?);
    let id = RequestId { session, sequence, attempt: u32::try_from(reader.varint()?).ok()? };
    let reads = (0..reader.varint()?).map(|_| Some((take_key(reader)?, reader.varint()?)));
    let reads = reads.collect::<Option<_>>()?;
    let writes = (0..reader.varint()?).map(|_| Some((take_key(reader)?, take_value(reader)?)));
    let writes = writes.collect::<Option<_>>()?;
    reader.is_empty().then_some(Commit { id, reads, writes })
}

fn take_state(reader: &mut Reader<'_>) -> Option<Register> {
    let mut state = Register { decided: reader.varint()?, ..Register::default() };
    for _ in 0..reader.varint()? {
        let key = take_key(reader)?;
        state.keys.insert(key, (reader.varint()?, take_value(reader)?));
    }
    for _ in 0..reader.varint()? {
        let (session, sequence) = (SessionId(reader.varint()?), reader.varint()?);
        state.committed.insert(session, (sequence, u32::try_from(reader.varint()?).ok()?));
    }
    reader.is_empty().then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(session: u64, sequence: u64, attempt: u32) -> RequestId {
        RequestId { session: SessionId(session), sequence, attempt }
    }

    fn entry(text: &str) -> Option<Entry> {
        Some(Entry::new(text))
    }

    /// Has a transaction read and propose; gives its entry.
    fn proposed(register: &mut Register, id: RequestId, writes: &[(&str, &str)]) -> Vec<u8> {
        let effects = &mut Effects::default();
        register.begin(id, effects);
        register.reached(id, effects);
        for (key, _) in writes {
            register.read(id, &Key::new(key.as_bytes()), effects);
        }
        let writes = writes.iter().map(|(key, value)| (Key::new(key.as_bytes()), entry(value))).collect();
        register.commit(id, writes, effects);
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
        assert_eq!(decide(&mut register, &one), Some(Answer::Conflict(Key::new(b"a"))));
        let again = proposed(&mut register, id(1, 1, 1), &[("a", "1")]);
        assert_eq!(decide(&mut register, &again), Some(Answer::Committed));
        assert_eq!(register.keys[&Key::new(b"a")], (3, entry("1")));
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
        assert_eq!(register.keys[&Key::new(b"a")], (2, entry("2")));
        let effects = &mut Effects::default();
        register.begin(id(1, 1, 2), effects);
        register.reached(id(1, 1, 2), effects);
        assert_eq!(effects.answers, [(id(1, 1, 2), Answer::CommittedBefore)], "it need not read");
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
    fn proposals_come_again_at_longer_intervals_up_to_a_bound() {
        let mut register = Register::default();
        proposed(&mut register, id(1, 1, 0), &[("a", "1")]);
        let mut at = Vec::new();
        for tick in 1..=4_000 {
            let effects = &mut Effects::default();
            register.tick(effects);
            at.extend(effects.proposals.iter().map(|_| tick));
        }
        let between: Vec<u64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(at[0], PROPOSE_AGAIN_TICKS);
        assert_eq!(between, [40, 80, 160, 320, 640, 640, 640, 640, 640]);
    }

    #[test]
    fn a_reader_that_was_overtaken_conflicts() {
        let mut register = Register::default();
        let effects = &mut Effects::default();
        register.begin(id(1, 1, 0), effects);
        register.read(id(1, 1, 0), &Key::new(b"a"), effects);
        let write = proposed(&mut register, id(2, 1, 0), &[("a", "2")]);
        decide(&mut register, &write);
        register.commit(id(1, 1, 0), Vec::new(), effects);
        assert_eq!(effects.answers.pop(), Some((id(1, 1, 0), Answer::Conflict(Key::new(b"a")))));
    }

    #[test]
    fn a_snapshot_reads_back_and_nothing_else_does() {
        let mut register = Register::default();
        let write = proposed(&mut register, id(7, 3, 0), &[("a", "1"), ("b", "2")]);
        decide(&mut register, &write);
        let effects = &mut Effects::default();
        register.begin(id(7, 4, 0), effects);
        register.commit(id(7, 4, 0), vec![(Key::new(b"b"), None)], effects);
        let delete = effects.proposals.pop().expect("a proposal").1;
        decide(&mut register, &delete);
        let state = register.snapshot(GROUP);
        let mut other = Register::default();
        other.restore(GROUP, &state).expect("a state");
        assert_eq!(other.snapshot(GROUP), state);
        assert_eq!((&other.keys, &other.committed), (&register.keys, &register.committed));
        for cut in 0..state.len() {
            assert_eq!(other.restore(GROUP, &state[..cut]), Err(Malformed), "{cut}");
        }
        for cut in 0..write.len() {
            assert_eq!(other.decided(GROUP, &write[..cut], effects), Err(Malformed), "{cut}");
        }
        assert_eq!(other.snapshot(GROUP), state, "what is refused has no effect");
    }
}
