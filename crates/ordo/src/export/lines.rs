//! Lines of JSON, one for each transaction (docs/changes.md).

use super::cursor::Cursor;
use crate::backup::format::Tip;
use crate::backup::moment::shown;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use node::cluster::restore::{ChangedKey, Removal, ReplayedTransaction};
use serde_json::{Map, Value as Json, json};
use txn::{Entry, Key, Value};

/// In which form a line says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Ordo's own.
    Json,
    /// CloudEvents 1.0, structured, in JSON.
    Cloudevents,
}

/// What a line says.
pub enum Line<'a> {
    /// All keys follow: whatever was told before is void.
    SnapshotBegin,
    /// A key that there is.
    Snapshot {
        /// How many came before it.
        number: u64,
        /// Its name.
        key: &'a Key,
        /// What it holds.
        entry: &'a Entry,
    },
    /// All keys that there are were told.
    SnapshotEnd,
    /// A transaction.
    Transaction {
        /// Which one of its epoch it is, from 1 on.
        place: u64,
        /// The transaction.
        transaction: &'a ReplayedTransaction,
    },
    /// Nothing was changed up to here.
    Mark,
}

/// Makes lines.
pub struct Lines {
    pub format: Format,
    /// Whose changes they are, as a URI: CloudEvents names it.
    pub source: String,
    /// The values of entries that take more memory are left out.
    pub value_bytes_max: usize,
}

impl Lines {
    /// A line, with its end. `at` is the end of its epoch; with the cursor, a consumer goes on behind the
    /// line.
    pub fn line(&self, line: &Line<'_>, at: &Tip, cursor: Option<Cursor>) -> Vec<u8> {
        let mut data = Map::new();
        data.insert("kind".to_owned(), kind(line).into());
        data.insert("epoch".to_owned(), at.epoch.into());
        data.insert("time_ms".to_owned(), at.time_ms.into());
        match line {
            Line::SnapshotBegin | Line::SnapshotEnd | Line::Mark => {}
            Line::Snapshot { key, entry, .. } => {
                data.insert("keys".to_owned(), vec![self.entry(key, entry)].into());
            }
            Line::Transaction { place, transaction } => self.transaction(*place, transaction, &mut data),
        }
        let cursor = cursor.map(|cursor| cursor.to_string());
        let whole = match self.format {
            Format::Json => {
                data.insert("cursor".to_owned(), cursor.into());
                data
            }
            Format::Cloudevents => self.event(line, at, cursor, data),
        };
        let mut bytes = Json::Object(whole).to_string().into_bytes();
        bytes.push(b'\n');
        bytes
    }

    fn event(
        &self,
        line: &Line<'_>,
        at: &Tip,
        cursor: Option<String>,
        data: Map<String, Json>,
    ) -> Map<String, Json> {
        let place = match line {
            Line::SnapshotBegin => "begin".to_owned(),
            Line::Snapshot { number, .. } => format!("key-{number}"),
            Line::SnapshotEnd => "end".to_owned(),
            Line::Transaction { place, .. } => place.to_string(),
            Line::Mark => "mark".to_owned(),
        };
        let mut event = Map::new();
        event.insert("specversion".to_owned(), "1.0".into());
        event.insert("id".to_owned(), format!("{}-{place}", at.epoch).into());
        event.insert("source".to_owned(), self.source.as_str().into());
        event.insert("type".to_owned(), format!("ordo.{}", kind(line)).into());
        event.insert("time".to_owned(), shown(at.time_ms).into());
        event.insert("datacontenttype".to_owned(), "application/json".into());
        // An extension: an attribute that is null must be left out.
        if let Some(cursor) = cursor {
            event.insert("cursor".to_owned(), cursor.into());
        }
        event.insert("data".to_owned(), Json::Object(data));
        event
    }

