//! The thread that dials a peer, over and over, and writes what its link's senders could not.

use super::handshake::{Dialling, Failure, Refusal, Step, TLS_AT_ONE_END};
use super::link::{Break, Link};
use super::socket::{Cup, tune};
use super::{Peer, Shared};
use crate::tls::{self, Stream};
use crate::warnings::Warnings;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The token of the thread's waker.
pub(super) const WAKER: Token = Token(0);
const STREAM: Token = Token(1);

/// After more links that broke before a frame of the peer came, the pause is kept also if the peer connects.
const FUTILE_LINKS_MAX: u32 = 2;
/// Trouble is logged once it has lasted for so long: while a cluster starts, and while a node does, others
/// are not there yet.
const WARNING_AFTER: Duration = Duration::from_secs(5);
/// The same trouble is logged once in so long a time.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Why a peer could not be reached.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("its address does not resolve ({0}): correct the address, or the name service")]
    Unresolved(io::Error),
    #[error(
        "{0} does not answer: {1}. {advice}", advice = unreachable(.1)
    )]
    Unreachable(SocketAddr, io::Error),
    #[error(
        "{0} does not answer within {1:?}. The machine is down, its address is wrong, or a firewall is in \
         the way"
    )]
    Silent(SocketAddr, Duration),
    #[error(
        "{0} broke the handshake off: {1}. If this goes on, look whether the address is the peer port of a \
         node"
    )]
    BrokenOff(SocketAddr, io::Error),
    #[error(
        "{0} did not end the handshake within {1:?}. The node is frozen or overloaded, or another service \
         has its address"
    )]
    Endless(SocketAddr, Duration),
    #[error("{0} refuses this node: {advice}{own}", advice = .1.advice(), own = .2)]
    Refused(SocketAddr, Refusal, String),
    #[error(
        "{0} answers with something that this build does not understand. Look whether the address is the \
         peer port of a node"
    )]
    Unintelligible(SocketAddr),
    #[error("{0} cannot prove the cluster's secret: it is not the node. Find out who answers there")]
    Impostor(SocketAddr),
    #[error("TLS with {0} failed: {1}. {advice}", advice = unsecured(.1))]
    Tls(SocketAddr, io::Error),
    #[error("{0} broke the TLS handshake off: {1}. Most likely {TLS_AT_ONE_END}")]
    Unanswered(SocketAddr, io::Error),
    #[error("{0} speaks TLS: {TLS_AT_ONE_END}")]
    SpeaksTls(SocketAddr),
    #[error("no random numbers could be had: {0}")]
    NoRandomness(io::Error),
    #[error("interrupted")]
    Interrupted,
}

/// What to look at when an address cannot be reached.
fn unreachable(cause: &io::Error) -> &'static str {
    match cause.kind() {
        // The machine answers, and nobody listens there.
        ErrorKind::ConnectionRefused => "The node is down or has not started yet, or its address is wrong",
        _ => "The machine is down, its address is wrong, or a firewall is in the way",
    }
}

/// What to look at when TLS with a peer fails.
fn unsecured(cause: &io::Error) -> &'static str {
    match tls::cause(cause) {
        Some(rustls::Error::InvalidMessage(_)) => {
            "Most likely it speaks no TLS: set tls-cluster to the same at all nodes of the cluster, and \
             run builds that can encrypt without files"
        }
        Some(rustls::Error::InvalidCertificate(_)) => {
            "Its certificate must be signed by a CA that this node knows (tls-ca-cert-file), and be good \
             for servers"
        }
        Some(rustls::Error::AlertReceived(_)) => {
            "It says so itself; most likely this node's certificate is not signed by a CA that it knows, \
             or is not good for clients"
        }
        _ => "Look at the log of the other node",
    }
}

impl Trouble {
    /// A handshake that came to nothing.
    fn of_handshake(target: SocketAddr, stream: &Stream, cause: io::Error) -> Trouble {
        match tls::cause(&cause) {
            Some(_) => Trouble::Tls(target, cause),
            None if stream.is_handshaking() => Trouble::Unanswered(target, cause),
            None => Trouble::BrokenOff(target, cause),
        }
    }

