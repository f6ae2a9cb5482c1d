//! Secrets in the words of commands, which neither the slow log nor a monitor shows.

use std::ops::Range;
use txn::Blob;

/// Stands for a secret. Redis calls it so.
const REDACTED: &[u8] = b"(redacted)";

/// Settings whose values are secrets.
const SECRET_SETTINGS: &[&str] = &["requirepass", "user"];

/// The words of a command, its name first, without what nobody else may know.
pub fn redacted(words: &[Blob]) -> Vec<Blob> {
    let mut shown = words.to_vec();
    for place in secrets(words) {
        shown[place] = Blob::new(REDACTED);
    }
    shown
}

/// The places of secrets.
fn secrets(words: &[Blob]) -> Vec<usize> {
    let is = |place: usize, name: &str| {
        let word = words.get(place);
        word.is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let behind = |range: Range<usize>| -> Vec<usize> {
        range.filter(|&place| place < words.len()).collect()
    };
    match () {
        () if is(0, "auth") => behind(1..words.len()),
        () if is(0, "acl") && is(1, "setuser") => behind(2..words.len()),
        () if is(0, "hello") => {
            let (mut place, mut secrets) = (1, Vec::new());
            while place < words.len() {
                // What is no option is the version, or makes an error of it all.
                place += match () {
                    () if is(place, "auth") => {
                        secrets.extend(behind(place + 1..place + 3));
                        3
                    }
                    () if is(place, "setname") => 2,
                    () => 1,
                };
            }
            secrets
        }
        () if is(0, "config") && is(1, "set") => {
            let names = (2..words.len()).step_by(2);
            let secret = names.filter(|&place| SECRET_SETTINGS.iter().any(|name| is(place, name)));
            secret
                .map(|place| place + 1)
                .filter(|&place| place < words.len())
                .collect()
        }
        // What a retried command holds is hidden as in the command itself.
        () if is(0, "ordo.idempotent") && words.len() > 2 => {
            let inner = secrets(&words[2..]);
            inner.into_iter().map(|place| place + 2).collect()
        }
        () => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        for (line, want) in [
            ("AUTH secret", "AUTH (redacted)"),
            ("auth user secret", "auth (redacted) (redacted)"),
            ("auth", "auth"),
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
            ("config get requirepass", "config get requirepass"),
            ("set auth secret", "set auth secret"),
        ] {
            let words: Vec<Blob> = line.split(' ').map(Blob::from).collect();
            let shown: Vec<String> = redacted(&words)
                .iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            assert_eq!(shown.join(" "), want);
        }
    }
}