    fn transaction(&self, place: u64, transaction: &ReplayedTransaction, data: &mut Map<String, Json>) {
        let ReplayedTransaction { request, procedure, clears, keys } = transaction;
        data.insert("place".to_owned(), place.into());
        data.insert("request".to_owned(), request.to_string().into());
        let command = match procedure.strip_prefix("redis.") {
            Some("block") => "exec",
            Some(command) => command,
            None => procedure,
        };
        data.insert("command".to_owned(), command.into());
        data.insert("clears".to_owned(), (*clears).into());
        let keys = keys.iter().map(|ChangedKey { key, entry }| match entry {
            Ok(entry) => self.entry(key, entry),
            Err(removal) => json!({ "key": text(key.as_bytes()), "removed": removed(*removal) }),
        });
        data.insert("keys".to_owned(), keys.collect::<Vec<_>>().into());
    }

    fn entry(&self, key: &Key, entry: &Entry) -> Json {
        let mut told = Map::new();
        told.insert("key".to_owned(), text(key.as_bytes()));
        put_entry(&mut told, entry, self.value_bytes_max);
        Json::Object(told)
    }
}

/// Says what an entry is. A value that takes more memory than this is left out.
pub fn put_entry(
    told: &mut Map<String, Json>,
    Entry { value, expires_at_ms }: &Entry,
    value_bytes_max: usize,
) {
    told.insert("type".to_owned(), value.type_name().into());
    let bytes = value.heap_bytes();
    match bytes > value_bytes_max {
        true => told.insert("omitted_bytes".to_owned(), bytes.into()),
        false => told.insert("value".to_owned(), held(value)),
    };
    if *expires_at_ms != 0 {
        told.insert("expires_at_ms".to_owned(), (*expires_at_ms).into());
    }
}

fn kind(line: &Line<'_>) -> &'static str {
    match line {
        Line::SnapshotBegin => "snapshot-begin",
        Line::Snapshot { .. } => "snapshot",
        Line::SnapshotEnd => "snapshot-end",
        Line::Transaction { .. } => "transaction",
        Line::Mark => "mark",
    }
}

fn removed(removal: Removal) -> &'static str {
    match removal {
        Removal::Deleted => "deleted",
        Removal::Expired => "expired",
        Removal::Evicted => "evicted",
    }
}

