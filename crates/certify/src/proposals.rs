//! Entries that a site has proposed and not seen decided: it proposes them again.

use crate::{Answer, Conflict, Effects};
use bytes::Bytes;
use std::collections::BTreeMap;
use txn::{PartitionId, RequestId, SessionId};

/// An entry that is not decided after so many ticks is proposed again, and then after twice as many: a site
/// that lags would otherwise make the log longer with every proposal, and lag more.
const AGAIN_TICKS: u64 = 20;
/// At last it is proposed again at this interval.
const AGAIN_TICKS_MAX: u64 = 32 * AGAIN_TICKS;

/// A tick proposes entries again until they have so many bytes together.
const TICK_BYTES: u64 = 4_096;

/// The entries of one group.
#[derive(Debug)]
pub(crate) struct Proposals {
    group: PartitionId,
    ticks: u64,
    undecided: BTreeMap<RequestId, Proposed>,
}

#[derive(Debug)]
struct Proposed {
    entry: Bytes,
    again_tick: u64,
    /// For so long it waits after that.
    wait_ticks: u64,
}

impl Proposals {
    pub(crate) fn to(group: PartitionId) -> Proposals {
        Proposals { group, ticks: 0, undecided: BTreeMap::new() }
    }

    /// Proposes a transaction's entry.
    pub(crate) fn propose(&mut self, id: RequestId, entry: Vec<u8>, effects: &mut Effects) {
        let entry = Bytes::from(entry);
        effects.propose(self.group, entry.clone());
        let (again_tick, wait_ticks) = (self.ticks + AGAIN_TICKS, AGAIN_TICKS);
        self.undecided.insert(id, Proposed { entry, again_tick, wait_ticks });
    }

    /// Whether a transaction has an entry under way.
    pub(crate) fn has(&self, id: RequestId) -> bool {
        self.undecided.contains_key(&id)
    }

    /// Nobody waits for a transaction's entry any more.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.undecided.remove(&id);
    }

    /// Nobody waits for the entries of a session's transactions any more.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        forget_session(&mut self.undecided, session);
    }

    /// The same, but for the entries of some of them.
    pub(crate) fn forget_session_but(&mut self, session: SessionId, is_kept: impl Fn(RequestId) -> bool) {
        let first = RequestId { session, sequence: 0, attempt: 0 };
        let of_session = self.undecided.range(first..).take_while(|(id, _)| id.session == session);
        let forgotten: Vec<RequestId> = of_session.map(|(&id, _)| id).filter(|&id| !is_kept(id)).collect();
        forgotten.into_iter().for_each(|id| self.forget(id));
    }

    /// The group has another leader, which is given all entries again.
    pub(crate) fn propose_in_turn(&mut self) {
        self.undecided.values_mut().for_each(|proposed| proposed.again_tick = self.ticks);
    }

    /// Time passes. Entries that are due are proposed again, the longest due first, up to the bytes of a
    /// tick: all entries at once could fill the links, and then a leader's heartbeats would come too late.
    pub(crate) fn tick(&mut self, effects: &mut Effects) {
        self.ticks += 1;
        let mut due: Vec<_> =
            self.undecided.values_mut().filter(|proposed| self.ticks >= proposed.again_tick).collect();
        due.sort_by_key(|proposed| proposed.again_tick);
        let mut bytes = 0;
        for proposed in due {
            if bytes >= TICK_BYTES {
                break;
            }
            bytes += proposed.entry.len() as u64;
            proposed.wait_ticks = (proposed.wait_ticks * 2).min(AGAIN_TICKS_MAX);
            proposed.again_tick = self.ticks + proposed.wait_ticks;
            effects.propose(self.group, proposed.entry.clone());
        }
    }
}

/// Transactions that a site has open, at most.
pub const OPEN_MAX: usize = 1 << 16;

/// Makes room for a transaction that begins: it voids what its session has open. `Err` is the answer of a
/// transaction that must not begin.
pub(crate) fn make_room<T>(open: &mut BTreeMap<RequestId, T>, id: RequestId) -> Result<(), Answer> {
    let first = RequestId { session: id.session, sequence: 0, attempt: 0 };
    let newest = open.range(first..).take_while(|(other, _)| other.session == id.session).last();
    // A request that was late must not void the attempt that its client waits for.
    // Nor may it run twice: the halves of two runs would be taken for one.
    if newest.is_some_and(|(newest, _)| (newest.sequence, newest.attempt) >= (id.sequence, id.attempt)) {
        return Err(Answer::Conflict(Conflict::Superseded));
    }
    forget_session(open, id.session);
    if open.len() < OPEN_MAX { Ok(()) } else { Err(Answer::Unavailable) }
}

/// Removes what there is of a session.
pub(crate) fn forget_session<T>(map: &mut BTreeMap<RequestId, T>, session: SessionId) {
    let first = RequestId { session, sequence: 0, attempt: 0 };
    while let Some((&id, _)) = map.range(first..).next().filter(|(id, _)| id.session == session) {
        map.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposals_come_again_at_longer_intervals_up_to_a_bound() {
        let mut proposals = Proposals::to(PartitionId(0));
        let id = RequestId::default();
        proposals.propose(id, vec![1], &mut Effects::default());
        let mut at = Vec::new();
        for tick in 1..=4_000 {
            let effects = &mut Effects::default();
            proposals.tick(effects);
            at.extend(effects.proposals.iter().map(|_| tick));
        }
        let between: Vec<u64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(at[0], AGAIN_TICKS);
        assert_eq!(between, [40, 80, 160, 320, 640, 640, 640, 640, 640]);
        proposals.forget(id);
        let effects = &mut Effects::default();
        (0..1_000).for_each(|_| proposals.tick(effects));
        assert!(effects.proposals.is_empty());
    }

    #[test]
    fn a_new_leader_has_a_few_entries_at_each_tick() {
        let mut proposals = Proposals::to(PartitionId(0));
        let bytes = TICK_BYTES as usize / 2;
        for sequence in 1..=6 {
            let id = RequestId { sequence, ..RequestId::default() };
            proposals.propose(id, vec![1; bytes], &mut Effects::default());
        }
        proposals.propose_in_turn();
        let mut counts = Vec::new();
        for _ in 0..5 {
            let effects = &mut Effects::default();
            proposals.tick(effects);
            counts.push(effects.proposals.len());
        }
        assert_eq!(counts, [2, 2, 2, 0, 0]);
    }
}
