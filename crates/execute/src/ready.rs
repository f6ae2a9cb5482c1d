//! The set of ready transactions.

use store::sync::atomic::{AtomicU64, Ordering};
use txn::Position;

/// Positions of one window, as a bitmap: adding is one atomic or, and the earliest is found by looking
/// forward from the head.
#[derive(Debug)]
pub(crate) struct ReadySet {
    words: Box<[AtomicU64]>,
    /// A hint that may be too high for a moment, and is never too low.
    count: AtomicU64,
    mask: u64,
}

impl ReadySet {
    pub(crate) fn new(capacity: usize) -> ReadySet {
        let words = capacity.div_ceil(64);
        ReadySet {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU64::new(0),
            mask: capacity as u64 - 1,
        }
    }
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
    pub(crate) fn insert(&self, position: Position) {
        let bit = position.0 & self.mask;
        // Counted first: whoever sees the bit finds it counted.
        self.count.fetch_add(1, Ordering::SeqCst);
        let before = self.words[(bit / 64) as usize].fetch_or(1 << (bit % 64), Ordering::SeqCst);
        if before & (1 << (bit % 64)) != 0 {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
    /// Whether there is one from `head` on, before `limit`, which is in the same window.
    pub(crate) fn has_before(&self, head: Position, limit: Position) -> bool {
        let mut words = self.words(head, limit);
        self.len() > 0 && words.any(|(index, bits)| self.words[index].load(Ordering::SeqCst) & bits != 0)
    }
    /// The words of the positions from `head` on, before `limit`: for each its index, and which of its bits.
    fn words(&self, head: Position, limit: Position) -> impl Iterator<Item = (usize, u64)> {
        let mut at = head.0;
        let limit = limit.0.min(head.0 + self.mask + 1);
        let mask = self.mask;
        std::iter::from_fn(move || {
            if at >= limit {
                return None;
            }
            let bit = at & mask;
            // To the end of its word, to the end of the ring, or to the limit.
            let count = (64 - bit % 64).min(mask + 1 - bit).min(limit - at);
            at += count;
            Some(((bit / 64) as usize, u64::MAX >> (64 - count) << (bit % 64)))
        })
    }
    /// How many there are from `head` on, before `limit`.
    pub(crate) fn count_before(&self, head: Position, limit: Position) -> u64 {
        if self.len() == 0 {
            return 0;
        }
        let words = self.words(head, limit);
        words
            .map(|(index, bits)| (self.words[index].load(Ordering::SeqCst) & bits).count_ones())
            .sum::<u32>()
            .into()
    }
    /// The earliest from `head` on, before `limit`.
    pub(crate) fn first_before(&self, head: Position, limit: Position) -> Option<Position> {
        if self.len() == 0 {
            return None;
        }
        self.words(head, limit).find_map(|(index, mask)| {
            let bits = self.words[index].load(Ordering::SeqCst) & mask;
            let place = index as u64 * 64 + u64::from(bits.trailing_zeros());
            (bits != 0).then(|| head.advanced(place.wrapping_sub(head.0) & self.mask))
        })
    }
    /// Takes the earliest from `head` on, before `limit`; gives its place in the ring. (Not its position: the
    /// head may have moved on since the caller read it. The slot knows.)
    pub(crate) fn take_before(&self, head: Position, limit: Position) -> Option<u64> {
        if self.len() == 0 {
            return None;
        }
        for (index, mask) in self.words(head, limit) {
            let word = &self.words[index];
            let mut bits = word.load(Ordering::SeqCst) & mask;
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                if word.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
                    self.count.fetch_sub(1, Ordering::SeqCst);
                    return Some(index as u64 * 64 + u64::from(bit.trailing_zeros()));
                }
                bits &= !bit;
            }
        }
        None
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_across_the_end_of_the_ring() {
        let ready = ReadySet::new(128);
        for position in [130, 127, 200, 126, 127] {
            ready.insert(Position(position));
        }
        assert_eq!(ready.len(), 4);
        let head = Position(100);
        for (position, expected) in [(101, false), (126, false), (127, true), (200, true)] {
            assert_eq!(ready.has_before(head, Position(position)), expected, "{position}");
        }
        assert!(!ready.has_before(Position(131), Position(200)));
        assert!(ready.has_before(Position(131), Position(201)));
        assert_eq!(ready.count_before(head, Position(126)), 0);
        assert_eq!(ready.count_before(head, Position(128)), 2);
        assert_eq!(ready.count_before(head, Position(500)), 4);
        assert_eq!(ready.take_before(head, Position(126)), None);
        assert_eq!(ready.first_before(head, Position(126)), None);
        for (from, first) in [(100, 126), (127, 127), (128, 130), (131, 200)] {
            let found = ready.first_before(Position(from), Position(500));
            assert_eq!(found, Some(Position(first)));
        }
        let order: Vec<u64> = std::iter::from_fn(|| ready.take_before(head, Position(500))).collect();
        assert_eq!(order, [126, 127, 130 - 128, 200 - 128]);
        assert_eq!(ready.len(), 0);
    }

    #[test]
    fn a_ring_may_be_smaller_than_a_word() {
        let ready = ReadySet::new(8);
        let (head, end) = (Position(6), Position(14));
        for position in 6..14 {
            ready.insert(Position(position));
        }
        assert_eq!(ready.count_before(head, end), 8);
        assert!(ready.has_before(Position(8), Position(9)));
        for position in 6..14 {
            assert_eq!(ready.take_before(head, end), Some(position % 8));
        }
        assert_eq!(ready.take_before(head, end), None);
    }
}
