//! Which partition reads a key for all siblings; and scans and counts of the whole key space, made of what
//! each partition has of it.

use super::{Asked, GroupId, Told};
use crate::scan::unite;
use std::task::{Poll, ready};
use txn::{Entry, Key, PartitionId, ScanPage, ScanRange, Slots, Space, Stop, slots};

/// The partition that reads a key for all siblings, who are at these partitions.
///
/// Every partition has the system's space for itself, and of a key there what the order gave to all or to
/// this group's partitions before; copies may expire at different times, so one sibling's is the one that
/// counts: that of the key's slot, if the key has one, so that a transaction that comes again over more
/// partitions finds what it has left; or else the first.
pub fn reader_of(siblings: &[PartitionId], key: &Key, slots: &Slots) -> PartitionId {
    match key.space() {
        Space::User => slots.partition_of_key(key),
        Space::System => {
            let keeper = slots::of_system_key(key).map(|slot| slots.partition_of(slot));
            let keeper = keeper.filter(|keeper| siblings.contains(keeper));
            keeper.unwrap_or(siblings[0])
        }
    }
}

/// How a sub-transaction looks at the whole key space.
pub(crate) trait Parts {
    /// Its partition.
    fn me(&self) -> PartitionId;
    /// Its group, if it has siblings.
    fn group(&self) -> Option<&GroupId>;
    /// Whose the slots are.
    fn slots(&self) -> &Slots;
    /// Whether it has removed what was there before it.
    fn has_cleared(&self) -> bool;
    /// Its own writes, at all partitions: each key once.
    fn own(&self, visit: &mut dyn FnMut(&Key, Option<&Entry>));
    /// Reads something here, as it was before the transaction, and tells the siblings.
    fn here(&mut self, asked: &Asked) -> Result<Told, Stop>;
    /// What a sibling has read.
    fn there(&mut self, from: PartitionId, asked: &Asked) -> Poll<Result<Told, Stop>>;

    /// The partition that reads a key for all siblings, if it is another one.
    fn elsewhere(&self, key: &Key) -> Option<PartitionId> {
        let reader = reader_of(&self.group()?.partitions, key, self.slots());
        (reader != self.me()).then_some(reader)
    }
    /// Whether its partition has a copy of a key, and so writes it.
    fn keeps(&self, key: &Key) -> bool {
        key.space() == Space::System || self.elsewhere(key).is_none()
    }
    /// Whether it may look at the whole of a space: of the user's space each partition has another part, so
    /// it must have siblings at all of them. (One without siblings is its partition's own business.)
    fn has_all_of(&self, space: Space) -> bool {
        let is_everywhere = |group: &GroupId| group.partitions.len() == usize::from(self.slots().of());
        space == Space::System || self.group().is_none_or(is_everywhere)
    }
}

/// Asks all partitions that read of this space.
fn everywhere(parts: &mut impl Parts, asked: &Asked, space: Space) -> Poll<Result<Vec<Told>, Stop>> {
    let me = parts.me();
    let mut others = parts.group().map(|group| group.partitions.clone());
    if space == Space::System
        && let Some(others) = &mut others
    {
        others.truncate(1);
    }
    let mut others = others.unwrap_or_default();
    let mut told = Vec::new();
    // First, because the siblings wait for it.
    if others.is_empty() || others.contains(&me) {
        told.push(parts.here(asked)?);
    }
    others.retain(|other| *other != me);
    for from in others {
        told.push(ready!(parts.there(from, asked))?);
    }
    Poll::Ready(Ok(told))
}

/// What one partition had of a range before the transaction.
pub(crate) fn scan_at(
    parts: &mut impl Parts,
    from: PartitionId,
    range: ScanRange,
) -> Poll<Result<ScanPage, Stop>> {
    let asked = Asked::Page(range);
    let told = match from == parts.me() {
        true => parts.here(&asked)?,
        false => ready!(parts.there(from, &asked))?,
    };
    Poll::Ready(match told {
        Told::Page(page) => Ok(page),
        Told::Record(_) | Told::Count(_) => Err(Stop::Undeclared(None)),
    })
}

/// Pages of all partitions in one, with the transaction's own writes.
pub(crate) fn scan(parts: &mut impl Parts, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
    let mut page = ScanPage::default();
    if !(parts.has_cleared() && range.space == Space::User) {
        let told = ready!(everywhere(parts, &Asked::Page(range), range.space))?;
        let pages = told.into_iter().filter_map(|told| match told {
            Told::Page(page) => Some(page),
            Told::Record(_) | Told::Count(_) => None,
        });
        page = unite(pages.collect());
    }
    Poll::Ready(Ok(page.with_own(range, |visit| parts.own(visit))))
}

/// The entries of all partitions.
pub(crate) fn count(parts: &mut impl Parts) -> Poll<Result<u64, Stop>> {
    let mut total = 0;
    if !parts.has_cleared() {
        for told in ready!(everywhere(parts, &Asked::Count, Space::User))? {
            if let Told::Count(count) = told {
                // What another node says may be any number.
                total = i64::saturating_add(total, count);
            }
        }
    }
    // What its own writes change depends on what was there, which only the key's own partition knows.
    let mut own = Vec::new();
    parts.own(&mut |key, entry| {
        if key.space() == Space::User {
            own.push((key.clone(), entry.is_some()));
        }
    });
    // Engines keep them in maps whose order differs between processes: siblings must ask in one order.
    own.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    for (key, is) in own {
        let mut was = false;
        if !parts.has_cleared() {
            let asked = Asked::Key(key.clone());
            let told = match parts.elsewhere(&key) {
                None => parts.here(&asked)?,
                Some(from) => ready!(parts.there(from, &asked))?,
            };
            was = told.into_record().entry.is_some();
        }
        total += i64::from(is) - i64::from(was);
    }
    Poll::Ready(Ok(total.max(0) as u64))
}
