//! What a stream tells its poll.

use super::*;
use authority::{Authority, text};
use std::io::{ErrorKind, Read, Write};

/// The two ends of a connection: one that never waits, at a server, and a client's.
fn pair() -> (Stream, StreamOwned<ClientConnection, std::net::TcpStream>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let authority = Authority::new(dir.path(), "ca");
    let own = authority.sign(dir.path(), "server");
    let mut config = Config::default();
    for (name, value) in [
        ("tls-port", "1"),
        ("tls-auth-clients", "no"),
        ("tls-cert-file", text(&own.cert)),
        ("tls-key-file", text(&own.key)),
    ] {
        let setting = Config::setting(name).expect("exists");
        (setting.set)(&mut config, value).expect("valid");
    }
    let tls = Tls::new(&config).expect("files");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let socket = std::net::TcpStream::connect(address).expect("it accepts");
    let (accepted, _) = listener.accept().expect("a client");
    accepted.set_nonblocking(true).expect("a socket");
    let mut server = tls.accept_client(TcpStream::from_std(accepted)).expect("a stream");
    let client = ClientTls::from_files(&authority.file, None).expect("a file");
    let client = std::thread::spawn(move || client.over(socket).expect("it believes the server"));
    while server.is_handshaking() {
        match server.receive(&mut [0; 1]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
    (server, client.join().expect("no panic"))
}

#[test]
fn what_is_left_of_a_read_is_announced() {
    let (mut server, mut client) = pair();
    let sent: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
    client.write_all(&sent).expect("sent");
    client.flush().expect("sent");
    // An edge-triggered poll says once that there is something: whoever stops where there is no more has it
    // all.
    let mut got = Vec::new();
    let mut room = [0; 777];
    while got.len() < sent.len() {
        match server.receive(&mut room) {
            Ok(Got { bytes, more }) => {
                got.extend_from_slice(&room[..bytes]);
                assert!(more || bytes < room.len(), "a full read says nothing of the rest");
                assert!(bytes > 0, "an end");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert!(got == sent, "something else came");
    let error = server.receive(&mut room).expect_err("nothing is left");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    client.conn.send_close_notify();
    client.flush().expect("sent");
    let end = loop {
        match server.receive(&mut room) {
            Ok(got) => break got,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    };
    assert_eq!(end.bytes, 0);
}

#[test]
fn no_more_is_encrypted_than_the_kernel_and_a_small_buffer_take() {
    let (mut server, mut client) = pair();
    let bytes = vec![7; 1 << 20];
    let mut taken = 0;
    let mut moved = 0;
    loop {
        let sent = server.send(&bytes).expect("a connection");
        taken += sent.bytes;
        moved += sent.moved_bytes;
        if sent.full {
            break;
        }
    }
    assert!(server.pends());
    // Nothing goes, so nothing is taken.
    let sent = server.send(&bytes).expect("a connection");
    assert!(sent.full && sent.bytes == 0, "{sent:?}");
    // What was taken and has not gone.
    assert!(taken.saturating_sub(moved) <= 64 << 10, "{taken} taken, {moved} gone");
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).expect("a farewell");
        got.len()
    });
    while server.pends() {
        server.flush().expect("a connection");
    }
    server.farewell();
    assert!(!server.pends());
    drop(server);
    assert_eq!(reader.join().expect("no panic"), taken);
}
