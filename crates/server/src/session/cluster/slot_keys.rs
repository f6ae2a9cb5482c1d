//! The keys of a slot. Nothing indexes them: finding them walks over all keys of the store, which is for
//! operators and tools, not for applications.

use store::View;
use txn::{Key, ScanRange, Space};

/// How many entries are looked at in one operation of the store.
const PAGE_ENTRIES: usize = 1024;

/// The users' keys of a slot at the newest final snapshot, at most `count_max`, without those that have
/// expired there.
pub(super) fn keys_in_slot(view: &dyn View, slot: u16, count_max: usize) -> Vec<Key> {
    let mut keys = Vec::new();
    if count_max > 0 {
        walk(view, slot, |key| {
            keys.push(key);
            keys.len() < count_max
        });
    }
    keys
}

/// How many keys [`keys_in_slot`] would find without a limit.
pub(super) fn count_keys_in_slot(view: &dyn View, slot: u16) -> u64 {
    let mut count = 0;
    walk(view, slot, |_| {
        count += 1;
        true
    });
    count
}

/// Shows each key of the slot until `go_on` says no.
fn walk(view: &dyn View, slot: u16, mut go_on: impl FnMut(Key) -> bool) {
    let snapshot = view.open();
    let mut from_hash = Some(0);
    'pages: while let Some(hash) = from_hash {
        let range = ScanRange::of(Space::User, hash, PAGE_ENTRIES);
        let page = view.scan_at(&snapshot, range);
        for (key, entry) in page.entries {
            if key.slot() == slot && !entry.expired(snapshot.time_ms) && !go_on(key) {
                break 'pages;
            }
        }
        from_hash = page.next_hash;
    }
    view.close(snapshot);
}
