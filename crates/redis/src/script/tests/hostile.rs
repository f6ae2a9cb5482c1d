//! Scripts that are made to harm: they pay for what they do before it is done, and nothing that they do ends
//! the process.

use super::LIMITS;
use super::double::{Disturbance, Double, show};
use super::limits::{steps_text, ticks_of};

/// Texts of three bytes: Lua's hash of a text of ten of them, one of each pair, last pair first, is the same
/// whichever they are.
const PAIRS: [(&str, &str); 10] = [
    ("B#!", "!$!"),
    ("B#!", "!$!"),
    ("#!!", "a#!"),
    ("#!!", "a#!"),
    ("B$!", "!%!"),
    ("$#!", "A$!"),
    ("_!!", "!#!"),
    ("B#!", "!$!"),
    (">#!", "!$!"),
    ("!#!", "~$!"),
];

fn colliding(number: usize) -> Vec<u8> {
    let pick = |place: usize| match number >> place & 1 {
        0 => PAIRS[place].0,
        _ => PAIRS[place].1,
    };
    let text: String = (0..PAIRS.len()).rev().map(pick).collect();
    text.into_bytes()
}

/// Lua's hash of a short string.
fn hash(text: &[u8]) -> u32 {
    let step =
        |hash: u32, byte: &u8| hash ^ ((hash << 5).wrapping_add(hash >> 2).wrapping_add(u32::from(*byte)));
    text.iter().rev().fold(text.len() as u32, step)
}

fn eval(double: &mut Double, script: &str, words: &[Vec<u8>]) -> String {
    let mut all: Vec<&[u8]> = vec![script.as_bytes(), b"0"];
    all.extend(words.iter().map(Vec::as_slice));
    show(&double.run("redis.eval", &all))
}

#[test]
fn strings_that_collide_are_like_others_where_vms_find_them() {
    let words: Vec<Vec<u8>> = (0..1024).map(colliding).collect();
    assert!(words.iter().all(|word| hash(word) == hash(&words[0])));
    let mut double = Double::new(Disturbance::default());
    assert_eq!(eval(&mut double, "return #ARGV", &words), ":1024");
    let add = "return redis.call('SADD', 's', unpack(ARGV))";
    assert_eq!(eval(&mut double, add, &words), ":1024");
    let read = "return #redis.call('SMEMBERS', 's')";
    assert_eq!(eval(&mut double, read, &[]), ":1024");
}

#[test]
fn strings_that_collide_in_a_table_cost_steps() {
    // Each of 1024 keys passes those before it, more than once.
    let words: Vec<Vec<u8>> = (0..1024).map(colliding).collect();
    let mut double = Double::new(Disturbance::default());
    let fill =
        "for turn = 1, tonumber(ARGV[1]) do local t = {} for i = 2, #ARGV do t[ARGV[i]] = i end end return 1";
    let mut all = vec![b"1".to_vec()];
    all.extend(words);
    assert_eq!(eval(&mut double, fill, &all), ":1");
    all[0] = b"10".to_vec();
    assert_eq!(
        eval(&mut double, fill, &all),
        format!("!{}", steps_text()),
        "ten turns pass some five million keys"
    );
    // The same number of other keys.
    for (number, word) in all.iter_mut().enumerate().skip(1) {
        *word = format!("{number:030}").into_bytes();
    }
    assert_eq!(eval(&mut double, fill, &all), ":1");
}

