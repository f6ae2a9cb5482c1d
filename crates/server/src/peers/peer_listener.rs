//! The thread that listens for peers: it accepts connections, and lets in who proves to be a peer.
//!
//! All handshakes are made by this one thread, a bounded number at a time, each in a bounded time. When all
//! places are taken and one more comes, the oldest one of the address that has the most of them goes: so a
//! stranger can crowd out itself, and whoever comes from its address, but not the peers.

use super::handshake::{Accepting, Proven, Refusal, Step};
use super::receive::Accepted;
use super::socket::{Cup, tune};
use super::{Shared, WARNING_INTERVAL};
use crate::tls::{self, Stream};
use crate::warnings::Warnings;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How many connections may be in their handshake.
pub(super) const HANDSHAKES_MAX: usize = 64;

pub(super) const WAKER: Token = Token(HANDSHAKES_MAX);
const LISTENER: Token = Token(HANDSHAKES_MAX + 1);

/// How many connections are accepted before handshakes go on.
const ACCEPTED_PER_ROUND: usize = 16;
/// How long to wait before trying to accept again, after the system refused.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The kinds of warnings are the refusals' numbers, and these.
const NOT_ACCEPTED: usize = 0;
const NOT_TLS: usize = 1 + Refusal::ALL.len();
const TLS_FAILED: usize = NOT_TLS + 1;
const KINDS: usize = TLS_FAILED + 1;

struct Guest {
    stream: Stream,
    address: SocketAddr,
    side: Accepting,
    cup: Cup,
    deadline: Instant,
}

/// What became of a guest.
enum Outcome {
    Waits,
    Enters(Proven),
    Refused(Refusal),
    Leaves(io::Error),
}

pub(super) struct PeerListener {
    poll: Poll,
    listener: TcpListener,
    shared: Arc<Shared>,
    guests: [Option<Guest>; HANDSHAKES_MAX],
    /// When to accept again, if the listener may have more.
    accept_at: Option<Instant>,
    warnings: Warnings<KINDS>,
}

impl PeerListener {
    pub fn new(poll: Poll, mut listener: TcpListener, shared: Arc<Shared>) -> io::Result<PeerListener> {
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(PeerListener {
            poll,
            listener,
            shared,
            guests: [const { None }; HANDSHAKES_MAX],
            accept_at: None,
            warnings: Warnings::new(WARNING_INTERVAL),
        })
    }

