//! Secrets in the words of commands: which words they are, and what takes their places.
//!
//! A session hashes the passwords of a command ([`hashed`]) before the command enters a block, the order or anything that shows
//! commands. The slow log and monitors show commands without any secret ([`redacted`]).

use super::password::PasswordHash;
use txn::{Args, Blob};

/// Stands for a secret. Redis calls it so.
const REDACTED: &[u8] = b"(redacted)";

/// Settings whose values are secrets.
const SECRET_SETTINGS: &[&str] = &[
    "masterauth",
    "tls-client-key-file-pass",
    "tls-key-file-pass",
    "user",
];

/// What a script that carries a password for ACL, CONFIG or AUTH has in its text. No such script succeeds.
const TELLTALES: &[&str] = &["setuser", "requirepass", "masterauth", "'auth'", "\"auth\""];

/// Why a word is not shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Secret {
    /// A rule of ACL SETUSER, which may hold a password.
    Rule,
    /// A value of `requirepass`.
    Password,
    /// A password that a command gives to show who its client is, or a secret setting.
    Plain,
    /// What tells more than others need to know: names of users, texts of scripts.
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

/// The words of a command, its name first, with hashes instead of the passwords that it sets. `None` if it sets none. A command with a
/// command inside (ORDO.IDEMPOTENT, ACL DRYRUN) keeps no secret of that.
pub fn hashed(words: &[Blob]) -> Option<Args> {
    let secrets = secrets(words);
    let is_own = inner_command(words).is_none();
    let mut rules = Rules::default();
    let mut kept = words.to_vec();
    for (place, secret) in secrets {
        let word = &words[place];
        kept[place] = match secret {
            Secret::Rule => Blob::from(rules.hashed(word)),
            Secret::Password => Blob::from(hashed_setting(word)),
            Secret::Plain if !is_own => Blob::new(REDACTED),
            Secret::Plain | Secret::Private => continue,
        };
    }
    (kept != words).then(|| kept.into_iter().collect())
}

/// The rules of a user, with hashes instead of passwords.
pub fn hashed_rules<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut rules = Rules::default();
    words.into_iter().map(|word| rules.hashed(word)).collect()
}

/// A value of `requirepass`: `#` and a hash, or nothing.
fn hashed_setting(value: &[u8]) -> Vec<u8> {
    match value {
        [] => Vec::new(),
        [b'#', digits @ ..] if PasswordHash::from_digits(digits).is_some() => value.to_vec(),
        password => PasswordHash::of(password).behind(b'#'),
    }
}

/// The rules of a user, one after the other.
#[derive(Default)]
struct Rules {
    /// A selector began in an earlier word.
    is_in_selector: bool,
}

impl Rules {
    fn hashed(&mut self, word: &[u8]) -> Vec<u8> {
        let begins = word.starts_with(b"(");
        if !self.is_in_selector && !begins {
            return match word {
                [b'>', password @ ..] => PasswordHash::of(password).behind(b'#'),
                [b'<', password @ ..] => PasswordHash::of(password).behind(b'!'),
                other => other.to_vec(),
            };
        }
        let ends = word.ends_with(b")");
        self.is_in_selector = !ends;
        // A selector has no passwords. Somebody may try it all the same, and the refusal must not keep what was tried.
        let inner = word.strip_suffix(b")").unwrap_or(word);
        let rules: Vec<Vec<u8>> = inner
            .split(|&byte| byte == b' ')
            .map(hashed_in_selector)
            .collect();
        let mut rules = rules.join(&b' ');
        rules.extend(ends.then_some(b')'));
        rules
    }
}

fn hashed_in_selector(rule: &[u8]) -> Vec<u8> {
    let is_before = |byte: &u8| matches!(byte, b'(' | b'"' | b'\'');
    let begin = rule.iter().take_while(|byte| is_before(byte)).count();
    match rule[begin..] {
        [b'>' | b'<', ref password @ ..] => {
            [&rule[..begin], &PasswordHash::of(password).behind(b'#')].concat()
        }
        _ => rule.to_vec(),
    }
}

/// Where the command begins that a command has inside.
fn inner_command(words: &[Blob]) -> Option<usize> {
    let begin = match () {
        () if is(words, 0, "ordo.idempotent") => 2,
        () if is(words, 0, "acl") && is(words, 1, "dryrun") => 3,
        () => return None,
    };
    (words.len() > begin).then_some(begin)
}

