//! Client-side caching: who is told that a key was written (CLIENT TRACKING).
//!
//! By default the table remembers who has read which key, until somebody writes it: then all who have are
//! told, and forgotten. Who asks for it by prefixes (BCAST) is told of every key that has one, and nothing is
//! remembered.
//!
//! A key is remembered *before* it is read, so that no write can come between the two. And the client must
//! not hear of a write before it has the reply, which may be older than the write: a reply that is under way
//! *pins* what it reads, and what is written meanwhile is told behind it.
//!
//! A write is acknowledged before it is told. So whoever reads a key sees writes that are told later, and is
//! not told of those: it would forget a copy that is new, and, worse, not be told of the write that comes
//! next.

use super::{Delivery, Listener};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::{Blob, Key, PartitionId, Position, RequestId, SessionId};

/// When what a connection reads is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrackingMode {
    /// Always.
    #[default]
    Always,
    /// After CLIENT CACHING YES (OPTIN).
    OptIn,
    /// Unless after CLIENT CACHING NO (OPTOUT).
    OptOut,
    /// Never: it is told of every key with one of these prefixes (BCAST).
    Broadcast(Vec<Blob>),
}

/// How a connection wants to be told.
#[derive(Clone, Default)]
pub struct TrackingOptions {
    /// Of what.
    pub mode: TrackingMode,
    /// Not of its own writes.
    pub no_loop: bool,
    /// Another connection is told for it: its number, and where it is unless it is gone.
    pub redirect: Option<(u64, Option<Listener>)>,
}

/// Requests of a connection, at most, of which it is kept that they have read nothing: as many as may be on
/// their way. Of one that is forgotten its keys are tracked in vain.
const READ_NOTHING_KEPT: u64 = 1024;

/// Whose copies are invalidated.
struct Tracked {
    listener: Listener,
    options: TrackingOptions,
}

/// A place in the order of a partition.
pub type Place = (PartitionId, Position);

/// What is known of who has read a key.
#[derive(Default)]
struct Reader {
    /// It has seen all that was committed up to here.
    sees: Option<Place>,
    /// It may have a copy.
    has_read: bool,
    /// Replies that are under way.
    pins: u32,
    /// The key was written meanwhile.
    was_written: bool,
}

/// All of it.
#[derive(Default)]
pub struct Tracking {
    sessions: BTreeMap<SessionId, Tracked>,
    /// Who has read a key since it was written.
    readers: BTreeMap<Key, BTreeMap<SessionId, Reader>>,
    /// Prefixes, with those who named them.
    prefixes: BTreeMap<Blob, OfPrefix>,
    /// Requests of theirs, not answered yet, that have read nothing of what was remembered for them.
    read_nothing: BTreeSet<(SessionId, u64)>,
}

/// What is known of a prefix.
#[derive(Default)]
struct OfPrefix {
    sessions: BTreeSet<SessionId>,
    /// Keys that the present transaction has written: they are told together.
    written: BTreeSet<Blob>,
}

impl Tracking {
    /// Somebody wants to be told, in this way from now on.
    pub fn begin(&mut self, listener: &Listener, options: &TrackingOptions) {
        let session = listener.session;
        if let TrackingMode::Broadcast(prefixes) = &options.mode {
            for prefix in prefixes {
                let of_prefix = self.prefixes.entry(prefix.clone()).or_default();
                of_prefix.sessions.insert(session);
            }
        }
        let tracked = Tracked { listener: listener.clone(), options: options.clone() };
        self.sessions.insert(session, tracked);
    }

    /// Somebody does not want to be told any more. What it has read is forgotten when it is written.
    pub fn end(&mut self, session: SessionId) {
        if self.sessions.remove(&session).is_some() {
            self.read_nothing.retain(|(other, _)| *other != session);
            self.prefixes.retain(|_, of_prefix| {
                of_prefix.sessions.remove(&session);
                !of_prefix.sessions.is_empty()
            });
        }
        if self.sessions.is_empty() {
            self.readers.clear();
        }
    }

    /// A connection is gone. Those whose invalidations went to it are told so instead.
    pub fn gone(&mut self, session: SessionId) {
        self.end(session);
        for tracked in self.sessions.values_mut() {
            if let Some((_, other)) = &mut tracked.options.redirect {
                other.take_if(|other| other.session == session);
            }
        }
    }

