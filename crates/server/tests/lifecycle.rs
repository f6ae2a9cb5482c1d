//! Starting, stopping, starting again.

mod support;

use ordo_server::server::Server;
use support::{TestServer, config, show};

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    for fsync in ["always", "everysec", "no"] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for round in 0..3 {
            let server = TestServer::start_in(dir.path(), &[("appendfsync", fsync)]);
            let mut client = server.client();
            client.talk(&[("DBSIZE", &(round * 11).to_string())]);
            for key in 0..10 {
                client.talk(&[(&format!("SET key:{round}:{key} {key}"), "OK")]);
            }
            client.talk(&[
                (&format!("HSET hash:{round} f {round}"), "1"),
                ("SAVE", "OK"),
            ]);
            for earlier in 0..=round {
                client.talk(&[
                    (&format!("GET key:{earlier}:7"), "\"7\""),
                    (&format!("HGET hash:{earlier} f"), &format!("\"{earlier}\"")),
                ]);
            }
            server.stop();
        }
    }
}

#[test]
fn a_stop_answers_what_is_in_flight() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = TestServer::start_in(dir.path(), &[("appendfsync", "always")]);
    let mut client = server.client();
    for _ in 0..500 {
        client.send(&["INCR", "n"]);
    }
    assert_eq!(show(&client.read()), "1");
    server.stop();
    // Whatever was taken is answered, in order; what was not has no effect.
    let mut answered = 1;
    while let Some(reply) = client.try_read() {
        answered += 1;
        assert_eq!(show(&reply), answered.to_string());
    }
    let server = TestServer::start_in(dir.path(), &[]);
    assert_eq!(server.client().line("GET n"), format!("\"{answered}\""));
}

#[test]
fn shutdown_stops_the_server() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    client.talk(&[
        ("SET k v", "OK"),
        ("SHUTDOWN NONSENSE", "-ERR syntax error"),
        ("SHUTDOWN NOSAVE SAVE", "-ERR syntax error"),
        ("SHUTDOWN NOW ABORT", "-ERR syntax error"),
    ]);
    client.send(&["SHUTDOWN", "NOSAVE"]);
    assert_eq!(client.try_read(), None);
    server.wait();
}

#[test]
fn a_second_server_is_told_why_it_cannot_start() {
    let (server, dir) = TestServer::start(&[]);
    let error = Server::start(config(dir.path(), &[]))
        .err()
        .expect("the directory is in use")
        .to_string();
    assert!(
        error.contains(dir.path().to_str().expect("UTF-8")),
        "{error}"
    );
    let other = tempfile::tempdir().expect("a temporary directory");
    let port = server.address.port().to_string();
    let error = Server::start(config(other.path(), &[("port", &port)]))
        .err()
        .expect("the port is in use")
        .to_string();
    assert!(error.contains("the port is in use"), "{error}");
}