/// Bytes: a string if they are UTF-8.
pub fn text(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

/// A score: a number, or what JSON has no number for.
pub fn score(score: f64) -> Json {
    match score.is_finite() {
        true => score.into(),
        false => if score > 0.0 { "inf" } else { "-inf" }.into(),
    }
}

fn held(value: &Value) -> Json {
    match value {
        Value::String(blob) => text(blob),
        Value::LongString(long) => text(&long.copy(0..long.len())),
        Value::Hash(hash) => hash.iter().map(|(name, value)| json!([text(&name), text(&value)])).collect(),
        Value::List(list) => list.iter().map(|element| text(&element)).collect(),
        Value::Set(set) => set.names().map(|name| text(&name)).collect(),
        Value::SortedSet(set) => {
            set.iter().map(|scored| json!([text(&scored.member), score(scored.score)])).collect()
        }
        Value::Stream(stream) => {
            let entries = stream.iter().map(|entry| {
                let fields = entry.fields.iter().map(|field| text(field));
                json!([entry.id.to_string(), fields.collect::<Vec<_>>()])
            });
            let groups = stream.groups().map(|(name, group)| {
                let pending = group.pending().iter().map(|pending| {
                    json!([pending.id.to_string(), text(&pending.consumer), pending.deliveries])
                });
                json!({
                    "name": text(name),
                    "last_id": group.last_id.to_string(),
                    "pending": pending.collect::<Vec<_>>(),
                })
            });
            json!({
                "entries": entries.collect::<Vec<_>>(),
                "last_id": stream.last_id.to_string(),
                "groups": groups.collect::<Vec<_>>(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::value::{HashValue, ListValue, SetValue, SortedSetValue};
    use txn::{Blob, Epoch, RequestName, SessionId};

    fn lines(format: Format) -> Lines {
        Lines { format, source: "/ordo/shop".to_owned(), value_bytes_max: 1000 }
    }

    fn said(format: Format, line: &Line<'_>, cursor: Option<Cursor>) -> Json {
        let at = Tip { epoch: 7, time_ms: 1_500, digest: 9 };
        let bytes = lines(format).line(line, &at, cursor);
        assert_eq!(bytes.last(), Some(&b'\n'));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    fn blob(text: &str) -> Blob {
        Blob::new(text.as_bytes())
    }

    #[test]
    fn a_transaction_says_what_it_has_made_of_its_keys() {
        let mut hash = HashValue::new();
        hash.insert(blob("field"), blob("value"));
        let mut list = ListValue::new();
        list.push_back(Blob::new(b"\xff\x00"));
        let mut set = SetValue::new();
        set.insert(blob("member"), ());
        let mut sorted = SortedSetValue::new();
        sorted.insert(blob("a"), f64::NEG_INFINITY);
        sorted.insert(blob("b"), 1.5);
        let long = "x".repeat(2_000);
        let held: [(&str, Result<Entry, Removal>); 8] = [
            ("text", Ok(Entry { expires_at_ms: 12, ..Entry::new("value") })),
            ("long", Ok(Entry::new(long.as_str()))),
            ("hash", Ok(Entry::new(hash))),
            ("list", Ok(Entry::new(list))),
            ("set", Ok(Entry::new(set))),
            ("sorted", Ok(Entry::new(sorted))),
            ("gone", Err(Removal::Expired)),
            ("room", Err(Removal::Evicted)),
        ];
        let transaction = ReplayedTransaction {
            request: RequestName { epoch: Epoch(7), session: SessionId(3), sequence: 5 },
            procedure: "redis.eval".to_owned(),
            clears: true,
            keys: held.into_iter().map(|(key, entry)| ChangedKey { key: Key::from(key), entry }).collect(),
        };
        let line = Line::Transaction { place: 2, transaction: &transaction };
        let cursor = Cursor { epoch: 7, place: 2, digest: 9 };
        let data = json!({
            "kind": "transaction",
            "epoch": 7,
            "place": 2,
            "time_ms": 1_500,
            "request": "7:3:5",
            "command": "eval",
            "clears": true,
            "keys": [
                { "key": "text", "type": "string", "value": "value", "expires_at_ms": 12 },
                { "key": "long", "type": "string", "omitted_bytes": Value::from(long.as_str()).heap_bytes() },
                { "key": "hash", "type": "hash", "value": [["field", "value"]] },
                { "key": "list", "type": "list", "value": [{ "base64": "/wA=" }] },
                { "key": "set", "type": "set", "value": ["member"] },
                { "key": "sorted", "type": "zset", "value": [["a", "-inf"], ["b", 1.5]] },
                { "key": "gone", "removed": "expired" },
                { "key": "room", "removed": "evicted" },
            ],
        });
        let mut own = data.clone();
        own["cursor"] = "7-2-0000000000000009".into();
        assert_eq!(said(Format::Json, &line, Some(cursor)), own);
        let event = json!({
            "specversion": "1.0",
            "id": "7-2",
            "source": "/ordo/shop",
            "type": "ordo.transaction",
            "time": "1970-01-01T00:00:01.500Z",
            "datacontenttype": "application/json",
            "cursor": "7-2-0000000000000009",
            "data": data,
        });
        assert_eq!(said(Format::Cloudevents, &line, Some(cursor)), event);
    }

    #[test]
    fn a_line_of_a_snapshot_has_no_cursor() {
        let entry = Entry::new("value");
        let line = Line::Snapshot { number: 4, key: &Key::from("a"), entry: &entry };
        let own = said(Format::Json, &line, None);
        assert_eq!((&own["cursor"], &own["keys"][0]["value"]), (&Json::Null, &json!("value")));
        let event = said(Format::Cloudevents, &line, None);
        assert_eq!((event.get("cursor"), &event["id"]), (None, &json!("7-key-4")));
        assert_eq!(said(Format::Cloudevents, &Line::Mark, None)["type"], "ordo.mark");
    }
}