    /// Somebody is about to read keys. No more than `keys_max` are kept: see [`Tracking::limit`].
    pub fn reads(
        &mut self,
        session: SessionId,
        keys: impl Iterator<Item = (Key, Option<Place>)>,
        keys_max: usize,
    ) {
        for (key, sees) in keys {
            let of_key = self.readers.entry(key).or_default();
            // Of several reads the first: the client may have the reply of any of them.
            let new = Reader { sees, ..Reader::default() };
            of_key.entry(session).or_insert(new).pins += 1;
        }
        self.limit(keys_max);
    }

    /// If there are more than `keys_max` keys, forgets others, and tells their readers.
    pub fn limit(&mut self, keys_max: usize) {
        while self.readers.len() > keys_max
            && let Some(key) = self.readers.keys().next().cloned()
        {
            self.forget(&key, None, None);
            if self.readers.contains_key(&key) {
                // A reply is under way that reads it.
                return;
            }
        }
    }

    /// A script that was about to read keys has read none.
    pub fn read_nothing(&mut self, id: RequestId) {
        if self.sessions.contains_key(&id.session) {
            self.read_nothing.insert((id.session, id.sequence));
            // Of one whose keys were not remembered, or that is answered already, nobody takes it out.
            let old = (id.session, id.sequence.saturating_sub(READ_NOTHING_KEPT));
            let from = (id.session, 0);
            while let Some(&first) = self.read_nothing.range(from..old).next() {
                self.read_nothing.remove(&first);
            }
        }
    }

    /// Replies that read keys are on their way to the client: that of this script, if it is one.
    pub fn has_read(&mut self, session: SessionId, keys: &[Key], script: Option<u64>) {
        let request = script.map(|sequence| (session, sequence));
        let has_read = request.is_none_or(|request| !self.read_nothing.remove(&request));
        for key in keys {
            let Some(of_key) = self.readers.get_mut(key) else {
                continue;
            };
            let Some(reader) = of_key.get_mut(&session) else {
                continue;
            };
            reader.pins = reader.pins.saturating_sub(1);
            reader.has_read |= has_read;
            let has_copy = reader.has_read;
            if reader.pins > 0 || has_copy && !reader.was_written {
                continue;
            }
            of_key.remove(&session);
            if of_key.is_empty() {
                self.readers.remove(key);
            }
            if has_copy {
                let names: Arc<[Blob]> = Arc::from([Blob::from(key.as_bytes())]);
                self.tell(session, Some(&names), None);
            }
        }
    }

    /// Tells those who have read a key that their copies are old, but for one who wrote it and does not want
    /// to know; and forgets them unless a reply is under way.
    fn forget(&mut self, key: &Key, by: Option<RequestId>, at: Option<Place>) {
        let Some(mut of_key) = self.readers.remove(key) else {
            return;
        };
        let names: Arc<[Blob]> = Arc::from([Blob::from(key.as_bytes())]);
        of_key.retain(|&session, reader| {
            let Some(tracked) = self.sessions.get(&session) else {
                return false;
            };
            if matches!(tracked.options.mode, TrackingMode::Broadcast(_)) {
                // It has read the key in another mode, before.
                return false;
            }
            if is_seen(reader.sees, at) {
                return true;
            }
            if tracked.options.no_loop && by.is_some_and(|by| by.session == session) {
                return reader.pins > 0;
            }
            if reader.pins == 0 {
                self.tell(session, Some(&names), by);
            }
            reader.was_written = true;
            reader.pins > 0
        });
        if !of_key.is_empty() {
            self.readers.insert(key.clone(), of_key);
        }
    }

    /// A key was written, by a request and at a place if these are known. [`Tracking::broadcast`] is to
    /// follow.
    pub fn written(&mut self, key: &Key, by: Option<RequestId>, at: Option<Place>) {
        if self.sessions.is_empty() {
            return;
        }
        self.forget(key, by, at);
        for (prefix, of_prefix) in &mut self.prefixes {
            if key.as_bytes().starts_with(prefix) {
                of_prefix.written.insert(Blob::from(key.as_bytes()));
            }
        }
    }

    /// Slots have moved: nobody tells this node of writes to keys that it does not keep.
    pub fn rerouted(&mut self, keeps: impl Fn(&Key) -> bool) {
        let lost = self.readers.keys().filter(|&key| !keeps(key));
        for key in lost.cloned().collect::<Vec<Key>>() {
            self.forget(&key, None, None);
        }
    }

