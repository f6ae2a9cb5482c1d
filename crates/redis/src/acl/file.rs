//! The ACL file, and users that the settings name.

use super::user::{DEFAULT_USER, RulesError, User};
use super::{RuleError, has_spaces};
use crate::codec::inline;
use std::collections::BTreeMap;
use std::fmt::Write;
use txn::{Args, Blob};

/// Reads the text of an ACL file, whose name is for messages. New selectors have all channels or none. The
/// error tells everything that is wrong, in a line.
pub fn parse(name: &str, text: &[u8], all_channels: bool) -> Result<Vec<(Blob, User)>, String> {
    let mut users: BTreeMap<Blob, User> = BTreeMap::new();
    let mut errors = String::new();
    for (place, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let number = place + 1;
        let line = line.trim_ascii();
        let words: Args = line.split(|&byte| byte == b' ').map(Blob::new).collect();
        if line.is_empty() {
            continue;
        }
        let (keyword, user_name, rules) = match &words[..] {
            [keyword, user_name, rules @ ..] => (keyword.as_bytes(), user_name, rules),
            _ => (&b""[..], &words[0], &[][..]),
        };
        let shown = String::from_utf8_lossy(user_name).into_owned();
        // Writing to a text cannot fail.
        let _ = if keyword != b"user" {
            write!(errors, "{name}:{number} should start with user keyword followed by the username. ")
        } else if has_spaces(user_name) {
            write!(errors, "'{name}:{number}: username '{shown}' contains invalid characters. ")
        } else if users.contains_key(user_name) {
            write!(errors, "WARNING: Duplicate user '{shown}' found on line {number}. ")
        } else {
            let mut user = User::new(all_channels);
            let applied = user.apply_all(rules, all_channels);
            users.insert(user_name.clone(), user);
            match applied {
                Ok(()) => Ok(()),
                Err(RulesError::Unmatched(_)) => {
                    write!(errors, "{name}:{number}: Unmatched parenthesis in selector definition.")
                }
                // Only what names a command is sure to hold no secret.
                Err(RulesError::Rule(rule, error @ RuleError::UnknownCommand)) => write!(
                    errors,
                    "{name}:{number}: Error in applying operation '{}': {}. ",
                    String::from_utf8_lossy(&rule),
                    error.text()
                ),
                Err(RulesError::Rule(_, error)) => {
                    write!(errors, "{name}:{number}: {}. ", error.text())
                }
            }
        };
    }
    if errors.is_empty() {
        Ok(users.into_iter().collect())
    } else {
        errors.push_str(
            "WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
        );
        Err(errors)
    }
}

/// Reads users as settings name them: a name and rules each. The error names the user and the rule.
pub fn directives<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    all_channels: bool,
) -> Result<Vec<(Blob, User)>, String> {
    let mut users: BTreeMap<Blob, User> = BTreeMap::new();
    for text in texts {
        let words =
            inline::split(text.as_bytes()).ok_or_else(|| format!("the quotes of '{text}' do not match"))?;
        let Some((name, rules)) = words.split_first() else {
            return Err("a user needs a name".to_owned());
        };
        let shown = String::from_utf8_lossy(name).into_owned();
        if has_spaces(name) {
            return Err(format!("Spaces not allowed in ACL usernames: '{shown}'"));
        }
        let mut user = User::new(all_channels);
        if name.as_bytes() == DEFAULT_USER {
            user.apply(b"reset", all_channels).map_err(|error| error.text().to_owned())?;
        }
        user.apply_all(rules, all_channels).map_err(|error| match error {
            RulesError::Unmatched(word) => format!(
                "user '{shown}': Unmatched parenthesis in acl selector starting at '{}'",
                String::from_utf8_lossy(&word)
            ),
            RulesError::Rule(rule, error) => format!(
                "user '{shown}': error in the rule '{}': {}",
                String::from_utf8_lossy(&rule),
                error.text()
            ),
        })?;
        if users.insert(name.clone(), user).is_some() {
            return Err(format!(
                "Duplicate user found: '{shown}'. A user can only be defined once in config files"
            ));
        }
    }
    Ok(users.into_iter().collect())
}
