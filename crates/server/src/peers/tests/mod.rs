//! Real peers over the loopback device.

mod links;
mod secured;
mod strangers;
mod stream;

use super::handshake::{Dialling, Step};
use super::*;
use crate::tls::BINDING_BYTES;
use execute::EngineKind;
use parking_lot::Condvar;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Whatever takes longer does not happen.
const PATIENCE: Duration = Duration::from_secs(30);

const SECRET: &[u8] = b"what the nodes of the tests share";

/// What a node heard.
#[derive(Default)]
struct Heard {
    frames: Vec<(NodeId, u16, Bytes)>,
    /// For each peer, how often the link to it came up, and how often it broke.
    ups: BTreeMap<NodeId, u32>,
    downs: BTreeMap<NodeId, u32>,
    /// Whoever hands frames over waits.
    stalled: bool,
}

/// Hears what comes, and lets tests wait for it.
#[derive(Default)]
struct Ear {
    heard: Mutex<Heard>,
    changed: Condvar,
}

impl PeerEvents for Ear {
    fn frames(&self, from: NodeId, protocol: u16, frames: &mut Vec<Bytes>) {
        let mut heard = self.heard.lock();
        let all = frames.drain(..).map(|frame| (from, protocol, frame));
        heard.frames.extend(all);
        self.changed.notify_all();
        while heard.stalled {
            self.changed.wait(&mut heard);
        }
    }
    fn connected(&self, peer: NodeId, _: u16) {
        *self.heard.lock().ups.entry(peer).or_default() += 1;
        self.changed.notify_all();
    }
    fn disconnected(&self, peer: NodeId) {
        *self.heard.lock().downs.entry(peer).or_default() += 1;
        self.changed.notify_all();
    }
}

impl Ear {
    fn wait(&self, what: &str, mut condition: impl FnMut(&mut Heard) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut heard = self.heard.lock();
        while !condition(&mut heard) {
            let timed_out = self.changed.wait_until(&mut heard, deadline).timed_out();
            assert!(!timed_out, "in vain: {what}");
        }
    }

    fn wait_up(&self, peer: u16, times: u32) {
        self.wait(&format!("link {times} to node {peer}"), |heard| {
            heard.ups.get(&NodeId(peer)).is_some_and(|ups| *ups >= times)
        });
    }

    fn wait_down(&self, peer: u16, times: u32) {
        self.wait(&format!("end {times} of the link to node {peer}"), |heard| {
            heard.downs.get(&NodeId(peer)).is_some_and(|downs| *downs >= times)
        });
    }

    fn wait_frame(&self, body: &[u8]) {
        self.wait(&format!("frame {body:?}"), |heard| heard.frames.iter().any(|(_, _, frame)| frame == body));
    }

    fn has_frame(&self, body: &[u8]) -> bool {
        let heard = self.heard.lock();
        heard.frames.iter().any(|(_, _, frame)| frame == body)
    }

    fn stall(&self, stalled: bool) {
        self.heard.lock().stalled = stalled;
        self.changed.notify_all();
    }
}

/// Waits for what nobody announces.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn options(me: u16) -> PeerOptions {
    PeerOptions {
        me: NodeId(me),
        cluster: 5,
        secret: Arc::from(SECRET),
        listen: "127.0.0.1:0".to_owned(),
        protocols: 1..=1,
        skips: 0,
        engine: EngineKind::Sparkle,
        delivery: agree::Delivery::Raft,
        queue_bytes_max: 256 << 20,
        tls: None,
        plain_on_loopback: false,
    }
}

/// Lets those who hand frames over go: a test that fails while they wait must end.
struct Release(std::sync::Weak<Ear>);

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(ear) = self.0.upgrade() {
            ear.stall(false);
        }
    }
}

/// A node and what it hears.
struct Node {
    _release: Release,
    ear: Arc<Ear>,
    peers: Peers,
}

impl Node {
    fn start(me: u16) -> Node {
        Node::start_with(options(me), Timing::default())
    }

    fn start_with(options: PeerOptions, timing: Timing) -> Node {
        let ear = Arc::new(Ear::default());
        let peers = Peers::start_timed(options, ear.clone(), timing).expect("a node");
        Node { _release: Release(Arc::downgrade(&ear)), ear, peers }
    }

    fn me(&self) -> NodeId {
        self.peers.shared.identity.me
    }

    fn address(&self) -> String {
        self.peers.local_address().to_string()
    }

    fn knows(&self, others: &[&Node]) {
        let addresses: Vec<_> = others.iter().map(|other| (other.me().0, other.address())).collect();
        self.set(&addresses);
    }

    fn set(&self, addresses: &[(u16, String)]) {
        let addresses = addresses.iter().map(|(node, address)| (NodeId(*node), address.clone()));
        let set = self.peers.set_peers(&addresses.collect());
        set.expect("threads and files");
    }

    fn say(&self, to: u16, body: &[u8]) {
        let mut frames = Vec::new();
        put_frame(&mut frames, |out| out.extend_from_slice(body));
        self.peers.send(NodeId(to), 1, &mut frames);
        assert!(frames.is_empty());
    }

    fn stat(&self, peer: u16) -> PeerStat {
        let stats = self.peers.stats();
        stats.peers.get(&NodeId(peer)).cloned().unwrap_or_default()
    }

    fn wait_trouble(&self, peer: u16, text: &str) {
        eventually(text, || {
            let trouble = self.stat(peer).trouble;
            trouble.is_some_and(|trouble| trouble.contains(text))
        });
    }
}

/// Two nodes, 1 and 2, whose links are up.
fn pair(timing: Timing, change: impl Fn(&mut PeerOptions)) -> (Node, Node) {
    let [one, two] = [1, 2].map(|me| {
        let mut options = options(me);
        change(&mut options);
        Node::start_with(options, timing)
    });
    one.knows(&[&two]);
    two.knows(&[&one]);
    one.ear.wait_up(2, 1);
    two.ear.wait_up(1, 1);
    (one, two)
}

/// An address at which nobody listens.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").to_string()
}

fn connect(node: &Node) -> TcpStream {
    let stream = TcpStream::connect(node.peers.local_address()).expect("the listener");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// Reads until the other side closes.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}

/// What a connection without TLS has of its own.
const PLAIN: [u8; BINDING_BYTES] = [0; BINDING_BYTES];

/// Dials as a node would that does as told: proves itself, and leaves the rest to the test.
fn dial_by_hand(me: u16, to: &Node) -> TcpStream {
    let PeerOptions { me, cluster, secret, protocols, skips, engine, delivery, .. } = options(me);
    let identity = Identity { me, cluster, secret, protocols, skips, engine, delivery };
    let nonce = Entropy::open().expect("urandom").nonce().expect("a nonce");
    let (mut side, mut message) = Dialling::begin(&identity, to.me(), &nonce);
    let mut stream = connect(to);
    loop {
        stream.write_all(&message).expect("the listener listens");
        let mut bytes = vec![0; side.wants()];
        stream.read_exact(&mut bytes).expect("the listener answers");
        match side.take(&identity, &PLAIN, &bytes).expect("the listener is right") {
            Step::Continue(next) => message = next,
            Step::Done(..) => return stream,
        }
    }
}
