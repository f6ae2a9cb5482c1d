//! Every engine serves: real servers give the same replies whichever engine they run, a directory serves with
//! any of them, and nodes with different engines refuse each other.

use crate::nodes::{Build, Cluster, PATIENCE, ordo, word};
use crate::processes::{started_with, until};
use bench::faults::processes::Processes;
use execute::EngineKind;
use server::client::{Answer, Client, put_command};
use std::path::Path;
use std::thread;

fn alone(engine: EngineKind, directory: &Path) -> Processes {
    started_with(&["--engine", engine.name()], 1, 1, 1, directory)
}

fn client(server: &Processes) -> Client {
    Client::open(&server.addresses()[0].to_string(), PATIENCE).expect("a connection")
}

fn call(client: &mut Client, words: &[&str]) -> Answer {
    client.call(words).expect("a reply")
}

fn text(text: &str) -> Answer {
    Answer::Text(text.to_owned())
}

/// The words of a line; what is in quotation marks is one.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (place, part) in line.split('"').enumerate() {
        match place % 2 {
            0 => words.extend(part.split_whitespace()),
            _ => words.push(part),
        }
    }
    words
}

/// Commands, each with its reply.
const TRANSCRIPT: &str = r##"
    SET greeting hello => OK
    GET greeting => hello
    GET nothing => nil
    INCR counter => 1
    INCRBY counter 41 => 42
    INCR greeting => error
    MULTI => OK
    INCR counter => QUEUED
    SET in-block yes => QUEUED
    GET in-block => QUEUED
    EXEC => [43 OK yes]
    MULTI => OK
    SET in-block discarded => QUEUED
    DISCARD => OK
    GET in-block => yes
    WATCH counter => OK
    MULTI => OK
    INCR counter => QUEUED
    EXEC => [44]
    EVAL "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])" 1 declared one => one
    EVAL "redis.call('SET', 'undeclared', KEYS[1]) return redis.call('INCR', 'counter')" 1 declared => 45
    EVAL "return redis.call('MGET', 'undeclared', 'declared', 'greeting')" 0 => [declared one hello]
    EVAL "redis.call('SET', 'greeting', 'gone') return redis.call('NOSUCH')" 0 => error
    EVAL "redis.call('SET', 'greeting', 'back') error('no')" 0 => error
    EVAL_RO "return redis.call('GET', 'counter')" 0 => 45
    SCRIPT LOAD "return redis.call('INCR', KEYS[1])" => 61636018f4e6b5817b89791bbed242f93fa089e3
    EVALSHA 61636018f4e6b5817b89791bbed242f93fa089e3 1 counter => 46
    FUNCTION LOAD "#!lua name=l
      redis.register_function('f', function(keys) return redis.call('INCR', keys[1]) end)" => l
    FCALL f 1 counter => 47
    ORDO.IDEMPOTENT once INCR counter => 48
    ORDO.IDEMPOTENT once INCR counter => 48
    MSET a 1 b 2 c 3 => OK
    MGET a b c d => [1 2 3 nil]
    RENAME a z => OK
    DEL z b nothing => 2
    RPUSH list one two three => 3
    LRANGE list 0 -1 => [one two three]
    BLPOP list 0 => [list one]
    SADD set x y => 2
    SINTERSTORE both set set => 2
    SORT list ALPHA STORE sorted => 2
    ZADD scores 1 low 2 high => 2
    ZRANGE scores 0 -1 WITHSCORES => [low 1 high 2]
    HSET hash field value => 1
    HGETALL hash => [field value]
    XADD stream 1-1 field value => 1-1
    XLEN stream => 1
    PFADD estimate a b c => 1
    PFCOUNT estimate => 3
    SET expires soon EXAT 99999999999 => OK
    EXPIRETIME expires => 99999999999
    PERSIST expires => 1
    TTL expires => -1
    SETEX long 100000 value => OK
    PUBLISH channel message => 0
    COPY greeting copied => 1
    EXISTS greeting copied nothing => 2
    DBSIZE => 17
    SCAN 0 COUNT 1000 MATCH greet* => [0 [greeting]]
    SET past gone PXAT 1 => OK
    GET past => nil
    FLUSHALL => OK
    DBSIZE => 0
    GET counter => nil
    SET after flush => OK
    DBSIZE => 1
"##;

/// An answer as the transcript has it.
fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Text(text) => text.clone(),
        Answer::Nil => "nil".to_owned(),
        Answer::Error(_) => "error".to_owned(),
        Answer::List(list) => format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(" ")),
    }
}

/// The commands of the transcript, with their replies.
fn transcript() -> Vec<(Vec<&'static str>, &'static str)> {
    // A command may go over lines: it ends with its reply.
    let mut commands = Vec::new();
    let mut rest = TRANSCRIPT;
    while let Some((command, behind)) = rest.split_once(" => ") {
        let (reply, behind) = behind.split_once('\n').expect("a line ends");
        commands.push((words(command), reply));
        rest = behind;
    }
    commands
}

#[test]
fn every_engine_gives_the_replies_of_the_transcript() {
    for engine in EngineKind::all_correct() {
        let directory = tempfile::tempdir().expect("a directory");
        let server = alone(engine, directory.path());
        let mut one = client(&server);
        let Answer::Text(info) = call(&mut one, &["INFO", "ordo"]) else { panic!("{engine}: no INFO") };
        assert!(info.contains(&format!("engine:{engine}\r\n")), "{engine}: {info}");
        assert_eq!(
            call(&mut one, &["CONFIG", "GET", "engine"]),
            Answer::List(vec![text("engine"), text(engine.name())])
        );
        for (command, want) in transcript() {
            assert_eq!(shown(&call(&mut one, &command)), want, "{engine}: {command:?}");
        }
        // And again, all at once.
        call(&mut one, &["FLUSHALL"]);
        call(&mut one, &["FUNCTION", "FLUSH"]);
        let mut bytes = Vec::new();
        for (command, _) in transcript() {
            // What an id stands for outlives the flush.
            let command = command.into_iter().map(|word| if word == "once" { "again" } else { word });
            put_command(&mut bytes, &command.collect::<Vec<_>>());
        }
        one.send(&bytes).expect("sent");
        for (command, want) in transcript() {
            let found = one.answer().expect("a reply");
            assert_eq!(shown(&found), want, "{engine}, in a pipeline: {command:?}");
        }
    }
}

