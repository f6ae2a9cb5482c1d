//! One round of messages between the partitions of a node.

use super::Message;
use crate::Engine;
use std::sync::Arc;
use txn::PartitionId;

/// What one partition tells another one that this node does not keep.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Who tells.
    pub from: PartitionId,
    /// Whom.
    pub to: PartitionId,
    /// What.
    pub message: Message,
}

/// Takes what engines have to say to each other from one to the other, and adds to `sent` what is for partitions that are not
/// here. Whether anybody here was told anything: then there may be something to step.
pub fn exchange(engines: &[(PartitionId, Arc<dyn Engine>)], sent: &mut Vec<Sent>) -> bool {
    let mut told = false;
    if let [_] = engines {
        // Nobody here to tell; most nodes have nobody elsewhere either.
        collect(&engines[0], &[], sent);
        return false;
    }
    for engine in engines {
        told |= collect(engine, engines, sent);
    }
    told
}

fn collect(
    (from, engine): &(PartitionId, Arc<dyn Engine>),
    engines: &[(PartitionId, Arc<dyn Engine>)],
    sent: &mut Vec<Sent>,
) -> bool {
    let mut told = false;
    for (to, message) in engine.messages() {
        match engines.iter().find(|(partition, _)| *partition == to) {
            Some((_, engine)) => {
                engine.receive(*from, message);
                told = true;
            }
            None => sent.push(Sent {
                from: *from,
                to,
                message,
            }),
        }
    }
    told
}
