//! What a client sees of a cluster of several partitions is what it sees of one server: the same commands get
//! the same replies, from whichever node, whatever keys they touch, whichever engine the cluster runs.
//!
//! `ORDO_SEED` replays the random commands.

use crate::processes;
use crate::processes::PATIENCE;
use bench::faults::processes::Processes;
use execute::EngineKind;
use server::client::{Answer, Client, put_command};
use sim::draw::Draw;
use std::net::SocketAddr;

const PARTITIONS: u16 = 4;
/// Keys that the random commands share: few enough to meet, enough to be everywhere.
const KEYS: u64 = 24;
/// Commands that are sent at once.
const PIPELINE: usize = 8;

/// One server, and a cluster in which every node keeps two of four partitions.
struct Both {
    directory: tempfile::TempDir,
    single: Processes,
    cluster: Processes,
}

impl Both {
    fn start(engine: EngineKind) -> Both {
        let settings = ["--engine", engine.name()];
        let directory = tempfile::tempdir().expect("a directory");
        Both {
            single: processes::started(1, 1, PARTITIONS, &directory.path().join("single")),
            cluster: processes::started_with(&settings, 4, 2, PARTITIONS, &directory.path().join("cluster")),
            directory,
        }
    }

    fn clients(&self) -> (Client, Vec<Client>) {
        let open = |address: &SocketAddr| Client::open(&address.to_string(), PATIENCE).expect("a connection");
        let single = open(&self.single.addresses()[0]);
        (single, self.cluster.addresses().iter().map(open).collect())
    }
}

/// Sends commands at once, and gives their replies.
fn pipeline(client: &mut Client, commands: &[Vec<String>]) -> Vec<Answer> {
    let mut bytes = Vec::new();
    for command in commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        put_command(&mut bytes, &words);
    }
    client.send(&bytes).expect("sent");
    let answers = commands.iter().map(|_| client.answer().expect("a reply"));
    answers.collect()
}

/// Replies in an order that the place of a key in the store decides are compared without it.
fn comparable(command: &[String], answer: Answer) -> Answer {
    let is_set = ["KEYS", "SCAN"].contains(&command[0].as_str());
    match answer {
        Answer::List(mut list) if is_set => {
            for answer in &mut list {
                *answer = comparable(command, answer.clone());
            }
            list.sort_by_key(|answer| format!("{answer:?}"));
            Answer::List(list)
        }
        answer => answer,
    }
}

/// The words of a line; what is in quotation marks is one.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (place, part) in line.split('"').enumerate() {
        match place % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

#[test]
fn commands_blocks_and_scripts_over_partitions_reply_as_those_of_one_server() {
    for engine in EngineKind::ALL.into_iter().filter(|engine| engine.check(PARTITIONS).is_ok()) {
        println!("{engine}");
        replies_are_those_of_one_server(engine);
    }
}

fn replies_are_those_of_one_server(engine: EngineKind) {
    let both = Both::start(engine);
    let (mut single, mut nodes) = both.clients();
    let lines = r#"
        MSET a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8
        MGET a b c d e f g h nothing
        EXISTS a b c nothing
        DBSIZE
        KEYS *
        SCAN 0 COUNT 100
        RENAME a z
        RENAMENX b z
        COPY c y
        MSETNX k 1 z 2
        MGET a b c y z k
        MULTI
        INCR b
        INCRBY c 10
        GET d
        DEL e f
        EXEC
        WATCH b g
        MULTI
        SET g seven
        EXEC
        UNLINK g h nothing
        EVAL "redis.call('INCRBY', KEYS[1], 5) redis.call('SET', KEYS[2], redis.call('GET', KEYS[1])) return redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])" 3 b n c
        EVAL "return redis.call('GET', 'b') .. redis.call('GET', 'c') .. redis.call('DBSIZE')" 0
        EVAL "redis.call('SET', 'stray', ARGV[1]) redis.call('INCR', KEYS[1]) return redis.call('INCR', 'b')" 1 c far
        EVAL "redis.call('SET', 'b', 'gone') return redis.error_reply('no')" 1 c
        EVAL "redis.call('SET', 'b', 'kept') return redis.call('INCR', 'stray')" 1 c
        MGET b c stray n
        SCRIPT LOAD "return redis.call('MGET', KEYS[1], KEYS[2])"
        EVALSHA 8f5e1699eb793c43b23d85859204d02b01619234 2 c d
        EVALSHA 8f5e1699eb793c43b23d85859204d02b01619234 2 d n
        SCRIPT EXISTS 8f5e1699eb793c43b23d85859204d02b01619234
        SCRIPT FLUSH
        EVALSHA 8f5e1699eb793c43b23d85859204d02b01619234 2 c d
        ORDO.IDEMPOTENT one MSET p 1 q 2 r 3
        SET p changed
        ORDO.IDEMPOTENT one MSET p 1 q 2 r 3
        MGET p q r
        ORDO.IDEMPOTENT two EVAL "return redis.call('INCR', ARGV[1])" 0 counted
        ORDO.IDEMPOTENT two EVAL "return redis.call('INCR', ARGV[1])" 0 counted
        HSET hash field value
        RENAME hash other
        HGETALL other
        DEL a b c d e f g h k n p q r y z
        DBSIZE
        FLUSHALL
        DBSIZE
        KEYS *
    "#;
    for (place, line) in lines.lines().map(str::trim).enumerate() {
        let command = words(line);
        if command.is_empty() {
            continue;
        }
        // A block stays with its connection; everything else goes from node to node.
        let node = match place {
            12..=22 => 1,
            _ => place % nodes.len(),
        };
        let commands = [command.clone()];
        let wanted = pipeline(&mut single, &commands).remove(0);
        let found = pipeline(&mut nodes[node], &commands).remove(0);
        assert_eq!(comparable(&command, found), comparable(&command, wanted), "{line}");
    }
}

