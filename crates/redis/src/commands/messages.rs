//! Publishing. Who listens is the business of connections; a message leaves once its transaction is final.

use txn::{Blob, Message, Note, Outcome, Reply, Tx};

/// Notes a message. How many get it is not known here: that differs between nodes, and a reply must not.
fn publish(tx: &Tx, args: &[Blob], is_sharded: bool) -> Outcome {
    tx.note(|| Note::Published(Message { channel: args[0].clone(), payload: args[1].clone(), is_sharded }));
    Ok(Reply::Integer(0))
}

/// PUBLISH channel message
pub async fn global(tx: &mut Tx, args: &[Blob]) -> Outcome {
    publish(tx, args, false)
}

/// SPUBLISH shardchannel message
pub async fn sharded(tx: &mut Tx, args: &[Blob]) -> Outcome {
    publish(tx, args, true)
}
