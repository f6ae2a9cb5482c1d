//! What the replicas agree on: lists, and how far each session has come.

use std::collections::BTreeMap;
use txn::hash::mix;

/// An entry's command: append a value to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Who asked.
    pub session: u32,
    /// Which of its operations this is, from 1.
    pub sequence: u64,
    /// Which list.
    pub key: u64,
    /// What.
    pub value: u64,
}

impl Command {
    /// As an entry's data.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(28);
        bytes.extend(self.session.to_le_bytes());
        for part in [self.sequence, self.key, self.value] {
            bytes.extend(part.to_le_bytes());
        }
        bytes
    }

    /// Reads an entry's data; `None` for the empty entry with which a leader begins its term.
    pub fn decode(mut bytes: &[u8]) -> Option<Command> {
        Some(Command {
            session: take_u32(&mut bytes)?,
            sequence: take_u64(&mut bytes)?,
            key: take_u64(&mut bytes)?,
            value: take_u64(&mut bytes)?,
        })
    }
}

pub(super) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}
pub(super) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?))
}
pub(super) fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?))
}

/// The state after some entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The last entry that was applied, 0 for none.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Of all entries so far and of what they did: equal at equal indices, or the replicas have diverged.
    pub digest: u64,
    lists: BTreeMap<u64, Vec<u64>>,
    /// The newest operation of each session that was applied.
    sessions: BTreeMap<u32, u64>,
}

impl State {
    /// Applies the next entry. `deduplicate`: a command that was applied before has no effect again.
    pub fn apply(&mut self, index: u64, term: u64, data: &[u8], deduplicate: bool) {
        let mut effect = 0;
        if let Some(command) = Command::decode(data)
            && !(deduplicate && self.has_applied(command.session, command.sequence))
        {
            self.sessions.insert(command.session, command.sequence);
            let list = self.lists.entry(command.key).or_default();
            list.push(command.value);
            effect = list.len() as u64;
        }
        (self.index, self.term) = (index, term);
        let entry = mix(u64::from(crc32fast::hash(data)) << 32 ^ effect);
        self.digest = mix(self.digest ^ mix(mix(index) ^ term) ^ entry);
    }

    /// Whether this operation of a session, or a later one, has been applied.
    pub fn has_applied(&self, session: u32, sequence: u64) -> bool {
        self.sessions.get(&session).is_some_and(|&applied| applied >= sequence)
    }

    /// A list.
    pub fn list(&self, key: u64) -> &[u64] {
        self.lists.get(&key).map_or(&[], Vec::as_slice)
    }

    /// As a snapshot's data.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |part: u64| bytes.extend(part.to_le_bytes());
        put(self.index);
        put(self.term);
        put(self.digest);
        put(self.lists.len() as u64);
        for (&key, list) in &self.lists {
            put(key);
            put(list.len() as u64);
            list.iter().for_each(|&value| put(value));
        }
        put(self.sessions.len() as u64);
        for (&session, &sequence) in &self.sessions {
            put(u64::from(session));
            put(sequence);
        }
        bytes
    }

    /// Reads a snapshot's data; `None` if it is none.
    pub fn decode(mut bytes: &[u8]) -> Option<State> {
        let mut next = || take_u64(&mut bytes);
        let mut state = State { index: next()?, term: next()?, digest: next()?, ..State::default() };
        for _ in 0..next()? {
            let key = next()?;
            let list = state.lists.entry(key).or_default();
            for _ in 0..next()? {
                list.push(next()?);
            }
        }
        for _ in 0..next()? {
            let session = u32::try_from(next()?).ok()?;
            state.sessions.insert(session, next()?);
        }
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_reads_back_and_a_retry_has_no_effect() {
        let mut state = State::default();
        let command = |session, sequence, value| Command { session, sequence, key: 3, value };
        state.apply(1, 1, &[], true);
        for (index, command) in [command(1, 1, 10), command(2, 4, 20), command(1, 1, 10), command(1, 3, 30)]
            .into_iter()
            .enumerate()
        {
            assert_eq!(Command::decode(&command.encode()), Some(command));
            state.apply(2 + index as u64, 1, &command.encode(), true);
        }
        assert_eq!(state.list(3), [10, 20, 30]);
        assert_eq!(state.list(4), []);
        assert!(state.has_applied(1, 2) && !state.has_applied(2, 5));
        let bytes = state.encode();
        assert_eq!(State::decode(&bytes), Some(state.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(State::decode(&bytes[..cut]), None);
        }
        state.apply(6, 1, &command(1, 1, 10).encode(), false);
        assert_eq!(state.list(3), [10, 20, 30, 10]);
    }
}