    pub fn run(mut self) {
        let mut events = Events::with_capacity(HANDSHAKES_MAX + 2);
        while !self.shared.stopping.load(Ordering::SeqCst) {
            let deadlines = self.guests.iter().flatten().map(|guest| guest.deadline);
            let until = deadlines.chain(self.accept_at).min();
            let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!("waiting for peers failed: {error}");
                events.clear();
            }
            for event in &events {
                match event.token() {
                    WAKER => {}
                    LISTENER => self.accept_at = Some(Instant::now()),
                    Token(place) => self.serve(place),
                }
            }
            let now = Instant::now();
            if self.accept_at.is_some_and(|at| at <= now) {
                self.accept();
            }
            self.show_out(now);
        }
    }

    fn accept(&mut self) {
        // There may be more.
        self.accept_at = Some(Instant::now());
        for _ in 0..ACCEPTED_PER_ROUND {
            match self.listener.accept() {
                Ok((stream, address)) => self.receive(stream, address),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => {
                        self.accept_at = None;
                        return;
                    }
                    // Whoever came has gone again.
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => {
                        self.accept_at = Some(Instant::now() + ACCEPT_PAUSE);
                        if self.warnings.admit(NOT_ACCEPTED, Instant::now()).is_some() {
                            tracing::warn!(
                                "a peer's connection could not be accepted: {error}. If files are the \
                                 problem, raise the limit (ulimit -n)"
                            );
                        }
                        return;
                    }
                },
            }
        }
    }

    /// Gives a new connection a place.
    fn receive(&mut self, socket: TcpStream, address: SocketAddr) {
        let place = match self.guests.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.shared.crowded_out.fetch_add(1, Ordering::Relaxed);
                let waiting = self.guests.iter().flatten();
                self.most_crowded(waiting.map(|guest| (guest.address.ip(), guest.deadline)))
            }
        };
        self.guests[place] = None;
        let prepared = tune(&socket, &self.shared.timing).and_then(|()| {
            let mut stream = match self.shared.tls_with(address.ip()) {
                None => Stream::Plain(socket),
                Some(tls) => tls.accept_peer(socket)?,
            };
            // What TLS says may have to wait for the kernel.
            let interest = Interest::READABLE | Interest::WRITABLE;
            (self.poll.registry()).register(stream.socket_mut(), Token(place), interest)?;
            Ok((stream, self.shared.entropy.nonce()?))
        });
        match prepared {
            Ok((stream, nonce)) => {
                self.guests[place] = Some(Guest {
                    stream,
                    address,
                    side: Accepting::begin(nonce),
                    cup: Cup::default(),
                    deadline: Instant::now() + self.shared.timing.handshake_max,
                });
                // What it sent before it was registered may leave no event.
                self.serve(place);
            }
            Err(error) => tracing::debug!("a connection from {address} failed: {error}"),
        }
    }

    /// Of the places, which are all taken, the oldest one of the address that has the most.
    fn most_crowded(&self, waiting: impl Iterator<Item = (IpAddr, Instant)>) -> usize {
        let waiting: Vec<(IpAddr, Instant)> = waiting.collect();
        let crowd = |address: IpAddr| waiting.iter().filter(|other| other.0 == address).count();
        let worst = waiting
            .iter()
            .enumerate()
            .max_by_key(|(_, (address, since))| (crowd(*address), std::cmp::Reverse(*since)));
        worst.map_or(0, |(place, _)| place)
    }

    /// Closes the connections whose time is over.
    fn show_out(&mut self, now: Instant) {
        for guest in &mut self.guests {
            if let Some(Guest { address, .. }) = guest.as_ref().filter(|guest| guest.deadline <= now) {
                tracing::debug!("{address} did not end its handshake in time: closed");
                *guest = None;
            }
        }
    }

    fn serve(&mut self, place: usize) {
        let Some(guest) = &mut self.guests[place] else {
            return;
        };
        let outcome = talk(guest, &self.shared);
        if matches!(outcome, Outcome::Waits) {
            return;
        }
        let Some(guest) = self.guests[place].take() else {
            return;
        };
        match outcome {
            Outcome::Waits => {}
            Outcome::Enters(proven) => self.let_in(guest, proven),
            Outcome::Refused(refusal) => self.refuse(guest, refusal),
            Outcome::Leaves(error) => self.note_end(guest.address, &error),
        }
    }

    /// Says why a connection came to nothing, if it did not merely end.
    fn note_end(&mut self, address: SocketAddr, error: &io::Error) {
        let Some(cause) = tls::cause(error) else {
            tracing::debug!("{address} broke its handshake off: {error}");
            return;
        };
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
        let (kind, reason) = match cause {
            rustls::Error::InvalidMessage(_) => (
                NOT_TLS,
                "it speaks no TLS. If it belongs to the cluster, set tls-cluster to the same at all nodes, \
                 and run builds there that can encrypt without files",
            ),
            _ => (
                TLS_FAILED,
                "if it belongs to the cluster, give it a certificate that a CA of tls-ca-cert-file has \
                 signed, good for clients and servers",
            ),
        };
        if let Some(kept) = self.warnings.admit(kind, Instant::now()) {
            let others = others(kept);
            tracing::warn!(
                "a connection from {address} to this node's port for peers is refused ({error}): \
                 {reason}{others}"
            );
        }
    }

    fn let_in(&mut self, mut guest: Guest, proven: Proven) {
        let socket = guest.stream.socket_mut();
        let entered = self.poll.registry().deregister(socket);
        let (socket, tls) = guest.stream.into_parts();
        let stream = std::net::TcpStream::from(socket);
        let entered = entered.and_then(|()| stream.set_nonblocking(false));
        match entered {
            Ok(()) => {
                let accepted = Accepted { stream, tls, protocol: proven.protocol };
                self.shared.let_in(proven, accepted);
            }
            Err(error) => tracing::warn!(
                "the connection of {} could not be used: {error}. It will come again",
                self.shared.called(proven.node)
            ),
        }
    }

    fn refuse(&mut self, mut guest: Guest, refusal: Refusal) {
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = Cup::send(&mut guest.stream, &[refusal as u8]) {
            tracing::debug!("{} did not wait for its refusal: {error}", guest.address);
        }
        if let Some(kept) = self.warnings.admit(refusal as usize, Instant::now()) {
            let address = guest.address;
            let who = match guest.side.claimed().0 {
                0 => "a connection".to_owned(),
                _ => format!("a connection that says it is {}", self.shared.called(guest.side.claimed())),
            };
            let (reason, own) = (refusal.reason(), self.shared.identity.own(refusal));
            let others = others(kept);
            tracing::warn!("{who}, from {address}, is refused: {reason}{own}{others}");
        }
    }
}

fn others(kept: u64) -> String {
    match kept {
        0 => String::new(),
        _ => format!(" ({kept} more were refused for the same reason since the last such line)"),
    }
}

/// Goes on with a handshake as far as what has come reaches.
fn talk(guest: &mut Guest, shared: &Shared) -> Outcome {
    loop {
        let bytes = match guest.cup.fill(&mut guest.stream, guest.side.wants()) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Outcome::Waits,
            Err(error) => return Outcome::Leaves(error),
        };
        let knows = |node| shared.knows(node);
        let binding = match guest.stream.binding() {
            Ok(binding) => binding,
            Err(error) => return Outcome::Leaves(error),
        };
        let (reply, proven) = match guest.side.take(&shared.identity, &binding, knows, bytes) {
            Ok(Step::Continue(reply)) => (reply, None),
            Ok(Step::Done(reply, proven)) => (reply, Some(proven)),
            Err(refusal) => return Outcome::Refused(refusal),
        };
        if let Err(error) = Cup::send(&mut guest.stream, &reply) {
            return Outcome::Leaves(error);
        }
        if let Some(proven) = proven {
            return Outcome::Enters(proven);
        }
    }
}
