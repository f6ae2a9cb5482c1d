use super::*;
use agree::Delivery;

fn identity(me: u16) -> Identity {
    Identity {
        me: NodeId(me),
        cluster: 77,
        secret: Arc::from(&b"between us"[..]),
        protocols: 2..=4,
        skips: 0,
        engine: EngineKind::Sparkle,
        delivery: Delivery::Raft,
    }
}

/// What both ends of a connection have.
const HERE: Binding = [7; BINDING_BYTES];

/// What both sides said, and how it ended.
struct Talk {
    to_acceptor: Vec<Vec<u8>>,
    to_dialler: Vec<Vec<u8>>,
    accepted: Result<Proven, Refusal>,
    dialled: Result<Proven, Failure>,
}

/// Lets node 1 dial node 2, which knows nodes 1 to 3. `tamper` may change what is on its way: the number of
/// the message (from 0), and its bytes.
fn talk(dialler: &Identity, acceptor: &Identity, tamper: impl Fn(usize, &mut Vec<u8>)) -> Talk {
    let (mut dialling, hello) = Dialling::begin(dialler, NodeId(2), &[1; NONCE_BYTES]);
    let mut accepting = Accepting::begin([2; NONCE_BYTES]);
    let mut talk = Talk {
        to_acceptor: Vec::new(),
        to_dialler: Vec::new(),
        accepted: Err(Refusal::OtherFormat),
        dialled: Err(Failure::Unintelligible),
    };
    let mut message = hello;
    for number in 0.. {
        tamper(number * 2, &mut message);
        talk.to_acceptor.push(message.clone());
        assert_eq!(message.len(), accepting.wants());
        let knows = |node: NodeId| (1..=3).contains(&node.0);
        let mut reply = match accepting.take(acceptor, &HERE, knows, &message) {
            Ok(Step::Continue(reply)) => reply,
            Ok(Step::Done(reply, proven)) => {
                talk.accepted = Ok(proven);
                reply
            }
            Err(refusal) => {
                talk.accepted = Err(refusal);
                vec![refusal as u8]
            }
        };
        tamper(number * 2 + 1, &mut reply);
        talk.to_dialler.push(reply.clone());
        let mut rest = &reply[..];
        message = loop {
            if rest.is_empty() {
                return talk;
            }
            let (bytes, behind) = rest.split_at(dialling.wants());
            rest = behind;
            match dialling.take(dialler, &HERE, bytes) {
                Ok(Step::Continue(message)) if message.is_empty() => {}
                Ok(Step::Continue(message)) => break message,
                Ok(Step::Done(_, proven)) => {
                    talk.dialled = Ok(proven);
                    return talk;
                }
                Err(failure) => {
                    talk.dialled = Err(failure);
                    return talk;
                }
            }
        };
    }
    talk
}

#[test]
fn those_who_share_the_secret_agree_on_the_newest_protocol_of_both() {
    for (ours, theirs, agreed) in [
        (2..=4, 2..=4, Some(4)),
        (1..=3, 3..=9, Some(3)),
        (3..=9, 1..=3, Some(3)),
        (1..=2, 3..=4, None),
        (3..=4, 1..=2, None),
    ] {
        let (mut one, mut two) = (identity(1), identity(2));
        one.protocols = ours;
        two.protocols = theirs;
        let talk = talk(&one, &two, |_, _| {});
        match agreed {
            Some(protocol) => {
                let node = NodeId(1);
                assert_eq!(talk.accepted, Ok(Proven { node, protocol }));
                let node = NodeId(2);
                assert_eq!(talk.dialled, Ok(Proven { node, protocol }));
            }
            None => {
                assert_eq!(talk.accepted, Err(Refusal::NoCommonProtocol));
                let refused = Failure::Refused(Refusal::NoCommonProtocol);
                assert_eq!(talk.dialled, Err(refused));
            }
        }
    }
}

