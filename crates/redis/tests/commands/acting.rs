//! What restricted users' transactions run, whatever their node had of memory.

use crate::memory::Memory;
use crate::render::render;
use ordo_redis::acl::{Acting, ActingProcedure, Deed, Denial, Done, User};
use ordo_redis::{Block, Memory as Admitted};
use std::sync::Arc;
use txn::{Args, Blob, Procedure};

fn words(words: &[&str]) -> Args {
    words.iter().copied().collect()
}

/// What alice gets who was made by `rules`, and what she was not allowed, as `context reason object`.
fn acting(memory: &mut Memory, deed: Deed) -> (String, Vec<String>) {
    let acting = Acting {
        user: Some(Blob::from("alice")),
        default: Arc::new(User::default_user(None)),
        all_channels: false,
        deed,
    };
    let procedure: Arc<dyn Procedure> = Arc::new(ActingProcedure);
    let args = acting.to_args();
    assert_eq!(Acting::from_args(&args), Some(acting));
    let reply = match memory.call(procedure, args) {
        Ok(reply) => reply,
        Err(stop) => return (stop.to_string(), Vec::new()),
    };
    let done = Done::from_reply(reply);
    let shown = |denial: &Denial| {
        let text = |word: &Blob| String::from_utf8_lossy(word).into_owned();
        format!("{} {} {}", denial.context.name(), text(&denial.reason), text(&denial.object))
    };
    let denials = done.denials.iter().map(shown).collect();
    (render(&done.reply), denials)
}

const LIBRARY: &str = "#!lua name=l
    redis.register_function('w', function(keys) return redis.call('set', keys[1], '1') end)
    redis.register_function('may', function(keys, words) return redis.acl_check_cmd(unpack(words)) end)
    redis.register_function{function_name='aw', flags={'allow-oom'}, callback=function()
        return redis.call('set', 'other', '1') end}";

#[test]
fn rights_and_memory_are_parts_of_the_request() {
    let no_memory = "! OOM command not allowed when used memory > 'maxmemory'.";
    let no_right = "! ERR The user executing the script can't access at least one of the keys";
    let writes = |key: &str| format!("return redis.call('set', '{key}', '1')");
    let denied_first = format!("redis.pcall('del', 'other') {}", writes("app:k"));
    let written_first = format!("redis.call('del', 'app:k') {}", writes("app:k"));
    let other = &["lua key other"][..];
    for (argv, ample, short, denials) in [
        (&["eval", &writes("app:k"), "0"][..], "OK", no_memory, &[][..]),
        (&["eval", &writes("other"), "0"], no_right, no_right, other),
        (&["eval", &denied_first, "0"], "OK", no_memory, other),
        (&["eval", &written_first, "0"], "OK", "OK", &[]),
        (&["fcall", "w", "1", "app:k"], "OK", no_memory, &[]),
        (&["fcall", "aw", "0"], no_right, no_right, other),
        (&["fcall", "w", "1", "other"], "! NOPERM", "! NOPERM", &["toplevel key other"]),
    ] {
        for late in [0, 2] {
            for (admitted, want) in [(Admitted::Ample, ample), (Admitted::Short, short)] {
                let mut memory = Memory::new();
                memory.run(words(&["function", "load", LIBRARY]));
                memory.run(words(&["acl", "setuser", "alice", "on", "+@all", "~app:*"]));
                memory.late = late;
                let (reply, denied) = acting(&mut memory, Deed::Command(words(argv), admitted));
                assert!(reply.starts_with(want), "{argv:?} {admitted:?}: {reply}");
                assert_eq!(denied, denials, "{argv:?} {admitted:?}");
                // The same in a block.
                let block = Block { commands: vec![words(argv)], memory: admitted, ..Block::default() };
                let (reply, denied) = acting(&mut memory, Deed::Block(block));
                assert!(reply.starts_with(&format!("[{want}")), "{argv:?}: {reply}");
                let multi: Vec<String> =
                    denials.iter().map(|denial| denial.replace("toplevel", "multi")).collect();
                assert_eq!(denied, multi, "{argv:?} {admitted:?}");
            }
        }
    }
}

#[test]
fn scripts_and_functions_can_ask_what_their_user_may() {
    let mut memory = Memory::new();
    memory.run(words(&["function", "load", LIBRARY]));
    memory.run(words(&["acl", "setuser", "alice", "on", "+@all", "-get", "~app:*"]));
    for (argv, may) in [
        (&["set", "app:k", "v"][..], true),
        (&["set", "k", "v"], false),
        (&["get", "app:k"], false),
        // Whatever the number of its words.
        (&["get"], false),
        (&["set", "k"], false),
        (&["mset", "app:k", "v", "k"], false),
        (&["object", "encoding"], true),
        (&["eval", "x", "9", "app:k"], true),
        (&["publish"], true),
        (&["publish", "c"], false),
        (&["ordo.idempotent"], true),
        (&["xread", "streams"], true),
        // Ours: words that name no key touch none. Redis says no to these.
        (&["set"], true),
        (&["sort"], true),
    ] {
        let call = [&["fcall", "may", "0"], argv].concat();
        let (reply, denials) = acting(&mut memory, Deed::Command(words(&call), Admitted::Ample));
        assert_eq!(reply, if may { "1" } else { "nil" }, "{argv:?}");
        assert!(denials.is_empty(), "asking is allowed");
        // Who may do everything.
        assert_eq!(render(&memory.run(words(&call))), "1", "{argv:?}");
    }
}
