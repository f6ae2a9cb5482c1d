//! A request in one line, for operators who must recognise it: in `ordo admin requests`, and in the file that
//! names the request that a start executes.

use crate::acl::secrets::redacted;
use crate::acl::{Acting, Deed};
use crate::block::Block;
use crate::parse;
use txn::{Args, Blob, Request};

/// How many words a line shows.
const WORDS_MAX: usize = 8;
/// How many bytes of a word a line shows.
const BYTES_MAX: usize = 80;
/// The commands whose words are a script, a number of keys, the keys, and arguments, which may be anything.
const SCRIPTS: &[&str] = &["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro"];

/// The procedure of a request, and the first words of its commands without secrets: those that [`redacted`]
/// knows, and the arguments of scripts.
pub fn described(request: &Request) -> String {
    let name = request.procedure.name();
    let words = shown(name, &request.args);
    let mut text = name.to_owned();
    for word in words.iter().take(WORDS_MAX) {
        let start = &word[..word.len().min(BYTES_MAX)];
        text.push_str(&format!(" \"{}\"", start.escape_ascii()));
        if word.len() > BYTES_MAX {
            text.push_str(&format!("... ({} bytes)", word.len()));
        }
    }
    if words.len() > WORDS_MAX {
        text.push_str(&format!(" ... ({} words)", words.len()));
    }
    text
}

/// The words of a request as a line may show them.
fn shown(name: &str, args: &Args) -> Vec<Blob> {
    let of_all = |commands: &[Args]| commands.iter().flat_map(|argv| of_command(argv)).collect();
    match name {
        "redis.short-of-memory" => of_command(args),
        "redis.block" => Block::from_args(args).map_or_else(Vec::new, |block| of_all(&block.commands)),
        "redis.acting" => match Acting::from_args(args).map(|acting| acting.deed) {
            Some(Deed::Command(argv, _)) => of_command(&argv),
            Some(Deed::Block(block)) => of_all(&block.commands),
            // Users with the hashes of their passwords, or nothing that can be read.
            Some(Deed::Replace(_) | Deed::Introduce(_)) | None => Vec::new(),
        },
        _ => {
            // The procedure's name tells what the command's would, in one word or two.
            let own = name.strip_prefix("redis.").unwrap_or(name);
            let before: Vec<&str> = match own.split_once('_') {
                Some((container @ ("script" | "function"), inner)) => vec![container, inner],
                _ if own == "idempotent" => vec!["ordo.idempotent"],
                _ => vec![own],
            };
            let names = before.iter().map(|name| Blob::from(*name));
            let argv: Vec<Blob> = names.chain(args.iter().cloned()).collect();
            of_command(&argv).split_off(before.len())
        }
    }
}

/// The words of a command, its name first.
fn of_command(argv: &[Blob]) -> Vec<Blob> {
    let mut words = redacted(argv);
    let begin = if is(argv, 0, "ordo.idempotent") { 2 } else { 0 };
    if SCRIPTS.iter().any(|name| is(argv, begin, name)) {
        let count = argv.get(begin + 2).and_then(|count| parse::unsigned(count));
        let keys = count.and_then(|count| usize::try_from(count).ok());
        // What has no number of keys fails, and may have anything at any place.
        let arguments = keys.map_or(begin + 2, |keys| keys.saturating_add(begin + 3));
        for word in words.iter_mut().skip(arguments) {
            *word = Blob::from(format!("({} bytes)", word.len()));
        }
    }
    words
}

fn is(words: &[Blob], place: usize, name: &str) -> bool {
    words.get(place).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;
    use crate::acl::User;
    use std::sync::Arc;
    use txn::{Registry, RequestId};

    fn text(procedure: &str, args: Args) -> String {
        let mut registry = Registry::new();
        crate::register(&mut registry).expect("names of their own");
        let procedure = registry.by_name(procedure).expect("a procedure").clone();
        described(&Request::new(RequestId::default(), procedure, args))
    }
    fn words(line: &str) -> Args {
        line.split(' ').map(Blob::from).collect()
    }
    fn acting(deed: Deed) -> Args {
        let acting = Acting {
            user: Some(Blob::from("limited")),
            default: Arc::new(User::default_user(None)),
            all_channels: false,
            deed,
        };
        acting.to_args()
    }

    #[test]
    fn a_request_is_recognised_and_its_secrets_are_not() {
        for (procedure, args, want) in [
            ("redis.set", "a 1", "redis.set \"a\" \"1\""),
            ("redis.eval", "code 1 k secret", "redis.eval \"code\" \"1\" \"k\" \"(6 bytes)\""),
            ("redis.eval", "code secret", "redis.eval \"code\" \"(6 bytes)\""),
            (
                "redis.eval",
                "redis.call('auth','x') 1 k",
                "redis.eval \"(redacted)\" \"(redacted)\" \"(redacted)\"",
            ),
            ("redis.script_load", "call('auth','x')", "redis.script_load \"(redacted)\""),
            (
                "redis.idempotent",
                "id2 fcall f 1 k secret",
                "redis.idempotent \"id2\" \"fcall\" \"f\" \"1\" \"k\" \"(6 bytes)\"",
            ),
            (
                "redis.short-of-memory",
                "EVALSHA sha 0 secret",
                "redis.short-of-memory \"EVALSHA\" \"sha\" \"0\" \"(6 bytes)\"",
            ),
        ] {
            assert_eq!(text(procedure, words(args)), want);
        }
        let set_user = words("ACL SETUSER bob on >secret");
        let hidden = "\"ACL\" \"SETUSER\" \"(redacted)\" \"(redacted)\" \"(redacted)\"";
        let command = Deed::Command(set_user.clone(), Memory::Ample);
        assert_eq!(text("redis.acting", acting(command)), format!("redis.acting {hidden}"));
        let block = Block { commands: vec![words("SET a 1"), set_user], ..Block::default() };
        let want = format!("\"SET\" \"a\" \"1\" {hidden}");
        assert_eq!(text("redis.block", block.to_args()), format!("redis.block {want}"));
        let block = Deed::Block(block);
        assert_eq!(text("redis.acting", acting(block)), format!("redis.acting {want}"));
        let users = Deed::Replace(vec![(Blob::from("bob"), User::new(false))]);
        assert_eq!(text("redis.acting", acting(users)), "redis.acting");
        let long = words(&format!("{} 2 3 4 5 6 7 8 9", "x".repeat(81)));
        let shown = text("redis.del", long);
        assert!(shown.contains("x\"... (81 bytes) \"2\""), "{shown}");
        assert!(shown.ends_with("\"8\" ... (9 words)"), "{shown}");
    }
}