fn is(words: &[Blob], place: usize, name: &str) -> bool {
    words
        .get(place)
        .is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// The places of secrets, in ascending order.
fn secrets(words: &[Blob]) -> Vec<(usize, Secret)> {
    let is = |place: usize, name: &str| is(words, place, name);
    let count = words.len();
    let all_behind =
        |from: usize, secret: Secret| (from..count).map(|place| (place, secret)).collect();
    match () {
        () if is(0, "auth") => all_behind(1, Secret::Plain),
        () if is(0, "acl") && is(1, "setuser") => {
            let mut secrets: Vec<_> = all_behind(2, Secret::Rule);
            if let Some((_, name)) = secrets.first_mut() {
                *name = Secret::Private;
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
                () if SECRET_SETTINGS.iter().any(|name| is(place - 1, name)) => {
                    Some((place, Secret::Plain))
                }
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
                inner
                    .into_iter()
                    .map(|(place, secret)| (place + begin, secret))
                    .collect()
            }
            None => Vec::new(),
        },
    }
}

/// The places of secrets in a command inside another, which may have one inside once more and no deeper: a command of many nested
/// names must not cost a stack.
fn secrets_inside(words: &[Blob]) -> Vec<(usize, Secret)> {
    match inner_command(words) {
        Some(begin) if inner_command(&words[begin..]).is_some() => (begin..words.len())
            .map(|place| (place, Secret::Plain))
            .collect(),
        _ => secrets(words),
    }
}

/// Whether a script's text may hold a password.
fn tells(text: Option<&Blob>) -> bool {
    let has = |text: &Blob, telltale: &str| {
        let mut parts = text.windows(telltale.len());
        parts.any(|part| part.eq_ignore_ascii_case(telltale.as_bytes()))
    };
    text.is_some_and(|text| TELLTALES.iter().any(|telltale| has(text, telltale)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Blob> {
        line.split(' ').map(Blob::from).collect()
    }
    fn text(words: &[Blob]) -> String {
        let words: Vec<_> = words
            .iter()
            .map(|word| String::from_utf8_lossy(word))
            .collect();
        words.join(" ")
    }

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        for (line, want) in [
            ("AUTH secret", "AUTH (redacted)"),
            ("auth user secret", "auth (redacted) (redacted)"),
            ("auth", "auth"),
            ("acl setuser", "acl setuser"),
            (
                "acl setuser bob >p on",
                "acl setuser (redacted) (redacted) (redacted)",
            ),
            ("acl getuser bob", "acl getuser bob"),
            (
                "HELLO 3 AUTH u p SETNAME n",
                "HELLO 3 AUTH (redacted) (redacted) SETNAME n",
            ),
            ("hello 2 setname auth", "hello 2 setname auth"),
            (
                "hello 3 setname auth auth u p",
                "hello 3 setname auth auth (redacted) (redacted)",
            ),
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
            (
                "config set masterauth p",
                "config set masterauth (redacted)",
            ),
            ("config set requirepass", "config set requirepass"),
            ("config get requirepass", "config get requirepass"),
            ("set auth secret", "set auth secret"),
            (
                "ordo.idempotent 1 auth p",
                "ordo.idempotent 1 auth (redacted)",
            ),
            ("acl dryrun bob auth p", "acl dryrun bob auth (redacted)"),
            (
                "acl dryrun a acl dryrun a acl dryrun a auth p",
                "acl dryrun a acl dryrun a (redacted) (redacted) (redacted) (redacted) (redacted)",
            ),
            (
                "eval redis.call('AUTH',ARGV[1]) 0 p",
                "eval (redacted) (redacted) (redacted)",
            ),
            (
                "eval redis.call('GET','author') 0 p",
                "eval redis.call('GET','author') 0 p",
            ),
            ("evalsha setuser 0 p", "evalsha setuser 0 p"),
            (
                "script load call('acl','SetUser')",
                "script load (redacted)",
            ),
            (
                "function load replace 'requirepass'",
                "function load replace (redacted)",
            ),
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
            (
                "ACL SETUSER bob on >one +@all",
                format!("ACL SETUSER bob on {add} +@all"),
            ),
            (
                "acl setuser >bob <one",
                format!("acl setuser >bob {remove}"),
            ),
            (
                "acl setuser bob (>one) >one",
                format!("acl setuser bob ({add}) {add}"),
            ),
            (
                "acl setuser bob (~>x >one ) >one",
                format!("acl setuser bob (~>x {add} ) {add}"),
            ),
            (
                "acl setuser bob (\"<one",
                format!("acl setuser bob (\"{add}"),
            ),
            (
                "config set timeout 1 requirepass one",
                format!("config set timeout 1 requirepass {add}"),
            ),
            (
                "ordo.idempotent 1 acl setuser bob >one",
                format!("ordo.idempotent 1 acl setuser bob {add}"),
            ),
            (
                "ordo.idempotent 1 auth one",
                "ordo.idempotent 1 auth (redacted)".to_owned(),
            ),
        ] {
            let kept = hashed(&words(line)).expect("it sets a password");
            assert_eq!(text(&kept), want);
            assert_eq!(hashed(&kept), None, "{want}");
        }
        let with_spaces = [&b"ACL"[..], b"SETUSER", b"bob", b">one and two"].map(Blob::new);
        let kept = hashed(&with_spaces).expect("it sets a password");
        assert_eq!(
            kept[3].as_bytes(),
            PasswordHash::of(b"one and two").behind(b'#')
        );
        for line in [
            "auth one",
            "hello 3 auth bob one",
            "config set requirepass ",
            "set a >one",
        ] {
            assert_eq!(hashed(&words(line)), None, "{line}");
        }
    }
}
