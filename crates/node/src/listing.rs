//! What the log of a stopped node has, for people.

use crate::cluster::CANDIDATES;
use crate::cluster::LoadError;
use crate::cluster::candidates::begin_of_start;
use crate::cluster::stands_alone;
use log::{Disk, Journal, OpenError};
use order::{GroupBatch, skip::name_of};
use std::sync::Arc;
use txn::codec::RequestError;
use txn::{Epoch, PartitionId, Registry, Request, RequestName};

/// A request of the log that is behind the newest checkpoint: every start executes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What to call it.
    pub name: RequestName,
    /// The time of its epoch's batch, in milliseconds since 1970.
    pub time_ms: u64,
    /// The partitions that execute it.
    pub partitions: Vec<PartitionId>,
    /// What the caller says of it.
    pub text: String,
}

/// Says in a line what a request does. The caller knows which of its words are secrets.
pub type Describe = fn(&Request) -> String;

impl Listed {
    fn of(epoch: Epoch, time_ms: u64, request: &Request, describe: Describe) -> Listed {
        Listed {
            name: name_of(epoch, request),
            time_ms,
            partitions: request.route.partitions.to_vec(),
            text: describe(request),
        }
    }
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// What the journal says of checkpoints cannot be read.
    #[error(transparent)]
    Bases(#[from] LoadError),
    /// A batch cannot be read.
    #[error("a batch of the log cannot be read: {0}: use the version of Ordo that wrote it")]
    Batch(#[from] RequestError),
}

/// Lists what a node has in the logs of its partitions behind its newest checkpoint, epoch by epoch. What is
/// not agreed on yet is there, too. Opens the journal as a start does.
pub fn list<D: Disk>(
    disk: &Arc<D>,
    segment_bytes: u64,
    log_boot_id: u64,
    registry: &Registry,
    describe: Describe,
) -> Result<Vec<Listed>, ListError> {
    let (_, images, _) = Journal::open(disk.clone(), segment_bytes, log_boot_id)?;
    let begin = begin_of_start(&**disk, &images, stands_alone(&images))?;
    let groups = images.iter().filter(|(id, _)| **id < CANDIDATES);
    let mut listed = Vec::new();
    for entry in groups.flat_map(|(_, image)| &image.entries) {
        // What is no batch has nothing for engines.
        let Some(epoch) = GroupBatch::epoch_of(&entry.data).filter(|&epoch| epoch > begin) else {
            continue;
        };
        let batch = GroupBatch::decode(&entry.data, registry)?;
        let requests = batch.submissions.iter().map(|submission| &submission.request);
        listed.extend(requests.map(|request| Listed::of(epoch, batch.time_ms, request, describe)));
    }
    // Within an epoch and a group they stand in order already.
    listed.sort_by_key(|listed| listed.name.epoch);
    Ok(listed)
}
