//! `ordo import`: out of files that real servers wrote, and out of a source that is made up here, so that its
//! link can be cut wherever it hurts. `tests/tools/import` has real sources.
#![allow(clippy::disallowed_methods, reason = "a source is a thread")]

use crate::nodes::{PATIENCE, PROGRAM, Server, try_ordo, word};
use redis_surface::codec::{Limits, RequestDecoder};
use server::client::{Answer, Client};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

fn text(answer: Answer) -> String {
    match answer {
        Answer::Text(text) => text,
        Answer::Nil => "nil".to_owned(),
        Answer::List(all) => all.into_iter().map(text).collect::<Vec<_>>().join(" "),
        Answer::Error(error) => error,
    }
}

fn call(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    text(client.call(&words).expect("a reply"))
}

fn started() -> Server {
    let mut server = Server::new();
    server.start(&["--appendfsync", "no"]);
    server
}

fn snapshot_of(server: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../redis/src/rdb/fixtures");
    fixtures.join(format!("{server}.rdb"))
}

/// Runs `ordo import` of a file. Gives whether it succeeded, and what it said.
fn import(file: &Path, address: &str, options: &[&str]) -> (bool, String) {
    try_ordo(&[&["import", word(file), "--address", address], options].concat())
}

#[test]
fn snapshots_of_real_servers_come_whole_or_are_refused() {
    let server = started();
    let mut client = server.client();
    let options = ["--database", "0", "--keep-expiring-fields", "--verify", "full"];
    for (name, has_expiring_fields) in [("redis70", false), ("redis82", true), ("valkey9", true)] {
        let file = snapshot_of(name);
        let (succeeded, said) = import(&file, &server.address, &[]);
        assert!(!succeeded && said.contains("several databases"), "{said}");
        if has_expiring_fields {
            let (succeeded, said) = import(&file, &server.address, &["--database", "0", "--replace"]);
            assert!(!succeeded && said.contains("fields of hashes expire by themselves"), "{said}");
        }
        let (succeeded, said) = import(&file, &server.address, &[&options[..], &["--replace"]].concat());
        assert!(succeeded, "{said}");
        assert_eq!(call(&mut client, "FCALL seven 0"), "7");
        assert_eq!(call(&mut client, "PEXPIRETIME lasting"), "4102444800000");
        assert_eq!(call(&mut client, "XPENDING stream readers"), "1 5-1 5-1 one 1");
        assert_eq!(call(&mut client, "DBSIZE"), "16", "{name}: {said}");
        let (succeeded, said) = import(&file, &server.address, &options);
        assert!(!succeeded && said.contains("give --replace to delete them first"), "{said}");
    }
    call(&mut client, "SET own kept");
    call(&mut client, "SET text changed");
    let (succeeded, said) =
        import(&snapshot_of("valkey9"), &server.address, &[&options[..], &["--merge"]].concat());
    assert!(succeeded, "{said}");
    assert_eq!(
        (call(&mut client, "GET own"), call(&mut client, "GET text")),
        ("kept".into(), "hello".into())
    );
}

#[test]
fn of_a_damaged_file_nothing_is_written() {
    let server = started();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("dump.rdb");
    let mut bytes = std::fs::read(snapshot_of("redis70")).expect("a file");
    for (change, expected) in [
        ("cut", "byte 400: it ends here, too early"),
        ("value", "the value of the key \"set\" makes no sense"),
        ("flip", "checksum"),
    ] {
        match change {
            "cut" => std::fs::write(&file, &bytes[..400]),
            // An intset whose length is 9 and that has no bytes for it, in a file without a checksum.
            "value" => std::fs::write(&file, snapshot(&[("set", b"\x0b\x08\x02\0\0\0\x09\0\0\0")])),
            _ => {
                *bytes.last_mut().expect("a byte") ^= 4;
                std::fs::write(&file, &bytes)
            }
        }
        .expect("written");
        let (succeeded, said) = import(&file, &server.address, &["--database", "0", "--replace"]);
        assert!(!succeeded && said.contains(expected), "{said}");
        assert_eq!(call(&mut server.client(), "DBSIZE"), "0");
    }
}

/// A snapshot of keys, without a checksum.
fn snapshot(keys: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = b"REDIS0011".to_vec();
    for (key, payload) in keys {
        bytes.push(payload[0]);
        bytes.push(key.len() as u8);
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(&payload[1..]);
    }
    bytes.push(255);
    bytes.extend([0; 8]);
    bytes
}

