//! Looks for entries that have expired, so that they do not stay in memory when nobody reads them.
//!
//! The scan only proposes: an ordered transaction removes a key if it has expired at *its* time, so replicas
//! agree.

use store::View;
use txn::{Key, ScanRange, Space};

/// Entries of a page, to go through which takes some 20 µs. What expired of one is removed by one
/// transaction.
pub(crate) const PAGE_ENTRIES: usize = 256;
/// A look that finds at least this share (1 / it) expired is followed by one through twice as many pages.
const BUSY_SHARE: usize = 10;
/// But not through more than so many: 80,000 entries a second, at ten looks.
const PAGES_MAX: usize = 32;
/// While a whole round has met no entry with a time to live, only every so many looks are taken: few enough
/// that a short time to live in a small store is noticed within a second.
const IDLE_LOOKS: u32 = 4;

/// A cursor that goes round the users' space and then the system's, where replies are kept for a while.
#[derive(Debug)]
pub(crate) struct ExpiryScan {
    space: Space,
    from_hash: u64,
    /// Whether this round has met an entry with a time to live.
    met_any: bool,
    /// Whether the last whole round met none.
    idle: bool,
    looks: u32,
    /// How many pages the next look goes through.
    pages: usize,
}

/// What a look found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// The space of `expired`: a look is at one.
    pub space: Space,
    pub expired: Vec<Key>,
}

impl Default for ExpiryScan {
    fn default() -> ExpiryScan {
        ExpiryScan { space: Space::User, from_hash: 0, met_any: false, idle: false, looks: 0, pages: 1 }
    }
}

impl ExpiryScan {
    pub fn look(&mut self, view: &dyn View, now_ms: u64) -> Look {
        self.looks = self.looks.wrapping_add(1);
        if self.idle && !self.looks.is_multiple_of(IDLE_LOOKS) {
            return Look { space: self.space, expired: Vec::new() };
        }
        let space = self.space;
        let snapshot = view.open();
        let (mut looked, mut expired) = (0, Vec::new());
        for _ in 0..self.pages {
            let range = ScanRange::of(space, self.from_hash, PAGE_ENTRIES);
            let page = view.scan_some(&snapshot, range);
            looked += page.entries.len();
            for (key, entry) in page.entries {
                self.met_any |= entry.expires_at_ms != 0;
                if entry.expired(now_ms) {
                    expired.push(key);
                }
            }
            self.idle &= !self.met_any;
            if let Some(next) = page.next_hash {
                self.from_hash = next;
                continue;
            }
            self.from_hash = 0;
            self.space = match space {
                Space::User => Space::System,
                Space::System => Space::User,
            };
            if self.space == Space::User {
                self.idle = !std::mem::take(&mut self.met_any);
            }
            break;
        }
        view.close(snapshot);
        let busy = expired.len() * BUSY_SHARE >= looked && !expired.is_empty();
        self.pages = match busy {
            true => (self.pages * 2).min(PAGES_MAX),
            false => (self.pages / 2).max(1),
        };
        Look { space, expired }
    }
}
