//! What is sent arrives, whole and in order.

use super::*;
use std::collections::BTreeSet;
use txn::hash::mix;

/// Numbers that a seed determines.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % below
    }
}

/// The seed of this run: `ORDO_SEED`, or another each time. Printed, so that a failure shows it.
#[expect(clippy::print_stdout, reason = "shown when the test fails")]
fn seed() -> u64 {
    let given = std::env::var("ORDO_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let nonce = Entropy::open().expect("urandom").nonce().expect("bytes");
        u64::from(u32::from_le_bytes([nonce[0], nonce[1], nonce[2], nonce[3]]))
    });
    println!("ORDO_SEED={seed}");
    seed
}

/// The body of a sender's frame: its number, and bytes that depend on it.
fn body(seed: u64, number: u64) -> Vec<u8> {
    let mut dice = Dice(mix(seed ^ mix(number)));
    let len = match dice.roll(100) {
        0 => dice.roll(1 << 20),
        1..10 => dice.roll(64 << 10),
        10..20 => 0,
        _ => dice.roll(300),
    };
    let fill = dice.roll(256) as u8;
    let mut body = number.to_le_bytes().to_vec();
    body.extend((0..len).map(|at| fill ^ (at % 251) as u8));
    body
}

fn number_of(frame: &[u8]) -> u64 {
    u64::from_le_bytes(frame[..8].try_into().expect("a numbered frame"))
}

#[test]
fn frames_both_ways_arrive_whole_and_in_order_while_receivers_stall() {
    exchange(|_| {});
}

pub(super) fn exchange(secure: impl Fn(&mut PeerOptions)) {
    const FRAMES: u64 = 3_000;
    let seed = seed();
    let (one, two) = pair(Timing::default(), secure);
    let nodes = [&one, &two];
    std::thread::scope(|scope| {
        for node in nodes {
            scope.spawn(move || {
                let me = u64::from(node.me().0);
                let mut dice = Dice(seed ^ mix(me));
                let mut out = Vec::new();
                for number in 0..FRAMES {
                    put_frame(&mut out, |out| out.extend(body(seed ^ me, number)));
                    if dice.roll(3) == 0 || number + 1 == FRAMES {
                        node.peers.send(NodeId(3 - node.me().0), 1, &mut out);
                    }
                    if dice.roll(100) == 0 {
                        node.ear.stall(dice.roll(2) == 0);
                    }
                }
            });
        }
    });
    for node in nodes {
        node.ear.stall(false);
    }
    for node in nodes {
        let from = 3 - node.me().0;
        node.ear.wait("all frames", |heard| heard.frames.len() as u64 >= FRAMES);
        let heard = node.ear.heard.lock();
        assert_eq!(heard.frames.len() as u64, FRAMES);
        for (number, (sender, protocol, frame)) in heard.frames.iter().enumerate() {
            assert_eq!((*sender, *protocol), (NodeId(from), 1));
            let expected = body(seed ^ u64::from(from), number as u64);
            assert!(*frame == expected, "frame {number} is another");
        }
        assert!(heard.downs.is_empty(), "a link broke");
    }
    for (sender, receiver) in [(&one, &two), (&two, &one)] {
        // The dialling thread notes what it wrote after the kernel has it.
        eventually("equal counts", || {
            let sent = sender.stat(receiver.me().0);
            let received = receiver.stat(sender.me().0);
            sent.sent_bytes == received.received_bytes
        });
        let sent = sender.stat(receiver.me().0);
        let received = receiver.stat(sender.me().0);
        assert_eq!((sent.sent_frames, received.received_frames), (FRAMES, FRAMES));
        assert_eq!((sent.dropped_bytes, sent.queued_bytes), (0, 0));
    }
}

#[test]
fn threads_that_send_at_the_same_time_keep_their_own_order() {
    send_at_the_same_time(|_| {});
}

pub(super) fn send_at_the_same_time(secure: impl Fn(&mut PeerOptions)) {
    const THREADS: u64 = 4;
    const FRAMES: u64 = 5_000;
    let (one, two) = pair(Timing::default(), secure);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let one = &one;
            scope.spawn(move || {
                for number in 0..FRAMES {
                    one.say(2, &(thread << 32 | number).to_le_bytes());
                }
            });
        }
    });
    two.ear.wait("all frames", |heard| heard.frames.len() as u64 == THREADS * FRAMES);
    let mut next = [0; THREADS as usize];
    for (_, _, frame) in &two.ear.heard.lock().frames {
        let number = number_of(frame);
        let thread = (number >> 32) as usize;
        assert_eq!(number & 0xffff_ffff, next[thread]);
        next[thread] += 1;
    }
}

#[test]
fn a_peer_that_falls_behind_too_far_loses_its_link_and_is_dialled_again() {
    fall_behind(|_| {});
}

