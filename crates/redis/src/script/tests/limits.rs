//! Limits: they end a script, roll it back, and fall on the same instruction everywhere.

use super::LIMITS;
use super::double::{Disturbance, Double, show};
use crate::script::{SOURCE_BYTES_MAX, ScriptName, cost_hint};
use crate::work;
use txn::{Reply, Stop, Weight};

pub(super) fn steps_text() -> String {
    format!(
        "ERR script exceeded its limit of {} steps; it was rolled back; do less in one script",
        LIMITS.steps_max
    )
}

fn is_memory_text(stop: &Stop) -> bool {
    stop.to_string().starts_with("ERR script exceeded its memory limit of 33554432 bytes")
}

#[test]
fn too_many_steps_roll_back() {
    let mut double = Double::new(Disturbance::default());
    for script in [
        "while true do end",
        "redis.call('SET', 'k', 'v') while true do pcall(error) end",
        "while true do pcall(function() while true do end end) end",
        "local function f() return pcall(f) end while true do f() end",
        "xpcall(function() while true do end end, function() while true do end end) return 1",
        "xpcall(error, function() while true do end end) while true do end",
        "while true do coroutine.wrap(function() local x = 1 end)() end",
        "while true do coroutine.resume(coroutine.create(function() for i = 1, 100 do end end)) end",
        "while true do redis.pcall('GET', 'x') end",
        "while true do string.rep('', 1000000) end",
        "while true do ('a'):rep(200):find('.-.-.-.-b') end",
        "while true do ('x'):rep(10000):gsub('x', 'y') end",
        "while true do cjson.decode('[1,2,3]') string.format('%d', 1) end",
        "local t = {} for i = 1, 2000 do t[i] = i end while true do table.sort(t) end",
        "local t = {} for i = 1, 2000 do t[i] = i end while true do table.insert(t, 1, 1) table.remove(t, \
         1) end",
        "local t = {} for i = 1, 2000 do t[i] = 'x' end while true do table.concat(t) end",
        "string.rep('x', 1e9)",
        "local s = ('x'):rep(10000) for i = 1, 1000 do redis.sha1hex(s) end",
        "for i = 1, 25000 do redis.sha1hex('x') end",
        "for i = 1, 50000 do redis.acl_check_cmd('GET', 'x') end",
        "local s = ('x'):rep(1000000) for i = 1, 80 do redis.call('ECHO', s) end",
        "for i = 1, 1e9 do local x = ('x'):rep(100) end",
        "local s = ('x'):rep(9000) for i = 1, 3000 do string.byte(s, 1, -1) end",
        "local s = ('x'):rep(1000000) for i = 1, 100 do pcall(struct.unpack, 's', s) end",
        "local s = (' '):rep(100000) for i = 1, 100 do struct.size(s) end",
    ] {
        let outcome = double.eval(script);
        let stop = outcome.expect_err(script);
        assert!(stop.to_string() == steps_text() || is_memory_text(&stop), "{script}: {stop}");
        assert!(double.entries.is_empty(), "{script} left something behind");
    }
    assert_eq!(double.shown("return 1"), ":1", "the VM is as good as new");
}

