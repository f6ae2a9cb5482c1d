//! Measures how fast two nodes reach each other over the loopback device:
//! `cargo run --release -p ordo-server --example peers [seconds per measurement] [ephemeral]`
//! With the last word the links are encrypted, as they are between machines.
//!
//! A round trip is what an agreement costs at least: a frame there, and an answer, each through a callback.
#![allow(clippy::disallowed_methods, reason = "a measurement needs a clock, and the nodes' threads")]

use bytes::Bytes;
use ordo_server::config::Config;
use ordo_server::peers::{PeerEvents, PeerOptions, Peers, put_frame};
use ordo_server::tls::{CLUSTER_EPHEMERAL, Tls};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use txn::NodeId;

/// Answers each frame with itself, if it has peers to answer with; otherwise tells how many frames came.
struct Party {
    echo: OnceLock<Arc<Peers>>,
    came: Sender<usize>,
    up: Sender<NodeId>,
}

impl PeerEvents for Party {
    fn frames(&self, from: NodeId, protocol: u16, frames: &mut Vec<Bytes>) {
        if let Some(peers) = self.echo.get() {
            let mut out = Vec::new();
            for frame in frames.iter() {
                put_frame(&mut out, |out| out.extend_from_slice(frame));
            }
            peers.send(from, protocol, &mut out);
        } else if self.came.send(frames.len()).is_err() {
            // The measurement is over.
        }
    }
    fn connected(&self, peer: NodeId, _: u16) {
        if self.up.send(peer).is_err() {
            // A link came up again.
        }
    }
    fn disconnected(&self, peer: NodeId) {
        println!("the link to {peer} broke");
    }
}

/// Sends `at_once` frames of a size, waits for all of them to come back, and so on. Prints what that was.
fn measure(
    one: &Peers,
    came: &Receiver<usize>,
    at_once: usize,
    bytes: usize,
    time: Duration,
) -> Result<(), Box<dyn Error>> {
    let body = vec![7; bytes];
    let mut out = Vec::new();
    let mut rounds_us = Vec::new();
    let began = Instant::now();
    while began.elapsed() < time {
        let round = Instant::now();
        for _ in 0..at_once {
            put_frame(&mut out, |out| out.extend_from_slice(&body));
        }
        one.send(NodeId(2), 1, &mut out);
        let mut missing = at_once;
        while missing > 0 {
            missing -= came.recv_timeout(Duration::from_secs(10))?;
        }
        rounds_us.push(round.elapsed().as_secs_f64() * 1e6);
    }
    let rounds_per_s = rounds_us.len() as f64 / began.elapsed().as_secs_f64();
    rounds_us.sort_by(f64::total_cmp);
    let at = |share: f64| rounds_us[((rounds_us.len() - 1) as f64 * share) as usize];
    println!(
        "{at_once:>5} frames of {bytes:>8} bytes: {rounds_per_s:>8.0} round trips/s, {:>10.0} frames/s, \
         {:>7.1} MB/s each way; median {:.1} us, 99 % {:.1} us",
        rounds_per_s * at_once as f64,
        rounds_per_s * (at_once * bytes) as f64 / 1e6,
        at(0.5),
        at(0.99),
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: f64 = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => 2.0,
    };
    let tls = match std::env::args().nth(2).as_deref() {
        Some(CLUSTER_EPHEMERAL) => {
            let mut config = Config::default();
            config.tls_cluster = CLUSTER_EPHEMERAL.to_owned();
            Some(Arc::new(Tls::new(&config)?))
        }
        _ => None,
    };
    let (came_sender, came) = channel();
    let (up_sender, up) = channel();
    let parties = [1, 2].map(|me| {
        let party =
            Arc::new(Party { echo: OnceLock::new(), came: came_sender.clone(), up: up_sender.clone() });
        let options = PeerOptions {
            me: NodeId(me),
            cluster: 1,
            secret: Arc::from(&b"an example"[..]),
            listen: "127.0.0.1:0".to_owned(),
            protocols: 1..=1,
            skips: 0,
            engine: execute::EngineKind::Sparkle,
            delivery: ordo_server::cluster::Delivery::Raft,
            queue_bytes_max: 64 << 20,
            tls: tls.clone(),
            plain_on_loopback: false,
        };
        (Peers::start(options, party.clone()).map(Arc::new), party)
    });
    let [(one, _), (two, echo)] = parties;
    let (one, two) = (one?, two?);
    if echo.echo.set(two.clone()).is_err() {
        unreachable!("set once");
    }
    one.set_peers(&BTreeMap::from([(NodeId(2), two.local_address().to_string())]))?;
    two.set_peers(&BTreeMap::from([(NodeId(1), one.local_address().to_string())]))?;
    for _ in 0..2 {
        up.recv_timeout(Duration::from_secs(10))?;
    }
    for (at_once, bytes) in [(1, 64), (1, 4 << 10), (16, 64), (1000, 64), (16, 64 << 10), (1, 16 << 20)] {
        measure(&one, &came, at_once, bytes, Duration::from_secs_f64(seconds))?;
    }
    // The party that answers holds its own peers.
    two.stop();
    one.stop();
    Ok(())
}