#[test]
fn a_refusal_reaches_the_dialler() {
    type Spoil = fn(&mut Identity);
    let spoil: [(Refusal, Spoil); 4] = [
        (Refusal::OtherCluster, |one| one.cluster = 78),
        (Refusal::SameNode, |one| one.me = NodeId(2)),
        (Refusal::UnknownNode, |one| one.me = NodeId(4)),
        (Refusal::WrongSecret, |one| one.secret = Arc::from(&b"?"[..])),
    ];
    for (refusal, spoil) in spoil {
        let mut one = identity(1);
        spoil(&mut one);
        let talk = talk(&one, &identity(2), |_, _| {});
        assert_eq!(talk.accepted, Err(refusal));
        assert_eq!(talk.dialled, Err(Failure::Refused(refusal)));
    }
    let talk = talk(&identity(1), &identity(3), |_, _| {});
    assert_eq!(talk.dialled, Err(Failure::Refused(Refusal::OtherNode)));
    for refusal in Refusal::ALL {
        assert_eq!(Refusal::of(refusal as u8), Some(refusal));
    }
    assert_eq!(Refusal::of(GO_ON), None);
}

#[test]
fn every_bit_of_every_message_counts() {
    let lens = [HELLO_BYTES, 1 + CHALLENGE_BYTES, MAC_BYTES, 1 + MAC_BYTES];
    for (number, len) in lens.into_iter().enumerate() {
        for bit in 0..len * 8 {
            let talk = talk(&identity(1), &identity(2), |at, message| {
                if at == number {
                    assert_eq!(message.len(), len);
                    message[bit / 8] ^= 1 << (bit % 8);
                }
            });
            let what = format!("message {number}, bit {bit}");
            assert!(talk.dialled.is_err(), "{what}: the dialler took it");
            // The acceptor is done before the last message, which cannot change its mind.
            assert_eq!(talk.accepted.is_ok(), number == 3, "{what}");
        }
    }
}

#[test]
fn what_was_said_before_is_of_no_use() {
    let heard = talk(&identity(1), &identity(2), |_, _| {});
    assert!(heard.accepted.is_ok());
    // The same bytes to an acceptor with another nonce.
    let mut accepting = Accepting::begin([3; NONCE_BYTES]);
    let two = identity(2);
    let challenge = accepting.take(&two, &HERE, |_| true, &heard.to_acceptor[0]);
    assert!(matches!(challenge, Ok(Step::Continue(_))));
    let welcome = accepting.take(&two, &HERE, |_| true, &heard.to_acceptor[1]);
    assert_eq!(welcome, Err(Refusal::WrongSecret));
    // The same bytes to a dialler with another nonce.
    let one = identity(1);
    let (mut dialling, _) = Dialling::begin(&one, NodeId(2), &[9; NONCE_BYTES]);
    for bytes in [&heard.to_dialler[0][..1], &heard.to_dialler[0][1..], &heard.to_dialler[1][..1]] {
        assert!(dialling.take(&one, &HERE, bytes).is_ok());
    }
    let welcome = dialling.take(&one, &HERE, &heard.to_dialler[1][1..]);
    assert_eq!(welcome, Err(Failure::Impostor));
}

#[test]
fn a_proof_that_comes_back_proves_nothing() {
    // Whoever answers the dialler's proof with that very proof has the acceptor's place and not its secret.
    let one = identity(1);
    let (mut dialling, _) = Dialling::begin(&one, NodeId(2), &[1; NONCE_BYTES]);
    let mut challenge = Vec::new();
    put_range(&mut challenge, &one.protocols);
    challenge.extend_from_slice(&[2; NONCE_BYTES]);
    dialling.take(&one, &HERE, &[GO_ON]).expect("the status");
    let Ok(Step::Continue(proof)) = dialling.take(&one, &HERE, &challenge) else {
        panic!("no proof");
    };
    dialling.take(&one, &HERE, &[GO_ON]).expect("the status");
    assert_eq!(dialling.take(&one, &HERE, &proof), Err(Failure::Impostor));
}

#[test]
fn a_node_that_is_removed_during_its_handshake_is_refused() {
    let heard = talk(&identity(1), &identity(2), |_, _| {});
    let mut accepting = Accepting::begin([2; NONCE_BYTES]);
    let two = identity(2);
    let hello = accepting.take(&two, &HERE, |_| true, &heard.to_acceptor[0]);
    assert!(hello.is_ok());
    let welcome = accepting.take(&two, &HERE, |_| false, &heard.to_acceptor[1]);
    assert_eq!(welcome, Err(Refusal::UnknownNode));
}

