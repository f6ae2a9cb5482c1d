//! Secrets in the words of commands: which words they are, and what takes their places.
//!
//! A session hashes the passwords of a command ([`hashed`]) before the command enters a block, the order or
//! anything that shows commands. The slow log and monitors show commands without any secret ([`redacted`]).

use super::password::PasswordHash;
use super::user::{RulesError, User, merge_selectors};
use super::{RuleError, has_spaces};
use crate::errors;
use txn::{Args, Blob, Reply};

/// Stands for a secret. Redis calls it so.
const REDACTED: &[u8] = b"(redacted)";
/// Stands for a user's name that no user could have.
const HIDDEN_NAME: &[u8] = b"(hidden name)";
/// Stands for rules with a selector that does not end.
const UNMATCHED: &[u8] = b"(hidden";

/// Settings whose values are secrets.
const SECRET_SETTINGS: &[&str] = &["masterauth", "tls-client-key-file-pass", "tls-key-file-pass", "user"];

/// What a script that carries a password for ACL or CONFIG may have in its text. No such script succeeds.
const TELLTALES: &[&str] = &["setuser", "requirepass", "masterauth"];
/// The commands that take passwords. A script that calls one has its name in quotes or in long brackets
/// (`[[auth]]`).
const NAMES_IN_SCRIPTS: &[&str] = &["acl", "auth", "config", "hello"];

/// Why a word is not shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Secret {
    /// A rule of ACL SETUSER, which may hold a password.
    Rule,
    /// The name of the user that ACL SETUSER makes.
    Name,
    /// A value of `requirepass`.
    Password,
    /// A password that a command gives to show who its client is, or a secret setting.
    Plain,
    /// What tells more than others need to know: texts of scripts.
    Private,
}

/// The words of a command, its name first, without what nobody else may know.
pub fn redacted(words: &[Blob]) -> Vec<Blob> {
    let mut shown = words.to_vec();
    for (place, _) in secrets(words) {
        shown[place] = Blob::new(REDACTED);
    }
    shown
}

/// A command as it may be kept: see [`hashed`].
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Its words, its name first.
    pub words: Args,
    /// The error that ACL SETUSER replies to what its client sent, where the words alone decide it.
    pub refusal: Option<Reply>,
}

/// A command with hashes instead of the passwords that it sets, and with other words instead of rules that no
/// user could have, because such a rule may be a mistyped password. The order refuses these words as it would
/// have refused the client's. `None` if the command may be kept as its client sent it. A command with a
/// command inside (ORDO.IDEMPOTENT, ACL DRYRUN) keeps no secret of that.
pub fn hashed(words: &[Blob]) -> Option<Kept> {
    let is_own = inner_command(words).is_none();
    let (mut kept, mut refusal) = (words.to_vec(), None);
    for (place, secret) in secrets(words) {
        let word = &words[place];
        kept[place] = match secret {
            Secret::Rule => {
                // All words behind the first rule are rules.
                let (rules, error) = judged(&words[place..]);
                kept.splice(place.., rules);
                refusal = refusal.or(error);
                break;
            }
            Secret::Name if has_spaces(word) => {
                refusal = Some(errors::USER_NAME_WITH_SPACES);
                Blob::new(HIDDEN_NAME)
            }
            Secret::Password => Blob::from(hashed_setting(word)),
            Secret::Plain if !is_own => Blob::new(REDACTED),
            Secret::Name | Secret::Plain | Secret::Private => continue,
        };
    }
    (kept != words).then(|| Kept { words: kept.into_iter().collect(), refusal: refusal.filter(|_| is_own) })
}

/// The rules of a user as they may be kept.
pub fn hashed_rules(words: &[Blob]) -> Vec<Blob> {
    judged(words).0
}

/// A value of `requirepass`: `#` and a hash, or nothing.
fn hashed_setting(value: &[u8]) -> Vec<u8> {
    match value {
        [] => Vec::new(),
        [b'#', digits @ ..] if PasswordHash::from_digits(digits).is_some() => value.to_vec(),
        password => PasswordHash::of(password).behind(b'#'),
    }
}

/// The rules of a user as they may be kept, and the error of the first rule that no user could have.
fn judged(words: &[Blob]) -> (Vec<Blob>, Option<Reply>) {
    let rules = match merge_selectors(words) {
        Ok(rules) => rules,
        // The order looks at nothing else then.
        Err(word) => {
            let error = RulesError::Unmatched(shown(word, UNMATCHED));
            return (vec![Blob::new(UNMATCHED)], Some(error.reply()));
        }
    };
    let mut refusal = None;
    let kept = rules.into_iter().map(|rule| {
        let Some((error, stand_in)) = refused(&rule) else {
            return Blob::from(match &rule[..] {
                [b'>', password @ ..] => PasswordHash::of(password).behind(b'#'),
                [b'<', password @ ..] => PasswordHash::of(password).behind(b'!'),
                _ => rule,
            });
        };
        let reply = || RulesError::Rule(shown(rule, stand_in), error).reply();
        refusal.get_or_insert_with(reply);
        Blob::new(stand_in)
    });
    (kept.collect(), refusal)
}

