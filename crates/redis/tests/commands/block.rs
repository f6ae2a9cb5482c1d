//! MULTI/EXEC as one transaction.

use crate::memory::Memory;
use crate::render::render;
use ordo_redis::{Block, BlockProcedure, Watched};
use ordo_redis::{WatchProcedure, codec::inline};
use std::sync::Arc;
use txn::clock::CorrectClock;
use txn::fragments;
use txn::{Args, Key, Procedure, Reply, Request, RequestId, Weight};

fn words(command: &str) -> Args {
    inline::split(command.as_bytes()).expect("balanced quotes")
}

fn block(watched: Vec<Watched>, commands: &[&str]) -> Block {
    Block { watched, commands: commands.iter().map(|command| words(command)).collect(), ..Block::default() }
}

fn watch(memory: &mut Memory, keys: &[&str]) -> Vec<Watched> {
    let names: Args = keys.iter().copied().collect();
    let keys: Vec<Key> = keys.iter().map(|&key| Key::from(key)).collect();
    let reply = memory.call(Arc::new(WatchProcedure), names).expect("WATCH does not roll back");
    Watched::from_reply(&keys, &reply).expect("the reply of WATCH")
}

fn exec(memory: &mut Memory, block: &Block) -> String {
    let cheap = block.footprint(false);
    let exact = BlockProcedure.footprint(&block.to_args());
    assert_eq!((cheap.read_only, cheap.weight), (exact.read_only, exact.weight));
    render(&memory.call(Arc::new(BlockProcedure), block.to_args()).expect("blocks don't roll back"))
}

#[test]
fn the_replies_of_a_block_are_bounded_and_all_of_it_is_executed() {
    let mut memory = Memory::new();
    let read = "setrange long 104857599 x";
    let block =
        block(vec![], &[read, "get long", "get long", "get long", "set done yes", "get done", "get long"]);
    let outcome = memory.call(Arc::new(BlockProcedure), block.to_args());
    let Ok(Reply::Array(replies)) = outcome else {
        panic!("an array");
    };
    let is_long = |reply: &Reply| matches!(reply, Reply::Bulk(text) if text.len() == 100 << 20);
    assert!(is_long(&replies[1]) && is_long(&replies[2]));
    for place in [3, 6] {
        assert!(
            matches!(&replies[place], Reply::Error(text) if text.contains("its reply was left out")),
            "reply {place}"
        );
    }
    assert_eq!(replies[5], Reply::bulk("yes"));
}

/// Each command has the limits then that it has alone.
#[test]
fn the_replies_of_a_gathered_block_are_not_bounded_together() {
    let mut memory = Memory::new();
    let lines = ["setrange long 104857599 x", "get long", "get long", "get long"];
    let gathered = Block { is_gathered: true, ..block(vec![], &lines) };
    assert_eq!(Block::from_args(&gathered.to_args()), Some(gathered.clone()));
    let outcome = memory.call(Arc::new(BlockProcedure), gathered.to_args());
    let Ok(Reply::Array(replies)) = outcome else {
        panic!("an array");
    };
    assert!(replies[1..].iter().all(|reply| matches!(reply, Reply::Bulk(text) if text.len() == 100 << 20)));
}

#[test]
fn commands_run_in_order_and_errors_roll_nothing_back() {
    for late in [0, 2, 3, 4] {
        let mut memory = Memory::new();
        memory.late = late;
        let commands =
            ["set a 1", "incr a", "hset a f v", "foo", "get", "ping", "incr a", "config get x", "get a"];
        assert_eq!(
            exec(&mut memory, &block(Vec::new(), &commands)),
            "[OK, 2, ! WRONGTYPE Operation against a key holding the wrong kind of value, \
             ! ERR unknown command 'foo', with args beginning with: , \
             ! ERR wrong number of arguments for 'get' command, PONG, 3, \
             ! ERR Command not allowed inside a transaction, \"3\"]"
        );
    }
}