    /// Troubles of one kind are logged once in a while.
    fn kind(&self) -> usize {
        match self {
            Trouble::Refused(_, refusal, _) => *refusal as usize,
            Trouble::Unresolved(_) => FIRST_KIND,
            Trouble::Unreachable(..) => FIRST_KIND + 1,
            Trouble::Silent(..) => FIRST_KIND + 2,
            Trouble::BrokenOff(..) => FIRST_KIND + 3,
            Trouble::Endless(..) => FIRST_KIND + 4,
            Trouble::Unintelligible(_) => FIRST_KIND + 5,
            Trouble::Impostor(_) => FIRST_KIND + 6,
            Trouble::NoRandomness(_) => FIRST_KIND + 7,
            Trouble::Tls(..) => FIRST_KIND + 8,
            Trouble::SpeaksTls(_) => FIRST_KIND + 9,
            Trouble::Unanswered(..) => FIRST_KIND + 10,
            Trouble::Interrupted => FIRST_KIND + 11,
        }
    }
}
/// The kinds below are the refusals' numbers.
const FIRST_KIND: usize = 1 + Refusal::ALL.len();
const KINDS: usize = FIRST_KIND + 12;

pub(super) struct Dialler {
    poll: Poll,
    events: Events,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    /// The next attempt goes to this one of the name's addresses.
    candidate: usize,
    pause: Duration,
    warnings: Warnings<KINDS>,
    /// Since when there is trouble, if there is.
    troubled_since: Option<Instant>,
    /// How many links one after the other broke early, before a frame of the peer came.
    futile_links: u32,
}

impl Dialler {
    pub fn new(poll: Poll, peer: Arc<Peer>, shared: Arc<Shared>) -> Dialler {
        Dialler {
            poll,
            events: Events::with_capacity(16),
            peer,
            pause: shared.timing.pause_min,
            shared,
            candidate: 0,
            warnings: Warnings::new(WARNING_INTERVAL),
            troubled_since: None,
            futile_links: 0,
        }
    }

    fn link(&self) -> &Link {
        &self.peer.link
    }

    /// Dials until the node stops.
    pub fn run(mut self) {
        while let Some((address, version)) = self.next_address() {
            let began = Instant::now();
            match self.dial(&address, version) {
                Ok((stream, protocol)) => {
                    let frames_before = self.frames();
                    if !self.run_link(stream, protocol, version) {
                        return;
                    }
                    let is_late = began.elapsed() > self.shared.timing.pause_max;
                    if is_late {
                        self.pause = self.shared.timing.pause_min;
                    }
                    match is_late || self.frames() > frames_before {
                        true => self.futile_links = 0,
                        false => self.futile_links += 1,
                    }
                }
                Err(Trouble::Interrupted) => {}
                Err(trouble) => {
                    self.candidate = self.candidate.wrapping_add(1);
                    let text = trouble.to_string();
                    let now = Instant::now();
                    let since = *self.troubled_since.get_or_insert(now);
                    if now >= since + WARNING_AFTER && self.warnings.admit(trouble.kind(), now).is_some() {
                        let peer = self.shared.called(self.peer.link.peer);
                        tracing::warn!("no link to {peer}: {text}. It is tried again until it works");
                    }
                    *self.link().trouble.lock() = Some(text);
                }
            }
            self.rest(began, version);
        }
    }

    /// Waits for an event on the socket or an order, or until it is time.
    fn wait(&mut self, until: Option<Instant>) {
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        if let Err(error) = self.poll.poll(&mut self.events, timeout)
            && error.kind() != ErrorKind::Interrupted
        {
            let peer = self.shared.called(self.peer.link.peer);
            tracing::error!("waiting for {peer} failed: {error}");
            self.events.clear();
        }
    }

