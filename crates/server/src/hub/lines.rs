//! Who waits for keys, and in which order.

use super::{Delivery, Listener};
use std::collections::{BTreeMap, VecDeque};
use txn::{Key, SessionId};

/// Those who wait for each key. No key is kept for which nobody waits.
#[derive(Default)]
pub struct Lines {
    lines: BTreeMap<Key, Line>,
}

/// Those who wait for a key.
#[derive(Default)]
struct Line {
    /// Who takes what it finds: first come, first served.
    takers: VecDeque<Listener>,
    /// Who only reads it.
    readers: Vec<Listener>,
}

impl Lines {
    /// Somebody begins to wait for keys.
    pub fn enter(&mut self, listener: &Listener, keys: &[Key], takes: bool) {
        for key in keys {
            let line = self.lines.entry(key.clone()).or_default();
            let is_there = |other: &Listener| other.session == listener.session;
            match takes {
                // A key may be named twice.
                true if line.takers.iter().any(is_there) => {}
                true => line.takers.push_back(listener.clone()),
                false if line.readers.iter().any(is_there) => {}
                false => line.readers.push(listener.clone()),
            }
        }
    }

    /// Whether nobody was there before.
    pub fn is_next(&self, session: SessionId, key: &Key) -> bool {
        let first = self.lines.get(key).and_then(|line| line.takers.front());
        first.is_none_or(|first| first.session == session)
    }

    /// Somebody waits no more. Where it was the first, the next one looks: there may be more than it took.
    pub fn leave(&mut self, session: SessionId, keys: &[Key], takes: bool) {
        for key in keys {
            let Some(line) = self.lines.get_mut(key) else {
                continue;
            };
            if takes {
                let was_first = line
                    .takers
                    .front()
                    .is_some_and(|first| first.session == session);
                line.takers.retain(|other| other.session != session);
                if was_first && let Some(next) = line.takers.front() {
                    next.deliver(Delivery::Look);
                }
            } else {
                line.readers.retain(|other| other.session != session);
            }
            if line.takers.is_empty() && line.readers.is_empty() {
                self.lines.remove(key);
            }
        }
    }

    /// All keys are gone: who reads by a group hears of that.
    pub fn cleared(&self) {
        for reader in self.lines.values().flat_map(|line| &line.readers) {
            reader.deliver(Delivery::Look);
        }
    }

    /// A key was written.
    pub fn written(&self, key: &Key) {
        let Some(line) = self.lines.get(key) else {
            return;
        };
        if let Some(first) = line.takers.front() {
            first.deliver(Delivery::Look);
        }
        for reader in &line.readers {
            reader.deliver(Delivery::Look);
        }
    }
}
