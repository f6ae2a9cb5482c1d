//! The network driver against a server that answers every command with the same reply.

#![allow(clippy::disallowed_methods, reason = "the server of these tests is a thread")]

use ordo_bench::redis::load::{Target, Until};
use ordo_bench::redis::{Options, Workload, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Answers commands until the client goes away. Replies leave in two pieces, so that they arrive cut.
fn serve(stream: TcpStream, reply: &'static [u8]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let arguments: usize = line[1..].trim().parse().map_err(std::io::Error::other)?;
        for _ in 0..arguments {
            line.clear();
            reader.read_line(&mut line)?;
            let length: usize = line[1..].trim().parse().map_err(std::io::Error::other)?;
            reader.read_exact(&mut vec![0; length + 2])?;
        }
        let (first, second) = reply.split_at(reply.len() / 2);
        writer.write_all(first)?;
        writer.write_all(second)?;
    }
}

fn server(reply: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, reply));
        }
    });
    port
}

fn options(port: u16, workload: Workload, pipeline: usize) -> Options {
    Options {
        target: Target { host: "127.0.0.1".into(), port, password: None, process: None },
        label: "fake".into(),
        workload,
        clients: 7,
        pipeline,
        keys: 100,
        until: Until::Replies(3_000),
        warm_up: Duration::ZERO,
        seed: 1,
        iterations: None,
        load: false,
    }
}

#[test]
fn replies_are_counted_whatever_their_pieces() {
    let port = server(b"$5\r\nhello\r\n");
    for pipeline in [1, 5] {
        let records =
            run(&options(port, Workload::Get, pipeline)).unwrap_or_else(|error| panic!("{error:#}"));
        let [record] = &records[..] else { panic!("{records:?}") };
        assert!((3_000..3_000 + 7 * pipeline as u64).contains(&record.committed), "{record:?}");
        assert!(record.latency_us.p50 > 0.0 && record.latency_us.p50 <= record.latency_us.max);
    }
}

#[test]
fn a_zero_is_a_decision_not_to() {
    let records =
        run(&options(server(b":0\r\n"), Workload::Set, 1)).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(records[0].committed, 0);
    assert!(records[0].aborted_by_logic >= 3_000);
}

#[test]
fn error_replies_fail_the_run() {
    let error = run(&options(server(b"-OOM no room\r\n"), Workload::Set, 1)).unwrap_err();
    assert!(error.to_string().contains("OOM no room"), "{error}");
}

#[test]
fn what_is_not_resp_fails_the_run() {
    let error = run(&options(server(b"HTTP/1.1 400\r\n"), Workload::Get, 1)).unwrap_err();
    assert!(format!("{error:#}").contains("no RESP reply"), "{error:#}");
}

#[test]
fn a_missing_server_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let error = run(&options(port, Workload::Get, 1)).unwrap_err().to_string();
    assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
}
