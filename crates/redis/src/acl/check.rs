//! Whether a user may run a command with these words.

use super::selector::{KeyAccess, Selector};
use super::universe::universe;
use super::user::User;
use crate::errors;
use crate::table::{self, Command, Flags, Resolved};
use txn::{Blob, Reply};

/// Why a user may not run a command. The more a selector allows, the greater what it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// No selector allows the command.
    Command,
    /// The key at this place of the words.
    Key(usize),
    /// The channel at this place of the words.
    Channel(usize),
}

impl Denied {
    /// The error of a command that its connection sent by itself, or to a block.
    pub fn reply(self, command: &Command) -> Reply {
        match self {
            Denied::Command => Reply::error_owned(format!(
                "NOPERM this user has no permissions to run the '{}' command",
                command.name
            )),
            Denied::Key(_) => errors::NO_PERMISSION_KEY,
            Denied::Channel(_) => errors::NO_PERMISSION_CHANNEL,
        }
    }

    /// The error of a command that was allowed when it was queued.
    pub fn reply_in_block(self) -> Reply {
        match self {
            Denied::Command => errors::NO_PERMISSION_COMMAND_ANY_MORE,
            Denied::Key(_) => errors::NO_PERMISSION_KEY_ANY_MORE,
            Denied::Channel(_) => errors::NO_PERMISSION_CHANNEL_ANY_MORE,
        }
    }

    /// The error of a command that a script calls.
    pub fn reply_in_script(self) -> Reply {
        match self {
            Denied::Command => errors::SCRIPT_MAY_NOT_RUN,
            Denied::Key(_) => errors::SCRIPT_MAY_NOT_TOUCH,
            Denied::Channel(_) => errors::SCRIPT_MAY_NOT_PUBLISH,
        }
    }

    /// ACL DRYRUN's reply.
    fn dry_reply(self, command: &Command, argv: &[Blob]) -> Reply {
        let (place, what) = match self {
            Denied::Command => {
                return Reply::bulk(format!(
                    "This user has no permissions to run the '{}' command",
                    command.name
                ));
            }
            Denied::Key(place) => (place, "' key"),
            Denied::Channel(place) => (place, "' channel"),
        };
        let word = argv.get(place).map(Blob::as_bytes).unwrap_or_default();
        let before = b"This user has no permissions to access the '";
        Reply::bulk([&before[..], word, what.as_bytes()].concat())
    }

    /// What ACL LOG calls it, and what was denied.
    pub fn reason_and_object(self, command: &Command, argv: &[Blob]) -> (&'static str, Blob) {
        let (reason, place) = match self {
            Denied::Command => return ("command", Blob::from(command.name)),
            Denied::Key(place) => ("key", place),
            Denied::Channel(place) => ("channel", place),
        };
        (reason, argv.get(place).cloned().unwrap_or_default())
    }
}

/// Checks the command `argv` (its name first), which was found to be `resolved`.
pub fn check(user: &User, resolved: &Resolved, argv: &[Blob]) -> Result<(), Denied> {
    if user.is_all_permitting() {
        return Ok(());
    }
    let touched = Touched::by(resolved.command, argv);
    let mut worst = Denied::Command;
    for selector in &user.selectors {
        match check_selector(selector, resolved, argv, &touched) {
            Ok(()) => {
                return match inner_of(resolved, argv) {
                    Some((inner, words)) => check(user, &inner, words).map_err(|denied| {
                        let outer = argv.len() - words.len();
                        denied.moved_by(outer)
                    }),
                    None => Ok(()),
                };
            }
            Err(denied) => worst = worst.max(denied),
        }
    }
    Err(worst)
}

impl Denied {
    fn moved_by(self, words: usize) -> Denied {
        match self {
            Denied::Command => Denied::Command,
            Denied::Key(place) => Denied::Key(place + words),
            Denied::Channel(place) => Denied::Channel(place + words),
        }
    }
}

/// The command inside a command, if it makes sense.
fn inner_of<'a>(resolved: &Resolved, argv: &'a [Blob]) -> Option<(Resolved, &'a [Blob])> {
    let words = crate::involved::inner_of(resolved.command, argv)?.ok()?;
    Some((table::resolve(words).ok()?, words))
}

/// The keys and channels among the words of a command, by their places.
struct Touched {
    keys: Vec<(usize, KeyAccess)>,
    /// Each with whether it is a pattern.
    channels: Vec<(usize, bool)>,
}