pub(super) fn fall_behind(secure: impl Fn(&mut PeerOptions)) {
    const QUEUE_BYTES: usize = 2 << 20;
    let timing = Timing { progress_max: PATIENCE * 2, unacknowledged_max: PATIENCE * 2, ..Timing::default() };
    let (one, two) = pair(timing, |options| {
        options.queue_bytes_max = QUEUE_BYTES;
        secure(options);
    });
    two.ear.stall(true);
    let mut number = 0u64;
    let deadline = Instant::now() + PATIENCE;
    // The link may be up again by the time that its end is seen, and nobody reads that one either.
    while one.ear.heard.lock().downs.get(&NodeId(2)).is_none_or(|downs| *downs < 3) {
        let mut body = number.to_le_bytes().to_vec();
        body.resize(10_000, 7);
        one.say(2, &body);
        number += 1;
        let queued = one.stat(2).queued_bytes;
        assert!(queued <= QUEUE_BYTES as u64, "{queued} bytes wait");
        assert!(Instant::now() < deadline, "no link broke");
    }
    one.ear.wait_up(2, 4);
    two.ear.stall(false);
    // Once the connections before are read, the last one is.
    eventually("the end of the jam", || {
        one.say(2, &number.to_le_bytes());
        number += 1;
        let heard = two.ear.heard.lock();
        let last = heard.frames.last().map(|(_, _, frame)| number_of(frame));
        last.is_some_and(|last| last + 100 > number)
    });
    let heard = two.ear.heard.lock();
    let numbers: Vec<u64> = heard.frames.iter().map(|(_, _, frame)| number_of(frame)).collect();
    assert!(numbers.is_sorted_by(|one, two| one < two), "another order");
    assert!((numbers.len() as u64) < number, "nothing was lost");
    assert!(one.stat(2).dropped_bytes > 0);
}

#[test]
fn a_queue_that_does_not_shrink_for_a_while_closes_its_link() {
    jam(|_| {});
}

pub(super) fn jam(secure: impl Fn(&mut PeerOptions)) {
    // Less than it takes to fill the buffers: how long nothing waited before must not count.
    let limit = Duration::from_millis(50);
    let timing = Timing { progress_max: limit, unacknowledged_max: PATIENCE * 2, ..Timing::default() };
    let (one, two) = pair(timing, secure);
    two.ear.stall(true);
    // Small sends, and only while nothing waits, fill the kernels' buffers to the brim: no event of the
    // socket follows when the last one is queued.
    let mut empty = Instant::now();
    let fits = || {
        let stat = one.stat(2);
        stat.links == 1 && stat.protocol.is_some() && stat.queued_bytes == 0
    };
    eventually("the end of the link", || {
        while fits() {
            empty = Instant::now();
            one.say(2, &[1; 1000]);
        }
        one.ear.heard.lock().downs.contains_key(&NodeId(2))
    });
    assert!(empty.elapsed() >= limit, "closed after {:?}", empty.elapsed());
    one.ear.wait_up(2, 2);
    two.ear.stall(false);
    one.say(2, b"again");
    two.ear.wait_frame(b"again");
}

#[test]
fn a_single_send_may_be_larger_than_the_queue() {
    send_much_at_once(|_| {});
}

pub(super) fn send_much_at_once(secure: impl Fn(&mut PeerOptions)) {
    let (one, two) = pair(Timing::default(), |options| {
        options.queue_bytes_max = 1000;
        secure(options);
    });
    let mut large = Vec::new();
    for _ in 0..3 {
        put_frame(&mut large, |out| out.resize(out.len() + FRAME_BYTES_MAX / 3, 9));
    }
    one.peers.send(NodeId(2), 1, &mut large);
    two.ear.wait("three frames", |heard| heard.frames.len() == 3);
    let sizes: BTreeSet<usize> = two.ear.heard.lock().frames.iter().map(|f| f.2.len()).collect();
    assert_eq!(sizes, BTreeSet::from([FRAME_BYTES_MAX / 3]));
    assert!(one.ear.heard.lock().downs.is_empty(), "the link broke");
}

#[test]
fn what_cannot_be_sent_is_dropped_and_counted() {
    let (one, two) = pair(Timing::default(), |_| {});
    let dropped = || one.stat(2).dropped_bytes;
    let mut frames = Vec::new();
    // Another protocol than the link's.
    put_frame(&mut frames, |out| out.extend_from_slice(b"newer"));
    one.peers.send(NodeId(2), 2, &mut frames);
    assert_eq!((frames.len(), dropped()), (0, 9));
    // No whole frame.
    one.peers.send(NodeId(2), 1, &mut vec![1, 0, 0]);
    assert_eq!(dropped(), 12);
    // Too long a frame.
    put_frame(&mut frames, |out| out.resize(4 + FRAME_BYTES_MAX + 1, 0));
    one.peers.send(NodeId(2), 1, &mut frames);
    assert_eq!(dropped(), 12 + 4 + FRAME_BYTES_MAX as u64 + 1);
    // Too long a frame among others, which go.
    put_frame(&mut frames, |out| out.extend_from_slice(b"before"));
    put_frame(&mut frames, |out| out.resize(out.len() + FRAME_BYTES_MAX + 1, 0));
    put_frame(&mut frames, |out| out.extend_from_slice(b"behind"));
    one.peers.send(NodeId(2), 1, &mut frames);
    assert_eq!(dropped(), 12 + 2 * (4 + FRAME_BYTES_MAX as u64 + 1));
    // A stranger.
    one.say(3, b"who?");
    one.say(2, b"fine");
    two.ear.wait_frame(b"fine");
    assert_eq!(two.ear.heard.lock().frames.len(), 3);
    assert!(one.ear.heard.lock().downs.is_empty(), "the link broke");
}