/// Calls whose words and replies are small, of which some thousands reach the limit all the same.
#[test]
fn what_calls_look_at_counts() {
    let long = "redis.call('SETRANGE', 'k', 999999, 'x') redis.call('SET', 'plain', redis.call('GET', 'k'))";
    let numbers = "local t = {} for i = 1, 2000 do t[i] = i end";
    let set = format!(
        "{numbers} redis.call('SADD', 'k', unpack(t)) t[1] = 0 redis.call('SADD', 'other', unpack(t))"
    );
    let list = format!("{numbers} redis.call('RPUSH', 'k', unpack(t))");
    let scored = "for i = 1, 2000 do redis.call('ZADD', 'k', i, i) end redis.call('ZADD', 'other', 1, 1)";
    let places = "for i = 1, 1000 do redis.call('GEOADD', 'k', i / 1e5, i / 1e5, i) end";
    let pending = "for i = 1, 500 do redis.call('XADD', 'k', i .. '-1', 'f', 'v') end \
         redis.call('XGROUP', 'CREATE', 'k', 'g', '0') redis.call('XREADGROUP', 'GROUP', 'g', 'c', \
         'STREAMS', 'k', '>')";
    let sketches = "for i = 1, 1000 do redis.call('PFADD', 'k', i) end redis.call('PFADD', 'other', 1)";
    let keys = "for i = 1, 500 do redis.call('SET', 'k' .. i, i) end";
    for (given, calls) in [
        (
            long,
            &[
                "'BITCOUNT', 'k'",
                "'BITPOS', 'k', 1",
                "'BITOP', 'NOT', 'new', 'k'",
                "'INCR', 'k'",
                "'PFADD', 'k'",
                "'SETBIT', 'new' .. i, 4200000000, 1",
            ][..],
        ),
        (
            "redis.call('SET', 'k', ('x'):rep(1000)) redis.call('SET', 'other', ('y'):rep(1000))",
            &["'LCS', 'k', 'other', 'LEN'"],
        ),
        (
            &set,
            &[
                "'SINTERSTORE', 'new', 'k', 'other'",
                "'SINTERCARD', 2, 'k', 'other'",
                "'SUNIONSTORE', 'new', 'k', 'other'",
                "'SDIFFSTORE', 'new', 'k', 'other'",
                "'SDIFF', 'k', 'k'",
                "'ZINTERSTORE', 'new', 2, 'k', 'other'",
                "'ZUNIONSTORE', 'new', 2, 'k', 'other'",
                "'ZDIFFSTORE', 'new', 2, 'k', 'other'",
                "'ZINTERCARD', 2, 'k', 'other'",
                "'SSCAN', 'k', 0, 'MATCH', 'none', 'COUNT', 5000",
                "'SORT', 'k', 'LIMIT', 0, 1",
                "'EXISTS', unpack(t)",
            ],
        ),
        (
            &list,
            &[
                "'LPOS', 'k', 'none'",
                "'LREM', 'k', 1, 'none'",
                "'LINSERT', 'k', 'BEFORE', 'none', 'x'",
                "'SORT', 'k', 'BY', 'nosort', 'STORE', 'new'",
                "'COPY', 'k', 'new', 'REPLACE'); redis.call('LTRIM', 'new', 0, 900",
            ],
        ),
        (
            scored,
            &[
                "'ZRANGESTORE', 'new', 'k', 0, -1",
                "'COPY', 'k', 'new', 'REPLACE'); redis.call('ZREMRANGEBYRANK', 'new', 1, -1",
                "'DUMP', 'k'",
            ],
        ),
        (places, &["'GEOSEARCHSTORE', 'new', 'k', 'FROMLONLAT', 0, 0, 'BYRADIUS', 1000, 'km'"]),
        (
            pending,
            &[
                "'XPENDING', 'k', 'g', 'IDLE', 1000000, '-', '+', 10",
                "'COPY', 'k', 'new', 'REPLACE'); redis.call('XTRIM', 'new', 'MAXLEN', 0",
            ],
        ),
        (sketches, &["'PFCOUNT', 'k', 'other'", "'PFMERGE', 'new', 'k', 'other'"]),
        (keys, &["'KEYS', 'none'", "'SCAN', 0, 'MATCH', 'none', 'COUNT', 1000"]),
    ] {
        for call in calls {
            let mut double = Double::new(Disturbance::default());
            double.eval(given).expect(given);
            let numbers = if call.contains("unpack") { numbers } else { "" };
            let script = format!("{numbers} for i = 1, 5000 do redis.pcall({call}) end");
            let outcome = double.eval(&script);
            assert_eq!(outcome.expect_err(call).to_string(), steps_text(), "{call}");
        }
    }
}

