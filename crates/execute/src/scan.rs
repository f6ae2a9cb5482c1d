//! Scans of a transaction that sees its own writes.

use store::{Meta, Partition};
use txn::{Entry, Key, Position, ScanPage, ScanRange};

/// Merges a page of the partition at `upto` with a transaction's own writes (in any order; `None` entries are
/// deletes). `cleared`: the transaction removed everything before, so only its own writes are left.
pub(crate) fn merge<M: Meta>(
    partition: &Partition<M>,
    upto: Position,
    range: ScanRange,
    cleared: bool,
    own: impl FnOnce(&mut dyn FnMut(&Key, Option<&Entry>)),
) -> ScanPage {
    let page = if cleared { ScanPage::default() } else { partition.scan(upto, range) };
    page.with_own(range, own)
}

/// The pages that several partitions have of one range, as one page.
pub fn unite(pages: Vec<ScanPage>) -> ScanPage {
    // Behind the first page that ends, another partition may have what that one has not listed.
    let next_hash = pages.iter().filter_map(|page| page.next_hash).min();
    let mut entries: Vec<_> = pages.into_iter().flat_map(|page| page.entries).collect();
    if let Some(end) = next_hash {
        entries.retain(|(key, _)| key.hash64() < end);
    }
    entries.sort_by_cached_key(|(key, _)| (key.hash64(), key.clone()));
    ScanPage { entries, next_hash }
}
