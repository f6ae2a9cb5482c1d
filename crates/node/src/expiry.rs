//! Looks for entries that have expired, so that they do not stay in memory when nobody reads them.
//!
//! The scan only proposes: an ordered transaction removes a key if it has expired at *its* time, so replicas agree.

use store::View;
use txn::{Key, ScanRange, Space};

/// Entries that one look goes through: some 20 µs.
const PAGE_ENTRIES: usize = 256;
/// A look that finds at least this share (1 / it) expired is followed by another at once.
const BUSY_SHARE: usize = 4;
/// While a whole round has met no entry with a time to live, only every so many looks are taken: few enough that a short time to
/// live in a small store is noticed within a second.
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
}

/// What a look found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// The space of `expired`: a look is at one.
    pub space: Space,
    pub expired: Vec<Key>,
    /// Much had expired: look again soon.
    pub again: bool,
}

impl Default for ExpiryScan {
    fn default() -> ExpiryScan {
        ExpiryScan {
            space: Space::User,
            from_hash: 0,
            met_any: false,
            idle: false,
            looks: 0,
        }
    }
}

impl ExpiryScan {
    pub fn look(&mut self, view: &dyn View, now_ms: u64) -> Look {
        self.looks = self.looks.wrapping_add(1);
        if self.idle && !self.looks.is_multiple_of(IDLE_LOOKS) {
            return Look {
                space: self.space,
                expired: Vec::new(),
                again: false,
            };
        }
        let space = self.space;
        let snapshot = view.open();
        let range = ScanRange::of(space, self.from_hash, PAGE_ENTRIES);
        let page = view.scan_at(&snapshot, range);
        view.close(snapshot);
        self.met_any |= page
            .entries
            .iter()
            .any(|(_, entry)| entry.expires_at_ms != 0);
        self.idle &= !self.met_any;
        let looked = page.entries.len();
        let expired: Vec<Key> = page
            .entries
            .into_iter()
            .filter(|(_, entry)| entry.expired(now_ms))
            .map(|(key, _)| key)
            .collect();
        match page.next_hash {
            Some(next) => self.from_hash = next,
            None => {
                self.from_hash = 0;
                self.space = match space {
                    Space::User => Space::System,
                    Space::System => Space::User,
                };
                if self.space == Space::User {
                    self.idle = !std::mem::take(&mut self.met_any);
                }
            }
        }
        let again = expired.len() * BUSY_SHARE >= looked && !expired.is_empty();
        Look {
            space,
            expired,
            again,
        }
    }
}