/// In a block, these are steps that change one record in place, with the clock's offset as their input.
#[test]
fn commands_that_take_a_date_do_the_same_in_a_block_as_alone() {
    let lines = [
        "xadd s * a 1",
        "xadd s * b 2",
        "xadd s maxlen 2 * c 3",
        "xadd s 1-1 d 4",
        "xadd s * e",
        "xadd none nomkstream * f 5",
        "xrange s - +",
        "set k v exat 1795009000",
        "expiretime k",
        "expireat k 1795009900",
        "pexpiretime k",
        "set k w",
        "xadd k * a 1",
        "xlen s",
    ];
    for offset_ms in [0, 3_600_000, -3_600_000] {
        let [mut alone, mut together] = [(); 2].map(|()| {
            let mut memory = Memory::new();
            let args = CorrectClock::request(1, 0, offset_ms).args;
            memory.call(Arc::new(CorrectClock), args).expect("the clock is corrected");
            memory
        });
        let replies: Vec<String> = lines.iter().map(|line| render(&alone.run(words(line)))).collect();
        assert!(replies[8].contains("1795009000") && replies[13] == "2", "{replies:?}");
        let first_ms = alone.now_ms.saturating_add_signed(-offset_ms);
        assert_eq!(replies[0], format!("\"{first_ms}-0\""), "the time of day");
        let reply = exec(&mut together, &block(Vec::new(), &lines));
        assert_eq!(reply, format!("[{}]", replies.join(", ")));
        for name in ["s", "k", "none"] {
            assert_eq!(together.value_of(name), alone.value_of(name), "{name}");
        }
    }
}

#[test]
fn scripts_run_in_blocks() {
    let mut memory = Memory::new();
    let commands = ["set a 5", "eval \"return redis.call('incr', KEYS[1])\" 1 a", "script exists x"];
    assert_eq!(exec(&mut memory, &block(Vec::new(), &commands)), "[OK, 6, [0]]");
}

#[test]
fn asking_a_stream_for_nothing_stops_no_block() {
    for (between, runs) in [
        ("xgroup delconsumer s g nobody", true),
        ("xgroup createconsumer s g alice", true),
        ("xreadgroup group g alice streams s 9-9", true),
        ("xreadgroup group g alice streams s 0", false),
        ("xreadgroup group g bob streams s 0", false),
        ("xautoclaim s g alice 100000 0", true),
        ("xautoclaim s g bob 100000 0", false),
        ("xautoclaim s g alice 0 0", false),
        ("xclaim s g alice 100000 1-1", true),
        ("xclaim s g alice 0 1-1", false),
        ("xclaim s g alice 0 9-9", true),
        ("xack s g 9-9", true),
        ("xtrim s maxlen 10", true),
    ] {
        let mut memory = Memory::new();
        for given in ["xadd s 1-1 f v", "xgroup create s g 0", "xreadgroup group g alice streams s >"] {
            memory.run(words(given));
        }
        let watched = watch(&mut memory, &["s"]);
        memory.run(words(between));
        let reply = exec(&mut memory, &block(watched, &["set ran yes"]));
        assert_eq!(reply, if runs { "[OK]" } else { "nil*" }, "{between}");
    }
}

#[test]
fn watched_keys_that_changed_stop_the_block() {
    // What happens between WATCH and EXEC, and whether the block then runs.
    for (before, between, sleep_ms, runs) in [
        ("set a 1", "get a", 0, true),
        ("set a 1", "set b 1", 0, true),
        ("set a 1", "set a 1", 0, false),
        ("set a 1", "del a", 0, false),
        ("get a", "get a", 0, true),
        ("get a", "set a 1", 0, false),
        ("set a 1 px 100", "get a", 0, true),
        ("set a 1 px 100", "get a", 200, false),
        ("set a 1", "expire a 100", 0, false),
        ("set a 1", "flushall", 0, false),
        ("get a", "flushall", 0, true),
    ] {
        let mut memory = Memory::new();
        memory.run(words(before));
        let watched = watch(&mut memory, &["a", "c"]);
        memory.run(words(between));
        memory.now_ms += sleep_ms;
        let reply = exec(&mut memory, &block(watched, &["set ran yes"]));
        assert_eq!(reply, if runs { "[OK]" } else { "nil*" }, "{before}; {between}");
        assert_eq!(render(&memory.run(words("exists ran"))), if runs { "1" } else { "0" });
    }
}