    /// Where the peer is, as soon as that is known; none if the node stops.
    fn next_address(&mut self) -> Option<(String, u64)> {
        loop {
            {
                let mut orders = self.link().orders();
                if orders.stopping {
                    return None;
                }
                if let Some(address) = orders.address.clone() {
                    orders.nudged = false;
                    orders.redial = false;
                    return Some((address, orders.version));
                }
            }
            self.wait(None);
        }
    }

    /// How many frames of the peer have come, on whichever connection.
    fn frames(&self) -> u64 {
        self.peer.reader.frames.load(Ordering::Relaxed)
    }

    /// Waits between two attempts, unless there is a reason to hope. A peer that accepts links and closes
    /// them at once gives no such reason by a connection of its own: two nodes that do so to each other would
    /// dial without a pause.
    fn rest(&mut self, began: Instant, version: u64) {
        let until = began + self.pause;
        self.pause = (self.pause * 2).min(self.shared.timing.pause_max);
        loop {
            {
                let mut orders = self.link().orders();
                let is_nudged = std::mem::take(&mut orders.nudged) && self.futile_links <= FUTILE_LINKS_MAX;
                let has_moved = orders.version != version;
                if is_nudged || orders.redial || has_moved {
                    drop(orders);
                    if has_moved {
                        self.futile_links = 0;
                    }
                    if self.futile_links == 0 {
                        self.pause = self.shared.timing.pause_min;
                    }
                    return;
                }
                if orders.stopping || Instant::now() >= until {
                    return;
                }
            }
            self.wait(Some(until));
        }
    }

    /// Whether an attempt for this version of the address is to go on.
    fn goes_on(&self, version: u64) -> Result<(), Trouble> {
        let orders = self.link().orders();
        if orders.stopping || orders.version != version {
            return Err(Trouble::Interrupted);
        }
        Ok(())
    }

    fn dial(&mut self, address: &str, version: u64) -> Result<(Stream, u16), Trouble> {
        let found = address.to_socket_addrs().map_err(Trouble::Unresolved)?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() {
            let cause = io::Error::other("the name has no address");
            return Err(Trouble::Unresolved(cause));
        }
        let target = found[self.candidate % found.len()];
        let socket = self.connect(target, version)?;
        let stream = match self.shared.tls_with(target.ip()) {
            None => Stream::Plain(socket),
            Some(tls) => tls.dial_peer(socket, target).map_err(|cause| Trouble::Tls(target, cause))?,
        };
        self.shake_hands(stream, target, version)
    }