#[test]
fn work_that_ends_the_script_is_not_done_first() {
    let mut double = Double::new(Disturbance::default());
    for script in [
        // Moves of 2^31 values.
        "table.insert({}, 2^31, 1) return 1",
        "table.insert({}, -2^31, 1) return 1",
        "table.insert({1, 2, 3}, -2^30, 1) return 1",
        // Copies that the memory limit would end later.
        "return #string.rep('', 2^31 - 1)",
        // A pattern that backtracks.
        "return string.find(string.rep('a', 1000), '.-.-.-.-b')",
        // A comparison in C, which executes no instruction.
        "local t = {} for i = 1, 200 do t[i] = 200 - i end for i = 1, 1e9 do table.sort(t, rawequal) end",
        // What fails at its end, again and again.
        "local t = {} for i = 1, 500 do t[i] = i end t[501] = error for i = 1, 1e9 do pcall(cjson.encode, \
         t) end",
        "local t = {} for i = 1, 500 do t[i] = i end t[501] = {[t] = 1} for i = 1, 1e9 do \
         pcall(cmsgpack.pack, t) end",
        "local s = '[' .. ('1,'):rep(500) for i = 1, 1e9 do pcall(cjson.decode, s) end",
        "local t = {} for i = 1, 500 do t[i] = ('x'):rep(1000) end t[501] = t for i = 1, 1e9 do \
         pcall(table.concat, t) end",
        // A coroutine that ends before it pays.
        "local s = ('x'):rep(2^16) for i = 1, 1e9 do pcall(coroutine.wrap(function() error(s .. i) end)) end",
    ] {
        let outcome = double.eval(script);
        let stop = outcome.expect_err(script).to_string();
        let is_memory = stop.starts_with("ERR script exceeded its memory limit");
        assert!(stop == steps_text() || is_memory, "{script}: {stop}");
    }
    assert_eq!(double.shown("return 1"), ":1");
}

#[test]
fn what_takes_long_inside_an_instruction_counts() {
    for (script, at_least) in [
        // Growth: a table whose keys come and go, beside an array that is counted each time.
        (
            "local t = {} for i = 1, 2^15 do t[i] = i end
             for i = 1, 100 do t['a' .. i % 9] = 1 t['a' .. (i + 4) % 9] = nil end",
            200,
        ),
        // A boundary that is looked for among keys that are not in the array.
        (
            "local t = {} for i = 30, 0, -1 do t[2^i] = 1 end for i = 3000, 1, -1 do t[i + 0] = 1 end
             t[3001] = nil for i = 1, 30 do t[2^i] = 1 end local u = {}
             for i = 30, 0, -1 do u[2^i] = 1 end for i = 1, 2000 do local n = #u end",
            20,
        ),
        // Numbers as text, and text as numbers.
        ("for i = 1, 1000 do local x = 1e-300 .. '' end", 200),
        ("local s = '1e-300' for i = 1, 1000 do local x = s + 1 end", 200),
        ("for i = 1, 1000 do math.fmod(1e308, 3e-308) end", 1900),
        ("for i = 1, 10000 do local x = i ^ 0.3 end", 200),
        // Registers.
        (
            "for i = 1, 10000 do local a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, \
             w, x, y, z end",
            40,
        ),
        // Strings one by one.
        ("local s = ('x'):rep(2^16) for i = 1, 10 do s:upper() end", 160),
        ("local s = ('\\0'):rep(2^16) for i = 1, 10 do ('%q'):format(s) end", 160),
        ("local s = ('x'):rep(2^16) for i = 1, 10 do redis.error_reply(s) end", 600),
        // Tables that are far from each other.
        ("local t = {} for i = 1, 2^15 do t[i] = {} end for i = 1, 2^15 do local x = t[i].x end", 800),
        // Sorting, in C.
        (
            "local t = {} for turn = 1, 10 do for i = 1, 250 do t[i] = (i * 7919) % 251 end table.sort(t) \
             end",
            150,
        ),
        // Upvalues.
        ("for i = 1, 1000 do local a, b, c, d, e, f local function g() return a, b, c, d, e, f end end", 60),
        // Errors, which look through the stack.
        (
            "local function f(n) if n > 0 then return 1 + f(n - 1) end
               for i = 1, 100 do pcall(error, 'x', 3000) end return 1 end f(4000)",
            70,
        ),
        // Functions that are not Lua's.
        ("for i = 1, 1000 do bit.band(1, 2) end", 40),
        ("for i = 1, 1000 do pcall(bit.band) end", 300),
        ("for i = 1, 100 do cjson.encode({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) end", 30),
        ("for i = 1, 100 do struct.pack('bbbbbbbbbb', 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) end", 30),
        ("local s = ('a'):rep(1000) for i = 1, 10 do s:find('[' .. ('b'):rep(100) .. ']') end", 900),
    ] {
        let ticks = ticks_of(script);
        assert!(ticks >= at_least, "{ticks} thousand steps, not {at_least}: {script}");
    }
}

