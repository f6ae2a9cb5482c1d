//! The bytes of the consensus library's messages on the wire: ours, so that nothing but this parses what peers send, and so
//! that the data of entries is not copied.

use super::Members;
use super::raft::question_of;
use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType};
use txn::NodeId;
use txn::codec::{Reader, put_bytes, put_varint};

/// Which optional parts follow.
const HAS_REJECT: u8 = 1;
const HAS_CONTEXT: u8 = 2;

/// Writes a message.
pub(super) fn encode(message: &Message) -> Bytes {
    let data: usize = message
        .entries
        .iter()
        .map(|entry| entry.data.len() + 24)
        .sum();
    let mut out = Vec::with_capacity(64 + data);
    out.push(message.msg_type as u8);
    out.push(
        (u8::from(message.reject) * HAS_REJECT)
            | (u8::from(!message.context.is_empty()) * HAS_CONTEXT),
    );
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
pub(super) fn decode(bytes: &Bytes) -> Option<Message> {
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

/// Whether a message asks for a vote.
pub fn asks_for_vote(bytes: &Bytes) -> bool {
    let kind = decode(bytes).map(|message| message.get_msg_type());
    matches!(
        kind,
        Some(MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
    )
}

/// What a message says, for a reader of traces.
pub fn describe(bytes: &Bytes) -> String {
    let Some(message) = decode(bytes) else {
        return "no message of a consensus group".to_owned();
    };
    let Message {
        index,
        log_term,
        commit,
        ..
    } = message;
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

/// A snapshot never travels as a message: a checkpoint is fetched, and the library begins behind it at the next start.
fn message_type(number: u8) -> Option<MessageType> {
    use MessageType as M;
    // Those that replicas send each other; the others are a replica's own.
    [
        M::MsgPropose,
        M::MsgAppend,
        M::MsgAppendResponse,
        M::MsgRequestVote,
        M::MsgRequestVoteResponse,
        M::MsgHeartbeat,
        M::MsgHeartbeatResponse,
        M::MsgTransferLeader,
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
    [
        EntryType::EntryNormal,
        EntryType::EntryConfChange,
        EntryType::EntryConfChangeV2,
    ]
    .into_iter()
    .find(|&kind| kind as u8 == number)
}

/// The library's word for members, in ours: sorted, because it gives them in any order.
pub(super) fn members_of(conf_state: &ConfState) -> Members {
    let nodes = |numbers: &[u64]| {
        let mut nodes: Vec<NodeId> = numbers
            .iter()
            .map(|&number| NodeId(number as u16))
            .collect();
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
