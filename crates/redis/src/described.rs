//! A request in words, for operators: in one line where they must recognise it (`ordo admin requests`, and
//! the file that names the request that a start executes), and with all of its commands (`ordo replay`).

use crate::acl::secrets::redacted;
use crate::acl::{Acting, Deed, Done};
use crate::block::Block;
use crate::parse;
use txn::{Args, Blob, Reply, Request};

const BLOCK: &str = "redis.block";
const ACTING: &str = "redis.acting";

/// How many words a line shows.
const WORDS_MAX: usize = 8;
/// How many bytes of a word a line shows.
const BYTES_MAX: usize = 80;
/// The commands whose words are a script, a number of keys, the keys, and arguments, which may be anything.
const SCRIPTS: &[&str] = &["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro"];

/// How many words of a command [`Asked`] shows.
const COMMAND_WORDS_MAX: usize = 64;

/// The procedure of a request, and the first words of its commands without secrets: those that [`redacted`]
/// knows, and the arguments of scripts.
pub fn described(request: &Request) -> String {
    let name = request.procedure.name();
    let Shown { commands, own } = shown(name, &request.args);
    let words: Vec<Blob> = commands.into_iter().flatten().skip(own).collect();
    let mut text = name.to_owned();
    put_words(&mut text, &words, WORDS_MAX);
    text
}

/// What a client has asked for by a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The user whose rights count; `None` where everything is allowed.
    pub user: Option<Blob>,
    /// The commands, a line each, without secrets: as [`described`] shows them, with more of their words.
    pub commands: Vec<String>,
    /// The client has sent the commands one behind the other, and the server has gathered them.
    pub is_gathered: bool,
}

/// What a client has asked for by a request: for people who look at that request alone.
pub fn asked(request: &Request) -> Asked {
    let (name, args) = (request.procedure.name(), &request.args);
    let acting = (name == ACTING).then(|| Acting::from_args(args)).flatten();
    let is_gathered = match &acting {
        Some(Acting { deed: Deed::Block(block), .. }) => block.is_gathered,
        Some(_) => false,
        None => name == BLOCK && Block::from_args(args).is_some_and(|block| block.is_gathered),
    };
    let line = |words: Vec<Blob>| {
        let mut text = words.first().map_or_else(String::new, |name| name.escape_ascii().to_string());
        put_words(&mut text, words.get(1..).unwrap_or_default(), COMMAND_WORDS_MAX);
        text
    };
    let commands = shown(name, args).commands.into_iter().map(line).collect();
    Asked { user: acting.and_then(|acting| acting.user), commands, is_gathered }
}

/// The reply that a client gets, by that of its request.
pub fn reply_of(request: &Request, reply: Reply) -> Reply {
    let reply = match reply {
        Reply::Told(told) => told.reply,
        other => other,
    };
    match request.procedure.name() {
        ACTING => Done::from_reply(reply).reply,
        _ => reply,
    }
}

fn put_words(text: &mut String, words: &[Blob], words_max: usize) {
    for word in words.iter().take(words_max) {
        let start = &word[..word.len().min(BYTES_MAX)];
        text.push_str(&format!(" \"{}\"", start.escape_ascii()));
        if word.len() > BYTES_MAX {
            text.push_str(&format!("... ({} bytes)", word.len()));
        }
    }
    if words.len() > words_max {
        text.push_str(&format!(" ... ({} words)", words.len()));
    }
}

/// The commands of a request as they may be shown.
struct Shown {
    /// The words of each, its name first.
    commands: Vec<Vec<Blob>>,
    /// So many words at the front of the first one are in the procedure's name, and not in the arguments.
    own: usize,
}

fn shown(name: &str, args: &Args) -> Shown {
    let of_all = |commands: &[Args]| commands.iter().map(|argv| of_command(argv)).collect();
    let commands = match name {
        "redis.short-of-memory" => vec![of_command(args)],
        BLOCK => Block::from_args(args).map_or_else(Vec::new, |block| of_all(&block.commands)),
        ACTING => match Acting::from_args(args).map(|acting| acting.deed) {
            Some(Deed::Command(argv, _)) => vec![of_command(&argv)],
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
            return Shown { commands: vec![of_command(&argv)], own: before.len() };
        }
    };
    Shown { commands, own: 0 }
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
        described(&request(procedure, args))
    }
    fn request(procedure: &str, args: Args) -> Request {
        let mut registry = Registry::new();
        crate::register(&mut registry).expect("names of their own");
        let procedure = registry.by_name(procedure).expect("a procedure").clone();
        Request::new(RequestId::default(), procedure, args)
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
        assert_eq!(text("redis.acting", acting(block.clone())), format!("redis.acting {want}"));
        let users = Deed::Replace(vec![(Blob::from("bob"), User::new(false))]);
        assert_eq!(text("redis.acting", acting(users)), "redis.acting");
        assert_eq!(
            super::asked(&request("redis.acting", acting(block))),
            Asked {
                user: Some(Blob::from("limited")),
                commands: vec!["SET \"a\" \"1\"".to_owned(), hidden.replacen('"', "", 2)],
                is_gathered: false,
            }
        );
        let gathered = Block { commands: vec![words("GET a")], is_gathered: true, ..Block::default() };
        let want = Asked { user: None, commands: vec!["GET \"a\"".to_owned()], is_gathered: true };
        assert_eq!(super::asked(&request("redis.block", gathered.to_args())), want);
        assert_eq!(super::asked(&request("redis.set", words("a 1"))).commands, ["set \"a\" \"1\""]);
        let long = words(&format!("{} 2 3 4 5 6 7 8 9", "x".repeat(81)));
        let shown = text("redis.del", long);
        assert!(shown.contains("x\"... (81 bytes) \"2\""), "{shown}");
        assert!(shown.ends_with("\"8\" ... (9 words)"), "{shown}");
    }
}
