//! What is received from a connection ahead of its turn, over a real socket.

use super::node::TestNode;
use crate::net::connection::{Connection, Fate};
use crate::tls::Stream;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

const TURN_NS: u64 = 1 << 50;
const ROOM_BYTES: usize = 64;

/// A connection of a node whose client sends this, and the node's end of the socket once more. All that the
/// client has sent has arrived.
struct Rig {
    node: TestNode,
    connection: Connection,
    client: TcpStream,
    socket: TcpStream,
    room: [u8; ROOM_BYTES],
}

impl Rig {
    fn new() -> Rig {
        let mut node = TestNode::start(&[], None);
        node.connect();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("a client");
        let (socket, _) = listener.accept().expect("it connects");
        socket.set_nonblocking(true).expect("a socket");
        let stream = Stream::Plain(mio::net::TcpStream::from_std(socket.try_clone().expect("a socket")));
        let connection = Connection::new(stream, node.new_session());
        Rig { node, connection, client, socket, room: [0; ROOM_BYTES] }
    }

    /// The client sends bytes, and they arrive.
    fn send(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).expect("sent");
        let mut arrived = vec![0; bytes.len()];
        loop {
            match self.socket.peek(&mut arrived) {
                Ok(count) if count == bytes.len() => return,
                Ok(_) => std::thread::yield_now(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn serve(&mut self) -> Fate {
        let Rig { node, connection, room, .. } = self;
        let mut scratch = [0; 4096];
        node.with(0, |_, _, thread| connection.serve(thread, (&room[..], &mut scratch), TURN_NS))
    }

    fn replies(&mut self) -> String {
        let replies = self.connection.session().replies();
        let text = String::from_utf8_lossy(replies.ready()).into_owned();
        replies.sent(text.len());
        text
    }
}

#[test]
fn a_connection_that_had_sent_nothing_before_a_stall_is_served_after_it() {
    let mut rig = Rig::new();
    assert_eq!(rig.connection.receive_ahead(&mut rig.room), b"");
    rig.connection.keep_received(&rig.room);
    rig.send(b"PING\r\n");
    rig.connection.became_readable(false);
    assert_eq!(rig.serve(), Fate::Open);
    assert_eq!(rig.replies(), "+PONG\r\n");
}

#[test]
fn what_was_received_before_a_stall_comes_before_what_the_client_sends_afterwards() {
    let mut rig = Rig::new();
    rig.send(b"PING one\r\nPI");
    assert_eq!(rig.connection.receive_ahead(&mut rig.room), b"PING one\r\nPI");
    rig.connection.keep_received(&rig.room);
    rig.room.fill(b'x');
    rig.send(b"NG two\r\n");
    rig.connection.became_readable(false);
    assert_eq!(rig.connection.receive_ahead(&mut rig.room), b"", "something is to be decoded before");
    assert_eq!(rig.serve(), Fate::Open);
    assert_eq!(rig.replies(), "$3\r\none\r\n$3\r\ntwo\r\n");
}

#[test]
fn a_room_that_is_too_small_ends_no_turn() {
    let mut rig = Rig::new();
    let commands = "PING\r\n".repeat(100);
    rig.send(commands.as_bytes());
    assert_eq!(rig.connection.receive_ahead(&mut rig.room).len(), ROOM_BYTES);
    assert_eq!(rig.serve(), Fate::Open);
    assert_eq!(rig.replies(), "+PONG\r\n".repeat(100));
    // The end comes ahead of a turn, too.
    drop(rig.client.shutdown(std::net::Shutdown::Both));
    rig.connection.became_readable(true);
    while rig.connection.receive_ahead(&mut rig.room).is_empty() && !rig.connection.session().closing() {
        rig.serve();
        rig.connection.became_readable(true);
    }
    assert!(rig.connection.session().closing());
}