#[test]
fn whoever_has_a_connection_with_each_side_cannot_join_them() {
    let (one, two) = (identity(1), identity(2));
    let there = [8; BINDING_BYTES];
    let (mut dialling, hello) = Dialling::begin(&one, NodeId(2), &[1; NONCE_BYTES]);
    let mut accepting = Accepting::begin([2; NONCE_BYTES]);
    let Ok(Step::Continue(challenge)) = accepting.take(&two, &there, |_| true, &hello) else {
        panic!("no challenge");
    };
    dialling.take(&one, &HERE, &challenge[..1]).expect("the status");
    let Ok(Step::Continue(proof)) = dialling.take(&one, &HERE, &challenge[1..]) else {
        panic!("no proof");
    };
    let welcome = accepting.take(&two, &there, |_| true, &proof);
    assert_eq!(welcome, Err(Refusal::WrongSecret));
}

#[test]
fn nodes_that_skip_different_requests_refuse_each_other() {
    for (ours, theirs) in [(0, 7), (7, 0), (7, 8)] {
        let (mut one, mut two) = (identity(1), identity(2));
        (one.skips, two.skips) = (ours, theirs);
        let talk = talk(&one, &two, |_, _| {});
        assert_eq!(talk.accepted, Err(Refusal::OtherSkips));
        assert_eq!(talk.dialled, Err(Failure::Refused(Refusal::OtherSkips)));
    }
}

#[test]
fn nodes_with_different_deliveries_refuse_each_other() {
    for (ours, theirs) in [(Delivery::Raft, Delivery::Mimox), (Delivery::Mimox, Delivery::Raft)] {
        let (mut one, mut two) = (identity(1), identity(2));
        (one.delivery, two.delivery) = (ours, theirs);
        let other = talk(&one, &two, |_, _| {});
        assert_eq!(other.accepted, Err(Refusal::OtherDelivery), "{ours} dials {theirs}");
        assert_eq!(other.dialled, Err(Failure::Refused(Refusal::OtherDelivery)));
        one.delivery = theirs;
        let same = talk(&one, &two, |_, _| {});
        assert!(same.accepted.is_ok() && same.dialled.is_ok(), "{theirs}");
    }
    for text in [Refusal::OtherDelivery.advice(), Refusal::OtherDelivery.reason()] {
        assert!(text.contains("delivery in the cluster's description"), "{text}");
    }
    let mut here = identity(1);
    (here.engine, here.delivery) = (EngineKind::Calvin, Delivery::Mimox);
    assert_eq!(here.own(Refusal::OtherDelivery), ". Here the delivery is mimox");
    assert_eq!(here.own(Refusal::OtherEngine), ". Here the engine is calvin");
    assert_eq!(here.own(Refusal::OtherSkips), "");
}

#[test]
fn nodes_with_different_engines_refuse_each_other() {
    for ours in EngineKind::ALL {
        for theirs in EngineKind::ALL {
            let (mut one, mut two) = (identity(1), identity(2));
            (one.engine, two.engine) = (ours, theirs);
            let talk = talk(&one, &two, |_, _| {});
            if ours == theirs {
                assert!(talk.accepted.is_ok() && talk.dialled.is_ok(), "{ours}");
                continue;
            }
            assert_eq!(talk.accepted, Err(Refusal::OtherEngine), "{ours} dials {theirs}");
            assert_eq!(talk.dialled, Err(Failure::Refused(Refusal::OtherEngine)));
        }
    }
    // Builds that could not choose an engine say 2 and 0, and had Sparkle.
    let numbers = [
        (EngineKind::Sparkle, 0),
        (EngineKind::Calvin, 1),
        (EngineKind::Ssmr, 2),
        (EngineKind::Serial, 3),
        (EngineKind::NoCc, 4),
        (EngineKind::QStore, 5),
        (EngineKind::ParSpec, 6),
    ];
    for (engine, number) in numbers {
        let mut said = identity(1);
        said.engine = engine;
        let (_, hello) = Dialling::begin(&said, NodeId(2), &[7; NONCE_BYTES]);
        assert_eq!(hello[8..10], [2, number], "{engine}");
    }
    let mut said = identity(1);
    (said.engine, said.delivery) = (EngineKind::Calvin, Delivery::Mimox);
    let (_, hello) = Dialling::begin(&said, NodeId(2), &[7; NONCE_BYTES]);
    assert_eq!(hello[8..10], [2, 129]);
    for text in [Refusal::OtherEngine.advice(), Refusal::OtherEngine.reason()] {
        assert!(text.contains("different engines") && text.contains("--engine"), "{text}");
    }
}