/// What each iteration does counts, so that this many of them reach the limit.
#[test]
fn what_scripts_get_and_give_counts() {
    let numbers = "local t = {} for i = 1, 2000 do t[i] = i end";
    let set = format!("{numbers} redis.call('SADD', 'k', unpack(t))");
    let hash = "for i = 1, 1000 do redis.call('HSET', 'k', 'f' .. i, i) end";
    let list = format!("{numbers} redis.call('RPUSH', 'k', unpack(t))");
    let keys = "for i = 1, 500 do redis.call('SET', 'k' .. i, i) end";
    let class = "local p = '*[' .. ('b'):rep(1000) .. ']'";
    let shared = "local t = {1} for i = 1, 17 do t = {t, t} end return t";
    for (given, script) in [
        (&*set, "for i = 1, 160 do redis.call('SMEMBERS', 'k') end"),
        (hash, "for i = 1, 160 do redis.call('HGETALL', 'k') end"),
        (hash, "redis.setresp(3) for i = 1, 160 do redis.call('HGETALL', 'k') end"),
        (&list, "for i = 1, 1000 do redis.call('LPOS', 'k', 'none') end"),
        (keys, &format!("{class} for i = 1, 100 do redis.call('KEYS', p) end")),
        ("", &format!("{numbers} for i = 1, 90 do redis.pcall({{}}, unpack(t)) end")),
        ("", &format!("{numbers} for i = 1, 90 do redis.acl_check_cmd('DEL', unpack(t)) end")),
        ("", "for i = 1, 14 do redis.call('COMMAND', 'DOCS') end"),
        (
            "local s = ('x'):rep(1000) redis.call('MSET', 'a', s, 'b', s)",
            "for i = 1, 11 do redis.call('LCS', 'a', 'b', 'LEN') end",
        ),
        (
            "redis.call('PFADD', 'a', 'x') redis.call('PFADD', 'b', 'y')",
            "for i = 1, 700 do redis.call('PFCOUNT', 'a', 'b') end",
        ),
        ("", "for i = 1, 5000 do ('%.99f'):format(1e308) end"),
        ("", "local s = ('a'):rep(200) for i = 1, 3 do s:find('.-.-b') end"),
        ("", "for i = 1, 48000 do local x = i .. 'x' end"),
        ("", "for i = 1, 1000 do redis.call('SET', i, i) end for i = 1, 140 do redis.call('DBSIZE') end"),
        ("", shared),
        ("", "for i = 1, 10 do redis.call('SETRANGE', 'k' .. i, 100000000, 'x') end"),
    ] {
        let mut double = Double::new(Disturbance::default());
        double.eval(given).expect(given);
        let outcome = double.eval(script);
        assert_eq!(outcome.expect_err(script).to_string(), steps_text(), "{script}");
    }
}

#[test]
fn a_command_stops_when_the_steps_are_spent() {
    let keys = "local name = ('a'):rep(1000) for i = 1, 100 do redis.call('SET', name .. i, 1) end";
    let set = "local t = {} for i = 1, 2000 do t[i] = i end redis.call('SADD', 'k', unpack(t))";
    let names = "local names = {} for i = 1, 1000 do names[i] = 'k' end";
    let long = "redis.call('SETRANGE', 'k', 999999, 'x')";
    // So few steps are left for the command that they end it before its replies reach the limit of memory.
    let left = LIMITS.steps_max / 5;
    let spend = format!("for i = 1, {} do end", LIMITS.steps_max - left);
    for (given, script) in [
        (keys, "return redis.call('KEYS', '*' .. ('a'):rep(500) .. 'b')"),
        (keys, "return redis.call('SCAN', 0, 'COUNT', 100, 'MATCH', '*' .. ('a'):rep(500) .. 'b')"),
        (set, &format!("{names} return redis.call('SINTERCARD', 1000, unpack(names))")),
        (set, &format!("{names} return redis.call('SUNIONSTORE', 'new', unpack(names))")),
        (set, &format!("{names} return redis.call('ZINTERCARD', 1000, unpack(names))")),
        (set, &format!("{names} return redis.call('ZUNIONSTORE', 'new', 1000, unpack(names))")),
        (long, &format!("{names} return #redis.call('MGET', unpack(names))")),
        (long, &format!("{names} return redis.call('BITOP', 'OR', 'new', unpack(names))")),
    ] {
        let mut double = Double::new(Disturbance::default());
        double.eval(given).expect(given);
        let before = double.entries.clone();
        let script = &format!("{spend} {script}");
        let (outcome, work) = work::metered(u64::MAX, || double.eval(script));
        assert_eq!(show(&outcome), format!("!{}", steps_text()), "{script}");
        assert!(work < 2 * left, "{script}: {work} steps");
        assert_eq!(double.entries.len(), before.len(), "{script} left something behind");
    }
}

