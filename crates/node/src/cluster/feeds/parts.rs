//! What is too large for one frame goes in parts, which may come in any order.

use bytes::Bytes;
use std::collections::BTreeMap;
use txn::{NodeId, PartitionId};

/// What has come in parts, but not whole, is given up when no part has come for so many ticks.
const PARTS_TICKS: u64 = 600;
/// So much comes in parts at the same time, of one group and from one node. It is told one after the other,
/// but parts overtake others: as many as a window of small parts has.
const ASSEMBLIES_MAX: usize = 4096;

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
struct Assembly {
    /// By where they begin.
    parts: BTreeMap<u64, Bytes>,
    total: u64,
    left: u64,
    /// When the last part came.
    news_tick: u64,
}

impl Assembly {
    /// Nothing has come of so many bytes.
    fn new(total: u64) -> Assembly {
        Assembly { parts: BTreeMap::new(), total, left: total, news_tick: 0 }
    }

    /// How many bytes have come.
    fn bytes(&self) -> u64 {
        self.total - self.left
    }

    /// A part of so many bytes in all has come, perhaps not for the first time. Whether that was all; `None`
    /// if it does not go with the others.
    fn take(&mut self, total: u64, offset: u64, bytes: Bytes) -> Option<bool> {
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
    fn whole(self) -> Option<Vec<u8>> {
        // All of them are here, so that this is not what a peer merely claims.
        let mut whole = Vec::with_capacity(self.parts.values().map(Bytes::len).sum());
        for (offset, bytes) in self.parts {
            if offset != whole.len() as u64 {
                return None;
            }
            whole.extend_from_slice(&bytes);
        }
        Some(whole)
    }
}

/// What has become of a part that came.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// The whole, if this was the last part that was missing.
    pub whole: Option<Vec<u8>>,
    /// What had begun before is given up, because too much comes at the same time: it is lost.
    pub lost: bool,
}

/// What comes in parts, by group, sender and number.
#[derive(Debug, Default)]
pub(super) struct Assemblies(BTreeMap<(PartitionId, NodeId, u64), Assembly>);

impl Assemblies {
    /// A part has come. What has come of others, behind the oldest, is at most so many bytes. `None` if the
    /// part does not go with the others of its whole.
    pub fn take(
        &mut self,
        group: PartitionId,
        from: NodeId,
        part: Part,
        bytes_max: u64,
        now_tick: u64,
    ) -> Option<Taken> {
        let key = (group, from, part.number);
        let mut taken = Taken::default();
        if !self.0.contains_key(&key) {
            taken.lost = self.make_room(group, from, bytes_max);
        }
        let begin = || Assembly::new(part.total);
        let known = self.0.entry(key).or_insert_with(begin);
        known.news_tick = now_tick;
        let fits = known.take(part.total, part.offset, part.bytes);
        if fits != Some(false) {
            let assembly = self.0.remove(&key)?;
            taken.whole = Some(assembly.whole().filter(|_| fits.is_some())?);
        }
        Some(taken)
    }

    /// Gives up the oldest, as long as too much has begun. Whether that was so.
    fn make_room(&mut self, group: PartitionId, from: NodeId, bytes_max: u64) -> bool {
        let begun = self.0.range((group, from, 0)..=(group, from, u64::MAX));
        let mut begun: Vec<(u64, u64)> =
            begun.map(|(&(.., number), assembly)| (number, assembly.bytes())).collect();
        let mut lost = 0;
        let mut behind: u64 = begun.iter().skip(1).map(|&(_, bytes)| bytes).sum();
        while begun.len() - lost >= ASSEMBLIES_MAX || behind > bytes_max {
            lost += 1;
            behind -= begun.get(lost).map_or(0, |&(_, bytes)| bytes);
        }
        for (number, _) in begun.drain(..lost) {
            self.0.remove(&(group, from, number));
        }
        lost > 0
    }

    /// Gives up what no part has come of for long.
    pub fn give_up(&mut self, now_tick: u64) {
        let old = now_tick.saturating_sub(PARTS_TICKS);
        self.0.retain(|_, assembly| assembly.news_tick >= old);
    }
}

#[cfg(test)]
mod tests {
    use super::{ASSEMBLIES_MAX, Assemblies, Assembly, Item, Large, Part, Taken};
    use bytes::Bytes;
    use txn::{NodeId, PartitionId};

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
    const GROUP: PartitionId = PartitionId(1);
    const FROM: NodeId = NodeId(2);

    /// The first of two parts of something, or the second.
    fn half(number: u64, is_second: bool) -> Part {
        let [offset, bytes] = if is_second { [4, 3] } else { [0, 4] };
        Part { item: Item::Answer, number, total: 7, offset, bytes: Bytes::from(vec![b'x'; bytes as usize]) }
    }

    /// All overtake each other, as over several ways through a network: nothing is lost.
    #[test]
    fn much_may_come_at_the_same_time() {
        let mut assemblies = Assemblies::default();
        let count = ASSEMBLIES_MAX as u64;
        for number in 0..count {
            let taken = assemblies.take(GROUP, FROM, half(number, false), 1 << 20, 0);
            assert_eq!(taken, Some(Taken::default()));
        }
        for number in (0..count).rev() {
            let taken = assemblies.take(GROUP, FROM, half(number, true), 1 << 20, 0);
            let whole = Some(b"xxxxxxx".to_vec());
            assert_eq!(taken, Some(Taken { whole, lost: false }));
        }
    }

    /// Whoever sends begins of more and more: what is given up is said to be lost.
    #[test]
    fn too_much_at_the_same_time_is_given_up_and_told() {
        let mut assemblies = Assemblies::default();
        let mut take = |part, bytes_max| assemblies.take(GROUP, FROM, part, bytes_max, 0);
        for number in 0..ASSEMBLIES_MAX as u64 {
            assert_eq!(take(half(number, false), 1 << 20), Some(Taken::default()));
        }
        let (whole, lost) = (None, true);
        assert_eq!(take(half(5_000, false), 1 << 20), Some(Taken { whole, lost }));
        // The oldest may be of any size; 20 bytes are five others.
        let (whole, lost) = (None, true);
        assert_eq!(take(half(5_001, false), 20), Some(Taken { whole, lost }));
        assert_eq!(assemblies.0.len(), 7);
        let numbers: Vec<u64> = assemblies.0.keys().map(|&(.., number)| number).collect();
        assert_eq!(numbers, [4_091, 4_092, 4_093, 4_094, 4_095, 5_000, 5_001]);
        assemblies.give_up(super::PARTS_TICKS);
        assert_eq!(assemblies.0.len(), 7);
        assemblies.give_up(super::PARTS_TICKS + 1);
        assert!(assemblies.0.is_empty());
    }
}
