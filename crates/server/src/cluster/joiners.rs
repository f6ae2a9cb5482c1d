//! Nodes that run and have not joined yet: they ask for the map now and then (`join`), and say who they are.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A node that has not asked for so long is gone: it asks every half second, and waits for those that do not
/// answer.
const SILENCE_MS: u64 = 15_000;

/// When each node that is about to join asked last, by its name.
#[derive(Debug, Default)]
pub struct Joiners(Mutex<BTreeMap<String, u64>>);

impl Joiners {
    /// A node has asked. The names must be those of a map, which bounds how many there are.
    pub fn heard(&self, name: &str, now_ms: u64) {
        let mut asked = self.0.lock();
        asked.retain(|_, asked_ms| now_ms < *asked_ms + SILENCE_MS);
        asked.insert(name.to_owned(), now_ms);
    }

    /// Whether a node runs, and waits to join.
    pub fn waits(&self, name: &str, now_ms: u64) -> bool {
        let asked = self.0.lock();
        asked.get(name).is_some_and(|asked_ms| now_ms < asked_ms + SILENCE_MS)
    }
}
