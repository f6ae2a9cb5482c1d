//! Who waits for keys, and in which order.

use super::{Delivery, Listener};
use redis_surface::waiting::Manner;
use std::collections::{BTreeMap, VecDeque};
use txn::{Blob, Key, SessionId};

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
    /// Who takes what is new for a consumer group, likewise.
    groups: BTreeMap<Blob, VecDeque<Listener>>,
    /// Who only reads it.
    readers: Vec<Listener>,
}

impl Line {
    /// Those who wait behind each other in this manner.
    fn row(&self, manner: &Manner) -> Option<&VecDeque<Listener>> {
        match manner {
            Manner::Takes => Some(&self.takers),
            Manner::TakesFor(group) => self.groups.get(group),
            Manner::Reads => None,
        }
    }

    fn is_empty(&self) -> bool {
        self.takers.is_empty() && self.groups.is_empty() && self.readers.is_empty()
    }

    /// Has everybody look whose turn it is.
    fn look(&self) {
        let rows = std::iter::once(&self.takers).chain(self.groups.values());
        let first = rows.filter_map(VecDeque::front);
        for listener in first.chain(&self.readers) {
            listener.deliver(Delivery::Look);
        }
    }
}

fn is_in(row: &VecDeque<Listener>, session: SessionId) -> bool {
    row.iter().any(|other| other.session == session)
}

impl Lines {
    /// Somebody begins to wait for keys.
    pub fn enter(&mut self, listener: &Listener, keys: &[Key], manner: &Manner) {
        for key in keys {
            let line = self.lines.entry(key.clone()).or_default();
            let row = match manner {
                Manner::Takes => &mut line.takers,
                Manner::TakesFor(group) => line.groups.entry(group.clone()).or_default(),
                Manner::Reads => {
                    let is_there = |other: &Listener| other.session == listener.session;
                    if !line.readers.iter().any(is_there) {
                        line.readers.push(listener.clone());
                    }
                    continue;
                }
            };
            // A key may be named twice.
            if !is_in(row, listener.session) {
                row.push_back(listener.clone());
            }
        }
    }

    /// Whether nobody was there before.
    pub fn is_next(&self, session: SessionId, key: &Key, manner: &Manner) -> bool {
        let line = self.lines.get(key).and_then(|line| line.row(manner));
        let first = line.and_then(VecDeque::front);
        first.is_none_or(|first| first.session == session)
    }

    /// Somebody waits no more. Where it was the first, the next one looks: there may be more than it took.
    pub fn leave(&mut self, session: SessionId, keys: &[Key], manner: &Manner) {
        for key in keys {
            let Some(line) = self.lines.get_mut(key) else {
                continue;
            };
            let row = match manner {
                Manner::Takes => Some(&mut line.takers),
                Manner::TakesFor(group) => line.groups.get_mut(group),
                Manner::Reads => {
                    line.readers.retain(|other| other.session != session);
                    None
                }
            };
            if let Some(row) = row {
                let was_first = row.front().is_some_and(|first| first.session == session);
                row.retain(|other| other.session != session);
                if was_first && let Some(next) = row.front() {
                    next.deliver(Delivery::Look);
                }
            }
            line.groups.retain(|_, row| !row.is_empty());
            if line.is_empty() {
                self.lines.remove(key);
            }
        }
    }

    /// All keys are gone: who reads by a group hears of that.
    pub fn cleared(&self) {
        for line in self.lines.values() {
            // Each has an error of its own to hear.
            for listener in line.groups.values().flatten().chain(&line.readers) {
                listener.deliver(Delivery::Look);
            }
        }
    }

    /// For how many keys somebody waits, and for how many of these somebody waits to hear that they are gone:
    /// consumer groups do.
    pub fn count(&self) -> (usize, usize) {
        let lines = self.lines.values();
        let for_groups = lines.filter(|line| !line.groups.is_empty()).count();
        (self.lines.len(), for_groups)
    }

    /// A key was written.
    pub fn written(&self, key: &Key) {
        if let Some(line) = self.lines.get(key) {
            line.look();
        }
    }

    /// Others may tell of what is written to the keys now, or nobody.
    pub fn rerouted(&self) {
        self.lines.values().for_each(Line::look);
    }
}
