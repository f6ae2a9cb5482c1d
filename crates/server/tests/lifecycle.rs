//! Starting, stopping, starting again.

use crate::support::{TestServer, config, show};
use ordo_server::server::Server;
use std::path::{Path, PathBuf};

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
            client.talk(&[(&format!("HSET hash:{round} f {round}"), "1"), ("SAVE", "OK")]);
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
    let error = Server::start(config(dir.path(), &[])).err().expect("the directory is in use").to_string();
    assert!(error.contains(dir.path().to_str().expect("UTF-8")), "{error}");
    // The lock is the directory's, and not that file's, which somebody may remove.
    std::fs::remove_file(dir.path().join("ordo.lock")).expect("removed");
    let error = Server::start(config(dir.path(), &[])).err().expect("the directory is still in use");
    assert!(error.to_string().contains("in use by another process"), "{error}");
    let other = tempfile::tempdir().expect("a temporary directory");
    let port = server.address.port().to_string();
    let error = Server::start(config(other.path(), &[("port", &port)]))
        .err()
        .expect("the port is in use")
        .to_string();
    assert!(error.contains("the port is in use"), "{error}");
}

/// The files of the log in a directory, oldest first: those that hold records.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let digits = name.strip_prefix("log-").and_then(|rest| rest.strip_suffix(".ordo"));
        digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut segments: Vec<PathBuf> = paths.filter(is_segment).collect();
    segments.sort();
    segments
}

#[test]
fn removed_log_files_are_noticed_and_what_they_held_is_saved() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for round in 1..=3 {
        let server = TestServer::start_in(dir.path(), &[]);
        let mut client = server.client();
        client.talk(&[("INCR rounds", &round.to_string())]);
        let saved = client.info_number("rdb_saves");
        // Even a file in which nothing stands yet.
        let removed = segments(dir.path());
        assert!(!removed.is_empty());
        removed.iter().for_each(|path| std::fs::remove_file(path).expect("removed"));
        let before = format!("rdb_saves:{saved}\r\n");
        client.wait_until("INFO persistence", |info| !info.contains(&before));
        for _ in 0..100 {
            client.call(&["INCR", "n"]);
        }
        assert!(!segments(dir.path()).is_empty(), "the log goes on in another file");
        server.stop();
        let server = TestServer::start_in(dir.path(), &[]);
        server
            .client()
            .talk(&[("GET rounds", &format!("\"{round}\"")), ("GET n", &format!("\"{}\"", round * 100))]);
    }
}

#[test]
fn a_directory_that_was_a_clusters_does_not_start_as_an_empty_database() {
    let lost = "the log that tells of them is missing";
    let refused = [
        ("cluster.json", "Start the node as before (--cluster and --node)"),
        ("checkpoint-00000-00000000000000000007.ordo", lost),
        // As older versions called them.
        ("checkpoint-00000000000000000007.ordo", lost),
    ];
    for (name, why) in refused {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join(name), "").expect("written");
        let error = Server::start(config(dir.path(), &[])).err().expect("refused").to_string();
        assert!(error.contains(why), "{error}");
        assert!(segments(dir.path()).is_empty());
    }
}