#[test]
fn large_values_come_piece_by_piece() {
    let source = started();
    let mut client = source.client();
    let fill = "local x = string.rep('x', 1000) for i = 1, 1500 do \
                redis.call('RPUSH', 'list', i .. x) redis.call('SADD', 'set', i .. x) \
                redis.call('HSET', 'hash', i .. x, i) redis.call('ZADD', 'sorted', i / 3, i .. x) \
                redis.call('XADD', 'stream', i .. '-1', 'f', x) end \
                redis.call('SET', 'string', string.rep('y', 2500000)) \
                redis.call('XDEL', 'stream', '7-1') redis.call('XGROUP', 'CREATE', 'stream', 'readers', '0') \
                redis.call('XREADGROUP', 'GROUP', 'readers', 'one', 'COUNT', 30, 'STREAMS', 'stream', '>')";
    assert_eq!(text(client.call(&["EVAL", fill, "0"]).expect("a reply")), "nil");
    let names = ["list", "set", "hash", "sorted", "stream", "string"];
    let dumped = names.map(|name| client.call_for_bytes(&["DUMP", name]).expect("a reply").expect("a value"));
    let keys: Vec<(&str, &[u8])> =
        names.into_iter().zip(dumped.iter().map(|dumped| &dumped[..dumped.len() - 10])).collect();
    assert!(keys.iter().all(|(_, payload)| payload.len() > 1 << 20), "each is large");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("dump.rdb");
    std::fs::write(&file, snapshot(&keys)).expect("written");
    let target = started();
    for option in [&[][..], &["--merge"]] {
        let (succeeded, said) = import(&file, &target.address, &[&["--verify", "full"], option].concat());
        assert!(succeeded && said.contains("compared: 6 keys are the same"), "{said}");
    }
}

/// A source that does what a test says.
struct Source {
    listener: TcpListener,
    stream: Vec<u8>,
    /// Up to where links give the stream before they are cut. The last one is not.
    cuts: Vec<usize>,
    /// Tells of what replicas acknowledge.
    acknowledged: Sender<u64>,
    /// Pings behind the stream, each after an acknowledgement.
    pings: usize,
}

const START: u64 = 1000;
const MARK: &[u8; 40] = b"0123456789012345678901234567890123456789";

impl Source {
    /// Serves connections, one after another but for those of replicas, for ever.
    fn run(mut self) {
        let mut links = 0;
        loop {
            let (stream, _) = self.listener.accept().expect("a connection");
            links += usize::from(self.serve(stream, links).is_some());
        }
    }

    /// Serves a connection until it ends; a replica's goes on in a thread if it is not to be cut.
    fn serve(&mut self, mut stream: TcpStream, links: usize) -> Option<()> {
        let end = START + self.stream.len() as u64;
        let mut words = Words { decoder: RequestDecoder::new(Limits::default()), input: Vec::new() };
        loop {
            let command = words.next(&mut stream)?;
            let line = command.join(" ");
            let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
            let reply = match line.as_str() {
                "INFO keyspace" => bulk("# Keyspace\r\ndb0:keys=1,expires=0\r\n"),
                "INFO server" => bulk("redis_version:7.2.0\r\n"),
                "INFO replication" => bulk(&format!("role:master\r\nmaster_repl_offset:{end}\r\n")),
                "DBSIZE" => ":5\r\n".to_owned(),
                line if line.starts_with("PSYNC ") => break self.replicate(stream, words, &command, links),
                _ => "+OK\r\n".to_owned(),
            };
            stream.write_all(reply.as_bytes()).ok()?;
        }
    }

    fn replicate(
        &mut self,
        mut stream: TcpStream,
        mut words: Words,
        psync: &[String],
        links: usize,
    ) -> Option<()> {
        let from = if psync[1] == "?" {
            let mut bytes = b"\n".to_vec();
            bytes.extend(format!("+FULLRESYNC {} {START}\r\n\n$EOF:", "a".repeat(40)).bytes());
            bytes.extend(MARK);
            bytes.extend(b"\r\n");
            bytes.extend(snapshot(&[("first", b"\x00\x011")]));
            bytes.extend(MARK);
            stream.write_all(&bytes).expect("sent");
            // Nothing comes before the replica has acknowledged the snapshot.
            while words.next(&mut stream)?[..2] != ["REPLCONF", "ACK"] {}
            0
        } else {
            stream.write_all(format!("+CONTINUE {}\r\n", "b".repeat(40)).as_bytes()).expect("sent");
            (psync[2].parse::<u64>().expect("an offset") - 1 - START) as usize
        };
        let cut = self.cuts.get(links).copied();
        let until = cut.unwrap_or(self.stream.len());
        stream.write_all(&self.stream[from..until]).expect("sent");
        if cut.is_none() {
            let (acknowledged, pings) = (self.acknowledged.clone(), self.pings);
            std::thread::spawn(move || {
                let mut acknowledgements = 0;
                while let Some(command) = words.next(&mut stream) {
                    let _ = acknowledged.send(command[2].parse().expect("an offset"));
                    acknowledgements += 1;
                    if acknowledgements <= pings {
                        stream.write_all(&resp(&["PING"])).expect("sent");
                    }
                }
            });
        } else {
            // What was sent arrives before the link ends.
            stream.shutdown(std::net::Shutdown::Write).expect("open");
            let _ = stream.read(&mut [0; 1000]);
        }
        Some(())
    }
}

