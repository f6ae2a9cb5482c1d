//! Who is let in, and who is told why not.

use super::handshake::Refusal;
use super::*;
use crate::peers::handshake::WANTED_BYTES_MAX;

/// Node 1 dials node 2, of which one thing is not as it should be; both know each other.
fn refused(spoil: impl Fn(&mut PeerOptions), text: &str) {
    let mut spoilt = options(1);
    spoil(&mut spoilt);
    let one = Node::start_with(spoilt, Timing::default());
    let two = Node::start(2);
    two.set(&[(1, nowhere())]);
    one.set(&[(2, two.address())]);
    one.wait_trouble(2, text);
    assert!(two.peers.stats().refused > 0);
    one.say(2, b"listen!");
    assert!(one.ear.heard.lock().ups.is_empty());
    assert!(two.ear.heard.lock().frames.is_empty());
    assert!(!two.stat(1).accepted);
}

#[test]
fn who_does_not_belong_here_is_refused_and_told_why() {
    refused(|one| one.secret = Arc::from(&b"another"[..]), "secret");
    refused(|one| one.cluster = 6, "another cluster");
    refused(|one| one.me = NodeId(7), "does not know this node");
    refused(|one| one.protocols = 2..=3, "no protocol");
}

#[test]
fn who_looks_for_another_node_or_has_this_ones_number_is_told_so() {
    let two = Node::start(2);
    let one = Node::start(1);
    two.set(&[(1, nowhere())]);
    one.set(&[(3, two.address())]);
    one.wait_trouble(3, "another node answers");
    one.set(&[(3, one.address())]);
    one.wait_trouble(3, "it is this node");
}

#[test]
fn a_dialler_does_not_trust_whoever_answers() {
    let one = Node::start(1);
    let impostor = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    one.set(&[(2, impostor.local_addr().expect("bound").to_string())]);
    let (mut stream, _) = impostor.accept().expect("node 1 dials");
    stream.read_exact(&mut [0; 66]).expect("a hello");
    let mut challenge = vec![0, 1, 0, 1, 0];
    challenge.resize(37, 3);
    stream.write_all(&challenge).expect("sent");
    let mut proof = [0; 32];
    stream.read_exact(&mut proof).expect("a proof");
    stream.write_all(&[0]).expect("sent");
    stream.write_all(&proof).expect("sent");
    one.wait_trouble(2, "cannot prove");
    assert!(one.ear.heard.lock().ups.is_empty());
    // And something else altogether.
    let (mut stream, _) = impostor.accept().expect("node 1 dials");
    stream.write_all(b"-ERR unknown command\r\n").expect("sent");
    one.wait_trouble(2, "does not understand");
}

#[test]
fn a_handshake_that_was_overheard_opens_no_door() {
    let one = Node::start(1);
    let two = Node::start(2);
    let wire = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    two.set(&[(1, nowhere())]);
    one.set(&[(2, wire.local_addr().expect("bound").to_string())]);
    // Passes on what node 1 and node 2 say, and keeps what node 1 said.
    let (mut from_one, _) = wire.accept().expect("node 1 dials");
    let mut to_two = connect(&two);
    let mut overheard = Vec::new();
    for (said, answered) in [(66, 37), (32, 33)] {
        let mut bytes = vec![0; said];
        from_one.read_exact(&mut bytes).expect("node 1 speaks");
        to_two.write_all(&bytes).expect("node 2 listens");
        overheard.extend(bytes);
        let mut bytes = vec![0; answered];
        to_two.read_exact(&mut bytes).expect("node 2 answers");
        from_one.write_all(&bytes).expect("node 1 listens");
    }
    one.ear.wait_up(2, 1);
    one.say(2, b"hello");
    let mut frame = [0; 9];
    from_one.read_exact(&mut frame).expect("a frame");
    to_two.write_all(&frame).expect("passed on");
    two.ear.wait_frame(b"hello");
    overheard.extend(frame);
    let mut replayed = connect(&two);
    replayed.write_all(&overheard).expect("the listener listens");
    let answer = read_to_end(&mut replayed);
    // The end may come as a reset, which takes the last byte with it.
    let wrong = Refusal::WrongSecret as u8;
    assert!(answer.len() >= 37 && answer[37..].iter().all(|byte| *byte == wrong));
    eventually("the refusal", || two.peers.stats().refused == 1);
    assert_eq!(two.ear.heard.lock().frames.len(), 1);
    assert!(two.stat(1).accepted, "the connection of before is still there");
}

