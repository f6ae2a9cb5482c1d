//! Scripts that are made to harm: the server and its log outlive them.

mod support;

use support::{TestServer, show};

/// Texts of three bytes. Lua's hash of a text of ten of them, one of each pair, last pair first, is the same
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

fn colliding(number: usize) -> String {
    (0..PAIRS.len())
        .rev()
        .map(|place| match number >> place & 1 {
            0 => PAIRS[place].0,
            _ => PAIRS[place].1,
        })
        .collect()
}

#[test]
fn strings_that_collide_end_nothing_now_or_after_a_restart() {
    let (server, dir) = TestServer::start(&[]);
    let mut client = server.client();
    let words: Vec<String> = (0..1024).map(colliding).collect();
    let eval = |script: &str, words: &[String]| {
        let mut all = vec!["EVAL".to_owned(), String::from(script), "0".to_owned()];
        all.extend_from_slice(words);
        all
    };
    let mut call = |words: Vec<String>| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        show(&client.call(&words))
    };
    // As arguments, as a command's words, as its reply, and as the keys of a table.
    let count = "redis.call('INCR', 'runs') return #ARGV";
    assert_eq!(call(eval(count, &words)), "1024");
    let add = "redis.call('INCR', 'runs') return redis.call('SADD', 's', unpack(ARGV))";
    assert_eq!(call(eval(add, &words)), "1024");
    let read = "redis.call('INCR', 'runs') return #redis.call('SMEMBERS', 's')";
    assert_eq!(call(eval(read, &[])), "1024");
    let keys =
        "redis.call('INCR', 'runs') local t, n = {}, 0 for _, word in ipairs(ARGV) do t[word] = true end
        for _ in pairs(t) do n = n + 1 end return n";
    assert_eq!(call(eval(keys, &words)), "1024");
    server.stop();

    // The log has them all.
    let server = TestServer::start_in(dir.path(), &[]);
    let mut client = server.client();
    client.talk(&[("GET runs", "\"4\""), ("SCARD s", "1024")]);
    server.stop();
}

#[test]
fn the_largest_source_runs_and_a_larger_one_is_refused() {
    let (server, _dir) = TestServer::start(&[]);
    let mut client = server.client();
    let mut run = |bytes: usize| {
        let code = "return #ARGV[1] --";
        let script = format!("{code}{}", "x".repeat(bytes - code.len()));
        show(&client.call(&["EVAL", &script, "0", "word"]))
    };
    assert_eq!(run(1 << 20), "4");
    let refused = "-ERR the source of this script has 1048577 bytes, and one may have 1048576 at most";
    let reply = run((1 << 20) + 1);
    assert!(reply.starts_with(refused), "{reply}");
    assert_eq!(run(100), "4", "the connection is as good as before");
    server.stop();
}

#[test]
fn what_functions_write_counts_before_it_takes_memory() {
    let (server, dir) = TestServer::start(&[]);
    let mut client = server.client();
    // Two gigabytes, and six times 40 megabytes beside what the VM holds.
    let replaced = "redis.call('INCR', 'runs')
        local s, r = ('a'):rep(1000000), ('%1'):rep(2000) return #s:gsub('(.*)', r)";
    let encoded = "redis.call('INCR', 'runs') return #cjson.encode(('\\1'):rep(40000000))";
    let packed = "redis.call('INCR', 'runs') local s, t = ('x'):rep(10000000), {}
        for i = 1, 100 do t[i] = s end return #cmsgpack.pack(t)";
    let scripts = [replaced, encoded, packed];
    for script in scripts {
        let shown = show(&client.call(&["EVAL", script, "0"]));
        assert!(shown.contains("script exceeded its"), "{script}: {shown}");
    }
    let peak = client.info_number("used_memory_peak");
    assert!(peak < 900 << 20, "{peak} bytes");
    client.talk(&[("SET after there", "OK")]);
    server.stop();

    // The log has them all.
    let server = TestServer::start_in(dir.path(), &[]);
    let mut client = server.client();
    client.talk(&[("EXISTS runs", "0"), ("GET after", "\"there\"")]);
    server.stop();
}