    /// A request has written all that it writes: who has named a prefix is told of its keys, in one message
    /// as by Redis.
    pub fn broadcast(&mut self, by: Option<RequestId>) {
        let mut told = Vec::new();
        for of_prefix in self.prefixes.values_mut() {
            if !of_prefix.written.is_empty() {
                let names = std::mem::take(&mut of_prefix.written);
                let names: Arc<[Blob]> = names.into_iter().collect();
                told.extend(of_prefix.sessions.iter().map(|&to| (to, names.clone())));
            }
        }
        for (session, names) in told {
            let is_own = by.is_some_and(|by| by.session == session);
            let tracked = self.sessions.get(&session);
            if tracked.is_some_and(|tracked| !(tracked.options.no_loop && is_own)) {
                self.tell(session, Some(&names), by);
            }
        }
    }

    /// All keys are gone.
    pub fn cleared(&mut self, by: RequestId) {
        self.readers.retain(|_, of_key| {
            of_key.retain(|_, reader| {
                reader.was_written = true;
                reader.pins > 0
            });
            !of_key.is_empty()
        });
        for &session in self.sessions.keys() {
            self.tell(session, None, Some(by));
        }
    }

    fn tell(&self, session: SessionId, names: Option<&Arc<[Blob]>>, by: Option<RequestId>) {
        let Some(tracked) = self.sessions.get(&session) else {
            return;
        };
        let by = by.filter(|by| by.session == session && tracked.options.redirect.is_none());
        let delivery = Delivery::Invalidate { names: names.cloned(), behind: by.map(|by| by.sequence) };
        match &tracked.options.redirect {
            None => tracked.listener.deliver(delivery),
            Some((_, Some(other))) => other.deliver(delivery),
            Some((id, None)) => tracked.listener.deliver(Delivery::RedirectionBroken(*id)),
        }
    }

    /// Keys, readers of keys, prefixes.
    pub fn counts(&self) -> (usize, usize, usize) {
        let items = self.readers.values().map(BTreeMap::len).sum();
        (self.readers.len(), items, self.prefixes.len())
    }
}

/// Whether who sees all up to a place sees what was written at another one.
fn is_seen(sees: Option<Place>, at: Option<Place>) -> bool {
    match (sees, at) {
        (Some((partition, upto)), Some((other, position))) => partition == other && position <= upto,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::SessionId;

    fn listener(session: SessionId) -> Listener {
        let mailbox = Arc::new(crate::net::mailbox::Mailbox::new(|| Ok(())));
        Listener { session, mailbox, pushes: Arc::default() }
    }

    #[test]
    fn who_has_read_what_was_written_is_told_of_later_writes_only() {
        let session = SessionId(1);
        let listener = listener(session);
        let mut tracking = Tracking::default();
        tracking.begin(&listener, &TrackingOptions::default());
        let key = Key::from("k");
        let at = |partition, position| Some((PartitionId(partition), Position(position)));
        let mut told = |reads, written: &[Option<Place>]| {
            tracking.reads(session, std::iter::once((key.clone(), reads)), 10);
            tracking.written(&key, None, written[0]);
            tracking.has_read(session, std::slice::from_ref(&key), None);
            for &later in &written[1..] {
                tracking.written(&key, None, later);
            }
            listener.mailbox.take_deliveries().len()
        };
        assert_eq!(told(at(0, 10), &[at(0, 9), at(0, 10)]), 0, "all were seen");
        assert_eq!(told(at(0, 20), &[at(0, 11)]), 1, "the first read had not seen it");
        assert_eq!(told(at(0, 20), &[at(0, 20), at(0, 19), at(0, 21), at(0, 22)]), 1);
        assert_eq!(told(at(0, 20), &[at(0, 21)]), 1, "behind the reply");
        assert_eq!(told(at(0, 20), &[at(1, 3)]), 1, "another partition's places say nothing");
        assert_eq!(told(None, &[at(0, 1)]), 1);
        assert_eq!(told(at(0, 20), &[None]), 1);
        assert!(tracking.readers.is_empty());
    }

    #[test]
    fn of_scripts_that_read_nothing_no_more_is_kept_than_may_be_on_their_way() {
        let mut tracking = Tracking::default();
        let session = SessionId(1);
        let id = |sequence| RequestId { session, sequence, attempt: 0 };
        tracking.read_nothing(id(1));
        assert!(tracking.read_nothing.is_empty(), "nobody tracks");
        let listener = listener(session);
        tracking.begin(&listener, &TrackingOptions::default());
        (1..5_000).for_each(|sequence| tracking.read_nothing(id(sequence)));
        assert_eq!(tracking.read_nothing.len() as u64, READ_NOTHING_KEPT + 1);
        tracking.end(session);
        assert!(tracking.read_nothing.is_empty());
    }
}
