//! The bytes of the consensus library's messages on the wire: ours, so that nothing but this parses what
//! peers send, and so that the data of entries is not copied.

use super::Members;
use super::raft_group::question_of;
use bytes::Bytes;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType,
    Message, MessageType,
};
use txn::NODES_MAX;
use txn::NodeId;
use txn::codec::{Reader, put_bytes, put_varint};

/// Which optional parts follow.
const HAS_REJECT: u8 = 1;
const HAS_CONTEXT: u8 = 2;

/// Writes a message.
pub(crate) fn encode(message: &Message) -> Bytes {
    let data: usize = message.entries.iter().map(|entry| entry.data.len() + 24).sum();
    let mut out = Vec::with_capacity(64 + data);
    out.push(message.msg_type as u8);
    out.push((u8::from(message.reject) * HAS_REJECT) | (u8::from(!message.context.is_empty()) * HAS_CONTEXT));
    for number in [
        message.to,
        message.from,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.request_snapshot,
    ] {
        put_varint(&mut out, number);
    }
    if message.reject {
        put_varint(&mut out, message.reject_hint);
    }
    if !message.context.is_empty() {
        put_bytes(&mut out, &message.context);
    }
    put_varint(&mut out, message.entries.len() as u64);
    for entry in &message.entries {
        out.push(entry.entry_type as u8);
        put_varint(&mut out, entry.term);
        put_varint(&mut out, entry.index);
        put_bytes(&mut out, &entry.data);
    }
    out.into()
}

/// Reads a message.
pub(crate) fn decode(bytes: &Bytes) -> Option<Message> {
    let mut reader = Reader::new(bytes);
    let mut message = Message::default();
    message.set_msg_type(message_type(reader.u8()?)?);
    let parts = reader.u8()?;
    message.to = reader.varint()?;
    message.from = reader.varint()?;
    message.term = reader.varint()?;
    message.log_term = reader.varint()?;
    message.index = reader.varint()?;
    message.commit = reader.varint()?;
    message.commit_term = reader.varint()?;
    message.request_snapshot = reader.varint()?;
    if parts & HAS_REJECT != 0 {
        message.reject = true;
        message.reject_hint = reader.varint()?;
    }
    if parts & HAS_CONTEXT != 0 {
        message.context = bytes.slice_ref(reader.bytes()?);
    }
    for _ in 0..reader.varint()? {
        let mut entry = Entry::default();
        entry.set_entry_type(entry_type(reader.u8()?)?);
        entry.term = reader.varint()?;
        entry.index = reader.varint()?;
        entry.data = bytes.slice_ref(reader.bytes()?);
        message.entries.push(entry);
    }
    (reader.is_empty() && parts < 4).then_some(message)
}

/// What a message says, for a reader of traces.
pub(crate) fn describe(bytes: &Bytes) -> String {
    let Some(message) = decode(bytes) else {
        return "no message of a consensus group".to_owned();
    };
    let Message { index, log_term, commit, .. } = message;
    let answer = if message.reject { "no" } else { "yes" };
    let text = match message.get_msg_type() {
        MessageType::MsgAppend => match (message.entries.first(), message.entries.last()) {
            (Some(first), Some(last)) => format!(
                "append {}..{} behind {index} of term {log_term}, agreed {commit}",
                first.index, last.index
            ),
            _ => format!("append nothing behind {index} of term {log_term}, agreed {commit}"),
        },
        MessageType::MsgAppendResponse if message.reject => {
            format!("has not {index}, but perhaps {}", message.reject_hint)
        }
        MessageType::MsgAppendResponse => format!("has {index}"),
        MessageType::MsgHeartbeat => format!("heartbeat, agreed {commit}"),
        MessageType::MsgHeartbeatResponse => "heartbeat heard".to_owned(),
        MessageType::MsgRequestPreVote => {
            format!("would you vote, with {index} of term {log_term}")
        }
        MessageType::MsgRequestPreVoteResponse => format!("would vote: {answer}"),
        MessageType::MsgRequestVote => format!("vote, with {index} of term {log_term}"),
        MessageType::MsgRequestVoteResponse => format!("votes: {answer}"),
        MessageType::MsgReadIndex => "read index, please".to_owned(),
        MessageType::MsgReadIndexResp => format!("read index {index}"),
        other => format!("{other:?}"),
    };
    let question = question_of(&message.context);
    let question = question.map_or_else(String::new, |question| format!(" (question {question})"));
    format!("term {}: {text}{question}", message.term)
}

/// A snapshot never travels as a message: a checkpoint is fetched, and the library begins behind it at the
/// next start. Nor does what only a leader takes of its own node: a batch, and the wish that another should
/// lead.
fn message_type(number: u8) -> Option<MessageType> {
    use MessageType as M;
    // Those that replicas send each other; the others are a replica's own.
    [
        M::MsgAppend,
        M::MsgAppendResponse,
        M::MsgRequestVote,
        M::MsgRequestVoteResponse,
        M::MsgHeartbeat,
        M::MsgHeartbeatResponse,
        M::MsgTimeoutNow,
        M::MsgReadIndex,
        M::MsgReadIndexResp,
        M::MsgRequestPreVote,
        M::MsgRequestPreVoteResponse,
    ]
    .into_iter()
    .find(|&kind| kind as u8 == number)
}

fn entry_type(number: u8) -> Option<EntryType> {
    [EntryType::EntryNormal, EntryType::EntryConfChangeV2].into_iter().find(|&kind| kind as u8 == number)
}

