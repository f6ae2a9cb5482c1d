//! Links come up, break, move, and come up again.

use super::*;

/// So long a pause never ends: whoever dials has another reason.
fn patient() -> Timing {
    Timing { pause_min: Duration::from_secs(3600), pause_max: Duration::from_secs(3600), ..Timing::default() }
}

#[test]
fn both_sides_agree_on_the_newest_common_protocol() {
    let mut newer = options(2);
    newer.protocols = 3..=9;
    let mut older = options(1);
    older.protocols = 1..=4;
    let one = Node::start_with(older, Timing::default());
    let two = Node::start_with(newer, Timing::default());
    one.knows(&[&two]);
    two.knows(&[&one]);
    one.ear.wait_up(2, 1);
    assert_eq!(one.stat(2).protocol, Some(4));
    let mut frames = Vec::new();
    put_frame(&mut frames, |out| out.push(1));
    one.peers.send(NodeId(2), 4, &mut frames);
    two.ear.wait("a frame", |heard| heard.frames.first().is_some_and(|frame| frame.1 == 4));
}

#[test]
fn a_peer_that_is_down_is_dialled_until_it_is_there() {
    let one = Node::start(1);
    let address = nowhere();
    one.set(&[(2, address.clone())]);
    one.wait_trouble(2, "refused");
    one.say(2, b"lost");
    let mut later = options(2);
    later.listen = address;
    // Node 2 knows node 1, and cannot reach it: only node 1's own attempts can bring its link up.
    let two = Node::start_with(later, Timing::default());
    two.set(&[(1, nowhere())]);
    one.ear.wait_up(2, 1);
    assert_eq!(one.stat(2).trouble, None);
    assert_eq!(one.stat(2).dropped_bytes, 8);
    one.say(2, b"hello");
    two.ear.wait_frame(b"hello");
}

#[test]
fn a_peer_is_dialled_at_once_when_its_own_connection_comes() {
    let one = Node::start_with(options(1), patient());
    let address = nowhere();
    one.set(&[(2, address.clone())]);
    one.wait_trouble(2, "refused");
    let mut later = options(2);
    later.listen = address;
    let two = Node::start_with(later, patient());
    two.knows(&[&one]);
    one.ear.wait_up(2, 1);
}

#[test]
fn a_peer_that_closes_each_link_at_once_is_not_dialled_without_a_pause() {
    let (one, two) = pair(patient(), |_| {});
    let nudges = |count: u32| {
        for _ in 0..count {
            let before = two.ear.heard.lock().ups.get(&NodeId(1)).copied().unwrap_or(0);
            two.peers.redial(NodeId(1));
            two.ear.wait_up(1, before + 1);
        }
    };
    // As long as few links were closed, a connection of the peer makes this node dial.
    for round in 1..=3 {
        let body = [round as u8];
        one.say(2, &body);
        two.ear.wait_frame(&body);
        two.peers.sever(NodeId(1), "of the test");
        one.ear.wait_down(2, round);
        if round < 3 {
            nudges(1);
            one.ear.wait_up(2, round + 1);
        }
    }
    nudges(3);
    let peer = one.peers.shared.peer(NodeId(2)).expect("a peer");
    eventually("the connection of the peer is heard of", || !peer.link.orders().nudged);
    assert_eq!(one.ear.heard.lock().ups[&NodeId(2)], 3);
    // Somebody who asks for it has the peer dialled. A frame of the peer gives hope again.
    one.peers.redial(NodeId(2));
    one.ear.wait_up(2, 4);
    two.say(1, b"hello");
    one.ear.wait_frame(b"hello");
    one.say(2, b"last");
    two.ear.wait_frame(b"last");
    two.peers.sever(NodeId(1), "of the test");
    one.ear.wait_down(2, 4);
    nudges(1);
    one.ear.wait_up(2, 5);
}