#[test]
fn a_plain_text_is_found_in_a_time_that_is_linear() {
    // A search at every place would compare 2,500 million bytes.
    let ticks = ticks_of(
        "local s, p = ('a'):rep(1e5), ('a'):rep(5e4) .. 'b' for i = 1, 10 do assert(not s:find(p, 1, \
         true)) end",
    );
    assert!(ticks < 1000, "{ticks} thousand steps");
}

#[test]
fn sources_that_take_the_square_of_their_length_are_refused() {
    let mut double = Double::new(Disturbance::default());
    // 190 variables in each of 40 functions in each other, all of which each name is looked for in.
    let script = "local names = {} for i = 1, 190 do names[i] = 'a' .. i end
        local open = 'local ' .. table.concat(names, ',') .. ' local function f() '
        local text = open:rep(40) .. ('z=z '):rep(tonumber(ARGV[1])) .. (' end'):rep(40)
        local f, err = loadstring(text, '=text') return f and 'compiled' or err";
    let run = |double: &mut Double, times: &[u8]| {
        show(&double.run("redis.eval", &[script.as_bytes(), b"0", times]))
    };
    assert_eq!(run(&mut double, b"10"), "$compiled");
    assert_eq!(run(&mut double, b"300"), "$text:1: chunk is too complex: too many variables or jumps");
    // Long lists of jumps are no such thing.
    for (start, again, rest) in [
        ("local x if x then ", "elseif x then x = 1 ", "end return 1"),
        ("local x = 1 return x", " and x", ""),
        ("local x while true do ", "if x then break end ", "break end return 1"),
    ] {
        let body = format!("local s = '{start}' .. ('{again}'):rep(2000) .. '{rest}' return loadstring(s)()");
        assert_eq!(double.shown(&body), ":1", "{again}");
    }
}

#[test]
fn numbers_that_no_integer_holds_are_the_same_everywhere() {
    let mut double = Double::new(Disturbance::default());
    for (expression, shown) in [
        ("string.format('%d', 1e300)", "$-9223372036854775808"),
        ("string.format('%d', -1e300)", "$-9223372036854775808"),
        ("string.format('%d', 0/0)", "$-9223372036854775808"),
        ("string.format('%x', -1)", "$ffffffffffffffff"),
        ("string.format('%u', 1e300)", "$0"),
        ("string.format('%u', -1e300)", "$9223372036854775808"),
        ("#string.rep('x', 1e300)", ":0"),
        ("#string.rep('x', 2^32 + 2)", ":2"),
        ("#string.rep('x', 0/0)", ":0"),
        ("string.sub('abc', -1e300)", "$abc"),
        ("string.sub('abc', 1, 1e300)", "$"),
        ("#table.concat({'a', 'b'}, '', 1, 2^31)", ":0"),
        ("select('#', unpack({1, 2}, 1, 2^31))", ":0"),
        ("({[2^31] = 'there'})[2^31]", "$there"),
        ("({[-2^31] = 'there'})[2^31] == nil and 1", ":1"),
        ("tostring(#{[2^31] = 1, [1e300] = 2})", "$0"),
    ] {
        assert_eq!(double.shown(&format!("return {expression}")), shown, "{expression}");
    }
}

#[test]
fn a_word_that_is_passed_many_times_is_not_copied_as_often() {
    let mut double = Double::new(Disturbance::default());
    for call in ["redis.call('MSET', unpack(t))", "struct.pack(('s'):rep(5000), unpack(t))"] {
        let script =
            format!("local t, s = {{}}, ('x'):rep(2^16) for i = 1, 5000 do t[i] = s end {call} return 1");
        let stop = double.eval(&script).expect_err("320 megabytes").to_string();
        let expected = format!("ERR script exceeded its memory limit of {} bytes", LIMITS.memory_bytes_max);
        assert!(stop.starts_with(&expected) || stop == steps_text(), "{call}: {stop}");
    }
}

#[test]
fn names_of_chunks_are_kept_as_far_as_they_are_shown() {
    let mut double = Double::new(Disturbance::default());
    for (name, shown) in [
        ("'=' .. ('x'):rep(1e5)", format!("${}:1: e", "x".repeat(59))),
        ("'@' .. ('x'):rep(1e5) .. 'end'", format!("$...{}end:1: e", "x".repeat(49))),
        ("('x'):rep(1e5)", format!("$[string \\\"{}...\\\"]:1: e", "x".repeat(43))),
    ] {
        let script = format!("return (select(2, pcall(loadstring('error(\"e\")', {name}))))");
        assert_eq!(double.shown(&script), shown, "{name}");
    }
}