/// A replica that has begun with a checkpoint has strings in one piece that others have in chunks.
#[test]
fn how_a_string_is_kept_says_nothing_of_the_work() {
    let mut double = Double::new(Disturbance::default());
    let given = "redis.call('SETRANGE', 'chunks', 99999, 'x') redis.call('SET', 'whole', redis.call('GET', \
                 'chunks'))";
    double.eval(given).expect(given);
    for call in [
        "'BITCOUNT', KEY, 5, 70000",
        "'BITPOS', KEY, 1",
        "'BITPOS', KEY, 1, 5, 70000",
        "'BITPOS', KEY, 0, 3",
        "'BITOP', 'NOT', 'new', KEY",
        "'GETRANGE', KEY, 5, 50000",
        "'STRLEN', KEY",
        "'OBJECT', 'ENCODING', KEY",
        "'LCS', KEY, 'none'",
        "'INCR', KEY",
        "'PFADD', KEY",
        "'GET', KEY",
        "'MGET', KEY",
        "'DUMP', KEY",
        "'SORT', KEY",
        "'MEMORY', 'USAGE', KEY",
        "'COPY', KEY, 'new', 'REPLACE'",
        "'SET', KEY, 'x', 'NX', 'GET'",
        "'GETEX', KEY, 'PERSIST'",
        "'BITFIELD', KEY, 'SET', 'u8', 800, 1",
        "'SETBIT', KEY, 900000, 1",
        "'SETRANGE', KEY, 60000, 'some'",
        "'APPEND', KEY, 'some'",
        "'GETDEL', KEY",
    ] {
        let mut works = |key: &str| {
            let script = format!("return redis.pcall({})", call.replace("KEY", key));
            let (outcome, work) = work::metered(u64::MAX, || double.eval(&script));
            outcome.expect(call);
            work
        };
        assert_eq!(works("'chunks'"), works("'whole'"), "{call}");
    }
}

#[test]
fn the_step_limit_falls_on_the_same_instruction() {
    // How far it gets shows in what it wrote, so it writes more slowly than it counts.
    let count = |double: &mut Double, iterations: u64| {
        show(&double.run(
            "redis.eval",
            &[
                b"for i = 1, tonumber(ARGV[1]) do local x = i % 7 end return 1",
                b"0",
                iterations.to_string().as_bytes(),
            ],
        ))
    };
    let mut double = Double::new(Disturbance::default());
    let (mut low, mut high) = (1_000_u64, 10_000_000_u64);
    while low + 1 < high {
        let middle = low.midpoint(high);
        if count(&mut double, middle) == ":1" { low = middle } else { high = middle }
    }
    // In a VM that has run much, in another thread's, and suspended at every operation.
    for disturbance in [
        Disturbance::default(),
        Disturbance { suspend_every: Some(1), doom_seed: None, ..Disturbance::default() },
    ] {
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let mut double = Double::new(disturbance);
                (count(&mut double, low), count(&mut double, high))
            });
            let (fits, exceeds) = run.join().expect("a script does not panic");
            assert_eq!((fits.as_str(), exceeds), (":1", format!("!{}", steps_text())));
        });
    }
    double.eval("local t = {} for i = 1, 777 do t[i] = {} end return 1").expect("small");
    assert_eq!(count(&mut double, low), ":1");
    assert_ne!(count(&mut double, high), ":1");
}

