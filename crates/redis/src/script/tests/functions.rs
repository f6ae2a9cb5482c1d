//! Functions: what libraries may not leave behind, limits, suspension, and memory that is short.

use super::LIMITS;
use super::double::{Disturbance, Double, show};
use crate::block::{Block, BlockProcedure};
use crate::execute::Memory;
use txn::{Args, Procedure};

fn load(double: &mut Double, code: &str) -> String {
    show(&double.run("redis.function_load", &[code.as_bytes()]))
}

fn call(double: &mut Double, function: &str) -> String {
    show(&double.run("redis.fcall", &[function.as_bytes(), b"0"]))
}

/// Functions that change all that they share with others, and say what they found.
const CHANGING: &str = "#!lua name=changing
local count, seen = 0, {}
local function step() count = count + 1 seen[#seen + 1] = count return #seen end
redis.register_function('count', function() step() return step() end)
redis.register_function('seen', function() return {count, #seen} end)";

#[test]
fn what_functions_share_begins_anew_with_every_call() {
    let mut double = Double::new(Disturbance::default());
    assert_eq!(load(&mut double, CHANGING), "$changing");
    for _ in 0..3 {
        assert_eq!(call(&mut double, "count"), ":2");
        assert_eq!(call(&mut double, "seen"), "*2\n  :0\n  :0");
    }
}

#[test]
fn nothing_of_an_environment_can_be_changed() {
    let mut double = Double::new(Disturbance::default());
    for (place, change) in [
        "leak = 1",
        "_G.leak = 1",
        "rawset(_G, 'leak', 1)",
        "redis.leak = 1",
        "rawset(redis, 'leak', 1)",
        "string.rep = nil",
        "lib.leak = 1",
        "rawset(lib, 'register_function', 1)",
        "setmetatable(lib, {})",
        "setmetatable(_G, nil)",
        "getmetatable(_G).__index = {}",
        "getmetatable('').__index = {}",
        "loadstring('leak = 1')()",
    ]
    .into_iter()
    .enumerate()
    {
        let code = format!(
            "#!lua name=l{place}\nlocal lib = redis redis.register_function('f{place}', function() \
             {change} end)"
        );
        assert_eq!(load(&mut double, &code), format!("$l{place}"));
        let reply = call(&mut double, &format!("f{place}"));
        assert!(reply.starts_with("-ERR "), "{change}: {reply}");
    }
    // Scripts and functions see none of each other's names.
    assert!(double.shown("return KEYS").starts_with('*'));
    assert!(
        load(&mut double, "#!lua name=k\nredis.register_function('k', function() return KEYS end)")
            .starts_with("$k")
    );
    assert!(call(&mut double, "k").contains("nonexistent global variable 'KEYS'"));
    assert!(double.shown("return redis.register_function").starts_with("nil"));
}

#[test]
fn a_library_is_no_script_although_its_code_is_the_same() {
    let mut double = Double::new(Disturbance::default());
    assert_eq!(load(&mut double, CHANGING), "$changing");
    assert_eq!(call(&mut double, "count"), ":2");
    assert_eq!(double.shown(CHANGING), "-ERR Unknown lua shebang option: name=changing");
}

#[test]
fn a_call_spends_what_loading_takes() {
    let mut double = Double::new(Disturbance::default());
    let code = |load: u64, call: u64| {
        format!(
            "#!lua name=l\nfor i = 1, {load} do end redis.register_function('f', function() for i = 1, \
             {call} do end return 1 end)"
        )
    };
    let mut loaded = |load_steps, call_steps| {
        let code = code(load_steps, call_steps);
        let loaded = show(&double.run("redis.function_load", &[b"replace", code.as_bytes()]));
        (loaded, call(&mut double, "f"))
    };
    // A loop's round is an instruction.
    let tenth = LIMITS.steps_max / 10;
    let ok = "$l".to_owned();
    assert_eq!(loaded(tenth - 5_000, 1), (ok.clone(), ":1".to_owned()));
    assert_eq!(loaded(1, 9 * tenth + 50_000), (ok.clone(), ":1".to_owned()));
    let exceeded = loaded(tenth - 5_000, 9 * tenth + 50_000);
    assert!(exceeded.0 == ok && exceeded.1.contains("exceeded its limit of"), "{exceeded:?}");
    let refused = loaded(tenth + 5_000, 1);
    assert_eq!(refused.0, "-ERR Error registering functions: ERR FUNCTION LOAD timeout");
    assert_eq!(refused.1, exceeded.1, "the old library is still there");
    let endless = "#!lua name=e\nredis.register_function('e', function() redis.call('set', 'k', 'v') while \
                   true do end end)";
    assert_eq!(load(&mut double, endless), "$e");
    assert!(call(&mut double, "e").starts_with("!ERR script exceeded its limit"));
    let all = "#!lua name=m\nredis.register_function('m', function() local s = 'x' while true do s = s .. \
               s end end)";
    assert_eq!(load(&mut double, all), "$m");
    assert!(call(&mut double, "m").starts_with("!ERR script exceeded its memory limit"));
    assert_eq!(double.shown("return redis.call('exists', 'k')"), ":0");
}

#[test]
fn suspensions_and_restarts_change_nothing() {
    let calls = |mut double: Double| {
        let mut shown = Vec::new();
        let code = "#!lua name=l
            local sum = 0
            redis.register_function('f', function(keys, args)
                for i = 1, 5 do sum = sum + redis.call('incr', 'n') end
                return {sum, math.random(1000), redis.call('get', 'n')}
            end)";
        for code in [code, CHANGING, "#!lua name=x\nredis.register_function('F', redis.log)"] {
            shown.push(load(&mut double, code));
        }
        for _ in 0..3 {
            shown.push(call(&mut double, "f"));
        }
        for command in ["list", "dump", "stats"] {
            shown.push(show(&double.run(&format!("redis.function_{command}"), &[])));
        }
        shown.push(show(&double.run("redis.function_delete", &[b"changing"])));
        shown.push(show(&double.run("redis.function_flush", &[])));
        (shown, double.entries, double.suspensions + double.restarts)
    };
    let (shown, entries, _) = calls(Double::new(Disturbance::default()));
    assert!(shown[3].starts_with("*3\n  :15\n"), "{shown:?}");
    for (suspend_every, doom_seed) in [(1, None), (2, None), (3, Some(7)), (1, Some(8))] {
        let disturbance = Disturbance { suspend_every: Some(suspend_every), doom_seed, overdraws: false };
        let (other, others, disturbances) = calls(Double::new(disturbance));
        assert_eq!((&shown, &entries), (&other, &others), "{disturbance:?}");
        assert!(disturbances > 10, "{disturbances}");
    }
}

#[test]
fn flushing_leaves_no_record() {
    let mut double = Double::new(Disturbance::default());
    assert_eq!(load(&mut double, CHANGING), "$changing");
    assert_eq!(double.entries.len(), 4, "a directory, a library, two functions");
    assert_eq!(show(&double.run("redis.function_flush", &[])), "+OK");
    assert!(double.entries.is_empty());
}

const OUT_OF_MEMORY: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

/// A script with the start of its reply while memory is short.
const SHORT: [(&str, &str); 9] = [
    ("return redis.call('set', 'x', '1')", OUT_OF_MEMORY),
    ("return redis.pcall('set', 'x', '1')", OUT_OF_MEMORY),
    ("redis.call('del', 'y') return redis.call('set', 'x', '1')", "+OK"),
    ("redis.pcall('del') redis.pcall('function', 'flush') return redis.call('set', 'x', '1')", OUT_OF_MEMORY),
    ("redis.call('get', 'x') return redis.call('set', 'x', '1')", OUT_OF_MEMORY),
    ("#!lua\nreturn 1", OUT_OF_MEMORY),
    ("#!lua flags=allow-oom\nreturn redis.call('set', 'x', '1')", "+OK"),
    ("#!lua flags=no-writes\nreturn 1", ":1"),
    ("#!lua flags=no-writes\nreturn redis.call('set', 'x', '1')", "-ERR Write commands are not allowed"),
];

#[test]
fn memory_that_is_short_is_part_of_the_request() {
    for disturbance in
        [Disturbance::default(), Disturbance { suspend_every: Some(1), doom_seed: Some(3), overdraws: false }]
    {
        let mut double = Double::new(disturbance);
        for (script, start) in SHORT {
            let reply = show(&double.run("redis.short-of-memory", &[b"eval", script.as_bytes(), b"0"]));
            assert!(reply.starts_with(start), "{script}: {reply}");
        }
        let code = "#!lua name=l
            redis.register_function('w', function() return redis.call('set', 'x', '1') end)
            redis.register_function('none', function() return 1 end)
            redis.register_function{function_name='aw', callback=function() return redis.call('set', 'x', '1') end, flags={'allow-oom'}}
            redis.register_function{function_name='nw', callback=function() return redis.call('get', 'x') end, flags={'no-writes'}}";
        assert_eq!(load(&mut double, code), "$l");
        for (function, reply) in [("w", OUT_OF_MEMORY), ("none", OUT_OF_MEMORY), ("aw", "+OK"), ("nw", "$1")]
        {
            let words: [&[u8]; 3] = [b"fcall", function.as_bytes(), b"0"];
            assert_eq!(show(&double.run("redis.short-of-memory", &words)), reply);
            let id = format!("id of {function}");
            let wrapped = [&[b"ordo.idempotent", id.as_bytes()], &words[..]].concat();
            // What is refused leaves no record.
            let wanted = reply.replace("-OOM", "!OOM");
            assert_eq!(show(&double.run("redis.short-of-memory", &wrapped)), wanted);
            if function == "w" {
                assert_eq!(show(&double.run("redis.idempotent", &wrapped[1..])), "+OK");
            }
        }
        assert_eq!(call(&mut double, "w"), "+OK");
    }
}

#[test]
fn a_block_says_that_memory_was_short() {
    let words: Args = ["eval", "return redis.call('set', 'x', '1')", "0"].into_iter().collect();
    for (memory, start) in [(Memory::Ample, "*1\n  +OK"), (Memory::Short, "*1\n  -OOM ")] {
        let block = Block { commands: vec![words.clone()], memory, ..Block::default() };
        let args = block.to_args();
        assert_eq!(Block::from_args(&args), Some(block));
        let bytes: Vec<&[u8]> = args.iter().map(|word| word.as_bytes()).collect();
        let mut double = Double::new(Disturbance::default());
        let reply = show(&double.run(BlockProcedure.name(), &bytes));
        assert!(reply.starts_with(start), "{reply}");
    }
}
