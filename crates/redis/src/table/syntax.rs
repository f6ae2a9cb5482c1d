//! The words that each command takes, for COMMAND DOCS.
//!
//! The second line of an entry of `commands.txt` has them. A lower-case word is an argument, with its type
//! behind a colon where its name does not tell it. Any other word is a token, which belongs to what follows
//! it up to the end of its brackets. `[ ]` holds what may be left out, `( )` what belongs together, `|`
//! stands between alternatives, and `...` behind what may come again.

use super::Command;
use txn::Reply;

/// One argument, or several that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Argument {
    name: String,
    kind: String,
    token: Option<&'static str>,
    optional: bool,
    multiple: bool,
    inner: Vec<Argument>,
}

/// The arguments of a command, as COMMAND DOCS tells them; empty without any.
pub(crate) fn arguments_of(command: &Command) -> Vec<Reply> {
    let mut keys = 0;
    let arguments = parse(command.documentation().syntax);
    let mut reply = |argument: &Argument| argument.to_reply(command.keys.len(), &mut keys);
    arguments.iter().map(&mut reply).collect()
}

/// The type of an argument whose line does not say it.
fn kind_of(name: &str) -> &'static str {
    match name {
        "key" | "key1" | "key2" | "source" | "destination" | "destkey" | "sourcekey" | "newkey" => "key",
        "pattern" => "pattern",
        "cursor" | "numkeys" | "seconds" | "milliseconds" => "integer",
        "unix-time-seconds" | "unix-time-milliseconds" => "unix-time",
        "timeout" | "score" | "longitude" | "latitude" | "radius" | "width" | "height" => "double",
        _ => "string",
    }
}

fn parse(syntax: &'static str) -> Vec<Argument> {
    let mut rest = syntax;
    let all = sequence(&mut rest);
    debug_assert!(rest.is_empty(), "{syntax} has brackets that do not fit");
    all
}

/// What stands up to the end of the brackets, or the next alternative.
fn sequence(rest: &mut &'static str) -> Vec<Argument> {
    let mut all = Vec::new();
    loop {
        *rest = rest.trim_start();
        let closes = match rest.bytes().next() {
            None | Some(b')' | b']' | b'|') => return all,
            Some(b'(') => Some(')'),
            Some(b'[') => Some(']'),
            Some(_) => None,
        };
        let mut argument = match closes {
            Some(closes) => {
                *rest = &rest[1..];
                let mut group = alternatives(rest);
                *rest = rest.strip_prefix(closes).unwrap_or_default();
                group.optional = closes == ']';
                group
            }
            None => {
                let ends = |char: char| char.is_whitespace() || "()[]|".contains(char);
                let end = rest.find(ends).unwrap_or(rest.len());
                let word = &rest[..end];
                let end = word.find("...").unwrap_or(end);
                let word = &word[..end];
                *rest = &rest[end..];
                if !word.starts_with(|char: char| char.is_ascii_lowercase()) {
                    let inner = sequence(rest);
                    all.push(with_token(word, inner));
                    return all;
                }
                let (name, kind) = word.split_once(':').unwrap_or((word, kind_of(word)));
                Argument { name: name.to_owned(), kind: kind.to_owned(), ..Argument::default() }
            }
        };
        if let Some(behind) = rest.strip_prefix("...") {
            *rest = behind;
            argument.multiple = true;
        }
        all.push(argument);
    }
}

/// A token with what belongs to it.
fn with_token(token: &'static str, mut inner: Vec<Argument>) -> Argument {
    let name = token.to_ascii_lowercase();
    let argument = match inner.len() {
        0 => Argument { name, kind: "pure-token".to_owned(), ..Argument::default() },
        1 if !inner[0].optional && inner[0].token.is_none() => inner.remove(0),
        _ => Argument { name, kind: "block".to_owned(), inner, ..Argument::default() },
    };
    Argument { token: Some(token), ..argument }
}

/// What stands in brackets.
fn alternatives(rest: &mut &'static str) -> Argument {
    let mut all = vec![block(sequence(rest))];
    while let Some(behind) = rest.strip_prefix('|') {
        *rest = behind;
        all.push(block(sequence(rest)));
    }
    match all.len() {
        1 => all.remove(0),
        _ => {
            let names: Vec<&str> = all.iter().map(|argument| argument.name.as_str()).collect();
            Argument { name: names.join("-or-"), kind: "oneof".to_owned(), inner: all, ..Argument::default() }
        }
    }
}

fn block(mut all: Vec<Argument>) -> Argument {
    match all.len() {
        1 => all.remove(0),
        _ => {
            let names: Vec<&str> = all.iter().map(|argument| argument.name.as_str()).collect();
            Argument { name: names.join("-"), kind: "block".to_owned(), inner: all, ..Argument::default() }
        }
    }
}

