//! Suspension and restarts: whatever the engine does to a script, its result is the same, or there is none.

use super::double::{Disturbance, Double, show};
use super::replies::cases;
use std::sync::Arc;
use txn::{Key, Reply, Stop};

fn seed() -> u64 {
    let seed = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_121);
    println!("ORDO_SEED={seed}");
    seed
}

fn compare(disturbance: Disturbance) -> (u64, u64) {
    let mut quiet = Double::new(Disturbance::default());
    let mut disturbed = Double::new(disturbance);
    for case in cases() {
        assert_eq!(case.run(&mut quiet), case.run(&mut disturbed), "{disturbance:?}: > {}", case.line);
    }
    assert_eq!(quiet.entries, disturbed.entries, "{disturbance:?}");
    (disturbed.suspensions, disturbed.restarts)
}

#[test]
fn suspension_at_any_operation_changes_nothing() {
    for (every, overdraws) in (1..=4).flat_map(|every| [(every, false), (every, true)]) {
        let (suspensions, _) =
            compare(Disturbance { suspend_every: Some(every), doom_seed: None, overdraws });
        assert!(suspensions > 5, "only {suspensions} suspensions at every {every}, {overdraws}");
    }
}

#[test]
fn a_long_script_goes_on_instead_of_beginning_anew_each_time() {
    const CALLS: u64 = 1_000;
    const SCRIPT: &str = "for i = 1, ARGV[1] do redis.call('INCR', 'n') end return redis.call('GET', 'n')";
    for overdraws in [false, true] {
        let mut double =
            Double::new(Disturbance { suspend_every: Some(1), overdraws, ..Disturbance::default() });
        let words = [SCRIPT, "0", &CALLS.to_string()].map(|word| word.as_bytes().to_vec());
        let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        let outcome = double.run("redis.eval", &words);
        assert_eq!(outcome, Ok(Reply::bulk(CALLS.to_string())));
        // Each time after as many calls as before: 1, 2, 4, ...
        let suspensions = double.suspensions;
        match overdraws {
            false => assert!(suspensions >= CALLS, "{suspensions}"),
            true => assert!(suspensions < 20, "{suspensions}"),
        }
    }
}

#[test]
fn restarts_at_random_operations_change_nothing() {
    let seed = seed();
    for round in 0..5 {
        let disturbance = Disturbance {
            suspend_every: Some(1 + round % 3),
            doom_seed: Some(seed + round),
            ..Disturbance::default()
        };
        let (_, restarts) = compare(disturbance);
        assert!(restarts > 20, "only {restarts} restarts");
    }
}

