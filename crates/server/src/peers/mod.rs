//! How the nodes of a cluster reach each other: TCP, a shared secret, and frames.
//!
//! A node dials each of its peers, and sends to a peer only on the connection that it dialled: its *link* to
//! the peer. What a peer sends comes on the connection that the peer dialled. So neither waits for the other,
//! and there is no question which of two connections counts.
//!
//! ```text
//!  whoever drives the node ──send──► link ══════════════► listener ──► reading thread ──frames──► PeerEvents
//!                                     ▲     connection     (proof of the secret)
//!                    dialling thread ─┘ (dials; writes what the kernel did not take at once)
//! ```
//!
//! - **Order.** The frames of a peer arrive in the order in which they were sent, none twice. They can be
//!   lost: those that are sent while the link is down are dropped, and those that are on their way when it
//!   breaks may be. What arrives of a connection is a prefix of what was sent on it.
//! - **Nothing blocks.** [`Peers::send`] makes a system call and returns. What a peer does not take waits in
//!   a bounded queue; a peer that falls behind further, or takes nothing for a while, loses its link, and is
//!   dialled again.
//! - **Strangers** get no further than a handshake of a fixed size, of which only a bounded number goes on at
//!   a time. `docs/peer-protocol.md` has its bytes, and what the secret protects.
//! - **TLS** is below all of that, unless the settings (`tls-cluster`) say otherwise: with certificates that
//!   a CA has signed, or with one that a process makes for itself and nobody believes. Either way the
//!   handshake has to be passed, and its proofs are of no use on any other connection: whoever stands in the
//!   middle has two.
//! - **Protocols.** The handshake finds the newest protocol that both sides know. It holds for the
//!   connection: both [`PeerEvents::frames`] and [`Peers::send`] say which protocol the frames belong to, and
//!   frames for a link that has another one by now are dropped.
//!
//! A link that broke is dialled again after pauses that grow, and at once when the peer's own connection
//! comes. A process has one thread that listens, and two for each peer that it ever had.
//!
//! Locks are taken in one order: the table of peers, a link's orders, its outbox, a reader's slots. None of
//! them is held while [`PeerEvents`] is called. The names have a lock that is held for nothing else.

mod dial;
mod frames;
mod handshake;
mod link;
mod options;
mod peer_listener;
mod receive;
mod socket;
#[cfg(test)]
mod tests;

pub use frames::{FRAME_BYTES_MAX, put_frame};
pub use options::{PeerOptions, PeerStat, PeerStats, PeersError};

use crate::tls::Tls;
use crate::warnings::Warnings;
use bytes::Bytes;
use handshake::{Identity, Proven};
use link::Link;
use mio::net::TcpListener;
use mio::{Poll, Waker};
use options::Timing;
use parking_lot::{Mutex, RwLock};
use receive::{Accepted, Reader};
use socket::Entropy;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use txn::NodeId;

/// The same warning is logged once in so long a time.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Who hears from the peers. Called by threads of [`Peers`], for one peer in order, for several peers at the
/// same time.
pub trait PeerEvents: Send + Sync + 'static {
    /// Frames of a peer, without their lengths, in the order in which it sent them: all that one read
    /// brought. The vector is the caller's, and is emptied by it.
    ///
    /// They are slices of memory that they share with their neighbours, 128 KiB or a large frame: copy what
    /// is small and kept for long. Until this returns, nothing more is read from the peer, which slows the
    /// peer down.
    fn frames(&self, from: NodeId, protocol: u16, frames: &mut Vec<Bytes>);
    /// Our link to a peer is up, and takes frames of this protocol.
    fn connected(&self, peer: NodeId, protocol: u16);
    /// Our link to a peer broke. Follows each [`PeerEvents::connected`], but for the links that
    /// [`Peers::stop`] closes.
    fn disconnected(&self, peer: NodeId);
}

