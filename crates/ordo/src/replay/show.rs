//! Transactions in words, and as JSON (docs/time-travel.md).

use super::source::{Source, tip_of};
use crate::backup::format::Tip;
use crate::backup::moment::shown;
use crate::export::lines::{put_entry, score, text};
use node::cluster::restore::{Execution, Looked, Trace, Write};
use node::session::boot_and_port;
use redis_surface::described::{Asked, asked, reply_of};
use serde_json::{Map, Value as Json, json};
use txn::{Entry, Event, Key, Outcome, Reply, SessionId, Space, Stop};

/// How many characters of a value, a reply or a list of keys a line has.
const CHARS_MAX: usize = 400;
/// How many keys of a listing are shown.
const KEYS_MAX: usize = 100;
const RESTARTS: &str = "not in the order: how often an engine ran it before it was valid is kept nowhere";

/// How to show it.
pub struct Show {
    /// Values that take more memory are left out.
    pub value_bytes_max: usize,
    /// As JSON.
    pub json: bool,
    /// How many transactions of an epoch are listed, at most.
    pub limit: usize,
}

/// The place that the execution has reached.
pub struct Place {
    /// The end of the epoch.
    pub tip: Tip,
    /// The epoch of the checkpoint behind which the execution began.
    pub from: u64,
    /// The epoch of the checkpoint against which the state behind the epoch was held.
    pub checked_at: Option<u64>,
}

impl Show {
    /// The epochs that can be executed again.
    pub fn extent(&self, source: &Source) -> String {
        if !self.json {
            return format!(
                "{}\n--at EPOCH lists the transactions of an epoch, --request NAME and --position NUMBER \
                 show one\n",
                source.extent()
            );
        }
        let checkpoints = source.checkpoints.iter().map(|states| place(&tip_of(states)));
        let first = source.checkpoints.first().map_or(0, |states| tip_of(states).epoch + 1);
        line(json!({
            "checkpoints": checkpoints.collect::<Vec<_>>(),
            "first_epoch": first,
            "end": place(&source.end),
            "unagreed_epochs": source.unagreed,
        }))
    }

    /// The transactions of an epoch.
    pub fn list(&self, transactions: &[Execution], at: &Place) -> String {
        let listed = transactions.iter().take(self.limit);
        let omitted = transactions.len().saturating_sub(self.limit);
        if self.json {
            let mut told = place(&at.tip);
            let listed = listed.map(|execution| Json::Object(self.execution(execution)));
            told["transactions"] = listed.collect::<Vec<_>>().into();
            told["omitted_transactions"] = omitted.into();
            told["checked_at"] = at.checked_at.into();
            return line(told);
        }
        let count = transactions.len();
        let noun = if count == 1 { "transaction" } else { "transactions" };
        let mut out = format!("epoch {}, {}: {count} {noun}\n", at.tip.epoch, shown(at.tip.time_ms));
        for execution in listed {
            let commands = cut(&asked(&execution.request).commands.join("; "));
            let reply = cut(&plain(&reply_of_engine(execution)));
            out.push_str(&format!("{}  {}  {commands} -> {reply}\n", execution.name, positions(execution)));
        }
        if omitted > 0 {
            out.push_str(&format!("... and {omitted} more: --limit shows more of them\n"));
        }
        if let Some(epoch) = at.checked_at {
            out.push_str(&format!("checked: {}\n", checked_state(epoch)));
        }
        out
    }

    /// A transaction.
    pub fn transaction(&self, trace: &Trace, at: &Place) -> String {
        match self.json {
            true => line(self.json_of(trace, at)),
            false => self.text_of(trace, at),
        }
    }

