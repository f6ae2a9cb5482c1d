//! How a node's peers are set up, and what can be said of them.

use crate::tls::Tls;
use agree::Delivery;
use execute::EngineKind;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use txn::NodeId;

/// How a node presents itself to its peers, and where it expects them.
#[derive(Clone)]
pub struct PeerOptions {
    /// This node.
    pub me: NodeId,
    /// Names the cluster: nodes of different clusters refuse each other.
    pub cluster: u64,
    /// What all nodes of the cluster know and nobody else does. Not empty; 32 random bytes are good.
    pub secret: Arc<[u8]>,
    /// Where peers connect: host and port. Port 0 stands for any free one.
    pub listen: String,
    /// The protocols that this build speaks, oldest and newest. What they are is the callers' business.
    pub protocols: RangeInclusive<u16>,
    /// What tells apart nodes that do not execute the same of the order ([`order::Skips::digest`]): they
    /// refuse each other.
    pub skips: u64,
    /// The engine that executes here: nodes that have another one refuse this node.
    pub engine: EngineKind,
    /// How groups agree: nodes whose groups do so otherwise refuse this node.
    pub delivery: Delivery,
    /// How many bytes may wait for a peer that is slower than its senders, before its link is closed. A
    /// single send to a link on which nothing waits may be larger: so memory is bounded by this number or the
    /// largest send, for each peer.
    pub queue_bytes_max: usize,
    /// What connections are secured with. None: they are not.
    pub tls: Option<Arc<Tls>>,
    /// Whether connections within this machine are not secured all the same. Both ends see that they are.
    pub plain_on_loopback: bool,
}

/// Why a node cannot have peers.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// Neither an address nor the name of one.
    #[error(
        "the peer address '{listen}' does not resolve ({cause}): give a host and a port, as in 10.0.0.1:7379"
    )]
    Unresolved {
        /// What was given.
        listen: String,
        /// What the resolver said.
        cause: io::Error,
    },
    /// The address cannot be listened on.
    #[error(
        "cannot listen for peers on {listen}: {cause}. Stop whatever uses the port, or correct the node's \
         peer address"
    )]
    Listen {
        /// What was given.
        listen: String,
        /// What the system said.
        cause: io::Error,
    },
    /// An empty secret.
    #[error(
        "the cluster's secret is empty: give all nodes of the cluster the same secret, for example 32 \
         random bytes"
    )]
    NoSecret,
    /// An empty range of protocols, or node 0.
    #[error("peers cannot be set up: {0}")]
    Senseless(&'static str),
    /// The system has no threads, files or random numbers left.
    #[error(
        "peers cannot be set up: {action}: {cause}. Raise the limits of the process (ulimit -n, -u), and \
         start it again"
    )]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        cause: io::Error,
    },
}

/// Times. They differ in tests only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// The pauses between two attempts to dial grow from this one.
    pub pause_min: Duration,
    /// To this one. An attempt counts as part of the pause.
    pub pause_max: Duration,
    /// How long an attempt to connect takes at most.
    pub connect_max: Duration,
    /// And a handshake.
    pub handshake_max: Duration,
    /// A queue that does not shrink for so long closes its link.
    pub progress_max: Duration,
    /// The kernel closes a link if what was sent is not acknowledged for so long.
    pub unacknowledged_max: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            pause_min: Duration::from_millis(10),
            pause_max: Duration::from_secs(1),
            connect_max: Duration::from_secs(1),
            handshake_max: Duration::from_secs(2),
            progress_max: Duration::from_secs(5),
            unacknowledged_max: Duration::from_secs(3),
        }
    }
}

/// What can be said of the peers and of strangers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStats {
    /// The peers.
    pub peers: std::collections::BTreeMap<NodeId, PeerStat>,
    /// How many connections were refused.
    pub refused: u64,
    /// How many connections had to leave before their handshake was over, to make room for others.
    pub crowded_out: u64,
}

/// What can be said of a peer. Numbers count from the start of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStat {
    /// The protocol of our link to it; none if the link is down.
    pub protocol: Option<u16>,
    /// Whether its link to us is up.
    pub accepted: bool,
    /// How often our link to it came up.
    pub links: u64,
    /// Frames that were sent, or wait, or were lost with a link.
    pub sent_frames: u64,
    /// Bytes that the kernel or TLS took, lengths of frames included, handshakes not.
    pub sent_bytes: u64,
    /// Frames that came.
    pub received_frames: u64,
    /// Bytes that came, lengths of frames included, handshakes not.
    pub received_bytes: u64,
    /// Bytes that were not sent because the link was down, of another protocol, or broke.
    pub dropped_bytes: u64,
    /// Bytes that wait for the peer to take them.
    pub queued_bytes: u64,
    /// Why our link to it is down, or broke last, and what to do.
    pub trouble: Option<String>,
}