#[test]
fn every_engine_serves_clients_that_wait_and_keys_that_expire() {
    for engine in EngineKind::all_correct() {
        let directory = tempfile::tempdir().expect("a directory");
        let server = alone(engine, directory.path());
        let mut one = client(&server);
        // Whether the other one waits already when the list gets its element makes no difference.
        thread::scope(|scope| {
            let waits = scope.spawn(|| call(&mut client(&server), &["BLPOP", "queue", "0"]));
            call(&mut one, &["RPUSH", "queue", "job"]);
            let popped = waits.join().expect("no panic");
            assert_eq!(popped, Answer::List(vec![text("queue"), text("job")]), "{engine}");
        });
        assert_eq!(call(&mut one, &["EXISTS", "queue"]), text("0"), "{engine}");
        // A key goes when its time has come, also if nobody asks for it.
        call(&mut one, &["MSET", "stays", "1", "goes", "1"]);
        assert_eq!(call(&mut one, &["PEXPIRE", "goes", "20"]), text("1"), "{engine}");
        until(&format!("gone with {engine}"), || (call(&mut one, &["DBSIZE"]) == text("1")).then_some(()));
        assert_eq!(call(&mut one, &["MGET", "stays", "goes"]), Answer::List(vec![text("1"), Answer::Nil]));
        // Many connections at once, on one key and on their own, with scripts between.
        thread::scope(|scope| {
            for number in 0..4 {
                let server = &server;
                scope.spawn(move || {
                    let mut client = client(server);
                    let own = format!("own:{number}");
                    for step in 1..=50 {
                        call(&mut client, &["INCR", "shared"]);
                        assert_eq!(call(&mut client, &["INCR", &own]), text(&step.to_string()), "{engine}");
                        let script = "return redis.call('INCR', 'shared')";
                        call(&mut client, &["EVAL", script, "0"]);
                    }
                });
            }
        });
        assert_eq!(call(&mut one, &["GET", "shared"]), text("400"), "{engine}");
    }
}

#[test]
fn a_directory_serves_with_any_engine() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut want = 0;
    let all: Vec<EngineKind> = EngineKind::all_correct().collect();
    // The log of each is executed by the next one, and a checkpoint of each is loaded by another.
    for (round, &engine) in all.iter().chain(&all).enumerate() {
        let mut server = alone(engine, directory.path());
        let mut one = client(&server);
        assert_eq!(call(&mut one, &["INCR", "starts"]), text(&(round + 1).to_string()), "{engine}");
        let script = "return redis.call('INCRBY', 'sum', ARGV[1])";
        want += round;
        assert_eq!(call(&mut one, &["EVAL", script, "0", &round.to_string()]), text(&want.to_string()));
        call(&mut one, &["MSET", "x", engine.name(), "y", engine.name()]);
        if round == all.len() {
            assert_eq!(call(&mut one, &["SAVE"]), text("OK"));
        }
        drop(one);
        server.kill(&[0]).expect("killed");
    }
}

fn refused(words: &[&str]) -> String {
    let output = ordo(&[&["serve"], words].concat());
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_engine_that_cannot_serve_is_refused_with_what_to_do() {
    let said = refused(&["--engine", "nocc"]);
    assert!(said.contains("has no concurrency control"), "{said}");
    assert!(said.contains("Choose from serial, calvin, qstore, parspec, ssmr, sparkle"), "{said}");
    let said = refused(&["--engine", "sparkl"]);
    assert!(said.contains("'sparkl' is no engine"), "{said}");
    // By its own setting: what cluster.toml says is judged with it.
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("cluster.toml");
    let text = "name = 'shop'\nsecret = 'sixteen letters!'\npartitions = 2\n[[node]]\nname = 'a'\n\
                zone = 'z'\npeer_address = '127.0.0.1:1'\nclient_address = '127.0.0.1:2'\n";
    std::fs::write(&file, text).expect("written");
    let data = directory.path().join("data");
    let (file, dir) = (word(&file), word(&data));
    let said =
        refused(&["--cluster", file, "--node", "a", "--dir", dir, "--port", "0", "--engine", "serial"]);
    assert!(said.contains("'serial' executes one partition, and there are 2"), "{said}");
    assert!(said.contains("Choose from calvin, qstore, ssmr, sparkle"), "{said}");
}

#[test]
fn nodes_with_different_engines_refuse_each_other() {
    let build = |engine| Build::own(&["--engine", engine, "--appendfsync", "no"]);
    let mut cluster = Cluster::start(build("calvin"));
    assert_eq!(cluster.call(0, &["SET", "key", "before"]), "OK");
    cluster.kill(2);
    cluster.run_as(2, &build("ssmr"));
    let told = |cluster: &Cluster, place| cluster.said(place).contains("different engines");
    for place in 0..3 {
        cluster.until(place, "it refuses or is refused", || told(&cluster, place).then_some(()));
    }
    // The majority goes on, and takes the node back once it has the cluster's engine.
    assert_eq!(cluster.call(0, &["SET", "key", "after"]), "OK");
    cluster.kill(2);
    cluster.run(2);
    assert_eq!(cluster.call(2, &["GET", "key"]), "after");
}
