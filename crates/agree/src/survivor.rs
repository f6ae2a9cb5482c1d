//! What makes one replica the only member of its group, where the others are gone for good.
//!
//! Nothing in the group can decide this, because it takes a majority that is gone. An operator decides,
//! while the replica's process is stopped. Then everything that the replica has appended counts as agreed:
//! any of it may have been acknowledged, and nobody is left to say otherwise. The change of the members
//! stands behind it in the log, as a leader would have proposed it, and is agreed, too. So a start finds
//! nothing special: it reads the log, and applies the change.
//!
//! Invariants:
//! 1. No entry that the replica has is lost or replaced.
//! 2. The term is one in which nobody else can have led with this replica's vote.

use super::message::put_members_change;
use super::{Group, RaftGroup};
use log::{Base, Entry, EntryKind, HardState, Kept, Members};
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};
use txn::{NodeId, PartitionId};

/// What a replica's log must get so that the replica is its group's only voter; `None` if it is that
/// already, by agreement.
///
/// # Errors
/// The text says what is wrong with what was kept.
pub fn sole_member(
    me: NodeId,
    partition: PartitionId,
    base: &Base,
    entries: &[Entry],
    hard_state: HardState,
) -> Result<Option<Kept>, String> {
    let is_alone = |members: &Members| members.voters == [me] && members.voters_outgoing.is_empty();
    let is_agreed = |entry: &Entry| entry.kind != EntryKind::Membership || entry.index <= hard_state.commit;
    let members = members_at_end(me, partition, base, entries.to_vec(), hard_state)?;
    if is_alone(&members) && entries.iter().all(is_agreed) {
        return Ok(None);
    }
    let mut changes = Vec::new();
    if !members.voters_outgoing.is_empty() {
        changes.push(ConfChangeV2::default());
    }
    changes.push(replace_all(me, &members));
    changes.push(ConfChangeV2::default());
    let last = entries.last().map_or(base.index, |entry| entry.index);
    let term = hard_state.term + 1;
    let entry = |(index, change)| {
        let mut data = Vec::new();
        put_members_change(&change, &mut data);
        Entry { index, term, kind: EntryKind::Membership, data: data.into() }
    };
    let added: Vec<Entry> = (last + 1..).zip(changes).map(entry).collect();
    let hard_state = HardState { term, vote: u64::from(me.0), commit: last + added.len() as u64 };
    let all = [entries, &added].concat();
    let members = members_at_end(me, partition, base, all, hard_state)?;
    if members != (Members { voters: vec![me], ..Members::default() }) {
        return Err(format!(
            "{me} cannot become the only member of {partition}, which would have {members:?}: a bug, please \
             report it"
        ));
    }
    Ok(Some(Kept { entries: added, hard_state: Some(hard_state), ..Kept::nothing(partition) }))
}

/// A change by which one node is the only voter, and nobody else has any part. It is joint, and ended by the
/// next one.
fn replace_all(me: NodeId, members: &Members) -> ConfChangeV2 {
    let single = |kind, node: NodeId| {
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = u64::from(node.0);
        single
    };
    let mut change = ConfChangeV2::default();
    change.set_transition(ConfChangeTransition::Explicit);
    let others = [&members.voters, &members.learners, &members.learners_next];
    let others = others.into_iter().flatten().filter(|&&node| node != me);
    let go = others.map(|&node| single(ConfChangeType::RemoveNode, node));
    let stay = [single(ConfChangeType::AddNode, me)];
    change.mut_changes().extend(stay.into_iter().chain(go));
    change
}