/// A script that hides every signal it can.
const SWALLOWING: &str = "
    local function try(f) return pcall(function() return pcall(pcall, f) end) end
    local seen = {}
    for i = 1, 5 do
        local ok, a, b, c = try(function() return redis.call('INCR', 'counter') end)
        seen[#seen + 1] = tostring(ok) .. tostring(a) .. tostring(b) .. tostring(c)
        local handled
        xpcall(function() redis.call('INCR', 'counter') end, function(e) handled = e return e end)
        seen[#seen + 1] = tostring(handled)
        local co = coroutine.create(function() redis.call('INCR', 'counter') coroutine.yield(1) redis.pcall('GET', 'counter') end)
        while coroutine.status(co) ~= 'dead' do
            local ok, value = coroutine.resume(co)
            seen[#seen + 1] = tostring(ok) .. tostring(value)
        end
        local text = string.gsub('ab', '.', function(c) return c .. redis.call('INCR', 'counter') end)
        seen[#seen + 1] = text
        local t = {3, 1, 2}
        table.sort(t, function(a, b) redis.call('GET', 'counter') return a < b end)
        local mt = setmetatable({}, { __index = function(_, k) return redis.call('INCR', k) end })
        seen[#seen + 1] = mt.counter
    end
    return {redis.call('GET', 'counter'), table.concat(seen, ',')}";

#[test]
fn a_script_cannot_swallow_a_suspension_or_a_restart() {
    let expected = Double::new(Disturbance::default()).shown(SWALLOWING);
    assert!(expected.contains("$25\n") || expected.contains("$30\n"), "{expected}");
    for every in 1..8 {
        let mut double = Double::new(Disturbance {
            suspend_every: Some(every),
            doom_seed: None,
            ..Disturbance::default()
        });
        assert_eq!(double.shown(SWALLOWING), expected, "every {every}");
        assert!(double.suspensions > 0);
    }
    let seed = seed();
    let mut restarts = 0;
    for round in 0..8 {
        let mut double = Double::new(Disturbance {
            suspend_every: Some(2),
            doom_seed: Some(seed + round),
            ..Disturbance::default()
        });
        assert_eq!(double.shown(SWALLOWING), expected, "seed {}", seed + round);
        restarts += double.restarts;
    }
    assert!(restarts > 20, "only {restarts} restarts");
}

#[test]
fn the_random_generator_starts_again_with_each_execution() {
    let script = "
        local r = {}
        for i = 1, 5 do
            r[i] = math.random(1000000)
            redis.call('SET', 'r' .. i, math.random(1000000))
        end
        math.randomseed(7)
        r[6] = math.random(1000000)
        redis.call('GET', 'r1')
        r[7] = math.random(1000000)
        return r";
    let mut quiet = Double::new(Disturbance::default());
    let expected = quiet.shown(script);
    let mut disturbed =
        Double::new(Disturbance { suspend_every: Some(1), doom_seed: None, ..Disturbance::default() });
    assert_eq!(disturbed.shown(script), expected);
    assert_eq!(disturbed.entries, quiet.entries);
    assert_ne!(quiet.shown(script), expected, "another transaction has another seed");
}

#[test]
fn a_suspended_script_resumes_on_another_thread() {
    let script = "local sum = 0 for i = 1, 10 do sum = sum + redis.call('INCRBY', 'k', i) end return sum";
    let expected = Double::new(Disturbance::default()).shown(script);
    let double = Double::new(Disturbance::default());
    let request = double.request("redis.eval", &[script.as_bytes(), b"0"]);
    let outcome = super::double::run_on_many_threads(&double, &request);
    assert_eq!(show(&outcome), expected);
}

#[test]
fn a_doomed_loop_is_left() {
    let mut double = Double::new(Disturbance::default());
    double.show_restarts = true;
    double.looks_before_doom = 100;
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "xpcall(function() while true do end end, function() while true do end end)",
        "coroutine.wrap(function() while true do end end)()",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while true do \
         pcall(function() return t[1] end) end",
        "while true do redis.pcall('nosuch') end",
    ] {
        assert_eq!(double.eval(script), Err(Stop::Restart), "{script}");
    }
    double.looks_before_doom = u64::MAX;
    assert_eq!(double.eval("return 1"), Ok(Reply::Integer(1)), "the VM is as good as new");
}

#[test]
fn the_body_is_stored_once_and_found_by_its_digest() {
    let mut double = Double::new(Disturbance::default());
    let digest = b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let no_script = Ok(Reply::error("NOSCRIPT No matching script. Please use EVAL."));
    assert_eq!(double.run("redis.evalsha", &[digest, b"0"]), no_script);
    assert_eq!(double.eval("return 1"), Ok(Reply::Integer(1)));
    let stored = double.entries.clone();
    assert_eq!(double.eval("return 1"), Ok(Reply::Integer(1)));
    assert!(Arc::ptr_eq(&stored, &double.entries) || *stored == *double.entries);
    assert_eq!(double.run("redis.evalsha", &[digest, b"0"]), Ok(Reply::Integer(1)));
    assert_eq!(double.run("redis.evalsha", &[&digest.to_ascii_uppercase(), b"0"]), Ok(Reply::Integer(1)));
    let exists = double.run("redis.script_exists", &[digest, b"nonsense"]);
    assert_eq!(exists, Ok(Reply::Array(vec![Reply::Integer(1), Reply::Integer(0)])));
    assert_eq!(
        double.run("redis.script_load", &[b"return 2"]).map(|reply| show(&Ok(reply))).as_deref(),
        Ok("$7f923f79fe76194c868d7e1d0820de36700eb649")
    );
    assert_eq!(double.run("redis.script_flush", &[]), Ok(Reply::OK));
    assert_eq!(double.run("redis.evalsha", &[digest, b"0"]), no_script);
    assert!(double.entries.is_empty());
    assert_eq!(
        show(&double.run("redis.script_flush", &[b"now"])),
        "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"
    );
    assert!(
        show(&double.run("redis.script_load", &[b"return ("]))
            .starts_with("-ERR Error compiling script (new function): user_script:1:")
    );
    assert!(double.entries.is_empty(), "what does not compile is not stored");
}

#[test]
fn read_only_variants_write_nothing() {
    let mut double = Double::new(Disturbance::default());
    let refused = "-ERR Write commands are not allowed from read-only scripts. script: \
                   554a95710d45ea243cdf37846a5028cfac292109, on @user_script:1.";
    let script = b"return redis.call(\"set\",\"a\",\"b\")";
    assert_eq!(show(&double.run("redis.eval_ro", &[script, b"0"])), refused);
    assert!(double.entries.is_empty(), "not even the body");
    assert_eq!(
        show(&double.run("redis.eval_ro", &[b"return redis.call('get', KEYS[1])", b"1", b"k"])),
        "nil"
    );
    let text = "-ERR Can not execute a script with write flag using *_ro command.";
    assert_eq!(show(&double.run("redis.eval_ro", &[b"#!lua\nreturn 1", b"0"])), text);
    assert_eq!(show(&double.run("redis.eval_ro", &[b"#!lua flags=no-writes\nreturn 1", b"0"])), ":1");
    assert!(double.request("redis.eval_ro", &[b"x", b"0"]).footprint.read_only);
    assert!(!double.request("redis.eval", &[b"x", b"0"]).footprint.read_only);
}

#[test]
fn the_keys_that_a_call_names_are_a_guess() {
    let double = Double::new(Disturbance::default());
    let keys = |name: &str, words: &str| {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        double.request(name, &words).footprint.keys.clone()
    };
    let named = |name, words| {
        let sets = keys(name, words).expect("it names keys");
        let show = |keys: &[Key]| format!("{keys:?}");
        (show(&sets.reads), show(&sets.writes), sets.may_stray.expect("a guess"))
    };
    let of = |names: &[&str]| format!("{:?}", names.iter().map(|&name| Key::from(name)).collect::<Vec<_>>());
    let script = named("redis.eval", "body 0").2;
    assert_eq!(named("redis.eval", "body 2 b a argument"), (of(&[]), of(&["a", "b"]), script));
    assert_ne!(named("redis.eval", "other 0").2, script);
    assert_ne!(named("redis.fcall", "body 0").2, script);
    let (reads, writes, _) = named("redis.fcall_ro", "f 1 a");
    assert_eq!((reads, writes), (of(&["a"]), of(&[])));
    for words in ["body", "body x", "body -1", "body 2 a"] {
        assert_eq!(keys("redis.eval", words), None, "it replies an error");
    }
    assert_eq!(keys("redis.script_load", "body"), None);
}

#[test]
fn wrong_numbers_of_keys_are_refused() {
    let mut double = Double::new(Disturbance::default());
    for (words, reply) in [
        (&[b"return 1" as &[u8], b"x"] as &[&[u8]], "-ERR value is not an integer or out of range"),
        (&[b"return 1", b"-1"], "-ERR Number of keys can't be negative"),
        (&[b"return 1", b"2", b"a"], "-ERR Number of keys can't be greater than number of args"),
        (&[b"return 1", b"99999999999999999999"], "-ERR value is not an integer or out of range"),
        (&[b"return 1"], "-ERR wrong number of arguments for a script command"),
        (&[], "-ERR wrong number of arguments for a script command"),
    ] {
        assert_eq!(show(&double.run("redis.eval", words)), reply);
        let mut words = words.to_vec();
        if let Some(script) = words.first_mut() {
            *script = b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        }
        assert_eq!(show(&double.run("redis.evalsha", &words)), reply);
    }
    assert_eq!(
        show(&double.run("redis.evalsha", &[b"no digest", b"x"])),
        "-NOSCRIPT No matching script. Please use EVAL."
    );
}