#[test]
fn a_restarted_peer_is_reached_again() {
    let one = Node::start(1);
    let mut again = options(2);
    for round in 1..=4 {
        let two = Node::start_with(again.clone(), Timing::default());
        again.listen = two.address();
        two.knows(&[&one]);
        one.knows(&[&two]);
        one.ear.wait_up(2, round);
        two.ear.wait_up(1, 1);
        // What is said while a link ends is lost, and who says it says it again, as the protocols above do.
        let body = [round as u8];
        eventually("a frame to the one that started again", || {
            one.say(2, &body);
            two.ear.has_frame(&body)
        });
        eventually("a frame of the one that started again", || {
            two.say(1, &body);
            one.ear.has_frame(&body)
        });
        drop(two);
        one.ear.wait_down(2, round);
    }
}

#[test]
fn an_address_that_changes_is_followed() {
    let (one, before) = pair(Timing::default(), |_| {});
    let after = Node::start(2);
    after.knows(&[&one]);
    one.say(2, b"before");
    before.ear.wait_frame(b"before");
    one.knows(&[&after]);
    one.ear.wait_up(2, 2);
    assert_eq!(one.ear.heard.lock().downs.get(&NodeId(2)), Some(&1));
    one.say(2, b"after");
    after.ear.wait_frame(b"after");
    assert_eq!(before.ear.heard.lock().frames.len(), 1);
    // What does not change anything does not touch the link.
    one.knows(&[&after, &one]);
    one.say(2, b"still");
    after.ear.wait_frame(b"still");
    assert_eq!(one.stat(2).links, 2);
}

#[test]
fn a_removed_peer_is_cut_off_both_ways_until_it_is_back() {
    let (one, two) = pair(Timing::default(), |_| {});
    one.set(&[]);
    one.ear.wait_down(2, 1);
    two.ear.wait_down(1, 1);
    two.wait_trouble(1, "does not know this node");
    assert!(one.peers.stats().peers.is_empty());
    assert!(one.peers.stats().refused > 0);
    one.say(2, b"lost");
    one.knows(&[&two]);
    one.ear.wait_up(2, 2);
    two.ear.wait_up(1, 2);
    one.say(2, b"back");
    two.say(1, b"welcome");
    two.ear.wait_frame(b"back");
    one.ear.wait_frame(b"welcome");
    assert_eq!(two.ear.heard.lock().frames.len(), 1);
}

#[test]
fn a_link_is_dialled_anew_on_demand() {
    let (one, two) = pair(patient(), |_| {});
    one.peers.redial(NodeId(2));
    one.ear.wait_up(2, 2);
    one.say(2, b"anew");
    two.ear.wait_frame(b"anew");
    assert_eq!(two.stat(1).links, 1, "the other direction has its own link");
}

#[test]
fn a_newer_connection_takes_the_place_of_the_older_one() {
    let one = Node::start(1);
    one.set(&[(2, nowhere())]);
    let mut older = dial_by_hand(2, &one);
    older.write_all(b"\x03\0\0\0old\x09\0\0\0half").expect("sent");
    one.ear.wait_frame(b"old");
    let mut newer = dial_by_hand(2, &one);
    newer.write_all(b"\x03\0\0\0new").expect("sent");
    one.ear.wait_frame(b"new");
    assert_eq!(read_to_end(&mut older), b"");
    assert_eq!(one.ear.heard.lock().frames.len(), 2);
    assert!(one.stat(2).accepted);
    drop(newer);
    eventually("the end of the newer one", || !one.stat(2).accepted);
}

#[test]
fn frames_of_a_newer_connection_wait_for_those_of_the_older_one() {
    let one = Node::start(1);
    one.set(&[(2, nowhere())]);
    one.ear.stall(true);
    let mut older = dial_by_hand(2, &one);
    older.write_all(b"\x01\0\0\x001").expect("sent");
    one.ear.wait_frame(b"1");
    older.write_all(b"\x01\0\0\x002").expect("sent");
    // Two newer ones: only the last of those that wait counts.
    let mut between = dial_by_hand(2, &one);
    between.write_all(b"\x01\0\0\x00x").expect("sent");
    assert_eq!(read_to_end(&mut older), b"");
    let mut newest = dial_by_hand(2, &one);
    newest.write_all(b"\x01\0\0\x003").expect("sent");
    assert_eq!(read_to_end(&mut between), b"");
    one.ear.stall(false);
    one.ear.wait_frame(b"3");
    let heard = one.ear.heard.lock();
    let frames: Vec<&[u8]> = heard.frames.iter().map(|frame| &frame.2[..]).collect();
    assert_eq!(frames, [b"1", b"2", b"3"]);
}

