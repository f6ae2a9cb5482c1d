//! How many keys a site has, counted as they are written.

use std::ops::AddAssign;
use txn::{Entry, Key, Space};

/// How many keys of users hold something, versions that are not committed aside. Entries that have expired
/// and were not removed yet count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// All of them.
    pub keys: u64,
    /// Of these, the keys with a time to live.
    pub expiring: u64,
    /// When those expire, in milliseconds since 1970, added up.
    pub expires_at_ms_sum: u128,
}

impl KeyCounts {
    /// Counts what a key holds.
    pub(crate) fn add(&mut self, key: &Key, entry: Option<&Entry>) {
        if let Some(expires_at_ms) = counted(key, entry) {
            self.keys += 1;
            self.expiring += u64::from(expires_at_ms != 0);
            self.expires_at_ms_sum += u128::from(expires_at_ms);
        }
    }

    /// Counts no longer what a key has held.
    pub(crate) fn remove(&mut self, key: &Key, entry: Option<&Entry>) {
        if let Some(expires_at_ms) = counted(key, entry) {
            self.keys -= 1;
            self.expiring -= u64::from(expires_at_ms != 0);
            self.expires_at_ms_sum -= u128::from(expires_at_ms);
        }
    }
}

impl AddAssign for KeyCounts {
    fn add_assign(&mut self, other: KeyCounts) {
        self.keys += other.keys;
        self.expiring += other.expiring;
        self.expires_at_ms_sum += other.expires_at_ms_sum;
    }
}

/// When an entry expires, if it counts.
fn counted(key: &Key, entry: Option<&Entry>) -> Option<u64> {
    entry.filter(|_| key.space() == Space::User).map(|entry| entry.expires_at_ms)
}

/// When a key expires, if it has a time to live. The store's own records may have one, too.
pub(crate) fn expires(key: &Key, entry: Option<&Entry>) -> Option<(u64, Key)> {
    let expires_at_ms = entry?.expires_at_ms;
    (expires_at_ms != 0).then(|| (expires_at_ms, key.clone()))
}