    fn execution(&self, execution: &Execution) -> Map<String, Json> {
        let Asked { user, commands, is_gathered } = asked(&execution.request);
        let positions = execution.positions.iter();
        let positions =
            positions.map(|(partition, at)| json!({ "partition": partition.0, "position": at.0 }));
        let id = execution.request.id;
        let told = json!({
            "request": execution.name.to_string(),
            "positions": positions.collect::<Vec<_>>(),
            "client": {
                "session": id.session.0,
                "boot": boot_and_port(id.session).0,
                "sequence": id.sequence,
                "attempt": id.attempt,
                "user": user.map(|user| text(&user)),
                "is_server": id.session == SessionId::INTERNAL,
            },
            "procedure": execution.request.procedure.name(),
            "omitted_commands": commands.len().saturating_sub(self.limit),
            "commands": commands.into_iter().take(self.limit).collect::<Vec<_>>(),
            "is_gathered": is_gathered,
            "reply": capped(reply_of_engine(execution), self.limit),
        });
        match told {
            Json::Object(told) => told,
            _ => Map::new(),
        }
    }

    fn json_of(&self, trace: &Trace, at: &Place) -> Json {
        let mut told = self.execution(&trace.execution);
        let Json::Object(place) = place(&at.tip) else { return Json::Null };
        told.extend(place);
        let reads = trace.looked.iter().take(self.limit).map(|looked| self.looked(looked, at));
        told.insert("reads".to_owned(), reads.collect::<Vec<_>>().into());
        let omitted = |all: usize| Json::from(all.saturating_sub(self.limit));
        told.insert("omitted_reads".to_owned(), omitted(trace.looked.len()));
        told.insert("clears".to_owned(), trace.clears.into());
        let writes = trace.writes.iter().take(self.limit).map(|Write { key, before, after }| {
            let mut told = named(key);
            told.insert("before".to_owned(), self.entry(key, before.as_ref(), at));
            told.insert("after".to_owned(), self.entry(key, after.as_ref(), at));
            Json::Object(told)
        });
        told.insert("writes".to_owned(), writes.collect::<Vec<_>>().into());
        told.insert("omitted_writes".to_owned(), omitted(trace.writes.len()));
        // Where another node has executed it, the engine has no reply.
        let reply = reply(&trace.execution, outcome_of(trace));
        told.insert("reply".to_owned(), capped(reply, self.limit));
        told.insert("messages".to_owned(), capped(messages(outcome_of(trace)).into(), self.limit));
        told.insert("restarts".to_owned(), Json::Null);
        told.insert("from_checkpoint".to_owned(), at.from.into());
        told.insert("checked_at".to_owned(), at.checked_at.into());
        told.insert("is_compared".to_owned(), trace.is_compared.into());
        told.insert("difference".to_owned(), trace.difference.clone().into());
        Json::Object(told)
    }

    fn looked(&self, looked: &Looked, at: &Place) -> Json {
        match looked {
            Looked::Record(key, read) => {
                let mut told = named(key);
                told.insert("version".to_owned(), read.version.0.into());
                told.insert("held".to_owned(), self.entry(key, read.entry.as_ref(), at));
                Json::Object(told)
            }
            Looked::Scan(range, keys) => json!({
                "scan": match range.space {
                    Space::User => "keys",
                    Space::System => "system records",
                },
                "count": keys.len(),
                "keys": keys.iter().take(KEYS_MAX).map(|key| text(key.as_bytes())).collect::<Vec<_>>(),
            }),
            Looked::Count(count) => json!({ "count_of_keys": count }),
        }
    }

    /// What a key holds, `null` if nothing. What the store keeps for itself is not shown: it may be users
    /// with the hashes of their passwords.
    fn entry(&self, key: &Key, entry: Option<&Entry>, at: &Place) -> Json {
        let Some(entry) = entry else { return Json::Null };
        let mut told = Map::new();
        match key.space() {
            Space::User => put_entry(&mut told, entry, self.value_bytes_max),
            Space::System => _ = told.insert("hidden".to_owned(), true.into()),
        }
        if entry.expired(at.tip.time_ms) {
            told.insert("expired".to_owned(), true.into());
        }
        Json::Object(told)
    }

