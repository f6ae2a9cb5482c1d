//! One round of messages between the partitions of a node.

use super::Message;
use crate::Engine;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use txn::PartitionId;
use txn::mutant::{Mutant, is_active};

/// What one partition tells another one at other nodes.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Who tells.
    pub from: PartitionId,
    /// Whom.
    pub to: PartitionId,
    /// What.
    pub message: Message,
}

/// Whether another node that keeps a replica of one of this node's partitions hears from here of another of
/// them: what these two have to say to each other then is for both nodes. Set before anything is said again
/// to it.
pub type Twins = Arc<AtomicBool>;

/// Takes what engines have to say to each other from one to the other, and adds to `sent` what is for other
/// nodes. Whether anybody here was told anything: then there may be something to step.
pub fn exchange(engines: &[(PartitionId, Arc<dyn Engine>)], twins: &Twins, sent: &mut Vec<Sent>) -> bool {
    let mut told = false;
    let spanning = || engines.iter().filter_map(|(partition, engine)| Some((*partition, engine.siblings()?)));
    for (from, engine) in spanning() {
        let messages = engine.messages();
        if messages.is_empty() {
            continue;
        }
        // Looked at behind them: what is said again is among them only if it was set before.
        let has_twins = twins.load(Ordering::SeqCst) && !is_active(Mutant::KeepFromTwins);
        for (to, message) in messages {
            let Some((_, engine)) = spanning().find(|&(partition, _)| partition == to) else {
                sent.push(Sent { from, to, message });
                continue;
            };
            if has_twins {
                let message = message.clone();
                sent.push(Sent { from, to, message });
            }
            engine.receive(from, message);
            told = true;
        }
    }
    told
}
