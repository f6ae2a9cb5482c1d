//! Runs the transcripts in `transcripts/`: what clients send, and what they get for it.
//!
//! `UPDATE_EXPECT=1` rewrites what clients get; look at the difference before you commit it.
//!
//! ```text
//! = A title: a new node, without data and without connections
//! @ set NAME VALUE        a setting of the node, before its first connection
//! @ member                the node is one of a cluster (see `cluster::tests`)
//! # a comment
//! a> SET k v              connection `a` sends a command, in words as redis-cli splits them
//! a< +OK                  and gets this
//! a>> GET k               this is sent together with what `a` sends next
//! a>= "PING\r\n"          bytes as they are
//! a>/used/ INFO memory    of the reply, only the words with `used` are shown, or the fields of that name
//! @ wait 150              so many milliseconds go by for the sessions
//! @ await a               until `a` gets something that takes real time: the disk, a key that expires
//! @ close a               the client closes its connection
//! a< closed               the server has closed it
//! ```
//!
//! `+OK` is a status, `-ERR` an error, `7` an integer, `"v"` a string, `txt"v"` a verbatim string, `,1.5` a
//! double, `#t` a boolean, `[ ]` an array, `~[ ]` a set, `>[ ]` a push and `{ }` a map.

use super::Members;
use super::node::TestNode;
use crate::runtime::Membership;
use expect_test::expect_file;
use redis_surface::codec::{decode_reply, encode_command, inline};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use txn::Reply;

#[test]
fn transcripts_come_out_as_they_are_written() {
    let files = files();
    assert!(!files.is_empty());
    for path in files {
        let written = std::fs::read_to_string(&path).expect("a text");
        expect_file![path].assert_eq(&run(&written));
    }
}

fn files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/session/tests/transcripts");
    let entries = directory.read_dir().expect("the transcripts are there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort_unstable();
    files
}

/// Sends what a file has clients send. Gives its text with what clients get.
fn run(text: &str) -> String {
    let mut out = String::new();
    let mut scene = Scene::default();
    for line in text.lines() {
        if line.starts_with("= ") {
            scene = Scene::default();
        }
        if scene.is_reply(line) {
            continue;
        }
        let _ = writeln!(out, "{line}");
        scene.act(line, &mut out);
    }
    out
}

/// What is between two titles.
#[derive(Default)]
struct Scene {
    settings: Vec<(String, String)>,
    is_member: bool,
    node: Option<TestNode>,
    /// The connections' names, with what each of them will send together with its next command.
    names: Vec<(String, Vec<u8>)>,
    told_closed: Vec<String>,
}

impl Scene {
    fn is_reply(&self, line: &str) -> bool {
        let name = line.split('<').next().unwrap_or_default();
        name.len() < line.len() && !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }

    fn act(&mut self, line: &str, out: &mut String) {
        if line.is_empty() || line.starts_with(['#', '=']) {
            return;
        }
        if let Some(directive) = line.strip_prefix("@ ") {
            match &directive.split(' ').collect::<Vec<_>>()[..] {
                ["member"] => self.is_member = true,
                ["set", name, value] => self.settings.push(((*name).to_owned(), (*value).to_owned())),
                ["wait", ms] => self.node().now_ms += ms.parse::<u64>().expect("milliseconds"),
                ["await", name] => {
                    let place = self.place(name);
                    self.node().wait_for_replies(place);
                }
                ["close", name] => {
                    let place = self.place(name);
                    self.node().close(place);
                    self.told_closed.push((*name).to_owned());
                }
                _ => panic!("no directive: {line}"),
            }
        } else {
            let (name, sent) =
                line.split_once('>').unwrap_or_else(|| panic!("no line of a transcript: {line}"));
            let place = self.place(name);
            if let Some(command) = sent.strip_prefix("> ") {
                return encode(command, &mut self.names[place].1);
            }
            let mut bytes = std::mem::take(&mut self.names[place].1);
            if let Some(raw) = sent.strip_prefix("= ") {
                let words = inline::split(raw.as_bytes()).expect("balanced quotes");
                words.iter().for_each(|word| bytes.extend_from_slice(word));
                self.node().send(place, &bytes);
            } else if let Some((filter, command)) =
                sent.strip_prefix('/').and_then(|rest| rest.split_once("/ "))
            {
                encode(command, &mut bytes);
                self.node().send(place, &bytes);
                return self.tell(Some(filter), out);
            } else {
                encode(sent, &mut bytes);
                self.node().send(place, &bytes);
            }
        }
        if self.node.is_some() {
            self.tell(None, out);
        }
    }