    fn text_of(&self, trace: &Trace, at: &Place) -> String {
        let Execution { name, request, .. } = &trace.execution;
        let Asked { user, commands, is_gathered } = asked(request);
        let mut out = Rows::default();
        out.row("request", &name.to_string());
        let Tip { epoch, time_ms, .. } = at.tip;
        let (time, positions) = (shown(time_ms), positions(&trace.execution));
        out.row("place", &format!("epoch {epoch}, {time}; {positions}"));
        let id = request.id;
        out.row(
            "client",
            &match id.session {
                SessionId::INTERNAL => "the server itself".to_owned(),
                session => {
                    let user = user.map_or_else(
                        || "no user is named".to_owned(),
                        |user| format!("user {}", plain(&text(&user))),
                    );
                    let boot = boot_and_port(session).0;
                    format!("session {} (of boot {boot}), its request {}; {user}", session.0, id.sequence)
                }
            },
        );
        out.rows(if is_gathered { "gathered" } else { "command" }, &commands, self.limit, |command| {
            command.clone()
        });
        if commands.is_empty() {
            out.row("command", request.procedure.name());
        }
        out.rows("read", &trace.looked, self.limit, |looked| self.looked_text(looked, at));
        if trace.clears {
            out.row("wrote", "removed all keys");
        }
        out.rows("wrote", &trace.writes, self.limit, |Write { key, before, after }| {
            let [before, after] = [before, after].map(|entry| self.entry_text(key, entry.as_ref(), at));
            format!("{}  {before} -> {after}", name_of(key))
        });
        out.rows("published", &messages(outcome_of(trace)), self.limit, |message| cut(&plain(message)));
        out.row("reply", &cut(&plain(&reply(&trace.execution, outcome_of(trace)))));
        out.row("restarts", RESTARTS);
        let mut checked = format!("executed from the checkpoint of epoch {} on", at.from);
        if trace.is_compared && trace.difference.is_none() {
            checked.push_str(", twice with the same result");
        }
        if !trace.is_compared {
            let why = match request.elsewhere {
                true => "only the node of its client executed it",
                false => "its session sent it again",
            };
            checked.push_str(&format!(", once, with nothing to compare: {why}"));
        }
        if let Some(epoch) = at.checked_at {
            checked.push_str(&format!("; {}", checked_state(epoch)));
        }
        out.row("checked", &checked);
        out.0
    }

    fn looked_text(&self, looked: &Looked, at: &Place) -> String {
        match looked {
            Looked::Record(key, read) => {
                let held = self.entry_text(key, read.entry.as_ref(), at);
                match read.version.0 {
                    0 => format!("{}  {held}", name_of(key)),
                    version => format!("{}  {held}, of position {version}", name_of(key)),
                }
            }
            Looked::Scan(_, keys) => {
                let names: Vec<String> = keys.iter().take(KEYS_MAX).map(name_of).collect();
                cut(&format!("{} keys in a listing: {}", keys.len(), names.join(" ")))
            }
            Looked::Count(count) => format!("the number of keys: {count}"),
        }
    }

    fn entry_text(&self, key: &Key, entry: Option<&Entry>, at: &Place) -> String {
        let Some(found) = entry else { return "nothing".to_owned() };
        if key.space() == Space::System {
            return "(not shown)".to_owned();
        }
        let told = self.entry(key, entry, at);
        let kind = found.value.type_name();
        let mut text = match told.get("value") {
            Some(value) => format!("{kind} {}", cut(&plain(value))),
            None => format!("{kind} of {} bytes", found.value.heap_bytes()),
        };
        if found.expires_at_ms != 0 {
            let is_over = found.expired(at.tip.time_ms);
            let word = if is_over { "expired at" } else { "expires at" };
            text.push_str(&format!(", {word} {}", shown(found.expires_at_ms)));
        }
        text
    }
}

/// Rows of a label and a text.
#[derive(Default)]
struct Rows(String);