/// Reads a change of the members as it stands in an entry: a message of protocol buffers with numbers in it,
/// and with others that have numbers. `None` on anything else, and on what no change of ours says. (No reader
/// of the library sees what a peer has sent.)
pub(super) fn members_change(data: &[u8]) -> Option<ConfChangeV2> {
    const NUMBER: u64 = 0;
    const BYTES: u64 = 2;
    let mut change = ConfChangeV2::default();
    let mut reader = Reader::new(data);
    while !reader.is_empty() {
        let tag = reader.varint()?;
        match (tag >> 3, tag & 7) {
            (1, NUMBER) => change.set_transition(match reader.varint()? {
                0 => ConfChangeTransition::Auto,
                1 => ConfChangeTransition::Implicit,
                2 => ConfChangeTransition::Explicit,
                _ => return None,
            }),
            (2, BYTES) => {
                let single = single_change(reader.bytes()?)?;
                change.mut_changes().push(single);
            }
            (3, BYTES) if reader.bytes()?.is_empty() => {}
            _ => return None,
        }
    }
    (change.get_changes().len() <= CHANGES_MAX).then_some(change)
}

/// Writes a change of the members as the library writes it, and [`members_change`] reads it.
pub(super) fn put_members_change(change: &ConfChangeV2, out: &mut Vec<u8>) {
    let transition = change.get_transition() as u64;
    if transition != 0 {
        put_varint(out, 1 << 3);
        put_varint(out, transition);
    }
    for single in change.get_changes() {
        let mut data = Vec::new();
        for (tag, number) in [(1 << 3, single.get_change_type() as u64), (2 << 3, single.node_id)] {
            if number != 0 {
                put_varint(&mut data, tag);
                put_varint(&mut data, number);
            }
        }
        put_varint(out, 2 << 3 | 2);
        put_bytes(out, &data);
    }
}

/// More nodes than a change can name.
const CHANGES_MAX: usize = 2 * NODES_MAX as usize;

fn single_change(data: &[u8]) -> Option<ConfChangeSingle> {
    let mut single = ConfChangeSingle::default();
    let mut reader = Reader::new(data);
    while !reader.is_empty() {
        match (reader.varint()?, reader.varint()?) {
            (8, 0) => single.set_change_type(ConfChangeType::AddNode),
            (8, 1) => single.set_change_type(ConfChangeType::RemoveNode),
            (8, 2) => single.set_change_type(ConfChangeType::AddLearnerNode),
            (16, node) => single.node_id = node,
            _ => return None,
        }
    }
    (1..=u64::from(NODES_MAX)).contains(&single.node_id).then_some(single)
}

/// The library's word for members, in ours: sorted, because it gives them in any order.
pub(super) fn members_of(conf_state: &ConfState) -> Members {
    let nodes = |numbers: &[u64]| {
        let mut nodes: Vec<NodeId> = numbers.iter().map(|&number| NodeId(number as u16)).collect();
        nodes.sort();
        nodes
    };
    Members {
        voters: nodes(&conf_state.voters),
        voters_outgoing: nodes(&conf_state.voters_outgoing),
        learners: nodes(&conf_state.learners),
        learners_next: nodes(&conf_state.learners_next),
        auto_leave: conf_state.auto_leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protobuf::Message as _;

    #[test]
    fn a_change_of_members_is_read_as_the_library_writes_it_and_nothing_else_is() {
        let single = |kind, node_id| {
            let mut single = ConfChangeSingle::default();
            single.set_change_type(kind);
            single.node_id = node_id;
            single
        };
        let mut replaces = ConfChangeV2::default();
        replaces.mut_changes().extend([
            single(ConfChangeType::AddNode, 300),
            single(ConfChangeType::RemoveNode, 1),
            single(ConfChangeType::AddLearnerNode, 1024),
        ]);
        let mut explicit = ConfChangeV2::default();
        explicit.set_transition(ConfChangeTransition::Explicit);
        for change in [ConfChangeV2::default(), replaces, explicit] {
            let bytes = change.write_to_bytes().expect("bytes");
            let mut ours = Vec::new();
            put_members_change(&change, &mut ours);
            assert_eq!(ours, bytes);
            assert_eq!(members_change(&bytes), Some(change));
        }
        // The bytes that logs of older builds have.
        let (adds, leaves): (&[u8], &[u8]) = (&[18, 4, 8, 2, 16, 4, 18, 4, 8, 1, 16, 1], &[]);
        let read = members_change(adds).expect("a change");
        assert_eq!(read.write_to_bytes().expect("bytes"), adds);
        assert!(members_change(leaves).is_some_and(|change| change.leave_joint()));
        let wrong: [&[u8]; 9] = [
            &[8, 3],
            &[18, 4, 8, 3, 16, 4],
            &[18, 2, 8, 1],
            &[18, 2, 16, 0],
            &[18, 3, 16, 0x81, 8],
            &[18, 9, 16],
            &[26, 1, 7],
            &[32, 1],
            &[19],
        ];
        for bytes in wrong {
            assert_eq!(members_change(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn messages_round_trip_and_truncations_are_refused() {
        let mut append = Message::default();
        append.set_msg_type(MessageType::MsgAppend);
        (append.to, append.from, append.term) = (2, 1, 7);
        (append.log_term, append.index, append.commit) = (6, 300, 299);
        append.context = Bytes::from_static(b"why");
        for index in 301..304 {
            let mut entry = Entry::default();
            (entry.index, entry.term) = (index, 7);
            entry.data = Bytes::from(vec![index as u8; 9]);
            append.entries.push(entry);
        }
        let mut refusal = Message::default();
        refusal.set_msg_type(MessageType::MsgAppendResponse);
        (refusal.reject, refusal.reject_hint) = (true, 12);
        for message in [append, refusal] {
            let bytes = encode(&message);
            assert_eq!(decode(&bytes), Some(message));
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes.slice(..len)), None);
            }
        }
    }
}
