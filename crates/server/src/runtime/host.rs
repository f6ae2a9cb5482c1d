//! A node's effects, performed for real.

use super::core::{FileWork, Hands};
use crate::disk::RealDisk;
use crate::peers::{Peers, put_frame};
use bytes::Bytes;
use log::Kept;
use node::cluster::checkpoint::Needed;
use node::cluster::{ClusterCheckpoint, Piece, Whole};
use node::host::{CountedJournal, Host, HostEvent, Recorded};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use txn::NodeId;

/// The [`Host`] of a real node, under the runtime's lock: what may wait for the disk goes to threads.
pub(super) struct RealHost<'a> {
    pub records: &'a mut CountedJournal<RealDisk>,
    /// `None` once the threads are to end. A thread that is gone does nothing: the journal then makes its
    /// segments itself, stays long, and nothing is lost.
    pub hands: Option<&'a Hands>,
    pub outgoing: &'a mut BTreeMap<NodeId, Vec<u8>>,
    /// Set once the transport is up.
    pub peers: &'a OnceLock<Peers>,
    pub checkpoint_in_progress: &'a mut bool,
}

impl RealHost<'_> {
    fn files(&self, work: FileWork) {
        if let Some(hands) = self.hands {
            let _ = hands.files.send(work);
        }
    }
}

impl Host for RealHost<'_> {
    fn append(&mut self, kept: &[Kept]) -> Recorded {
        let appended = self.records.append(kept);
        if let Recorded::Written { rotated: true, .. } = appended {
            self.files(FileWork::Prepare);
        }
        appended
    }

    fn sync(&mut self) -> Option<HostEvent> {
        match (self.records.begin_sync(), self.hands) {
            (Err(durable), _) => Some(durable),
            (Ok(ticket), Some(hands)) => {
                let gone = |_| HostEvent::JournalFailed("the sync thread is gone".to_owned());
                hands.sync.send(ticket).err().map(gone)
            }
            (Ok(_), None) => None,
        }
    }

    fn send(&mut self, to: NodeId, frame: Vec<u8>) {
        put_frame(self.outgoing.entry(to).or_default(), |out| out.extend_from_slice(&frame));
    }

    fn sever(&mut self, peer: NodeId, why: &str) {
        if let Some(peers) = self.peers.get() {
            peers.sever(peer, why);
        }
    }

    fn make_room(&mut self) -> Option<HostEvent> {
        self.files(FileWork::MakeRoom);
        None
    }

    fn checkpoint(&mut self, job: ClusterCheckpoint) {
        if let Some(hands) = self.hands {
            *self.checkpoint_in_progress = true;
            let _ = hands.checkpoint.send(job);
        }
    }

    fn prune(&mut self, needed: Needed) {
        self.files(FileWork::Prune(needed));
    }

    fn read_piece(&mut self, to: NodeId, piece: Piece) -> Option<HostEvent> {
        self.files(FileWork::Read(to, piece));
        None
    }

    fn write_piece(&mut self, piece: Piece, bytes: Bytes, whole: Option<Whole>) -> Option<HostEvent> {
        self.files(FileWork::Write(piece, bytes, whole));
        None
    }
}