/// The commands that a connection sends.
struct Words {
    decoder: RequestDecoder,
    input: Vec<u8>,
}

impl Words {
    /// The next one; `None` at the end.
    fn next(&mut self, stream: &mut TcpStream) -> Option<Vec<String>> {
        loop {
            let mut rest = &self.input[..];
            let words = self.decoder.next(&mut rest).expect("commands");
            self.input = rest.to_vec();
            if let Some(words) = words {
                return Some(words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect());
            }
            let mut room = [0; 4096];
            match stream.read(&mut room) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.input.extend_from_slice(&room[..count]),
            }
        }
    }
}

/// A source that sends these commands, cut at these bytes. Gives its address, and what is acknowledged.
fn source(stream: Vec<u8>, cuts: Vec<usize>) -> (String, Receiver<u64>) {
    pinging_source(stream, cuts, 0)
}

fn pinging_source(stream: Vec<u8>, cuts: Vec<usize>, pings: usize) -> (String, Receiver<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let (acknowledged, seen) = channel();
    std::thread::spawn(move || Source { listener, stream, cuts, acknowledged, pings }.run());
    (address, seen)
}

fn resp(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        redis_surface::codec::encode_command(&words, &mut bytes);
    }
    bytes
}

const LINES: [&str; 14] = [
    "SELECT 0",
    "INCR counter",
    "PING",
    "MULTI",
    "INCR counter",
    "RPUSH list a b",
    "EXEC",
    "SELECT 1",
    "SET elsewhere 1",
    "SELECT 0",
    "SET lasting v PXAT 4102444800000",
    "INCR counter",
    "SET gone v PXAT 1000",
    "REPLCONF GETACK *",
];

