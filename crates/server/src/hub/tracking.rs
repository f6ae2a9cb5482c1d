//! Client-side caching: who is told that a key was written (CLIENT TRACKING).
//!
//! By default the table remembers who has read which key, until somebody writes it: then all who have are told, and forgotten. Who asks
//! for it by prefixes (BCAST) is told of every key that has one, and nothing is remembered.
//!
//! A key is remembered *before* it is read, so that no write can come between the two.

use super::{Delivery, Listener};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::{Blob, Key, SessionId};

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

/// Whose copies are invalidated.
struct Tracked {
    listener: Listener,
    options: TrackingOptions,
}

/// All of it.
#[derive(Default)]
pub struct Tracking {
    sessions: BTreeMap<SessionId, Tracked>,
    /// Who has read a key since it was written.
    readers: BTreeMap<Key, BTreeSet<SessionId>>,
    /// Prefixes, with those who named them.
    prefixes: BTreeMap<Blob, BTreeSet<SessionId>>,
}

impl Tracking {
    /// Somebody wants to be told, in this way from now on.
    pub fn begin(&mut self, listener: &Listener, options: &TrackingOptions) {
        let session = listener.session;
        if let TrackingMode::Broadcast(prefixes) = &options.mode {
            for prefix in prefixes {
                let of_prefix = self.prefixes.entry(prefix.clone()).or_default();
                of_prefix.insert(session);
            }
        }
        let tracked = Tracked {
            listener: listener.clone(),
            options: options.clone(),
        };
        self.sessions.insert(session, tracked);
    }

    /// Somebody does not want to be told any more. What it has read is forgotten when it is written.
    pub fn end(&mut self, session: SessionId) {
        if self.sessions.remove(&session).is_some() {
            self.prefixes.retain(|_, sessions| {
                sessions.remove(&session);
                !sessions.is_empty()
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

    /// Somebody is about to read keys. If there are more than `keys_max` then, others are forgotten, and their readers told.
    pub fn reads(&mut self, session: SessionId, keys: impl Iterator<Item = Key>, keys_max: usize) {
        for key in keys {
            self.readers.entry(key).or_default().insert(session);
        }
        while self.readers.len() > keys_max {
            let Some((key, readers)) = self.readers.pop_first() else {
                return;
            };
            let names: Arc<[Blob]> = Arc::from([Blob::from(key.as_bytes())]);
            for reader in readers {
                self.tell(reader, Some(&names));
            }
        }
    }

    /// A key was written, by a connection's transaction.
    pub fn written(&mut self, key: &Key, by: SessionId) {
        if self.sessions.is_empty() {
            return;
        }
        let name = Blob::from(key.as_bytes());
        let names: Arc<[Blob]> = Arc::from([name.clone()]);
        let readers = self.readers.remove(key).unwrap_or_default();
        let mut told = readers;
        for (prefix, sessions) in &self.prefixes {
            if name.starts_with(prefix) {
                told.extend(sessions);
            }
        }
        for session in told {
            let tracked = self.sessions.get(&session);
            if tracked.is_some_and(|tracked| !(tracked.options.no_loop && session == by)) {
                self.tell(session, Some(&names));
            }
        }
    }

    /// All keys are gone.
    pub fn cleared(&mut self) {
        self.readers.clear();
        for &session in self.sessions.keys() {
            self.tell(session, None);
        }
    }

    fn tell(&self, session: SessionId, names: Option<&Arc<[Blob]>>) {
        let Some(tracked) = self.sessions.get(&session) else {
            return;
        };
        let delivery = Delivery::Invalidate(names.cloned());
        match &tracked.options.redirect {
            None => tracked.listener.deliver(delivery),
            Some((_, Some(other))) => other.deliver(delivery),
            Some((id, None)) => tracked.listener.deliver(Delivery::RedirectionBroken(*id)),
        }
    }

    /// Keys, readers of keys, prefixes.
    pub fn counts(&self) -> (usize, usize, usize) {
        let items = self.readers.values().map(BTreeSet::len).sum();
        (self.readers.len(), items, self.prefixes.len())
    }
}