#[test]
fn a_key_that_came_and_went_has_changed() {
    let mut memory = Memory::new();
    let watched = watch(&mut memory, &["a"]);
    memory.run(words("set a 1"));
    memory.run(words("del a"));
    assert_eq!(exec(&mut memory, &block(watched, &["ping"])), "nil*");
}

#[test]
fn footprints_are_the_union_of_the_commands() {
    let mut memory = Memory::new();
    let watched = watch(&mut memory, &["w", "b"]);
    let keys = |block: &Block| {
        let footprint = block.footprint(true);
        let names = |keys: &[Key]| {
            keys.iter().map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned()).collect()
        };
        let sets: Option<(Vec<String>, Vec<String>)> =
            footprint.keys.as_ref().map(|sets| (names(&sets.reads), names(&sets.writes)));
        (sets, footprint.read_only, footprint.weight)
    };
    let sets = |reads: &[&str], writes: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        Some((owned(reads), owned(writes)))
    };
    let light = Weight::Light;
    let with = |commands: &[&str]| keys(&block(watched.clone(), commands));
    assert_eq!(with(&["get a", "ping", "mget a c"]), (sets(&["a", "b", "c", "w"], &[]), true, light));
    assert_eq!(with(&["get a", "rename b a", "foo"]), (sets(&["w"], &["a", "b"]), false, light));
    assert_eq!(with(&["time"]), (sets(&["b", "w", "clock"], &[]), false, light));
    assert_eq!(with(&["get a", "dbsize"]), (None, true, light));
    assert_eq!(with(&["keys *"]), (None, true, Weight::Heavy));
    assert_eq!(with(&["flushall"]), (None, false, light));
    // A reply may be long although the collection is small.
    for (draws, weight) in [
        ("srandmember a -1025", Weight::Heavy),
        ("hrandfield a 2000 withvalues", Weight::Heavy),
        ("zrandmember a 1024", light),
        ("srandmember a", light),
        ("srandmember a x", light),
    ] {
        let footprint = block(Vec::new(), &["get a", draws]).footprint(true);
        assert_eq!((footprint.read_only, footprint.weight), (false, weight), "{draws}");
    }
    // What compiles is no work for an I/O thread, either.
    for compiles in ["script load x", "function load x", "function restore x"] {
        assert_eq!(with(&[compiles]), (None, false, Weight::Heavy), "{compiles}");
    }
    assert_eq!(with(&["eval x 0"]), (sets(&["b", "w"], &[]), false, Weight::Heavy));
    let scripts =
        |commands: &[&str]| block(watched.clone(), commands).footprint(true).keys.unwrap().may_stray;
    assert_eq!((scripts(&["get a"]), scripts(&["eval x 0", "get a"])), (None, scripts(&["eval x 1 a"])));
    assert_ne!(scripts(&["eval x 0", "eval y 0"]), scripts(&["eval x 0"]));
}

#[test]
fn blocks_survive_their_byte_form_and_nonsense_is_refused() {
    let watched = vec![
        Watched { key: "a".into(), version: txn::Position(u64::MAX), present: true },
        Watched { key: "".into(), version: txn::Position::NONE, present: false },
    ];
    let whole = block(watched, &["set a 1", "get a", ""]);
    assert_eq!(Block::from_args(&whole.to_args()), Some(whole.clone()));
    let args = whole.to_args();
    for count in 0..args.len() {
        assert_eq!(Block::from_args(&args[..count]), None);
    }
    for len in 0..args[0].len() {
        let mut cut = args.clone();
        cut.0[0] = args[0][..len].into();
        assert_eq!(Block::from_args(&cut), None);
    }
    let reply = Memory::new().call(Arc::new(BlockProcedure), Args::new()).expect("no rollback");
    assert!(reply.is_error());
    assert_eq!(Watched::from_reply(&["a".into()], &Reply::Array(vec![Reply::OK])), None);
    assert_eq!(Watched::from_reply(&["a".into()], &Reply::Array(vec![])), None);
}