// What follows tries the vulnerabilities of `docs/lua-security.md`.

#[test]
fn calls_with_few_arguments_make_room() {
    // CVE-2014-5461.
    let names: Vec<String> = (0..190).map(|i| format!("p{i}")).collect();
    let script = format!(
        "local function f({}, ...) return p189 == nil and select('#', ...) end
         local function deep(n) if n == 0 then return f() end return (deep(n - 1)) end
         local t = {{}} for i = 1, 50 do t[i] = coroutine.wrap(function() return deep(i) end)() end return t[50]",
        names.join(", ")
    );
    assert_eq!(Double::new(Disturbance::default()).shown(&script), ":0");
}

#[test]
fn coroutines_in_coroutines_end_with_an_error() {
    // CVE-2021-43519.
    let script = "local depth = 0
        local function f() depth = depth + 1 local ok, e = coroutine.resume(coroutine.create(f)) return e end
        local e = f() return {depth < 250, tostring(e)}";
    let shown = Double::new(Disturbance::default()).shown(script);
    assert!(shown.contains("C stack overflow"), "{shown}");
}

#[test]
fn bytecode_is_not_loaded() {
    // CVE-2015-4335.
    let mut double = Double::new(Disturbance::default());
    let script = "local f, e = loadstring(string.dump(function() return 1 end)) return {f == nil, type(e)}";
    assert_eq!(double.shown(script), "*2\n  :1\n  $string");
    let body = double.run("redis.eval", &[b"\x1bLua", b"0"]);
    assert!(show(&body).starts_with("-ERR Error compiling script"), "{}", show(&body));
}

#[test]
fn sizes_of_struct_are_checked() {
    // CVE-2015-8080, CVE-2018-11219, CVE-2020-14147.
    let mut double = Double::new(Disturbance::default());
    for call in [
        "struct.pack('i99999999999', 1)",
        "struct.pack('I2147483648', 1)",
        "struct.pack('c2147483647', 'x')",
        "struct.unpack('c0', 'x')",
        "struct.unpack('bc0', '\\255x')",
        "struct.unpack('i4', 'x', 2147483647)",
        "struct.unpack('i4', 'x', 1e300)",
        "struct.unpack('!9i4', 'xxxx')",
        "struct.size('c2147483648')",
    ] {
        let shown = double.shown(&format!("return (pcall(function() return {call} end)) and 1 or 0"));
        assert_eq!(shown, ":0", "{call}");
    }
}

#[test]
fn many_values_do_not_overflow_the_stack() {
    // CVE-2018-11218, CVE-2021-32626.
    let mut double = Double::new(Disturbance::default());
    for call in [
        "cmsgpack.pack(unpack(t))",
        "cmsgpack.unpack(cmsgpack.pack(unpack(t)))",
        "redis.call('ECHO', unpack(t))",
        "redis.pcall(unpack(t))",
        "string.char(unpack(t))",
        "bit.bxor(unpack(t))",
        "math.max(unpack(t))",
        "coroutine.wrap(function(...) return ... end)(unpack(t))",
        "struct.pack(('b'):rep(#t), unpack(t))",
        "struct.unpack(('b'):rep(20000), ('x'):rep(20000))",
        "string.byte(('x'):rep(20000), 1, -1)",
        "cmsgpack.unpack(('\\1'):rep(20000))",
        "('x'):rep(20000):find(('()'):rep(30))",
    ] {
        for count in [7000, 9890] {
            let script = format!(
                "local t = {{}} for i = 1, {count} do t[i] = 1 end pcall(function() return {call} end) \
                 return 1"
            );
            assert_eq!(double.shown(&script), ":1", "{call}");
        }
    }
}