impl Argument {
    /// As COMMAND DOCS tells it. `keys` counts the arguments that are keys: each has the key specification of
    /// its number, or the last one of the command's.
    fn to_reply(&self, specifications: usize, keys: &mut usize) -> Reply {
        let text = |text: &str| Reply::bulk(text.as_bytes());
        let mut map = vec![(text("name"), text(&self.name)), (text("type"), text(&self.kind))];
        if self.inner.is_empty() && self.kind != "pure-token" {
            map.push((text("display_text"), text(&self.name)));
        }
        if self.kind == "key" && specifications > 0 {
            let index = (*keys).min(specifications - 1);
            *keys += 1;
            map.push((text("key_spec_index"), Reply::Integer(index as i64)));
        }
        if let Some(token) = self.token {
            map.push((text("token"), text(token)));
        }
        let is_token_repeated = self.multiple && self.optional && self.token.is_some();
        let flags =
            [(self.optional, "optional"), (self.multiple, "multiple"), (is_token_repeated, "multiple_token")];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
        let flags: Vec<Reply> = flags.map(|(_, name)| Reply::Status(name.into())).collect();
        if !flags.is_empty() {
            map.push((text("flags"), Reply::Set(flags)));
        }
        if !self.inner.is_empty() {
            let inner = self.inner.iter().map(|argument| argument.to_reply(specifications, keys));
            map.push((text("arguments"), Reply::Array(inner.collect())));
        }
        Reply::Map(map)
    }

    /// Whether the number of its words varies.
    #[cfg(test)]
    fn is_open(&self) -> bool {
        let words = self.inner.iter().map(Argument::least_words);
        let differ = self.kind == "oneof" && words.clone().max() != words.min();
        differ || self.optional || self.multiple || self.inner.iter().any(Argument::is_open)
    }

    #[cfg(test)]
    fn least_words(&self) -> usize {
        let inner = self.inner.iter().map(Argument::least_words);
        let own = match self.kind.as_str() {
            _ if self.optional => return 0,
            "pure-token" => 0,
            "oneof" => inner.min().unwrap_or(0),
            "block" => inner.sum(),
            _ => 1,
        };
        own + usize::from(self.token.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{COMMANDS, documentation};

    fn all() -> impl Iterator<Item = &'static Command> {
        COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands()))
    }

    #[test]
    fn every_line_asks_for_as_many_words_as_its_commands_arity() {
        // QUIT takes any words, and means nothing by them.
        let has_words = |command: &&Command| command.subcommands().is_empty() && command.name != "quit";
        for command in all().filter(has_words) {
            let arguments = parse(command.documentation().syntax);
            let words: usize = arguments.iter().map(Argument::least_words).sum();
            let named = 1 + usize::from(command.name.contains('|'));
            let least = usize::from(command.arity.unsigned_abs());
            assert_eq!(named + words, least, "{}", command.name);
            let is_open = arguments.iter().any(Argument::is_open);
            assert_eq!(is_open, command.arity < 0, "{}", command.name);
        }
    }

    #[test]
    fn tokens_choices_and_blocks_have_redis_types() {
        let shown = |name: &str| {
            fn show(argument: &Argument) -> String {
                let inner: Vec<String> = argument.inner.iter().map(show).collect();
                let token = argument.token.map_or(String::new(), |token| format!("{token} "));
                let inner = if inner.is_empty() { String::new() } else { format!("<{}>", inner.join(" ")) };
                let (optional, multiple) = (argument.optional, argument.multiple);
                format!(
                    "{}{token}{}:{}{inner}{}",
                    if optional { "?" } else { "" },
                    argument.name,
                    argument.kind,
                    if multiple { "..." } else { "" }
                )
            }
            parse(documentation::of(name).syntax).iter().map(show).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(
            shown("set"),
            "key:key, value:string, ?nx-or-xx:oneof<NX nx:pure-token XX xx:pure-token>, ?GET \
             get:pure-token, \
             ?seconds-or-milliseconds-or-unix-time-seconds-or-unix-time-milliseconds-or-keepttl:oneof<EX \
             seconds:integer PX milliseconds:integer EXAT unix-time-seconds:unix-time PXAT \
             unix-time-milliseconds:unix-time KEEPTTL keepttl:pure-token>"
        );
        assert_eq!(shown("mset"), "key-value:block<key:key value:string>...");
        assert_eq!(
            shown("zrangebylex"),
            "key:key, min:string, max:string, ?LIMIT limit:block<offset:integer count:integer>"
        );
        assert_eq!(shown("xread").split(", ").last(), Some("STREAMS streams:block<key:key... id:string...>"));
    }
}