#[test]
fn a_frame_above_the_bound_closes_the_connection() {
    let one = Node::start(1);
    one.set(&[(2, nowhere())]);
    let mut by_hand = dial_by_hand(2, &one);
    by_hand.write_all(b"\x01\0\0\0a").expect("sent");
    by_hand.write_all(&(FRAME_BYTES_MAX as u32 + 1).to_le_bytes()).expect("sent");
    assert_eq!(read_to_end(&mut by_hand), b"");
    one.ear.wait_frame(b"a");
    eventually("the end of it", || !one.stat(2).accepted);
}

#[test]
fn a_stop_ends_all_threads_whatever_they_do() {
    // A listener that never answers: the handshake would take an hour. And an address that nobody has.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent_address = silent.local_addr().expect("bound").to_string();
    let timing = Timing { handshake_max: Duration::from_secs(3600), ..patient() };
    let one = Node::start_with(options(1), timing);
    let two = Node::start_with(options(2), timing);
    let addresses = [(1, one.address()), (2, two.address()), (3, silent_address), (4, nowhere())];
    one.set(&addresses);
    two.set(&addresses);
    one.ear.wait_up(2, 1);
    two.ear.wait_up(1, 1);
    let (mut accepted, _) = silent.accept().expect("somebody dials");
    let mut hello = [0; 8];
    accepted.read_exact(&mut hello).expect("a handshake");
    one.wait_trouble(4, "refused");
    let stranger = connect(&one);
    let Node { ear, peers, .. } = one;
    peers.stop();
    // Each thread holds what all share, and so the ear.
    let ups = ear.heard.lock().ups.clone();
    peers.stop();
    peers.send(NodeId(2), 1, &mut vec![0; 4]);
    peers.set_peers(&BTreeMap::new()).expect("nothing to do");
    drop(peers);
    assert_eq!(Arc::strong_count(&ear), 1, "a thread is left");
    assert_eq!(ear.heard.lock().ups, ups);
    drop(stranger);
    two.ear.wait_down(1, 1);
}

#[test]
fn a_callback_may_drop_the_last_reference() {
    struct Owner(Mutex<Option<Peers>>, Mutex<Option<std::sync::mpsc::Sender<()>>>);
    impl PeerEvents for Owner {
        fn frames(&self, _: NodeId, _: u16, _: &mut Vec<Bytes>) {
            let peers = self.0.lock().take();
            drop(peers);
            self.1.lock().take();
        }
        fn connected(&self, _: NodeId, _: u16) {}
        fn disconnected(&self, _: NodeId) {}
    }
    let (alive, ended) = std::sync::mpsc::channel();
    let owner = Arc::new(Owner(Mutex::default(), Mutex::new(Some(alive))));
    let peers = Peers::start(options(1), owner.clone()).expect("a node");
    let two = Node::start(2);
    let known = BTreeMap::from([(NodeId(2), two.address())]);
    peers.set_peers(&known).expect("threads");
    let address = peers.local_address().to_string();
    *owner.0.lock() = Some(peers);
    two.set(&[(1, address)]);
    two.ear.wait_up(1, 1);
    two.say(1, b"end");
    let end = ended.recv_timeout(PATIENCE);
    assert_eq!(end, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn a_peer_whose_frame_is_refused_loses_its_link_and_comes_again() {
    let (one, two) = pair(Timing::default(), |_| {});
    one.say(2, b"a bad frame");
    two.ear.wait_frame(b"a bad frame");
    two.peers.sever(NodeId(1), "of the test");
    one.ear.wait_down(2, 1);
    one.ear.wait_up(2, 2);
    one.say(2, b"a good one");
    two.ear.wait_frame(b"a good one");
    two.peers.sever(NodeId(9), "nobody is hurt");
}