/// `Memory` compares what a block does in fragments with what it does as a whole.
#[test]
fn random_blocks_do_the_same_in_fragments() {
    const COMMANDS: &[&str] = &[
        "SET % v%",
        "SET % v% PX 3",
        "SET % v% XX GET",
        "SET % v% EX",
        "GET %",
        "GETDEL %",
        "GETRANGE % 0 2",
        "APPEND % w",
        "INCR %",
        "LPUSH % a b",
        "LPOP %",
        "HSET % f%n v",
        "HGET % f%n",
        "SADD % m",
        "MSET % a % b",
        "MGET % % %",
        "DEL % %",
        "EXISTS % %",
        "PEXPIRE % 4",
        "PEXPIRE % -1",
        "TTL %",
        "PERSIST %",
    ];
    let seed = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7_u64);
    println!("seed {seed}");
    let mut state = seed;
    let mut below = |count: u64| {
        state = txn::hash::mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        state % count
    };
    let (mut memory, mut apart) = (Memory::new(), 0);
    for _ in 0..3_000 {
        memory.now_ms += below(4);
        let count = 1 + below(6);
        let mut command = || {
            let mut words = COMMANDS[below(COMMANDS.len() as u64) as usize].to_owned();
            while words.contains('%') {
                words = words.replacen('%', &format!("k{}", below(4)), 1);
            }
            words
        };
        let commands: Vec<String> = (0..count).map(|_| command()).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let args = block(vec![], &commands).to_args();
        let request = Request::new(RequestId::default(), Arc::new(BlockProcedure), args.clone());
        let fragments = fragments::apart(&request);
        let is_whole = commands.iter().any(|command| command.starts_with("SET") && command.ends_with("EX"));
        assert_eq!(fragments.is_none(), is_whole, "{commands:?}");
        apart += u64::from(fragments.is_some_and(|fragments| fragments.list().len() > 1));
        memory.call(Arc::new(BlockProcedure), args).expect("blocks don't roll back");
    }
    assert!(apart > 1_000, "{apart}");
}

/// One fragment alone knows that there is no room, or only all of them together.
#[test]
fn what_has_no_room_in_a_reply_is_the_same_in_fragments() {
    let long = "x".repeat(100 << 20);
    let cases = [
        (&["GET a", "GET a", "GET a", "STRLEN b"][..], [false, false, true, false]),
        (&["GET a", "GET b", "GET a", "SET a 1"], [false, false, true, false]),
        // An error of a command that was not executed is no reply that was left out.
        (&["GET a", "GET b", "GET a", "LPUSH a x"], [false, false, true, true]),
        (&["MGET a a a a a a", "GET c", "GET d", "STRLEN b"], [true, true, true, false]),
        (&["GET a", "MGET a b a b a b", "GET c", "GET e"], [false, true, true, false]),
    ];
    for (gets, wants) in cases {
        let mut memory = Memory::new();
        let text = "y".repeat(1000);
        let set = block(vec![], &[&format!("MSET a {long} b {long} c {text} d {text}")]);
        memory.call(Arc::new(BlockProcedure), set.to_args()).expect("blocks don't roll back");
        let replies = memory.call(Arc::new(BlockProcedure), block(vec![], gets).to_args());
        let Ok(Reply::Array(replies)) = replies else { panic!("no replies") };
        let left_out: Vec<bool> = replies.iter().map(Reply::is_error).collect();
        assert_eq!(left_out, wants, "{gets:?}");
        if let Some(Reply::Error(text)) = replies.get(3) {
            assert!(text.starts_with("WRONGTYPE"), "{text}");
        }
    }
}