/// A peer, or a node that was one.
struct Peer {
    link: Link,
    reader: Reader,
    /// Whether it is one now.
    known: AtomicBool,
    /// What its connections were closed for.
    severed: Mutex<Warnings<1>>,
}

/// What the threads share.
struct Shared {
    identity: Identity,
    queue_bytes_max: usize,
    tls: Option<Arc<Tls>>,
    plain_on_loopback: bool,
    events: Arc<dyn PeerEvents>,
    timing: Timing,
    entropy: Entropy,
    peers: RwLock<BTreeMap<NodeId, Arc<Peer>>>,
    /// What people call the nodes.
    names: RwLock<BTreeMap<NodeId, String>>,
    stopping: AtomicBool,
    refused: AtomicU64,
    crowded_out: AtomicU64,
}

impl Shared {
    /// A node as the log calls it.
    fn called(&self, node: NodeId) -> String {
        match self.names.read().get(&node) {
            Some(name) => format!("'{name}' ({node})"),
            None => node.to_string(),
        }
    }

    /// What a connection with this address at its other end is secured with.
    fn tls_with(&self, address: IpAddr) -> Option<&Arc<Tls>> {
        let is_plain = self.plain_on_loopback && address.to_canonical().is_loopback();
        self.tls.as_ref().filter(|_| !is_plain)
    }

    fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        let peers = self.peers.read();
        let peer = peers.get(&node)?;
        peer.known.load(Ordering::SeqCst).then(|| peer.clone())
    }

    fn knows(&self, node: NodeId) -> bool {
        self.peer(node).is_some()
    }

    /// Reads what a peer sends from now on.
    fn let_in(&self, proven: Proven, accepted: Accepted) {
        // Under the table's lock: a peer that is removed meanwhile is let in before that, or not at all.
        let peers = self.peers.read();
        if let Some(peer) = peers.get(&proven.node)
            && peer.known.load(Ordering::SeqCst)
        {
            peer.reader.adopt(accepted);
            peer.link.order(|orders| orders.nudged = true);
        }
    }
}

/// A node's connections to its peers. See the module's head.
pub struct Peers {
    shared: Arc<Shared>,
    local_address: SocketAddr,
    listener_waker: Waker,
    /// None once they are stopped.
    threads: Mutex<Option<Vec<JoinHandle<()>>>>,
}

fn system(action: &'static str) -> impl FnOnce(io::Error) -> PeersError {
    move |cause| PeersError::System { action, cause }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, PeersError> {
    let builder = std::thread::Builder::new().name(name);
    builder.spawn(run).map_err(system("starting a thread"))
}

/// Listens on the first of a name's addresses that can be had.
fn listen(name: &str) -> Result<TcpListener, PeersError> {
    let unresolved = |cause| PeersError::Unresolved { listen: name.to_owned(), cause };
    let mut failure = unresolved(io::Error::other("it has no address"));
    for address in name.to_socket_addrs().map_err(unresolved)? {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(cause) => failure = PeersError::Listen { listen: name.to_owned(), cause },
        }
    }
    Err(failure)
}

impl Peers {
    /// Listens for peers. There are none before [`Peers::set_peers`]: everybody is refused.
    ///
    /// # Errors
    /// The address cannot be listened on, or an option makes no sense.
    pub fn start(options: PeerOptions, events: Arc<dyn PeerEvents>) -> Result<Peers, PeersError> {
        Peers::start_timed(options, events, Timing::default())
    }