#[test]
fn too_much_memory_rolls_back() {
    let mut double = Double::new(Disturbance::default());
    for script in [
        "redis.call('SET', 'k', 'v') local s = 'x' while true do s = s .. s end",
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "local ok, e = pcall(function() local s = 'x' while true do s = s .. s end end) return e",
        "for i = 1, 100 do pcall(string.rep, 'x', 2^24) end return 1",
        "local s = string.rep('x', 2^24) return cjson.encode({s, s, s, s})",
        "return string.rep('x', 2^25)",
        "local f = function() local s = 'x' while true do s = s .. s end end \
         coroutine.resume(coroutine.create(f)) return 1",
        "local s = string.rep('[],', 1e6) return cjson.decode('[' .. s .. '1]')",
        "return string.rep('ab', 2^20):gsub('a', string.rep('x', 1000))",
    ] {
        let outcome = double.eval(script);
        let stop = outcome.expect_err(script);
        assert!(is_memory_text(&stop) || stop.to_string() == steps_text(), "{script}: {stop}");
        assert!(double.entries.is_empty(), "{script} left something behind");
    }
    let in_reply = double
        .eval("local s, t = ('x'):rep(1000000), {} for i = 1, 40 do t[i] = s end return t")
        .expect_err("40 MB");
    assert!(in_reply.to_string().contains("bytes in its reply"), "{in_reply}");
    let in_replies = double.eval(
        "redis.call('SET', 'k', string.rep('x', 1000000)) for i = 1, 1000 do redis.call('APPEND', 'k', \
         'x') redis.call('GET', 'k') end",
    );
    assert!(in_replies.is_err(), "{}", show(&in_replies));
    assert_eq!(double.shown("return 1"), ":1", "the VM is as good as new");
}

/// Allocates so many kilobytes, of strings that are different each time: long ones, so that steps do not end
/// it first.
const ALLOCATE: &[u8] = b"
    redis.call('INCR', 'runs')
    local t = {}
    local spaces = string.rep(' ', 4000)
    for i = 1, tonumber(ARGV[1]) / 4 do t[i] = i .. spaces end
    redis.call('INCR', 'runs')
    return tonumber(ARGV[1])";

#[test]
fn the_memory_limit_does_not_depend_on_where_a_script_runs() {
    let run = |double: &mut Double, kilobytes: u64| {
        show(&double.run("redis.eval", &[ALLOCATE, b"0", kilobytes.to_string().as_bytes()]))
    };
    let (mut low, mut high) = (1_000_u64, 40_000_u64);
    let mut double = Double::new(Disturbance::default());
    while low + 1 < high {
        let middle = low.midpoint(high);
        if run(&mut double, middle).starts_with(':') { low = middle } else { high = middle }
    }
    // More than half of the limit, so a fresh VM decided.
    assert!(low > 17_000, "{low} kilobytes");
    for disturbance in [
        Disturbance::default(),
        Disturbance { suspend_every: Some(1), doom_seed: None, ..Disturbance::default() },
    ] {
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let mut double = Double::new(disturbance);
                // Leave what the script would allocate in the warm VM.
                run(&mut double, 500);
                (run(&mut double, low), run(&mut double, high), double)
            });
            let (fits, exceeds, double) = run.join().expect("a script does not panic");
            assert_eq!(fits, format!(":{low}"));
            assert!(exceeds.starts_with("!ERR script exceeded its memory limit"), "{exceeds}");
            let runs = &double.entries[&txn::Key::from("runs")];
            assert_eq!(runs.value, txn::Value::from("4"), "commands ran once, whatever ran twice");
        });
    }
}

#[test]
fn short_scripts_become_light() {
    let mut double = Double::new(Disturbance::default());
    let short = "return 'a short script of the weight test'";
    let long = "for i = 1, 100000 do end return 'a long script of the weight test'";
    let weight = |double: &Double, script: &str| {
        double.request("redis.eval", &[script.as_bytes(), b"0"]).footprint.weight
    };
    assert_eq!(weight(&double, short), Weight::Heavy);
    double.eval(short).expect("no limit is near");
    double.eval(long).expect("no limit is near");
    assert_eq!(weight(&double, short), Weight::Light);
    assert_eq!(weight(&double, long), Weight::Heavy);
    assert_eq!(cost_hint(ScriptName::of(short.as_bytes())), Weight::Light);
}

