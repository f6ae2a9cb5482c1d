//! The same by TLS, and who is refused then.

use super::*;
use crate::config::Config;
use crate::tls::ClientTls;
use crate::tls::authority::{Authority, Files, text};
use crate::tls::{CLUSTER_EPHEMERAL, Stream};
use std::io::ErrorKind;
use tempfile::TempDir;

/// A CA, and certificates for two nodes.
struct House {
    dir: TempDir,
    authority: Authority,
    nodes: [Arc<Tls>; 2],
}

fn config(authority: &Authority, own: &Files) -> Config {
    let mut config = Config::default();
    for (name, value) in [
        ("tls-cluster", "yes"),
        ("tls-cert-file", text(&own.cert)),
        ("tls-key-file", text(&own.key)),
        ("tls-ca-cert-file", text(&authority.file)),
    ] {
        let setting = Config::setting(name).expect("exists");
        (setting.set)(&mut config, value).expect("valid");
    }
    config
}

impl House {
    fn new() -> House {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let authority = Authority::new(dir.path(), "ca");
        let nodes = ["one", "two"].map(|name| {
            let own = authority.sign(dir.path(), name);
            Arc::new(Tls::new(&config(&authority, &own)).expect("files"))
        });
        House { dir, authority, nodes }
    }

    fn secure(&self, options: &mut PeerOptions) {
        options.tls = Some(self.nodes[usize::from(options.me.0) - 1].clone());
    }

    fn start(&self, me: u16) -> Node {
        let mut options = options(me);
        self.secure(&mut options);
        Node::start_with(options, Timing::default())
    }
}

/// Encryption without files.
fn ephemeral() -> Arc<Tls> {
    let mut config = Config::default();
    let setting = Config::setting("tls-cluster").expect("exists");
    (setting.set)(&mut config, CLUSTER_EPHEMERAL).expect("valid");
    Arc::new(Tls::new(&config).expect("no files are needed"))
}

#[test]
fn without_files_frames_arrive_whole_and_in_order() {
    stream::exchange(|options| options.tls = Some(ephemeral()));
    stream::send_at_the_same_time(|options| options.tls = Some(ephemeral()));
}

/// Takes what one end has to say to the other. False at the end.
fn pass(from: &mut Stream, to: &mut Stream) -> bool {
    let mut bytes = [0; 4096];
    let read = match from.read(&mut bytes) {
        Ok(0) => return false,
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
        Err(_) => return false,
    };
    to.write_all(&bytes[..read]).is_ok()
}

/// Stands between those who dial it and a node, and speaks TLS with both.
fn stand_between(tls: Arc<Tls>, node: SocketAddr) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        while let Ok((guest, _)) = listener.accept() {
            let host = TcpStream::connect(node).expect("the node's listener");
            for stream in [&guest, &host] {
                stream.set_nonblocking(true).expect("a socket");
            }
            let mut guest = tls.accept_peer(mio::net::TcpStream::from_std(guest)).expect("TLS");
            let host = mio::net::TcpStream::from_std(host);
            let mut host = tls.dial_peer(host, node).expect("TLS");
            while pass(&mut guest, &mut host) && pass(&mut host, &mut guest) {
                let _ = (host.flush(), guest.flush());
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
    });
    address
}

#[test]
fn who_stands_between_two_nodes_gets_no_link_for_them() {
    let start = |me| {
        let mut options = options(me);
        options.tls = Some(ephemeral());
        Node::start_with(options, Timing::default())
    };
    let (one, two) = (start(1), start(2));
    let between = stand_between(ephemeral(), two.peers.local_address());
    two.set(&[(1, nowhere())]);
    one.set(&[(2, between)]);
    one.wait_trouble(2, "somebody between the two");
    assert!(two.ear.heard.lock().frames.is_empty());
    // Without the one in the middle they find each other.
    one.set(&[(2, two.address())]);
    one.ear.wait_up(2, 1);
}

#[test]
fn whether_a_link_within_the_machine_is_encrypted_both_ends_see_alike() {
    let start = |me| {
        let mut options = options(me);
        options.tls = Some(ephemeral());
        options.plain_on_loopback = true;
        Node::start_with(options, Timing::default())
    };
    let (one, plain) = (start(1), Node::start(2));
    plain.knows(&[&one]);
    one.knows(&[&plain]);
    one.ear.wait_up(2, 1);
    plain.ear.wait_up(1, 1);
    for (address, is_plain) in
        [("127.8.0.1", true), ("::1", true), ("::ffff:127.0.0.1", true), ("10.0.0.1", false)]
    {
        let tls = one.peers.shared.tls_with(address.parse().expect("an address"));
        assert_eq!(tls.is_none(), is_plain, "{address}");
    }
}