/// Commands on a key `K`, some of which fail, change nothing, or end it.
const ON_ONE_KEY: &[&str] = &[
    "hset K fN vN",
    "hset K fN a gN b",
    "hmset K fN x",
    "hsetnx K fN y",
    "hdel K fN gN",
    "hincrby K nN 3",
    "hincrby K fN 3",
    "hincrbyfloat K nN 0.5",
    "hincrbyfloat K fN 0.5",
    "hget K fN",
    "hlen K",
    "sadd K mN",
    "sadd K mN oN",
    "srem K mN",
    "sismember K mN",
    "scard K",
    "zadd K N mN",
    "zadd K nx N mN",
    "zadd K xx gt 5 mN",
    "zadd K incr 1 mN",
    "zadd K nan mN",
    "zincrby K inf mN",
    "zincrby K -inf mN",
    "zrem K mN",
    "zscore K mN",
    "lpush K eN",
    "rpush K eN fN",
    "lpushx K eN",
    "lpop K",
    "lpop K 2",
    "rpop K 0",
    "lset K N x",
    "lset K 0 x",
    "llen K",
    "set K N",
    "set K N get",
    "set K N nx",
    "set K N px 50",
    "setex K 0 x",
    "append K x",
    "incr K",
    "get K",
    "getdel K",
    "pexpire K 50",
    "pexpire K -1",
    "persist K",
    "pttl K",
    "type K",
    "del K",
    "exists K",
    "get",
    "foo K",
];

#[test]
fn a_block_does_what_its_commands_do_one_after_the_other() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..300).collect::<Vec<u64>>(),
    };
    for seed in seeds {
        let mut state = seed;
        let mut below = |bound: usize| {
            state += 1;
            (txn::hash::mix(state.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % bound as u64) as usize
        };
        let (mut apart, mut together) = (Memory::new(), Memory::new());
        // Some collections are large, and shared with what was there before.
        let given: Vec<String> = match below(5) {
            0 => (0..100).map(|n| format!("hset a f{n} v")).collect(),
            1 => (0..100).map(|n| format!("sadd a m{n}")).collect(),
            2 => (0..100).map(|n| format!("zadd a {n} m{n}")).collect(),
            3 => (0..100).map(|n| format!("rpush a e{n}")).collect(),
            _ => Vec::new(),
        };
        for line in &given {
            apart.run(words(line));
            together.run(words(line));
        }
        let before = together.value_of("a");
        let copy = before.as_ref().map(|value| format!("{value:?}"));
        // Many of one type, so that they change the same collection.
        let favourite = below(ON_ONE_KEY.len());
        let lines: Vec<String> = (0..1 + below(40))
            .map(|_| {
                let command = match below(3) {
                    0 => below(ON_ONE_KEY.len()),
                    _ => (favourite + below(6)) % ON_ONE_KEY.len(),
                };
                let key = if below(5) == 0 { "b" } else { "a" };
                ON_ONE_KEY[command].replace('K', key).replace('N', &below(120).to_string())
            })
            .collect();
        let replies: Vec<String> = lines.iter().map(|line| render(&apart.run(words(line)))).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        together.late = [0, 2, 3, 4][below(4)];
        let reply = exec(&mut together, &block(Vec::new(), &lines));
        assert_eq!(reply, format!("[{}]", replies.join(", ")), "SEED={seed}: {lines:?}");
        for key in ["a", "b"] {
            assert_eq!(together.value_of(key), apart.value_of(key), "SEED={seed}: {key} after {lines:?}");
        }
        let kept = before.as_ref().map(|value| format!("{value:?}"));
        assert_eq!(kept, copy, "SEED={seed}: what others see was changed by {lines:?}");
    }
}
