//! What one validator has to say to another one, in batches.

use super::entry::{Partial, Verdict};
use std::collections::BTreeMap;
use txn::{Position, RequestId};

/// When a batch leaves. Every limit is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// It leaves with so many transactions, and has no more. With one, there are no batches.
    pub transactions_max: usize,
    /// It leaves with so many bytes.
    pub bytes_max: usize,
    /// It leaves when its first transaction has waited for so many ticks.
    pub wait_ticks_max: u64,
}

impl Default for BatchLimits {
    fn default() -> BatchLimits {
        BatchLimits { transactions_max: 50, bytes_max: 1 << 16, wait_ticks_max: 5 }
    }
}

/// What is said of a transaction: upwards, or to a leaf.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    Partial(Partial),
    Verdict(Verdict),
}

impl Item {
    fn id(&self) -> RequestId {
        match self {
            Item::Partial(partial) => partial.id,
            Item::Verdict(verdict) => verdict.id,
        }
    }

    fn bytes(&self) -> usize {
        let mut out = Vec::new();
        match self {
            Item::Partial(partial) => partial.put(&mut out),
            Item::Verdict(verdict) => verdict.put(&mut out),
        }
        out.len()
    }
}

/// The batches of one validator for another one.
///
/// A batch leaves at once if none is under way: so an idle tree adds no delay. Otherwise it waits until the
/// one under way has arrived, or a limit is reached. The longer a batch takes, the more the next one has.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Each with the addressee's last entry of which the speaker knew when it looked at the transaction.
    queued: BTreeMap<RequestId, (Item, Position)>,
    bytes: usize,
    /// When the first one came that is queued.
    since_tick: u64,
    is_under_way: bool,
}

impl Outbox {
    /// What was queued of the same transaction is replaced. `behind` is the addressee's last entry of which
    /// the speaker knows.
    pub fn queue(&mut self, item: Item, behind: Position, now_tick: u64) {
        if self.queued.is_empty() {
            self.since_tick = now_tick;
        }
        self.bytes += item.bytes();
        if let Some((replaced, _)) = self.queued.insert(item.id(), (item, behind)) {
            self.bytes -= replaced.bytes();
        }
    }

    /// A batch has arrived.
    pub fn arrived(&mut self) {
        self.is_under_way = false;
    }

    /// The next batch, if it leaves now, and the earliest entry behind which any of it was said: what has
    /// waited here is as old as when it came, however late it leaves.
    pub fn next_batch(&mut self, limits: BatchLimits, now_tick: u64) -> Option<(Vec<Item>, Position)> {
        let waits = self.is_under_way
            && self.queued.len() < limits.transactions_max
            && self.bytes < limits.bytes_max
            && now_tick < self.since_tick + limits.wait_ticks_max;
        if self.queued.is_empty() || waits {
            return None;
        }
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut behind = Position(u64::MAX);
        while batch.len() < limits.transactions_max
            && bytes < limits.bytes_max
            && let Some((_, (item, item_behind))) = self.queued.pop_first()
        {
            behind = behind.min(item_behind);
            bytes += item.bytes();
            batch.push(item);
        }
        self.bytes -= bytes;
        self.since_tick = now_tick;
        self.is_under_way = true;
        Some((batch, behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::SessionId;

    fn item(session: u64) -> Item {
        let id = RequestId { session: SessionId(session), sequence: 1, attempt: 0 };
        Item::Verdict(Verdict { id, at: None })
    }

    fn left(outbox: &mut Outbox, limits: BatchLimits, tick: u64) -> Vec<usize> {
        std::iter::from_fn(|| outbox.next_batch(limits, tick)).map(|(batch, _)| batch.len()).collect()
    }

    #[test]
    fn a_batch_leaves_when_it_must_and_not_before() {
        let limits = BatchLimits { transactions_max: 3, bytes_max: 1_000, wait_ticks_max: 4 };
        let mut outbox = Outbox::default();
        outbox.queue(item(1), Position(7), 7);
        assert_eq!(left(&mut outbox, limits, 7), [1], "none is under way");
        outbox.queue(item(2), Position(7), 7);
        outbox.queue(item(2), Position(9), 9);
        assert_eq!(left(&mut outbox, limits, 10), []);
        assert_eq!(left(&mut outbox, limits, 11), [1], "time");
        (3..=7).for_each(|session| outbox.queue(item(session), Position(11), 11));
        assert_eq!(left(&mut outbox, limits, 11), [3], "count");
        outbox.arrived();
        assert_eq!(left(&mut outbox, limits, 11), [2], "the batch under way has arrived");
        let limits = BatchLimits { bytes_max: 2 * item(8).bytes(), ..limits };
        outbox.queue(item(8), Position(11), 11);
        assert_eq!(left(&mut outbox, limits, 11), []);
        outbox.queue(item(9), Position(11), 11);
        assert_eq!(left(&mut outbox, limits, 11), [2], "bytes");
        outbox.queue(item(10), Position(20), 30);
        outbox.queue(item(11), Position(12), 31);
        let behind = outbox.next_batch(limits, 40).map(|(_, behind)| behind);
        assert_eq!(behind, Some(Position(12)), "a batch is as old as what is oldest in it");
    }
}