/// The members behind the last entry, if all entries are agreed.
fn members_at_end(
    me: NodeId,
    partition: PartitionId,
    base: &Base,
    entries: Vec<Entry>,
    hard_state: HardState,
) -> Result<Members, String> {
    let commit = entries.last().map_or(base.index, |entry| entry.index);
    let hard_state = HardState { commit, ..hard_state };
    let base = base.clone();
    let mut group = RaftGroup::new(me, partition, base, entries, hard_state, 0, u64::MAX)?;
    while let Some(turn) = group.turn() {
        group.kept(turn.number);
    }
    Ok(group.members())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const ME: NodeId = NodeId(3);
    const P: PartitionId = PartitionId(2);

    fn nodes(numbers: &[u16]) -> Vec<NodeId> {
        numbers.iter().map(|&number| NodeId(number)).collect()
    }

    fn base() -> Base {
        Base {
            index: 7,
            term: 4,
            members: Members { voters: nodes(&[1, 2, 3]), ..Members::default() },
            state: Bytes::new(),
        }
    }

    fn entry(index: u64, change: Option<ConfChangeV2>) -> Entry {
        let mut data = Vec::new();
        if let Some(change) = &change {
            put_members_change(change, &mut data);
        }
        Entry {
            index,
            term: 4,
            kind: match change {
                Some(_) => EntryKind::Membership,
                None => EntryKind::Data,
            },
            data: data.into(),
        }
    }

    fn change(kind: ConfChangeType, node: u64) -> ConfChangeV2 {
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = node;
        let mut change = ConfChangeV2::default();
        change.mut_changes().push(single);
        change
    }

    /// A log with these entries behind the base, of which none is known to be agreed, in which node 3
    /// becomes the only member; and that it then is, elects itself, and has all entries as they were.
    fn alone(base: Base, entries: Vec<Entry>) {
        let hard_state = HardState { term: 5, vote: 1, commit: base.index };
        let kept = sole_member(ME, P, &base, &entries, hard_state).expect("a log");
        let kept = kept.expect("others are there");
        let hard_state = kept.hard_state.expect("a term");
        assert_eq!((hard_state.term, hard_state.vote), (6, 3));
        let all = [entries.clone(), kept.entries].concat();
        assert_eq!(all.last().expect("entries").index, hard_state.commit);
        assert_eq!(sole_member(ME, P, &base, &all, hard_state), Ok(None));
        let not_agreed = HardState { commit: base.index, ..hard_state };
        let again = sole_member(ME, P, &base, &all, not_agreed).expect("a log").expect("it is not agreed");
        assert!(again.hard_state.expect("a term").commit > hard_state.commit);
        let group = RaftGroup::new(ME, P, base, all, hard_state, 0, u64::MAX);
        let mut group = group.expect("a log");
        let go = |group: &mut RaftGroup| {
            while let Some(turn) = group.turn() {
                assert!(turn.messages.is_empty());
                group.kept(turn.number);
            }
        };
        go(&mut group);
        group.handle(super::super::Input::Campaign).expect("it may");
        go(&mut group);
        assert!(group.leads().is_some_and(|term| term > 6));
        for entry in entries {
            assert_eq!(group.entry(entry.index), Some(entry));
        }
    }

    #[test]
    fn whoever_the_members_are_one_replica_is_left_and_no_entry_is_lost() {
        let joint = || {
            let mut joint = replace_all(NodeId(1), &base().members);
            joint.set_transition(ConfChangeTransition::Explicit);
            joint
        };
        alone(base(), Vec::new());
        alone(base(), vec![entry(8, None), entry(9, None)]);
        // A learner may come, or leave; a voter may have left; a change may be under way.
        let learner = change(ConfChangeType::AddLearnerNode, 4);
        alone(base(), vec![entry(8, Some(learner)), entry(9, None)]);
        let removed = change(ConfChangeType::RemoveNode, 3);
        alone(base(), vec![entry(8, Some(removed))]);
        alone(base(), vec![entry(8, Some(joint())), entry(9, None)]);
        let mut learns = base();
        learns.members.voters = nodes(&[1, 2]);
        learns.members.learners = nodes(&[3]);
        alone(learns, vec![entry(8, None)]);
        let mut under_way = base();
        under_way.members.voters = nodes(&[4]);
        under_way.members.voters_outgoing = nodes(&[1, 2, 3]);
        under_way.members.learners_next = nodes(&[2]);
        alone(under_way, Vec::new());
    }
}