#[test]
fn frames_arrive_whole_and_in_order() {
    let house = House::new();
    stream::exchange(|options| house.secure(options));
    stream::send_at_the_same_time(|options| house.secure(options));
    stream::send_much_at_once(|options| house.secure(options));
}

#[test]
fn a_peer_that_takes_nothing_loses_its_link() {
    let house = House::new();
    stream::fall_behind(|options| house.secure(options));
    stream::jam(|options| house.secure(options));
}

#[test]
fn what_passes_is_encrypted() {
    let house = House::new();
    let one = house.start(1);
    let eavesdropper = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = eavesdropper.local_addr().expect("bound").to_string();
    one.set(&[(2, address)]);
    let (mut stream, _) = eavesdropper.accept().expect("node 1 dials");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut head = [0; 3];
    stream.read_exact(&mut head).expect("a hello");
    assert_eq!(head[..2], [22, 3], "no TLS");
}

/// Node 1 dials node 2, of which one thing is not as it should be; both know each other.
fn refused(one: Node, two: &Node, wants: &str) {
    two.set(&[(1, nowhere())]);
    one.set(&[(2, two.address())]);
    one.wait_trouble(2, wants);
    eventually("a refusal", || two.peers.stats().refused > 0);
    one.say(2, b"listen!");
    assert!(one.ear.heard.lock().ups.is_empty());
    assert!(two.ear.heard.lock().frames.is_empty());
}

#[test]
fn a_node_with_tls_and_one_without_refuse_each_other() {
    let house = House::new();
    refused(house.start(1), &Node::start(2), "tls-cluster");
    refused(Node::start(1), &house.start(2), "speaks TLS");
}

#[test]
fn a_certificate_alone_is_not_enough_and_neither_is_the_secret() {
    let house = House::new();
    let mut other = options(1);
    house.secure(&mut other);
    other.secret = Arc::from(&b"another"[..]);
    let other = Node::start_with(other, Timing::default());
    refused(other, &house.start(2), "secret");

    let stranger = Authority::new(house.dir.path(), "stranger");
    let forged = stranger.sign(house.dir.path(), "forged");
    // It believes node 2, but is not believed.
    let forged = Tls::new(&config(&house.authority, &forged)).expect("files");
    let mut other = options(1);
    other.tls = Some(Arc::new(forged));
    let other = Node::start_with(other, Timing::default());
    refused(other, &house.start(2), "is not signed by a CA that it knows");

    // And the other way round: who is dialled must show a good one, too.
    let own = stranger.sign(house.dir.path(), "own");
    let own = Tls::new(&config(&stranger, &own)).expect("files");
    let mut other = options(1);
    other.tls = Some(Arc::new(own));
    let other = Node::start_with(other, Timing::default());
    refused(other, &house.start(2), "must be signed by a CA that this node knows");

    // One that shows none.
    let two = house.start(2);
    let nobody = ClientTls::from_files(&house.authority.file, None).expect("a file");
    let socket = TcpStream::connect(two.peers.local_address()).expect("the listener");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut stream = nobody.over(socket).expect("its own side is over");
    let said = stream.read(&mut [0]).expect_err("refused").to_string();
    assert!(said.contains("CertificateRequired"), "{said}");
    eventually("a refusal", || two.peers.stats().refused == 1);
}

#[test]
fn new_certificates_are_for_new_links() {
    let house = House::new();
    let (one, two) = (house.start(1), house.start(2));
    one.knows(&[&two]);
    two.knows(&[&one]);
    one.ear.wait_up(2, 1);
    two.ear.wait_up(1, 1);
    // Another CA, which node 2 gets first: links that are up stay, new ones are refused until node 1 has it.
    let next = Authority::new(house.dir.path(), "next");
    let configs = ["three", "four"].map(|name| config(&next, &next.sign(house.dir.path(), name)));
    house.nodes[1].reread(&configs[1]).expect("files");
    one.say(2, b"before");
    two.ear.wait_frame(b"before");
    one.peers.redial(NodeId(2));
    one.ear.wait_down(2, 1);
    one.wait_trouble(2, "must be signed by a CA");
    house.nodes[0].reread(&configs[0]).expect("files");
    one.ear.wait_up(2, 2);
    one.say(2, b"after");
    two.ear.wait_frame(b"after");
    assert_eq!(two.ear.heard.lock().downs.get(&NodeId(1)), None);
}