/// A script of so many bytes that ends at once.
fn long_source(bytes: usize) -> String {
    let code = "return 1 --";
    format!("{code}{}", "x".repeat(bytes - code.len()))
}

#[test]
fn a_source_has_a_largest_size() {
    let mut double = Double::new(Disturbance::default());
    let largest = long_source(SOURCE_BYTES_MAX);
    let kept = double.run("redis.script_load", &[largest.as_bytes()]);
    assert!(matches!(kept, Ok(Reply::Bulk(_))), "{}", show(&kept));
    let bytes = SOURCE_BYTES_MAX + 1;
    let refused = |what: &str| {
        format!("-ERR the source of this {what} has {bytes} bytes, and one may have 1048576 at most")
    };
    for reply in [
        double.shown(&long_source(bytes)),
        show(&double.run("redis.script_load", &[long_source(bytes).as_bytes()])),
    ] {
        assert!(reply.starts_with(&refused("script")), "{reply}");
    }
    let head = "#!lua name=large\nredis.register_function('f', function() end) --";
    let library = format!("{head}{}", "x".repeat(bytes - head.len()));
    let reply = show(&double.run("redis.function_load", &[library.as_bytes()]));
    assert!(reply.starts_with(&refused("library")), "{reply}");
    assert_eq!(double.entries.len(), 1, "only the first one was kept");
}

#[test]
fn compiling_counts_as_steps_whether_it_is_done_or_not() {
    let mut double = Double::new(Disturbance::default());
    // Compiling takes half of the steps, and then the loop takes more than the other half.
    let bytes = LIMITS.steps_max as usize / 2 / 20;
    let steps = LIMITS.steps_max * 6 / 10;
    let looping = format!("for i = 1, {steps} do end ");
    for _ in 0..2 {
        let stop = double.eval(&format!("{looping}{}", long_source(bytes)));
        assert_eq!(stop.expect_err("too much").to_string(), steps_text());
        assert_eq!(double.shown(&format!("{looping} return 1")), ":1");
    }
}

#[test]
fn a_large_script_is_never_light() {
    let mut double = Double::new(Disturbance::default());
    for (bytes, weight) in [(16 << 10, Weight::Light), ((16 << 10) + 1, Weight::Heavy)] {
        let script = long_source(bytes);
        double.shown(&script);
        assert_eq!(cost_hint(ScriptName::of(script.as_bytes())), weight);
    }
}

#[test]
fn many_arguments_do_not_depend_on_what_the_vm_keeps() {
    let many = |count: usize| {
        format!(
            "local t = {{}} for i = 1, {count} do t[i] = 'k' .. i end return redis.call('EXISTS', unpack(t))"
        )
    };
    let fresh: Vec<String> = (0..20)
        .map(|i| {
            std::thread::scope(|scope| {
                let run = scope.spawn(|| Double::new(Disturbance::default()).shown(&many(6_000 + i * 100)));
                run.join().expect("a script does not panic")
            })
        })
        .collect();
    let mut double = Double::new(Disturbance::default());
    for i in 0..900 {
        double.eval(&format!("return {i}")).expect("no limit is near");
    }
    let warm: Vec<String> = (0..20).map(|i| double.shown(&many(6_000 + i * 100))).collect();
    assert_eq!(fresh, warm);
    assert_eq!(fresh[0], ":0");
}

/// The steps that a script takes, in thousands: found by the step limit itself, with what is left of it burnt
/// in a loop.
pub(super) fn ticks_of(script: &str) -> u64 {
    let mut double = Double::new(Disturbance::default());
    let ends = |double: &mut Double, burnt: u64| {
        // A loop of one instruction for each turn.
        let body = format!("{script} for i = 1, {burnt} do end return 1");
        match double.eval(&body) {
            Ok(reply) => {
                assert_eq!(show(&Ok(reply)), ":1", "{body}");
                true
            }
            Err(stop) => {
                assert_eq!(stop.to_string(), steps_text(), "{body}");
                false
            }
        }
    };
    let (mut low, mut high) = (0, LIMITS.steps_max / 1000);
    assert!(ends(&mut double, 0), "{script}");
    while low + 1 < high {
        let middle = low.midpoint(high);
        if ends(&mut double, middle * 1000) {
            low = middle;
        } else {
            high = middle;
        }
    }
    LIMITS.steps_max / 1000 - high
}

