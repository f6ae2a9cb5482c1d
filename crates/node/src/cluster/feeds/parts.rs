//! What is too large for one frame goes in parts, which may come in any order.

use bytes::Bytes;
use std::collections::BTreeMap;
use txn::PartitionId;

/// What a part is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// The outcome of a request.
    Answer,
    /// What the group's partition has to say to this one.
    Message(PartitionId),
}

/// A part of something that is too large for one frame.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it is one of.
    pub item: Item,
    /// Names the whole: the sender says nothing else under this number.
    pub number: u64,
    /// The bytes of the whole.
    pub total: u64,
    /// Where the part begins.
    pub offset: u64,
    /// Its bytes.
    pub bytes: Bytes,
}

/// What is left to send of something that goes in parts.
#[derive(Clone, Debug)]
pub(super) struct Large {
    item: Item,
    number: u64,
    total: u64,
    rest: Bytes,
}

impl Large {
    /// Nothing of it is sent. The number names it among all that the process sends.
    pub fn new(item: Item, number: u64, whole: Bytes) -> Large {
        Large { item, number, total: whole.len() as u64, rest: whole }
    }

    /// The next part, of at most so many bytes, but at least one.
    pub fn next(&mut self, bytes_max: usize) -> Part {
        Part {
            item: self.item,
            number: self.number,
            total: self.total,
            offset: self.total - self.rest.len() as u64,
            bytes: self.rest.split_to(bytes_max.max(1).min(self.rest.len())),
        }
    }

    /// Whether all of it is sent.
    pub fn is_sent(&self) -> bool {
        self.rest.is_empty()
    }
}

/// What has come of something that comes in parts.
#[derive(Clone, Debug)]
pub(super) struct Assembly {
    /// By where they begin.
    parts: BTreeMap<u64, Bytes>,
    total: u64,
    left: u64,
    /// When the last part came.
    pub news_tick: u64,
}

impl Assembly {
    /// Nothing has come of so many bytes.
    pub fn new(total: u64) -> Assembly {
        Assembly { parts: BTreeMap::new(), total, left: total, news_tick: 0 }
    }

    /// A part of so many bytes in all has come, perhaps not for the first time. Whether that was all; `None`
    /// if it does not go with the others.
    pub fn take(&mut self, total: u64, offset: u64, bytes: Bytes) -> Option<bool> {
        let length = bytes.len() as u64;
        if total != self.total {
            return None;
        }
        match self.parts.get(&offset) {
            Some(known) if known.len() as u64 != length => return None,
            Some(_) => {}
            None => {
                self.left = self.left.checked_sub(length)?;
                self.parts.insert(offset, bytes);
            }
        }
        Some(self.left == 0)
    }

    /// The whole. `None` if the parts do not fit together.
    pub fn whole(self) -> Option<Vec<u8>> {
        let mut whole = Vec::new();
        for (offset, bytes) in self.parts {
            if offset != whole.len() as u64 {
                return None;
            }
            whole.extend_from_slice(&bytes);
        }
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::{Assembly, Item, Large, Part};
    use bytes::Bytes;

    fn parts(whole: &'static [u8], bytes_max: usize) -> Vec<Part> {
        let mut large = Large::new(Item::Answer, 1, Bytes::from_static(whole));
        let mut parts = Vec::new();
        while !large.is_sent() {
            parts.push(large.next(bytes_max));
        }
        parts
    }

    #[test]
    fn parts_make_the_whole_in_any_order_and_more_than_once() {
        for bytes_max in [0, 1, 2, 3, 7, 100] {
            let mut parts = parts(b"abcdefg", bytes_max);
            parts.reverse();
            let mut assembly = Assembly::new(7);
            for (number, part) in parts.iter().enumerate() {
                let all = number + 1 == parts.len();
                for _ in 0..2 {
                    let taken = assembly.take(part.total, part.offset, part.bytes.clone());
                    assert_eq!(taken, Some(all));
                }
            }
            assert_eq!(assembly.whole().as_deref(), Some(&b"abcdefg"[..]));
        }
    }

    #[test]
    fn parts_that_overlap_or_are_of_another_whole_are_refused() {
        let take = |assembly: &mut Assembly, total, offset, bytes: &'static [u8]| {
            assembly.take(total, offset, Bytes::from_static(bytes))
        };
        let mut assembly = Assembly::new(4);
        assert_eq!(take(&mut assembly, 4, 0, b"abc"), Some(false));
        assert_eq!(take(&mut assembly, 5, 3, b"de"), None);
        assert_eq!(take(&mut assembly, 4, 0, b"ab"), None);
        assert_eq!(take(&mut assembly, 4, 2, b"cd"), None);
        assert_eq!(take(&mut assembly, 4, 2, b"c"), Some(true));
        assert_eq!(assembly.whole(), None);
    }
}