impl Rows {
    fn row(&mut self, label: &str, text: &str) {
        self.0.push_str(&format!("{label:<10} {text}\n"));
    }

    /// A row for each, up to a number of them.
    fn rows<T>(&mut self, label: &str, all: &[T], limit: usize, text: impl Fn(&T) -> String) {
        all.iter().take(limit).for_each(|each| self.row(label, &text(each)));
        if all.len() > limit {
            self.row(label, &format!("... and {} more: --limit shows more of them", all.len() - limit));
        }
    }
}

fn checked_state(epoch: u64) -> String {
    format!("the state at epoch {epoch} is that of its checkpoint")
}

/// JSON whose arrays have no more elements than this; an object at their end tells how many are left out.
fn capped(json: Json, limit: usize) -> Json {
    match json {
        Json::Array(mut items) => {
            let omitted = items.len().saturating_sub(limit);
            items.truncate(limit);
            let mut items: Vec<Json> = items.into_iter().map(|item| capped(item, limit)).collect();
            if omitted > 0 {
                items.push(json!({ "omitted_items": omitted }));
            }
            Json::Array(items)
        }
        other => other,
    }
}

/// The reply that the engine has made in a list: none, where another process has executed the transaction.
fn reply_of_engine(execution: &Execution) -> Json {
    match execution.request.elsewhere {
        true => json!({ "not_executed": true }),
        false => reply(execution, &execution.outcome),
    }
}

/// The outcome to be shown.
fn outcome_of(trace: &Trace) -> &Outcome {
    match trace.execution.request.elsewhere {
        true => &trace.outcome,
        false => &trace.execution.outcome,
    }
}

fn line(json: Json) -> String {
    format!("{json}\n")
}

fn place(tip: &Tip) -> Json {
    json!({
        "epoch": tip.epoch,
        "time_ms": tip.time_ms,
        "time": shown(tip.time_ms),
        "digest": tip.digest_text(),
    })
}

fn positions(execution: &Execution) -> String {
    let all = execution.positions.iter();
    let all: Vec<String> = all.map(|(partition, at)| format!("position {at} of {partition}")).collect();
    all.join(", ")
}

/// A key in JSON: `key`, or `system` if the store keeps it for itself.
fn named(key: &Key) -> Map<String, Json> {
    let name = match key.space() {
        Space::User => "key",
        Space::System => "system",
    };
    Map::from_iter([(name.to_owned(), text(key.as_bytes()))])
}

/// A key in a line.
fn name_of(key: &Key) -> String {
    let name = cut(&plain(&text(key.as_bytes())));
    match key.space() {
        Space::User => name,
        Space::System => format!("system:{name}"),
    }
}

fn messages(outcome: &Outcome) -> Vec<Json> {
    let Ok(Reply::Told(told)) = outcome else { return Vec::new() };
    let message = |event: &Event| match event {
        Event::Message(message) => {
            Some(json!({ "channel": text(&message.channel), "payload": text(&message.payload) }))
        }
        _ => None,
    };
    told.events.iter().filter_map(message).collect()
}

/// What the client was told: as JSON has it, with an object where it has no form for it.
fn reply(execution: &Execution, outcome: &Outcome) -> Json {
    match outcome {
        Ok(reply) => of_reply(&reply_of(&execution.request, reply.clone())),
        Err(Stop::Abort(text)) => json!({ "error": text }),
        Err(stop @ (Stop::Undeclared(_) | Stop::Restart)) => json!({ "sent_again": stop.to_string() }),
    }
}