    fn connect(&mut self, target: SocketAddr, version: u64) -> Result<TcpStream, Trouble> {
        let unreachable = |cause| Trouble::Unreachable(target, cause);
        let limit = self.shared.timing.connect_max;
        let deadline = Instant::now() + limit;
        let mut stream = TcpStream::connect(target).map_err(unreachable)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, STREAM, interest).map_err(unreachable)?;
        loop {
            self.wait(Some(deadline));
            self.goes_on(version)?;
            if let Some(cause) = stream.take_error().map_err(unreachable)? {
                return Err(unreachable(cause));
            }
            match stream.peer_addr() {
                Ok(peer) if stream.local_addr().is_ok_and(|own| own == peer) => {
                    // TCP lets a socket connect to itself when it happens to get the port that it dials.
                    return Err(unreachable(ErrorKind::ConnectionRefused.into()));
                }
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::NotConnected => {}
                Err(error) => return Err(unreachable(error)),
            }
            if self.link().orders().nudged {
                // The peer's own connection came through: so may a new attempt, long before this one is
                // repeated.
                return Err(Trouble::Interrupted);
            }
            if Instant::now() >= deadline {
                return Err(Trouble::Silent(target, limit));
            }
        }
        tune(&stream, &self.shared.timing).map_err(unreachable)?;
        Ok(stream)
    }

    fn shake_hands(
        &mut self,
        mut stream: Stream,
        target: SocketAddr,
        version: u64,
    ) -> Result<(Stream, u16), Trouble> {
        let limit = self.shared.timing.handshake_max;
        let deadline = Instant::now() + limit;
        let nonce = self.shared.entropy.nonce().map_err(Trouble::NoRandomness)?;
        let shared = self.shared.clone();
        let identity = &shared.identity;
        let (mut side, hello) = Dialling::begin(identity, self.link().peer, &nonce);
        Cup::send(&mut stream, &hello).map_err(|cause| Trouble::of_handshake(target, &stream, cause))?;
        let mut cup = Cup::default();
        loop {
            while let Some(bytes) = cup
                .fill(&mut stream, side.wants())
                .map_err(|cause| Trouble::of_handshake(target, &stream, cause))?
            {
                let binding =
                    (stream.binding()).map_err(|cause| Trouble::of_handshake(target, &stream, cause))?;
                match side.take(identity, &binding, bytes) {
                    Ok(Step::Continue(reply)) => {
                        Cup::send(&mut stream, &reply)
                            .map_err(|cause| Trouble::of_handshake(target, &stream, cause))?;
                    }
                    Ok(Step::Done(_, proven)) => return Ok((stream, proven.protocol)),
                    Err(Failure::Refused(refusal)) => {
                        return Err(Trouble::Refused(target, refusal, identity.own(refusal)));
                    }
                    Err(Failure::Unintelligible) => return Err(Trouble::Unintelligible(target)),
                    Err(Failure::Impostor) => return Err(Trouble::Impostor(target)),
                    Err(Failure::SpeaksTls) => return Err(Trouble::SpeaksTls(target)),
                }
            }
            if Instant::now() >= deadline {
                return Err(Trouble::Endless(target, limit));
            }
            self.wait(Some(deadline));
            self.goes_on(version)?;
        }
    }

    /// Keeps a link until it breaks. Returns false if the node stops.
    fn run_link(&mut self, stream: Stream, protocol: u16, version: u64) -> bool {
        let peer = self.link().peer;
        tracing::info!("the link to {} is up", self.shared.called(peer));
        self.warnings.reset();
        self.troubled_since = None;
        {
            let mut orders = self.link().orders();
            orders.nudged = false;
            orders.redial = false;
        }
        self.link().open(stream, protocol);
        self.shared.events.connected(peer, protocol);
        let Err(why) = self.serve(version);
        self.link().close();
        if matches!(why, Break::Stopped) {
            return false;
        }
        tracing::warn!("the link to {} broke: {why}", self.shared.called(peer));
        *self.link().trouble.lock() = Some(format!("the last link broke: {why}"));
        self.shared.events.disconnected(peer);
        true
    }

    /// Writes what waits, until the link breaks.
    fn serve(&mut self, version: u64) -> Result<std::convert::Infallible, Break> {
        let limit = self.shared.timing.progress_max;
        // Since when the kernel has taken nothing of what waits.
        let mut stuck: Option<Instant> = None;
        // Whatever happened before the link was open left no event.
        self.link().look_for_end()?;
        loop {
            let flushed = self.link().flush()?;
            let now = Instant::now();
            if flushed.is_empty {
                stuck = None;
            } else if flushed.moved_bytes > 0 || stuck.is_none() {
                stuck = Some(now);
            }
            if stuck.is_some_and(|since| now >= since + limit) {
                return Err(Break::Stalled(limit));
            }
            self.wait(match stuck {
                Some(since) if flushed.full => Some(since + limit),
                Some(_) => Some(now),
                None => None,
            });
            {
                let orders = self.link().orders();
                if orders.stopping {
                    return Err(Break::Stopped);
                }
                if orders.version != version {
                    return Err(Break::Moved);
                }
                if orders.redial {
                    return Err(Break::Asked);
                }
            }
            let heard = |event: &mio::event::Event| {
                event.token() == STREAM && (event.is_readable() || event.is_read_closed() || event.is_error())
            };
            if self.events.iter().any(heard) {
                self.link().look_for_end()?;
            }
        }
    }
}