impl Touched {
    fn by(command: &Command, argv: &[Blob]) -> Touched {
        let mut keys = Vec::new();
        for spec in command.keys.iter().filter(|spec| !spec.flags.contains(&"not_key")) {
            let access = if spec.flags.contains(&"variable_flags") {
                variable_access(command, argv)
            } else {
                KeyAccess::of_spec(spec)
            };
            // Words that make no sense name no keys: the command says so when it runs.
            let places = spec.places_in(argv.len(), |place| argv.get(place).cloned());
            keys.extend(places.into_iter().flatten().map(|place| (place, access)));
        }
        let (channels, is_pattern) = match command.name {
            "publish" | "spublish" => (1..2.min(argv.len()), false),
            "subscribe" | "ssubscribe" => (1..argv.len(), false),
            "psubscribe" => (1..argv.len(), true),
            _ => (0..0, false),
        };
        let channels = channels.map(|place| (place, is_pattern)).collect();
        Touched { keys, channels }
    }
}

/// What SET and BITFIELD do with their key, which depends on their options.
pub(crate) fn variable_access(command: &Command, argv: &[Blob]) -> KeyAccess {
    let is = |place: usize, name: &str| {
        argv.get(place).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    if command.name == "set" {
        let reads = (3..argv.len()).any(|place| is(place, "get"));
        return KeyAccess { reads, writes: true };
    }
    let mut place = 2;
    while place < argv.len() {
        let behind = argv.len() - place - 1;
        place += match () {
            () if is(place, "get") && behind >= 2 => 3,
            () if is(place, "overflow") && behind >= 1 => 2,
            () => return KeyAccess::BOTH,
        };
    }
    KeyAccess::READ
}

fn check_selector(
    selector: &Selector,
    resolved: &Resolved,
    argv: &[Blob],
    touched: &Touched,
) -> Result<(), Denied> {
    let id = universe().of(resolved);
    let argument = argv.get(1 + usize::from(resolved.subplace.is_some()));
    if !resolved.command.is(Flags::NO_AUTH) && !selector.commands.allows(id, argument) {
        return Err(Denied::Command);
    }
    if !selector.has_all_keys() {
        for &(place, access) in &touched.keys {
            if !selector.allows_key(&argv[place], access) {
                return Err(Denied::Key(place));
            }
        }
    }
    for &(place, is_pattern) in &touched.channels {
        if !selector.allows_channel(&argv[place], is_pattern) {
            return Err(Denied::Channel(place));
        }
    }
    Ok(())
}

/// The error of SORT and SORT_RO with a pattern that may name keys which the user may not read; `None` if
/// there is none, or if the words go wrong before it. The command itself must be allowed.
pub fn sort_denied(user: &User, resolved: &Resolved, argv: &[Blob]) -> Option<Reply> {
    if let Some((inner, words)) = inner_of(resolved, argv) {
        return sort_denied(user, &inner, words);
    }
    if !matches!(resolved.command.name, "sort" | "sort_ro") || user.is_all_permitting() {
        return None;
    }
    let touched = Touched::by(resolved.command, argv);
    let reads_all = |selector: &Selector| {
        selector.reads_all_keys() && check_selector(selector, resolved, argv, &touched).is_ok()
    };
    if user.selectors.iter().any(reads_all) {
        return None;
    }
    let mut words = &argv[2..];
    loop {
        let is = |word: &Blob, name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        words = match words {
            [word, rest @ ..] if ["asc", "desc", "alpha"].iter().any(|name| is(word, name)) => rest,
            [word, _, _, rest @ ..] if is(word, "limit") => rest,
            [word, _, rest @ ..] if is(word, "store") => rest,
            [word, pattern, rest @ ..] if is(word, "by") => {
                if pattern.contains(&b'*') {
                    return Some(errors::SORT_BY_DENIED);
                }
                rest
            }
            [word, _, ..] if is(word, "get") => return Some(errors::SORT_GET_DENIED),
            _ => return None,
        }
    }
}

/// ACL DRYRUN: whether a user might run the command `argv`.
pub(super) fn dry_run(user: &User, argv: &[Blob]) -> Reply {
    let unknown = |name: &Blob| {
        let mut text = String::from("ERR Command '");
        errors::push_line(&mut text, name);
        text.push_str("' not found");
        Reply::error_owned(text)
    };
    let resolved = match (table::resolve(argv), argv) {
        (Ok(resolved), _) => resolved,
        (Err(table::ResolveError::Arity(resolved)), _) => {
            return errors::wrong_arity(resolved.command);
        }
        (Err(_), [name, ..]) => return unknown(name),
        (Err(_), []) => return errors::SYNTAX,
    };
    match check(user, &resolved, argv) {
        Ok(()) => Reply::OK,
        Err(denied) => denied.dry_reply(resolved.command, argv),
    }
}