#[test]
fn noise_is_refused_before_anything_is_made_of_it() {
    let one = Node::start(1);
    one.set(&[(2, nowhere())]);
    let mut noise = connect(&one);
    noise.write_all(&[b'*'; 66]).expect("the listener listens");
    assert_eq!(read_to_end(&mut noise), [Refusal::OtherFormat as u8]);
    assert_eq!(one.peers.stats().refused, 1);
}

#[test]
fn a_handshake_ends_in_time_however_slowly_it_comes() {
    let limit = Duration::from_millis(200);
    let timing = Timing { handshake_max: limit, ..Timing::default() };
    let one = Node::start_with(options(1), timing);
    let mut silent = connect(&one);
    assert_eq!(read_to_end(&mut silent), b"");
    // A byte now and then does not help.
    let began = Instant::now();
    let mut slow = connect(&one);
    slow.set_read_timeout(Some(limit / 8)).expect("a socket");
    loop {
        // The listener closes while somebody still writes: the write may see it first.
        if slow.write_all(b"O").is_err() {
            break;
        }
        match slow.read(&mut [0]) {
            Ok(count) => {
                assert_eq!(count, 0);
                break;
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
        }
        assert!(began.elapsed() < PATIENCE, "still there");
    }
    assert!(began.elapsed() >= limit);
}

#[test]
fn strangers_do_not_keep_peers_out() {
    let timing = Timing { handshake_max: PATIENCE * 2, ..Timing::default() };
    let one = Node::start_with(options(1), timing);
    one.set(&[(2, nowhere())]);
    let count = peer_listener::HANDSHAKES_MAX * 3;
    let mut strangers: Vec<TcpStream> = (0..count).map(|_| connect(&one)).collect();
    let mut peer = dial_by_hand(2, &one);
    peer.write_all(b"\x02\0\0\0in").expect("sent");
    one.ear.wait_frame(b"in");
    // The oldest ones had to go, and the newest ones are still there.
    let crowded = one.peers.stats().crowded_out as usize;
    assert!((count - peer_listener::HANDSHAKES_MAX..=count).contains(&crowded), "{crowded}");
    assert_eq!(read_to_end(&mut strangers[0]), b"");
    let newest = &mut strangers[count - 1];
    newest.set_nonblocking(true).expect("a socket");
    let error = newest.read(&mut [0]).expect_err("nothing comes");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_crowd_from_one_address_does_not_push_others_out() {
    let timing = Timing { handshake_max: PATIENCE * 2, ..Timing::default() };
    let mut everywhere = options(1);
    everywhere.listen = "0.0.0.0:0".to_owned();
    let one = Node::start_with(everywhere, timing);
    one.set(&[(2, nowhere())]);
    // A peer that takes its time, from an address of its own: whoever connects to 127.0.0.2 comes from
    // 127.0.0.1, unless it says otherwise.
    let port = one.peers.local_address().port();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    let own: SocketAddr = "127.0.0.9:0".parse().expect("an address");
    socket.bind(&own.into()).expect("all of 127/8 is ours");
    let target: SocketAddr = SocketAddr::from(([127, 0, 0, 1], port));
    socket.connect(&target.into()).expect("the listener");
    let mut slow = TcpStream::from(socket);
    slow.set_read_timeout(Some(PATIENCE)).expect("a socket");
    slow.write_all(b"ORDO").expect("the listener listens");
    let crowd: Vec<TcpStream> = (0..peer_listener::HANDSHAKES_MAX * 2)
        .map(|_| TcpStream::connect(target).expect("the listener"))
        .collect();
    eventually("the crowd", || one.peers.stats().crowded_out as usize > peer_listener::HANDSHAKES_MAX);
    slow.write_all(&[b'?'; WANTED_BYTES_MAX - 4]).expect("the listener still listens");
    assert_eq!(read_to_end(&mut slow), [Refusal::OtherFormat as u8]);
    drop(crowd);
}

#[test]
fn options_without_sense_are_refused() {
    let start = |change: fn(&mut PeerOptions)| {
        let mut options = options(1);
        change(&mut options);
        let error = Peers::start(options, Arc::new(Ear::default())).err();
        error.expect("refused").to_string()
    };
    assert!(start(|options| options.secret = Arc::from(&b""[..])).contains("secret is empty"));
    #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
    let error = start(|options| options.protocols = 2..=1);
    assert!(error.contains("protocols"), "{error}");
    assert!(start(|options| options.me = NodeId(0)).contains("from 1"));
    assert!(start(|options| options.listen = "10.0.0.1".to_owned()).contains("host and a port"));
    let taken = Node::start(2);
    let mut same = options(1);
    same.listen = taken.address();
    let error = Peers::start(same, Arc::new(Ear::default())).err().expect("taken");
    assert!(error.to_string().contains(&taken.address()), "{error}");
}