fn of_reply(reply: &Reply) -> Json {
    let all = |replies: &[Reply]| replies.iter().map(of_reply).collect::<Vec<_>>();
    let pairs = |pairs: &[(Reply, Reply)]| -> Json {
        pairs.iter().map(|(key, value)| json!([of_reply(key), of_reply(value)])).collect()
    };
    match reply {
        Reply::Nil | Reply::NilArray => Json::Null,
        Reply::Status(text) => json!({ "status": text }),
        Reply::Error(text) => json!({ "error": text }),
        Reply::Integer(number) => (*number).into(),
        Reply::Double(number) | Reply::Decimal(number) if number.is_nan() => "nan".into(),
        Reply::Double(number) | Reply::Decimal(number) => score(*number),
        Reply::Boolean(is) => (*is).into(),
        Reply::BigNumber(bytes) | Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => text(bytes),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => all(items).into(),
        Reply::Map(items) | Reply::Pairs(items) | Reply::PairMap(items) => pairs(items),
        Reply::Told(told) => of_reply(&told.reply),
    }
}

/// A value in a line, in which nothing moves a terminal's cursor.
fn plain(json: &Json) -> String {
    match json {
        Json::Null => "(nil)".to_owned(),
        Json::String(text) => format!("{text:?}"),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(fields) => {
            let all: Vec<(&str, &Json)> = fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
            match all[..] {
                [("status", Json::String(text))] => escaped(text),
                [("error", Json::String(text))] => format!("(error) {}", escaped(text)),
                [("sent_again", Json::String(text))] => format!("(sent again: {})", escaped(text)),
                [("not_executed", _)] => "(not executed here: --request executes it)".to_owned(),
                [("base64", Json::String(text))] => format!("base64:{text}"),
                _ => {
                    let all = all.iter().map(|(name, value)| format!("{name}: {}", plain(value)));
                    format!("{{{}}}", all.collect::<Vec<_>>().join(", "))
                }
            }
        }
        other => other.to_string(),
    }
}

/// A text without its quotation marks.
fn escaped(text: &str) -> String {
    let quoted = format!("{text:?}");
    quoted[1..quoted.len() - 1].to_owned()
}

/// A text that fits into a line.
fn cut(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}... ({} characters)", &text[..end], text.chars().count()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::Blob;

    #[test]
    fn what_clients_chose_does_not_reach_a_terminal_as_it_is() {
        let bulk = |bytes: &[u8]| Reply::Bulk(Blob::new(bytes));
        let reply = Reply::Array(vec![
            Reply::OK,
            Reply::error("ERR \u{1b}[2J"),
            bulk("\u{1b}]0;\u{202e}\u{7} \u{fc}\"".as_bytes()),
            bulk(b"\xff\x00"),
            Reply::Nil,
            Reply::Integer(-3),
            Reply::Double(f64::NAN),
            Reply::Map(vec![(bulk(b"a"), Reply::Boolean(true))]),
        ]);
        assert_eq!(
            plain(&of_reply(&reply)),
            "[OK, (error) ERR \\u{1b}[2J, \"\\u{1b}]0;\\u{202e}\\u{7} \u{fc}\\\"\", base64:/wA=, (nil), -3, \
             \"nan\", [[\"a\", true]]]"
        );
        assert_eq!(plain(&json!({ "not_executed": true })), "(not executed here: --request executes it)");
        let long = "\u{fc}".repeat(CHARS_MAX + 1);
        assert_eq!(cut(&long), format!("{}... (401 characters)", "\u{fc}".repeat(CHARS_MAX)));
    }

    #[test]
    fn long_arrays_and_many_rows_are_cut_and_say_so() {
        assert_eq!(
            capped(json!([1, [1, 2, 3, 4], 3, 4, 5]), 3),
            json!([1, [1, 2, 3, { "omitted_items": 1 }], 3, { "omitted_items": 2 }])
        );
        assert_eq!(capped(json!({ "status": "OK" }), 0), json!({ "status": "OK" }));
        let mut out = Rows::default();
        out.rows("read", &[1, 2, 3], 2, ToString::to_string);
        out.rows("wrote", &[1, 2], 2, ToString::to_string);
        assert_eq!(
            out.0,
            "read       1\nread       2\nread       ... and 1 more: --limit shows more of them\n\
             wrote      1\nwrote      2\n"
        );
    }
}