#[test]
fn what_is_not_listed_is_absent() {
    // CVE-2022-0543, CVE-2024-46981.
    let mut double = Double::new(Disturbance::default());
    for name in [
        "package",
        "require",
        "module",
        "io",
        "debug",
        "dofile",
        "loadfile",
        "collectgarbage",
        "gcinfo",
        "newproxy",
        "getfenv",
        "setfenv",
        "print",
    ] {
        assert_eq!(double.shown(&format!("return rawget(_G, '{name}') == nil and 1")), ":1", "{name}");
    }
    assert_eq!(double.shown("return os.execute == nil and 1"), ":1");
    let finalizer = "setmetatable({}, {__gc = function() redis.call('SET', 'k', 'v') end}) return \
                     redis.call('EXISTS', 'k')";
    assert_eq!(double.shown(finalizer), ":0");
}

#[test]
fn metatables_of_basic_types_are_out_of_reach() {
    // CVE-2022-24735, CVE-2025-46818.
    let mut double = Double::new(Disturbance::default());
    for attempt in [
        "getmetatable('').__index = function() return 'changed' end",
        "rawset(getmetatable(''), '__index', 1)",
        "getmetatable('').__index.upper = error",
        "setmetatable(getmetatable(''), {})",
        "string.upper = error",
        "getmetatable(0).__index = {}",
        "getmetatable(nil).__index = {}",
        "getmetatable(true).__index = {}",
        "getmetatable(print or error).__index = {}",
        "getmetatable(cjson.null).__index = {}",
        "setmetatable(_G, {})",
        "rawset(_G, 'redis', {})",
        "getmetatable(redis).__index = {}",
    ] {
        let tried = format!("return (pcall(function() {attempt} end)) and 1 or 0");
        assert_eq!(double.shown(&tried), ":0", "{attempt}");
        assert_eq!(double.shown("return ('x'):upper()"), "$X", "{attempt}");
    }
}

#[test]
fn sources_that_end_early_are_errors() {
    // CVE-2022-24736.
    let mut double = Double::new(Disturbance::default());
    let source = "local t = {1, [2] = 'x', y = function(...) return ..., [[long]] end} for k, v in \
                  pairs(t) do t[k] = -v ^ 2 .. 'z' end";
    for end in 0..source.len() {
        let reply = double.run("redis.eval", &[&source.as_bytes()[..end], b"0"]);
        let shown = show(&reply);
        assert!(shown.starts_with("-ERR ") || shown == "nil", "{end}: {shown}");
    }
}

#[test]
fn tohex_takes_any_number_of_digits() {
    // CVE-2024-31449.
    let mut double = Double::new(Disturbance::default());
    for (digits, shown) in [
        ("-2147483648", "$00000041"),
        ("2147483647", "$00000041"),
        ("65535", "$00000041"),
        ("0", "$"),
        ("-2", "$41"),
    ] {
        assert_eq!(double.shown(&format!("return bit.tohex(65, {digits})")), shown, "{digits}");
    }
}

#[test]
fn ranges_of_unpack_do_not_overflow() {
    // CVE-2025-46817.
    let mut double = Double::new(Disturbance::default());
    for range in [
        "-1, 2147483647",
        "0, 2147483647",
        "-2147483648, 2147483647",
        "-2147483648, 0",
        "1, 1e9",
        "2147483647 - 9900, 2147483647",
    ] {
        let script = format!("return (pcall(unpack, {{}}, {range})) and 1 or 0");
        assert_eq!(double.shown(&script), ":0", "{range}");
    }
    for (range, count) in [
        ("2147483647, 2147483647", ":1"),
        ("-2147483648, -2147483648", ":1"),
        ("2147483640, 2147483647", ":8"),
    ] {
        let script = format!("return select('#', unpack({{}}, {range}))");
        assert_eq!(double.shown(&script), count, "{range}");
    }
}

#[test]
fn long_brackets_have_any_level() {
    // CVE-2025-46819.
    let mut double = Double::new(Disturbance::default());
    for level in [0, 1, 2, 255, 256, 70_000] {
        let equals = "=".repeat(level);
        let body = format!("return [{equals}[a]]]=]b]{equals}]");
        if level > 1 {
            assert_eq!(double.shown(&body), "$a]]]=]b", "{level}");
        }
        let comment = format!("--[{equals}[ return 1 ]{equals}] return 2");
        assert_eq!(double.shown(&comment), ":2", "{level}");
        let open = format!("return [{equals}");
        assert!(show(&double.eval(&open)).starts_with("-ERR Error compiling"), "{level}");
    }
}