    fn start_timed(
        options: PeerOptions,
        events: Arc<dyn PeerEvents>,
        timing: Timing,
    ) -> Result<Peers, PeersError> {
        if options.secret.is_empty() {
            return Err(PeersError::NoSecret);
        }
        if options.protocols.is_empty() {
            return Err(PeersError::Senseless("the range of protocols is empty"));
        }
        if options.me == NodeId(0) {
            return Err(PeersError::Senseless("nodes are numbered from 1"));
        }
        let listener = listen(&options.listen)?;
        let local_address = listener.local_addr().map_err(system("looking up the own address"))?;
        let shared = Arc::new(Shared {
            identity: Identity {
                me: options.me,
                cluster: options.cluster,
                secret: options.secret,
                protocols: options.protocols,
                skips: options.skips,
                engine: options.engine,
                delivery: options.delivery,
            },
            queue_bytes_max: options.queue_bytes_max,
            tls: options.tls,
            plain_on_loopback: options.plain_on_loopback,
            events,
            timing,
            entropy: Entropy::open().map_err(system("opening /dev/urandom"))?,
            peers: RwLock::default(),
            names: RwLock::default(),
            stopping: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            crowded_out: AtomicU64::new(0),
        });
        let poll = Poll::new().map_err(system("making a poll"))?;
        let waker = Waker::new(poll.registry(), peer_listener::WAKER).map_err(system("making a waker"))?;
        let listener = peer_listener::PeerListener::new(poll, listener, shared.clone())
            .map_err(system("watching the listener"))?;
        let thread = spawn("ordo-peer-listener".to_owned(), move || listener.run())?;
        Ok(Peers { shared, local_address, listener_waker: waker, threads: Mutex::new(Some(vec![thread])) })
    }

    /// Where peers connect.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Says who the peers are, and where: whom to dial, and who is let in. This node itself may be among
    /// them.
    ///
    /// A peer that was not there before is dialled, one whose address changed is dialled there, and the
    /// connections of one that is not there any more are closed, both ways; frames of it that are being
    /// handed over are its last.
    ///
    /// # Errors
    /// The system has no threads or files left for a new peer. All others are as they should be.
    pub fn set_peers(&self, addresses: &BTreeMap<NodeId, String>) -> Result<(), PeersError> {
        let mut threads = self.threads.lock();
        let Some(threads) = threads.as_mut() else {
            return Ok(());
        };
        // Nobody else adds peers meanwhile, and senders do not wait for threads to start.
        let mut result = Ok(());
        let mut added = Vec::new();
        for node in addresses.keys() {
            let there = self.shared.peers.read().contains_key(node);
            if *node != self.shared.identity.me && !there {
                match self.add(*node, threads) {
                    Ok(peer) => added.push((*node, peer)),
                    Err(error) => result = Err(error),
                }
            }
        }
        let mut peers = self.shared.peers.write();
        peers.extend(added);
        for (node, peer) in peers.iter() {
            let address = addresses.get(node);
            peer.known.store(address.is_some(), Ordering::SeqCst);
            if address.is_none() {
                peer.reader.close();
            }
            let changed = peer.link.orders().address.as_ref() != address;
            if changed {
                peer.link.order(|orders| {
                    orders.address = address.cloned();
                    orders.version += 1;
                });
            }
        }
        result
    }

    /// Closes the connection on which a peer sends, because of what it has sent. It may come again.
    pub fn sever(&self, node: NodeId, why: &str) {
        let Some(peer) = self.shared.peer(node) else {
            return;
        };
        peer.reader.close();
        let admitted = peer.severed.lock().admit(0, Instant::now());
        if let Some(kept) = admitted {
            let others = match kept {
                0 => String::new(),
                _ => format!(" ({kept} more frames of it were refused since the last such line)"),
            };
            tracing::warn!(
                "{} has sent a frame that no node of this cluster sends, and its connection is closed: \
                 {why}. Run builds that can                  work together; if they do, look at that \
                 node{others}",
                self.shared.called(node)
            );
        }
    }

    /// Says what people call the nodes, for the log.
    pub fn set_names(&self, names: BTreeMap<NodeId, String>) {
        *self.shared.names.write() = names;
    }