#[test]
fn work_inside_an_instruction_counts() {
    let mut wrong = Vec::new();
    for (script, at_least, at_most) in [
        // Turns over strings of a megabyte that are there already, so that they use no memory.
        ("local s = ('x'):rep(2^20) for i = 1, 30 do local t = s .. 'y' end", 2366, 3249),
        ("local s = ('x'):rep(2^18) for i = 1, 10 do local t = s:upper() end", 1102, 1537),
        ("local s = ('x'):rep(2^20) for i = 1, 30 do local t = s:sub(2) end", 2366, 3249),
        (
            "local s = ('x'):rep(2^20) local a, b = s .. 'a', s .. 'b' for i = 1, 30 do local t = a < b end",
            2475,
            3396,
        ),
        // In coroutines.
        (
            "local s = ('x'):rep(2^18) for i = 1, 10 do coroutine.wrap(function() return s:upper() end)() \
             end",
            1102,
            1537,
        ),
        // Variable arguments.
        (
            "local t = {} for i = 1, 4000 do t[i] = i end
             local function f(...) for i = 1, 1000 do select('#', ...) end end f(unpack(t))",
            2543,
            3488,
        ),
        // The way over the empty places of a table.
        (
            "local t = {} for i = 1, 2^16 do t[i] = i end for i = 1, 2^16 do t[i] = nil end
             for i = 1, 200 do next(t) end",
            3006,
            4113,
        ),
        ("local t = {} for i = 1, 10000 do t[i] = i end for i = 1, 5 do table.maxn(t) end", 300, 4000),
        (
            "local t = {} for i = 1, 200 do t[i] = (i * 7919) % 200 end for i = 1, 100 do table.sort(t) end",
            1129,
            1574,
        ),
        // Keys that collide: the hash of a number adds the two halves of a double.
        ("local t = {} for i = 1, 1000 do t[2^52 + 2^31 + i * (2^32 - 1)] = i end", 558, 801),
        (
            "local t = {} for i = 1, 500 do t[2^52 + 2^31 + i * (2^32 - 1)] = i end
             for i = 1, 3000 do local x = t[2^52 + 2^31 + 2^32 - 1] end",
            1333,
            1850,
        ),
        // What costs nothing extra.
        ("for i = 1, 300000 do end", 299, 302),
        // 20,000 strings: the last of them are in no cache.
        ("local t = {} for i = 1, 10000 do t[i] = 'short' .. i end", 450, 676),
        ("for i = 1, 1000 do string.format('%099.99f', 1e300) end", 907, 1361),
    ] {
        let ticks = ticks_of(script);
        if !(at_least..=at_most).contains(&ticks) {
            wrong.push(format!("{ticks} thousand steps, not {at_least} to {at_most}: {script}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn long_strings_that_differ_in_their_ends_do_not_collide() {
    // As keys of a table, where long searches are charged. The same hash finds them in the VM's own table of
    // strings, where too long ones fail.
    for place in ["x .. i", "y .. i .. x", "i .. x"] {
        let ticks = ticks_of(&format!(
            "local x, y = ('x'):rep(200), ('y'):rep(50) local t = {{}} for i = 1, 20000 do t[{place}] = i end"
        ));
        assert!(ticks < 3600, "{ticks} thousand steps: {place}");
    }
}

#[test]
fn long_strings_of_digits_are_no_numbers() {
    let mut double = Double::new(Disturbance::default());
    let script = "local s = ('0'):rep(99) .. '7'
        return {s + 1, tonumber(s .. '0') == nil, (select('#', pcall(function() return (s .. '0') + 1 end)))}";
    assert_eq!(double.shown(script), "*3\n  :8\n  :1\n  :2");
}