/// Why no user could have a rule, and another rule that fails alike.
fn refused(rule: &[u8]) -> Option<(RuleError, &'static [u8])> {
    let error = User::new(false).apply(rule, false).err()?;
    let stand_in: &[u8] = match error {
        RuleError::Syntax => b"(hidden)",
        RuleError::UnknownCommand => b"+(hidden)",
        RuleError::ArgumentOfSubcommand => b"+acl|cat|(hidden)",
        RuleError::BadHash => b"#(hidden)",
        // In a selector only: a new user has neither all keys nor all channels.
        RuleError::KeyAfterAll => b"(~* ~hidden)",
        RuleError::ChannelAfterAll => b"(&* &hidden)",
        // Other users may have it.
        RuleError::NoSuchPassword => return None,
    };
    Some((error, stand_in))
}

/// What an error shows of a word: clients write errors into logs of their own.
fn shown(word: Vec<u8>, stand_in: &[u8]) -> Vec<u8> {
    match word.iter().any(|byte| b"<>#!".contains(byte)) {
        true => stand_in.to_vec(),
        false => word,
    }
}

/// Where the command begins that a command has inside.
fn inner_command(words: &[Blob]) -> Option<usize> {
    let begin = match () {
        () if is(words, 0, "ordo.idempotent") || is(words, 0, "ordo.at") => 2,
        () if is(words, 0, "acl") && is(words, 1, "dryrun") => 3,
        () => return None,
    };
    (words.len() > begin).then_some(begin)
}

fn is(words: &[Blob], place: usize, name: &str) -> bool {
    words.get(place).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// The places of secrets, in ascending order.
fn secrets(words: &[Blob]) -> Vec<(usize, Secret)> {
    let is = |place: usize, name: &str| is(words, place, name);
    let count = words.len();
    let all_behind = |from: usize, secret: Secret| (from..count).map(|place| (place, secret)).collect();
    match () {
        () if is(0, "auth") => all_behind(1, Secret::Plain),
        () if is(0, "acl") && is(1, "setuser") => {
            let mut secrets: Vec<_> = all_behind(2, Secret::Rule);
            if let Some((_, name)) = secrets.first_mut() {
                *name = Secret::Name;
            }
            secrets
        }
        () if is(0, "hello") => {
            let (mut place, mut secrets) = (1, Vec::new());
            while place < count {
                // What is no option is the version, or makes an error of it all.
                place += match () {
                    () if is(place, "auth") => {
                        let given = (place + 1..place + 3).filter(|&place| place < count);
                        secrets.extend(given.map(|place| (place, Secret::Plain)));
                        3
                    }
                    () if is(place, "setname") => 2,
                    () => 1,
                };
            }
            secrets
        }
        () if is(0, "config") && is(1, "set") => {
            let values = (3..count).step_by(2);
            let secret = values.filter_map(|place| match () {
                () if is(place - 1, "requirepass") => Some((place, Secret::Password)),
                () if SECRET_SETTINGS.iter().any(|name| is(place - 1, name)) => Some((place, Secret::Plain)),
                () => None,
            });
            secret.collect()
        }
        () if ["eval", "eval_ro"].iter().any(|name| is(0, name)) && tells(words.get(1)) => {
            // What it is given may be what its text does not hold.
            all_behind(1, Secret::Private)
        }
        () if is(0, "script") && is(1, "load") && tells(words.get(2)) => vec![(2, Secret::Private)],
        () if is(0, "function") && is(1, "load") && tells(words.last()) => {
            vec![(count - 1, Secret::Private)]
        }
        // What a command has inside is hidden as if it stood alone.
        () => match inner_command(words) {
            Some(begin) => {
                let inner = secrets_inside(&words[begin..]);
                inner.into_iter().map(|(place, secret)| (place + begin, secret)).collect()
            }
            None => Vec::new(),
        },
    }
}

/// The places of secrets in a command inside another, which may have one inside once more and no deeper: a
/// command of many nested names must not cost a stack.
fn secrets_inside(words: &[Blob]) -> Vec<(usize, Secret)> {
    match inner_command(words) {
        Some(begin) if inner_command(&words[begin..]).is_some() => {
            (begin..words.len()).map(|place| (place, Secret::Plain)).collect()
        }
        _ => secrets(words),
    }
}

/// Whether a script's text may hold a password, or call a command with a password that is an argument.
fn tells(text: Option<&Blob>) -> bool {
    text.is_some_and(|text| {
        let mut telltales = TELLTALES.iter();
        telltales.any(|telltale| places(text, telltale).next().is_some())
            || NAMES_IN_SCRIPTS
                .iter()
                .any(|name| places(text, name).any(|place| is_quoted(text, place, place + name.len())))
    })
}

/// Where a text has a word, in any case.
fn places<'a>(text: &'a [u8], word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let mut parts = text.windows(word.len()).enumerate();
    std::iter::from_fn(move || parts.find(|(_, part)| part.eq_ignore_ascii_case(word.as_bytes())))
        .map(|(place, _)| place)
}