fn key(draw: &mut Draw) -> String {
    format!("key:{}", draw.below(KEYS))
}

/// A command with the keys that it has drawn. All its replies are functions of what was there.
fn command(draw: &mut Draw, number: u64) -> Vec<String> {
    let mut several = |count: u64| -> Vec<String> { (0..count).map(|_| key(draw)).collect() };
    let keys = several(3);
    let value = number.to_string();
    let pick = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let [first, second, third] = [&keys[0], &keys[1], &keys[2]].map(String::as_str);
    match draw.below(16) {
        0..=2 => pick(&["SET", first, &value]),
        3..=4 => pick(&["GET", first]),
        5..=6 => pick(&["MSET", first, &value, second, &value, third, &value]),
        7..=8 => pick(&["MGET", first, second, third]),
        9 => pick(&["DEL", first, second]),
        10 => pick(&["RENAMENX", first, second]),
        11 => pick(&["DBSIZE"]),
        12 => pick(&["INCRBY", first, "3"]),
        13 => {
            let script = "redis.call('SET', KEYS[2], redis.call('GET', KEYS[1]) or 'none') return \
                          redis.call('EXISTS', KEYS[1], KEYS[3])";
            pick(&["EVAL", script, "3", first, second, third])
        }
        14 => {
            let script = "redis.call('SET', ARGV[1], redis.call('GET', KEYS[1]) or 'none') return \
                          redis.call('DBSIZE')";
            pick(&["EVAL", script, "1", first, second])
        }
        _ => pick(&["EXISTS", first, second, third]),
    }
}

/// How often a command comes into the order.
fn orders_of(client: &mut Client, command: &[&str]) -> u64 {
    let ordered = |client: &mut Client| {
        let info = client.call(&["INFO", "ordo"]).expect("a reply").text("INFO").expect("a text");
        let line = info.lines().find_map(|line| line.strip_prefix("ordered_requests:"));
        line.expect("it is counted").parse::<u64>().expect("a number")
    };
    let before = ordered(client);
    client.call(command).expect("a reply");
    ordered(client) - before
}

/// The first run of a script that strays is ordered once for each partition that it turns out to lack.
#[test]
fn a_script_that_strays_is_ordered_again_only_the_first_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let cluster = processes::started(4, 2, PARTITIONS, directory.path());
    let mut client = Client::open(&cluster.addresses()[0].to_string(), PATIENCE).expect("a connection");
    let mut number = 0;
    // Partitions are named once the behaviour of all nodes is in force.
    let strays = processes::until("partitions are named one by one", || {
        number += 1;
        let strays = format!(
            "local number = {number} for i = 1, 50 do redis.call('SET', 'key' .. i, ARGV[1]) end return 'OK'"
        );
        let first = orders_of(&mut client, &["EVAL", &strays, "1", "a", "1"]);
        assert!((2..=u64::from(PARTITIONS)).contains(&first), "{first}");
        (first == u64::from(PARTITIONS)).then_some(strays)
    });
    for value in ["2", "3", "4"] {
        assert_eq!(orders_of(&mut client, &["EVAL", &strays, "1", "b", value]), 1);
    }
    let stays = "return redis.call('SET', KEYS[1], ARGV[1])";
    assert_eq!(orders_of(&mut client, &["EVAL", stays, "1", "a", "1"]), 1);
    assert_eq!(client.call(&["GET", "key50"]).expect("a reply"), Answer::Text("4".to_owned()));
}

#[test]
fn what_a_connection_pipelines_takes_effect_in_its_order_whatever_it_touches() {
    let seed = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()));
    for engine in EngineKind::ALL.into_iter().filter(|engine| engine.check(PARTITIONS).is_ok()) {
        println!("{engine}: replay with ORDO_SEED={seed}");
        pipelines_take_effect_in_their_order(engine, seed);
    }
}

fn pipelines_take_effect_in_their_order(engine: EngineKind, seed: u64) {
    let both = Both::start(engine);
    let (mut single, mut nodes) = both.clients();
    let mut draw = Draw::new(seed);
    for round in 0..60 {
        let commands: Vec<_> =
            (0..PIPELINE as u64).map(|number| command(&mut draw, round * 100 + number)).collect();
        let node = draw.below(nodes.len() as u64) as usize;
        let wanted = pipeline(&mut single, &commands);
        let found = pipeline(&mut nodes[node], &commands);
        assert_eq!(found, wanted, "seed {seed}, round {round}: {commands:?}");
    }
    drop((single, nodes));
    // What was acknowledged is there after all processes were killed, each with two of four partitions.
    let mut both = both;
    let all: Vec<usize> = (0..4).collect();
    both.cluster.kill(&all).expect("killed");
    for node in all {
        both.cluster.start(node).expect("started again");
    }
    both.cluster.wait_until_up(PATIENCE).expect("up again");
    let (mut single, mut nodes) = both.clients();
    let mut all = vec!["MGET".to_owned()];
    all.extend((0..KEYS).map(|key| format!("key:{key}")));
    let wanted = pipeline(&mut single, std::slice::from_ref(&all));
    for node in &mut nodes {
        let found = pipeline(node, std::slice::from_ref(&all));
        assert_eq!(found, wanted, "seed {seed}");
    }
    drop(both.directory);
}
