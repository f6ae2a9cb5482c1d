//! The set of ready transactions.

use store::sync::atomic::{AtomicU64, Ordering};
use txn::Position;

/// Positions of one window, as a bitmap: adding is one atomic or, and the earliest is found by looking forward from the head.
#[derive(Debug)]
pub(super) struct ReadySet {
    words: Box<[AtomicU64]>,
    /// May be read before the bit is: a hint that is never too low for long.
    count: AtomicU64,
    mask: u64,
}

impl ReadySet {
    pub(super) fn new(capacity: usize) -> ReadySet {
        let words = capacity.div_ceil(64);
        ReadySet {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU64::new(0),
            mask: capacity as u64 - 1,
        }
    }
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
    pub(super) fn insert(&self, position: Position) {
        let bit = position.0 & self.mask;
        // Counted first: whoever sees the bit finds it counted.
        self.count.fetch_add(1, Ordering::SeqCst);
        let before = self.words[(bit / 64) as usize].fetch_or(1 << (bit % 64), Ordering::SeqCst);
        if before & (1 << (bit % 64)) != 0 {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
    /// Whether there is one from `head` on, before `position`, which is in the same window.
    pub(super) fn has_before(&self, head: Position, position: Position) -> bool {
        let mut at = head.0;
        while at < position.0 && self.len() > 0 {
            let bit = at & self.mask;
            // To the end of its word, or to the position.
            let count = (64 - bit % 64).min(position.0 - at);
            let bits = u64::MAX >> (64 - count) << (bit % 64);
            if self.words[(bit / 64) as usize].load(Ordering::SeqCst) & bits != 0 {
                return true;
            }
            at += count;
        }
        false
    }
    /// Takes the earliest at or after `head`; gives its place in the ring. (Not its position: the head may have moved on
    /// since the caller read it. The slot knows.)
    pub(super) fn take(&self, head: Position) -> Option<u64> {
        if self.len() == 0 {
            return None;
        }
        let start = head.0 & self.mask;
        let words = self.words.len() as u64;
        // The first word is looked at twice: from the head's bit on, and at last below it.
        for step in 0..=words {
            let index = (start / 64 + step) % words;
            let word = &self.words[index as usize];
            let mut bits = word.load(Ordering::SeqCst);
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                if word.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
                    self.count.fetch_sub(1, Ordering::SeqCst);
                    return Some(index * 64 + u64::from(bit.trailing_zeros()));
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
            assert_eq!(
                ready.has_before(head, Position(position)),
                expected,
                "{position}"
            );
        }
        assert!(!ready.has_before(Position(131), Position(200)));
        assert!(ready.has_before(Position(131), Position(201)));
        let order: Vec<u64> = std::iter::from_fn(|| ready.take(head)).collect();
        assert_eq!(order, [126, 127, 130 - 128, 200 - 128]);
        assert_eq!(ready.len(), 0);
    }
}