    fn node(&mut self) -> &mut TestNode {
        let (settings, is_member) = (&self.settings, self.is_member);
        self.node.get_or_insert_with(|| {
            let settings: Vec<(&str, &str)> =
                settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let members: Option<Arc<dyn Membership>> = match is_member {
                true => Some(Arc::new(Members::default())),
                false => None,
            };
            TestNode::start(&settings, members)
        })
    }

    /// The place of a connection, which opens where it is named first.
    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.names.iter().position(|(known, _)| known == name) {
            return place;
        }
        self.names.push((name.to_owned(), Vec::new()));
        self.node().connect()
    }

    /// Writes what all connections get until nothing more happens.
    fn tell(&mut self, filter: Option<&str>, out: &mut String) {
        let Some(node) = &mut self.node else { return };
        node.settle();
        let sent: Vec<Vec<u8>> = (0..self.names.len()).map(|place| node.take_sent(place)).collect();
        // Connections that close do so once their clients have their replies.
        node.settle();
        for (place, ((name, _), bytes)) in self.names.iter().zip(sent).enumerate() {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (reply, used) = decode_reply(rest).expect("RESP").expect("whole replies");
                rest = &rest[used..];
                let lines = match filter {
                    Some(filter) => shown_of(&reply, filter),
                    None => vec![show(&reply)],
                };
                for line in lines {
                    let _ = writeln!(out, "{name}< {line}");
                }
            }
            if !node.connections[place].is_open && !self.told_closed.contains(name) {
                self.told_closed.push(name.clone());
                let _ = writeln!(out, "{name}< closed");
            }
        }
    }
}

fn encode(command: &str, bytes: &mut Vec<u8>) {
    let words = inline::split(command.as_bytes()).unwrap_or_else(|| panic!("quotes do not close: {command}"));
    encode_command(&words, bytes);
}

/// What a filter lets through: words of a text, or fields of a list of names and values.
fn shown_of(reply: &Reply, filter: &str) -> Vec<String> {
    let names: Vec<&str> = filter.split(',').collect();
    match reply {
        Reply::Bulk(text) | Reply::Verbatim(_, text) => {
            let text = String::from_utf8_lossy(text);
            let words = text.split([' ', ',', '\r', '\n']);
            words.filter(|word| names.iter().any(|name| word.contains(name))).map(str::to_owned).collect()
        }
        Reply::Array(items) => {
            let mut fields = Vec::new();
            for pair in items.windows(2) {
                if let Reply::Bulk(name) = &pair[0]
                    && names.iter().any(|wanted| name.as_bytes() == wanted.as_bytes())
                {
                    fields.push(format!("{}={}", name.escape_ascii(), show(&pair[1])));
                }
            }
            let inner = items.iter().filter(|item| matches!(item, Reply::Array(_)));
            let own = (!fields.is_empty()).then(|| fields.join(" "));
            own.into_iter().chain(inner.flat_map(|item| shown_of(item, filter))).collect()
        }
        other => vec![show(other)],
    }
}

fn show(reply: &Reply) -> String {
    let list = |items: &[Reply]| items.iter().map(show).collect::<Vec<_>>().join(" ");
    match reply {
        Reply::Nil => "nil".to_owned(),
        Reply::NilArray => "nil-array".to_owned(),
        Reply::Status(text) => format!("+{text}"),
        Reply::Error(text) => format!("-{text}"),
        Reply::Integer(value) => value.to_string(),
        Reply::Double(value) | Reply::Decimal(value) => format!(",{value}"),
        Reply::Boolean(value) => format!("#{}", if *value { 't' } else { 'f' }),
        Reply::Bulk(bytes) => quoted(bytes),
        Reply::Verbatim(kind, bytes) => format!("{kind}{}", quoted(bytes)),
        Reply::Array(items) => format!("[{}]", list(items)),
        Reply::Set(items) => format!("~[{}]", list(items)),
        Reply::Push(items) => format!(">[{}]", list(items)),
        Reply::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{}: {}", show(key), show(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        other => panic!("clients get no {other:?}"),
    }
}

fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii().to_string().replace("\\'", "'"))
}
