//! What C charges while a function of Rust works, paths that fail, and buffers: all is charged while it is
//! done, not when it is over.

use super::double::{Disturbance, Double, show};
use super::limits::steps_text;

/// The processor time of this thread, in nanoseconds. 0 where the system does not tell.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Far more than the steps of these tests take, and far less than the work that they must not let happen.
const CPU_NS_MAX: u64 = 2_000_000_000;

/// Texts of 40 bytes that have one hash as keys of tables: the second word leads to one state, whatever the
/// first one is.
fn colliding(count: usize) -> Vec<Vec<u8>> {
    let is_plain = |byte: &u8| *byte >= 0x20 && !b"\"\\".contains(byte);
    let text = |number: u64| {
        let first = (0x2121_2121_2121_2121 + number).to_le_bytes();
        let mut state = (40 ^ u64::from_le_bytes(first)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        state ^= state >> 29;
        let second = (state ^ 0x5A5A_5A5A_5A5A_5A5A).to_le_bytes();
        [first, second, [b'x'; 8], [b'x'; 8], [b'x'; 8]].concat()
    };
    let texts = (0..).map(text).filter(|text| text.iter().all(is_plain));
    texts.take(count).collect()
}

fn stopped(double: &mut Double, script: &str, word: &[u8]) {
    let before_ns = cpu_ns();
    let shown = show(&double.run("redis.eval", &[script.as_bytes(), b"0", word]));
    let taken_ns = cpu_ns() - before_ns;
    assert_eq!(shown, format!("!{}", steps_text()), "{script}");
    assert!(taken_ns < CPU_NS_MAX, "{script}: {taken_ns} ns");
}

#[test]
fn decoders_pay_for_keys_that_collide_while_they_work() {
    let keys = colliding(60_000);
    let mut double = Double::new(Disturbance::default());
    let mut json = b"{".to_vec();
    let mut packed = vec![0xDE];
    packed.extend_from_slice(&(keys.len() as u16).to_be_bytes());
    for key in &keys {
        json.extend_from_slice(&[b"\"", key.as_slice(), b"\":1,"].concat());
        packed.extend_from_slice(&[&[0xD9, 40], key.as_slice(), &[1]].concat());
    }
    json.pop();
    json.push(b'}');
    stopped(&mut double, "cjson.decode(ARGV[1]) return 1", &json);
    stopped(&mut double, "cmsgpack.unpack(ARGV[1]) return 1", &packed);
}

#[test]
fn replies_pay_for_keys_that_collide_while_they_are_converted() {
    let mut double = Double::new(Disturbance::default());
    let script =
        "for i = 1, #ARGV do redis.call('SADD', 's', ARGV[i]) redis.call('HSET', 'h', ARGV[i], 1) end";
    for keys in colliding(60_000).chunks(5000) {
        let mut words: Vec<&[u8]> = vec![script.as_bytes(), b"0"];
        words.extend(keys.iter().map(Vec::as_slice));
        double.run("redis.eval", &words).expect("small");
    }
    for command in ["SMEMBERS', 's", "HGETALL', 'h"] {
        let script = format!("redis.setresp(3) redis.call('{command}') return 1");
        stopped(&mut double, &script, b"");
    }
}

#[test]
fn encoders_pay_for_empty_places_while_they_work() {
    let mut double = Double::new(Disturbance::default());
    let emptied =
        "local t = {} for i = 1, 2^18 do t[i] = 1 end for i = 1, 2^18 do t[i] = nil end local u = {}
        for i = 1, 20000 do u[i] = t end";
    for rest in ["cjson.encode(u)", "cmsgpack.pack(u)"] {
        stopped(&mut double, &format!("{emptied} {rest} return 1"), b"");
    }
    let reply = format!("{emptied} for i = 1, #u do u[i] = {{map = t}} end return u");
    stopped(&mut double, &reply, b"");
}

#[test]
fn what_fails_has_paid_for_what_it_looked_at() {
    let mut double = Double::new(Disturbance::default());
    for (given, call) in [
        ("'\"' .. ('x'):rep(2^20)", "cjson.decode, s"),
        ("'\"' .. ('\\\\n'):rep(2^19)", "cjson.decode, s"),
        ("(' '):rep(2^20)", "cjson.decode, s"),
        ("'[' .. (' '):rep(2^20) .. '1]'", "cjson.decode, s"),
        ("'[1\"' .. ('x'):rep(2^20) .. '\"'", "cjson.decode, s"),
        ("'{\"a\"\"' .. ('x'):rep(2^20) .. '\"'", "cjson.decode, s"),
        ("'1\"' .. ('x'):rep(2^20) .. '\"'", "cjson.decode, s"),
        ("'[' .. ('a'):rep(2^20)", "string.match, 'x', s"),
        ("'[' .. ('a'):rep(2^20)", "string.find, 'x', s"),
        ("'[' .. ('a'):rep(2^20)", "string.gsub, 'x', s, ''"),
        ("'%f[' .. ('a'):rep(2^20)", "string.gsub, 'x', s, error"),
        ("'[' .. ('a'):rep(2^20)", "string.gmatch('x', s)"),
    ] {
        stopped(&mut double, &format!("local s = {given} for i = 1, 100 do pcall({call}) end return 1"), b"");
    }
}

#[test]
fn an_overflow_of_the_stack_pays_for_the_copies_of_the_stack() {
    let mut double = Double::new(Disturbance::default());
    let overflow = "local function g() return 1 + g() end pcall(g)";
    let script = format!(
        "{overflow} local function deep(n) if n > 0 then return 1 + deep(n - 1) end
           for i = 1, 100 do pcall(g) end return 1 end return deep(19900)"
    );
    stopped(&mut double, &script, b"");
}

/// An overflow leaves the VM with room for a few thousand calls more than it had.
#[test]
fn how_deep_calls_may_go_does_not_depend_on_what_ran_before() {
    let script =
        "local depth = 0 local function f() depth = depth + 1 return 1 + f() end pcall(f) return depth";
    let mut double = Double::new(Disturbance::default());
    let first = double.shown(script);
    assert_eq!(double.shown(script), first);
}

#[test]
fn what_gsub_writes_is_charged_before_it_is_written() {
    let mut double = Double::new(Disturbance::default());
    for script in [
        "local s, r = ('a'):rep(2^20), ('%1'):rep(20000) return #s:gsub('(.*)', r)",
        "local s, r = ('a'):rep(2^20), ('%0'):rep(20000) return #s:gsub('.*', r)",
        "local s, r = ('a'):rep(2^20), ('%1'):rep(20000) return #s:gsub('.*', r)",
    ] {
        let stop = double.eval(script).expect_err(script).to_string();
        let is_memory = stop.starts_with("ERR script exceeded its memory limit");
        assert!(stop == steps_text() || is_memory, "{script}: {stop}");
    }
    for (script, shown) in [
        ("return {('hello world'):gsub('o', '0')}", "*2\n  $hell0 w0rld\n  :2"),
        ("return {('hello'):gsub('', '-')}", "*2\n  $-h-e-l-l-o-\n  :6"),
        ("return {('hello'):gsub('x', '-')}", "*2\n  $hello\n  :0"),
        ("return {(12):rep(1):gsub('x', '-')}", "*2\n  $12\n  :0"),
        ("return {('abc'):gsub('(a)(b)', '%2%1%%%0')}", "*2\n  $ba%abc\n  :1"),
    ] {
        let script = script.replace("(12)", "('12')");
        assert_eq!(double.shown(&script), shown, "{script}");
    }
}