    /// Starts the threads of a node, which is no peer yet.
    fn add(&self, node: NodeId, threads: &mut Vec<JoinHandle<()>>) -> Result<Arc<Peer>, PeersError> {
        let poll = Poll::new().map_err(system("making a poll"))?;
        let waker = Waker::new(poll.registry(), dial::WAKER).map_err(system("making a waker"))?;
        let peer = Arc::new(Peer {
            link: Link::new(node, self.shared.queue_bytes_max, waker),
            reader: Reader::default(),
            known: AtomicBool::new(false),
            severed: Mutex::new(Warnings::new(WARNING_INTERVAL)),
        });
        let reads = {
            let (peer, shared) = (peer.clone(), self.shared.clone());
            // A thread's name has at most 15 letters.
            spawn(format!("ordo-peer-r{}", node.0), move || {
                receive::run(&peer, &shared);
            })?
        };
        threads.push(reads);
        let dialler = dial::Dialler::new(poll, peer.clone(), self.shared.clone());
        let dials = spawn(format!("ordo-peer-w{}", node.0), move || dialler.run());
        match dials {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                peer.reader.stop();
                return Err(error);
            }
        }
        Ok(peer)
    }

    /// Sends whole frames (see [`put_frame`]) that are encoded as `protocol` has it, and empties the vector.
    /// Never waits for the peer. What is sent to a node that is no peer, or whose link is down or has another
    /// protocol, is dropped. The callbacks are never called from here.
    pub fn send(&self, to: NodeId, protocol: u16, frames: &mut Vec<u8>) {
        let peers = self.shared.peers.read();
        match peers.get(&to) {
            Some(peer) => peer.link.send(protocol, frames),
            None => frames.clear(),
        }
    }

    /// Closes the link to a peer and dials anew: for a caller that has heard nothing from the peer for longer
    /// than it should. A link that was cut can take seconds to find out.
    pub fn redial(&self, peer: NodeId) {
        if let Some(peer) = self.shared.peer(peer) {
            peer.link.order(|orders| orders.redial = true);
        }
    }

    /// What can be said of the peers.
    pub fn stats(&self) -> PeerStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let peers = self.shared.peers.read();
        let known = peers.iter().filter(|(_, peer)| peer.known.load(Ordering::SeqCst));
        let stat = |(node, peer): (&NodeId, &Arc<Peer>)| {
            let (link, reader) = (&peer.link, &peer.reader);
            let state = link.state();
            let stat = PeerStat {
                protocol: state.map(|(protocol, _)| protocol),
                accepted: reader.is_connected(),
                links: count(&link.counters.links),
                sent_frames: count(&link.counters.frames),
                sent_bytes: count(&link.counters.bytes),
                received_frames: count(&reader.frames),
                received_bytes: count(&reader.bytes),
                dropped_bytes: count(&link.counters.dropped_bytes),
                queued_bytes: state.map_or(0, |(_, queued)| queued as u64),
                trouble: link.trouble.lock().clone(),
            };
            (*node, stat)
        };
        PeerStats {
            peers: known.map(stat).collect(),
            refused: count(&self.shared.refused),
            crowded_out: count(&self.shared.crowded_out),
        }
    }

    /// Closes all connections and waits for all threads, which takes no time unless a callback or a name
    /// service does not answer. Must not be called while holding what [`PeerEvents`] waits for. Nothing is
    /// called any more once this has returned, unless it was called by a callback.
    pub fn stop(&self) {
        let Some(threads) = self.threads.lock().take() else {
            return;
        };
        self.shared.stopping.store(true, Ordering::SeqCst);
        if let Err(error) = self.listener_waker.wake() {
            tracing::error!("the thread that listens for peers could not be woken: {error}");
        }
        for peer in self.shared.peers.read().values() {
            peer.link.order(|orders| orders.stopping = true);
            peer.reader.stop();
        }
        for thread in threads {
            // A callback may hold the last reference to this.
            let own = thread.thread().id() == std::thread::current().id();
            if !own && thread.join().is_err() {
                tracing::error!("a thread of the peers panicked");
            }
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.stop();
    }
}