#[test]
fn a_running_source_is_followed_exactly_once_however_its_link_is_cut() {
    let stream = resp(&LINES);
    // Each link gets some more bytes: the cuts are in the middle of commands and of the transaction.
    let cuts: Vec<usize> = (1..stream.len()).step_by(29).collect();
    let (address, acknowledged) = source(stream.clone(), cuts);
    let server = started();
    let url = format!("redis://{address}");
    let mut process = Command::new(PROGRAM)
        .args(["import", &url, "--address", &server.address, "--verify", "counts", "--database", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let end = START + stream.len() as u64;
    while acknowledged.recv_timeout(PATIENCE).expect("it catches up") < end {}
    let mut client = server.client();
    assert_eq!(call(&mut client, "MGET counter first elsewhere"), "3 1 nil");
    assert_eq!(call(&mut client, "LRANGE list 0 -1"), "a b");
    // It has expired at the source, which has not said so: it may have been prolonged meanwhile.
    assert_eq!(call(&mut client, "GET gone"), "v");
    process.stdin.take().expect("piped").write_all(b"cut-over\n").expect("said");
    let output = process.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains(&format!("switch clients now: the target has all up to offset {end}")), "{told}");
    assert_eq!(call(&mut client, "PEXPIRETIME lasting"), "4102444800000");
    assert_eq!(call(&mut client, "EXISTS gone"), "0");
    assert_eq!(call(&mut client, "DBSIZE"), "4", "and no progress record");
}

#[test]
fn a_source_that_only_pings_is_followed() {
    let stream = resp(&LINES);
    let (address, acknowledged) = pinging_source(stream.clone(), Vec::new(), 4);
    let server = started();
    let mut process = Command::new(PROGRAM)
        .args(["import", &format!("redis://{address}"), "--address", &server.address, "--database", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    // Acknowledgements come each second, so that some of the pings move the record.
    let end = START + (stream.len() + 4 * resp(&["PING"]).len()) as u64;
    loop {
        match acknowledged.recv_timeout(PATIENCE) {
            Ok(offset) if offset >= end => break,
            Ok(_) => {}
            Err(error) => panic!("it ended: {error}"),
        }
        if let Some(status) = process.try_wait().expect("its own") {
            let mut said = String::new();
            process.stderr.take().expect("piped").read_to_string(&mut said).expect("a text");
            panic!("{status}: {said}");
        }
    }
    assert_eq!(call(&mut server.client(), "MGET counter first"), "3 1");
    process.kill().expect("its own");
    process.wait().expect("its own");
}

#[test]
fn an_import_into_anything_but_an_ordo_or_from_one_is_refused() {
    let server = started();
    let (address, _) = source(Vec::new(), Vec::new());
    let (target, _) = source(Vec::new(), Vec::new());
    let url = format!("redis://{address}");
    let (succeeded, said) = try_ordo(&["import", &url, "--address", &target, "--replace"]);
    assert!(!succeeded && said.contains("is no Ordo"), "{said}");
    let (own, other) = (format!("redis://{}", server.address), started());
    let (succeeded, said) = try_ordo(&["import", &own, "--address", &other.address]);
    assert!(!succeeded && said.contains("is an Ordo"), "{said}");
}

#[test]
fn an_import_that_was_stopped_goes_on_where_it_was() {
    let stream = resp(&LINES);
    let (address, acknowledged) = source(stream.clone(), Vec::new());
    let server = started();
    let url = format!("redis://{address}");
    let words = ["import", &url, "--address", &server.address, "--verify", "counts", "--database", "0"];
    let mut process = Command::new(PROGRAM).args(words).stderr(Stdio::null()).spawn().expect("it runs");
    let end = START + stream.len() as u64;
    while acknowledged.recv_timeout(PATIENCE).expect("it catches up") < end {}
    process.kill().expect("killed");
    process.wait().expect("ended");
    let (succeeded, said) = try_ordo(&words);
    assert!(!succeeded && said.contains("--resume to go on"), "{said}");
    let (succeeded, said) = try_ordo(&[&words[..], &["--resume", "--cut-over"]].concat());
    assert!(succeeded && said.contains("switch clients now"), "{said}");
    assert_eq!(call(&mut server.client(), "GET counter"), "3");
}

#[test]
fn behind_the_cut_over_dates_are_put_right_without_the_source() {
    const DELAY_MS: u64 = 1 << 52;
    let server = started();
    let mut client = server.client();
    // Nobody listens there.
    let (record, url) = ("ordo:import:127.0.0.1:1", "redis://127.0.0.1:1");
    client.call(&["SET", record, "a 5 0 cut-over alone"]).expect("a reply");
    call(&mut client, &format!("SET lasting v PXAT {}", 4_102_444_800_000 + DELAY_MS));
    call(&mut client, "SET in-200-years v PXAT 8102444800000");
    let words = ["import", url, "--address", &server.address, "--resume"];
    // The keys of another import must stay late.
    client.call(&["SET", "ordo:import:other", "a 5 0 following merging"]).expect("a reply");
    let (succeeded, said) = try_ordo(&words);
    assert!(succeeded && said.contains("the last import to cut over puts them right"), "{said}");
    assert_eq!(call(&mut client, "DEL ordo:import:other"), "1");
    client.call(&["SET", record, "a 5 0 cut-over alone"]).expect("a reply");
    let (succeeded, said) = try_ordo(&words);
    assert!(succeeded && said.contains("done: 1 keys expire"), "{said}");
    assert_eq!(call(&mut client, "PEXPIRETIME lasting"), "4102444800000");
    assert_eq!(call(&mut client, "PEXPIRETIME in-200-years"), "8102444800000");
    assert_eq!(call(&mut client, &format!("EXISTS {record}")), "0");
}

#[test]
fn what_cannot_be_applied_ends_the_import_and_is_named() {
    for (line, expected) in [
        ("SWAPDB 0 1", "Ordo has one database"),
        ("JSON.SET key $ 1", "unknown command"),
        ("INCR first-of-all x", "wrong number of arguments"),
        ("RPUSH first x", "they differ from now on: \"RPUSH\" \"first\" \"x\": WRONGTYPE"),
    ] {
        let (address, _) = source(resp(&["SELECT 0", "SET a 1", line]), Vec::new());
        let server = started();
        let url = format!("redis://{address}");
        let words = ["import", &url, "--address", &server.address];
        let (succeeded, said) = try_ordo(&words);
        assert!(!succeeded && said.contains(expected), "{line}: {said}");
        if said.contains("they differ") {
            let (succeeded, said) = try_ordo(&[&words[..], &["--resume"]].concat());
            assert!(!succeeded && said.contains("had found that the target refuses"), "{said}");
        }
    }
}