/// Whether Lua may take this part of a script for a string.
fn is_quoted(text: &[u8], from: usize, to: usize) -> bool {
    // Lua leaves out a line end behind a long bracket.
    let is_line_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
    let mut before = text[..from].iter().rev().skip_while(is_line_end);
    match (before.next(), text.get(to)) {
        (Some(b'\'' | b'"'), Some(b'\'' | b'"')) => true,
        (Some(b'['), Some(b']')) => before.find(|byte| **byte != b'=') == Some(&b'['),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Blob> {
        line.split(' ').map(Blob::from).collect()
    }
    fn text(words: &[Blob]) -> String {
        let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        words.join(" ")
    }

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        for (line, want) in [
            ("AUTH secret", "AUTH (redacted)"),
            ("auth user secret", "auth (redacted) (redacted)"),
            ("auth", "auth"),
            ("acl setuser", "acl setuser"),
            ("acl setuser bob >p on", "acl setuser (redacted) (redacted) (redacted)"),
            ("acl getuser bob", "acl getuser bob"),
            ("HELLO 3 AUTH u p SETNAME n", "HELLO 3 AUTH (redacted) (redacted) SETNAME n"),
            ("hello 2 setname auth", "hello 2 setname auth"),
            ("hello 3 setname auth auth u p", "hello 3 setname auth auth (redacted) (redacted)"),
            (
                "hello 3 auth auth setname auth auth p",
                "hello 3 auth (redacted) (redacted) auth (redacted) (redacted)",
            ),
            ("hello auth u p", "hello auth (redacted) (redacted)"),
            ("hello 3 auth p", "hello 3 auth (redacted)"),
            (
                "config set timeout 1 RequirePass p loglevel debug",
                "config set timeout 1 RequirePass (redacted) loglevel debug",
            ),
            ("config set masterauth p", "config set masterauth (redacted)"),
            ("config set requirepass", "config set requirepass"),
            ("config get requirepass", "config get requirepass"),
            ("set auth secret", "set auth secret"),
            ("ordo.idempotent 1 auth p", "ordo.idempotent 1 auth (redacted)"),
            ("ordo.at -1 auth u p", "ordo.at -1 auth (redacted) (redacted)"),
            ("acl dryrun bob auth p", "acl dryrun bob auth (redacted)"),
            (
                "acl dryrun a acl dryrun a acl dryrun a auth p",
                "acl dryrun a acl dryrun a (redacted) (redacted) (redacted) (redacted) (redacted)",
            ),
            ("eval redis.call('AUTH',ARGV[1]) 0 p", "eval (redacted) (redacted) (redacted)"),
            ("eval redis.call([[AUTH]],ARGV[1]) 0 p", "eval (redacted) (redacted) (redacted)"),
            ("eval redis.call([==[\nAcl]==],ARGV[1]) 0 p", "eval (redacted) (redacted) (redacted)"),
            ("eval redis.call(\"CONFIG\",ARGV[1]) 0 p", "eval (redacted) (redacted) (redacted)"),
            ("eval redis.call('hello',3,ARGV[1]) 0 p", "eval (redacted) (redacted) (redacted)"),
            (
                "eval redis.call('GET','acl:'..x[acl]..'hello.') 0 p",
                "eval redis.call('GET','acl:'..x[acl]..'hello.') 0 p",
            ),
            ("eval redis.call('GET','author') 0 p", "eval redis.call('GET','author') 0 p"),
            ("evalsha setuser 0 p", "evalsha setuser 0 p"),
            ("script load call('acl','SetUser')", "script load (redacted)"),
            ("function load replace 'requirepass'", "function load replace (redacted)"),
        ] {
            assert_eq!(text(&redacted(&words(line))), want);
        }
        let nested = "ordo.idempotent 1 ".repeat(100_000) + "auth p";
        assert!(!text(&redacted(&words(&nested))).contains("auth p"));
    }

    #[test]
    fn passwords_that_are_set_are_hashed_once() {
        let one = text(&[Blob::from(PasswordHash::of(b"one").behind(b'#'))]);
        let (add, remove) = (one.as_str(), one.replacen('#', "!", 1));
        for (line, want) in [
            ("ACL SETUSER bob on >one +@all", format!("ACL SETUSER bob on {add} +@all")),
            ("acl setuser >bob <one", format!("acl setuser >bob {remove}")),
            ("acl setuser bob (>one) >one", format!("acl setuser bob (hidden) {add}")),
            ("acl setuser bob (~>x >one ) >one", format!("acl setuser bob (hidden) {add}")),
            ("acl setuser bob >one (\"<one", "acl setuser bob (hidden".to_owned()),
            ("config set timeout 1 requirepass one", format!("config set timeout 1 requirepass {add}")),
            ("ordo.idempotent 1 acl setuser bob >one", format!("ordo.idempotent 1 acl setuser bob {add}")),
            ("ordo.idempotent 1 auth one", "ordo.idempotent 1 auth (redacted)".to_owned()),
        ] {
            let kept = hashed(&words(line)).expect("it sets a password").words;
            assert_eq!(text(&kept), want);
            assert_eq!(hashed(&kept), None, "{want}");
        }
        let with_spaces = [&b"ACL"[..], b"SETUSER", b"bob", b">one and two"].map(Blob::new);
        let kept = hashed(&with_spaces).expect("it sets a password");
        assert_eq!(kept.words[3].as_bytes(), PasswordHash::of(b"one and two").behind(b'#'));
        for line in ["auth one", "hello 3 auth bob one", "config set requirepass ", "set a >one"] {
            assert_eq!(hashed(&words(line)), None, "{line}");
        }
    }

    #[test]
    fn a_rule_that_no_user_could_have_is_hidden_and_refused_as_it_would_have_been() {
        let hash = "0".repeat(64);
        for (rules, kept, shown) in [
            (&["on >secret"][..], &["(hidden)"][..], "'(hidden)': Syntax"),
            (&["secret"], &["(hidden)"], "'secret': Syntax"),
            (&["#secret"], &["#(hidden)"], "'#(hidden)': The password"),
            (&["!secret"], &["#(hidden)"], "'#(hidden)': The password"),
            (&["+@all >secret"], &["+(hidden)"], "'+(hidden)': Unknown"),
            (&["-secret"], &["+(hidden)"], "'-secret': Unknown"),
            (&["+get| secret"], &["(hidden)"], "'+get| secret': Syntax"),
            (&["+config|get|secret"], &["+acl|cat|(hidden)"], "'+config|get|secret': Allowing"),
            (&["~* >secret"], &["(hidden)"], "'(hidden)': Syntax"),
            (&["on", "(+get", "secret)", "off"], &["on", "(hidden)", "off"], "'(+get secret)': Syntax"),
            (&["(~*", "~a", "secret)"], &["(~* ~hidden)"], "Adding a pattern"),
            (&["(&*", "&a", "secret)"], &["(&* &hidden)"], "Adding a pattern"),
            (&["secret", "(+get"], &["(hidden"], "starting at '(+get'"),
        ] {
            let words: Vec<Blob> =
                ["acl", "setuser", "bob"].iter().chain(rules).map(|word| Blob::from(*word)).collect();
            let found = hashed(&words).expect("something to hide");
            assert_eq!(found.words[3..], *kept.iter().map(|word| Blob::from(*word)).collect::<Vec<_>>());
            let error = format!("{:?}", found.refusal);
            assert!(error.contains(shown), "{rules:?}: {error}");
            // What is kept is refused for the same reason.
            let reason = |words: &[Blob]| {
                let error = User::new(false).apply_all(words, false).expect_err("refused");
                let text = format!("{:?}", error.reply());
                text.rsplit("': ").next().map(str::to_owned)
            };
            if shown.starts_with('\'') {
                assert_eq!(reason(&found.words[3..]), reason(&words[3..]));
            }
        }
        let inner = words("acl dryrun bob acl setuser bob secret");
        let found = hashed(&inner).expect("something to hide");
        assert_eq!(text(&found.words), "acl dryrun bob acl setuser bob (hidden)");
        assert_eq!(found.refusal, None);
        let name = [&b"acl"[..], b"setuser", b"bob >secret"].map(Blob::new);
        let found = hashed(&name).expect("something to hide");
        assert_eq!(text(&found.words), "acl setuser (hidden name)");
        assert_eq!(found.refusal, Some(errors::USER_NAME_WITH_SPACES));
        // What other users could have is the order's to refuse.
        for rule in [&format!("!{hash}"), "~a", "&a", "+get|a", "reset", ""] {
            let words = ["acl", "setuser", "bob", "allkeys", "allchannels", rule];
            assert_eq!(hashed(&words.map(Blob::from)), None, "{rule}");
        }
    }
}
