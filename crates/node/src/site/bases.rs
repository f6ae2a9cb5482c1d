//! Bases on their way to a site that lacks what lies before them, in pieces: a base can be larger than a
//! frame.
//!
//! ```text
//!  leader                                        site that is behind
//!    offer (a piece without bytes) ────────────►   begins, or goes on with the base that it has a part of
//!                                  ◄────────────   ask: which base, from which byte on
//!    piece ────────────────────────────────────►   adds it, and asks for the next
//! ```
//!
//! The leader remembers nothing of a transfer: it cuts each piece from the base that its group has, and
//! offers that base to a site that asks for another one. One piece of a base is on its way at a time. If it
//! is lost, the site asks again. If another leader offers its base, the site begins anew with that one.
//!
//! A site takes the base of one group at a time, however many groups it lacks: so it holds the bytes of one
//! base beside its own data. It takes no notice of the offers of other groups meanwhile, and their leaders
//! offer their bases again. If the link to the base's sender breaks, the next offer takes the place of that
//! base, whichever group it is of.
//!
//! Invariants:
//! 1. At most one base arrives.
//! 2. A site holds less than `total` bytes of it, no byte before the ones that it has is missing, and it
//!    makes room only for bytes that have come: `total` is what another site says.

use bytes::Bytes;
use log::Base;
use std::collections::BTreeMap;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::{NodeId, PartitionId};

/// No state is larger: while a site encodes a state, writes it or takes it, the site says nothing, not even
/// that it is there.
pub const BASE_BYTES_MAX: usize = 256 << 20;
/// A piece that has not come is asked for again after so many ticks, and each time after twice as many: a
/// slow link must not be filled with what is on its way already.
const ASK_TICKS: u64 = 20;
/// The site that was asked for a piece so often in vain has no part in it.
const ASKS_MAX: u32 = 6;

/// A part of a base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BasePiece {
    /// The base without its state.
    pub head: Base,
    /// The bytes of the whole state.
    pub total: u64,
    /// Where `bytes` begin in the state.
    pub offset: u64,
    /// Empty in an offer.
    pub bytes: Bytes,
}

impl BasePiece {
    /// Tells a site of a base.
    pub fn offer(base: &Base) -> BasePiece {
        BasePiece::cut(base, 0, 0)
    }

    /// At most so many bytes of a base's state. Empty if the offset is none of the state's.
    fn cut(base: &Base, offset: u64, bytes_max: usize) -> BasePiece {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(base.state.len());
        let bytes = base.state.slice(from..base.state.len().min(from.saturating_add(bytes_max)));
        let head = Base { state: Bytes::new(), ..base.clone() };
        BasePiece { head, total: base.state.len() as u64, offset: from as u64, bytes }
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        self.head.encode(out);
        put_varint(out, self.total);
        put_varint(out, self.offset);
        put_bytes(out, &self.bytes);
    }

    /// `None` on anything that is no piece.
    pub fn take(reader: &mut Reader<'_>) -> Option<BasePiece> {
        let head = Base::take(reader)?;
        let (total, offset) = (reader.varint()?, reader.varint()?);
        let bytes = Bytes::copy_from_slice(reader.bytes()?);
        let is_inside = offset.checked_add(bytes.len() as u64)? <= total;
        (head.state.is_empty() && is_inside && total <= BASE_BYTES_MAX as u64).then_some(BasePiece {
            head,
            total,
            offset,
            bytes,
        })
    }
}

/// What a site asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// The last entry that the base covers, and its term.
    pub index: u64,
    pub term: u64,
    /// The first byte that the site lacks.
    pub offset: u64,
}

impl Ask {
    /// What the site is answered that asks, by one whose group has this base.
    pub fn answer(self, base: &Base, bytes_max: usize) -> BasePiece {
        match (self.index, self.term) == (base.index, base.term) {
            true => BasePiece::cut(base, self.offset, bytes_max),
            false => BasePiece::offer(base),
        }
    }

    pub fn put(self, out: &mut Vec<u8>) {
        [self.index, self.term, self.offset].into_iter().for_each(|number| put_varint(out, number));
    }

    /// `None` on anything that is no question.
    pub fn take(reader: &mut Reader<'_>) -> Option<Ask> {
        Some(Ask { index: reader.varint()?, term: reader.varint()?, offset: reader.varint()? })
    }
}

/// A base of which a part is here.
#[derive(Debug)]
struct Arriving {
    partition: PartitionId,
    from: NodeId,
    head: Base,
    total: u64,
    bytes: Vec<u8>,
    asked_tick: u64,
    /// How often the next piece was asked for in vain.
    asks: u32,
    /// The link to the sender has broken since the last piece came.
    is_cut_off: bool,
}

impl Arriving {
    fn ask(&self) -> Ask {
        Ask { index: self.head.index, term: self.head.term, offset: self.bytes.len() as u64 }
    }

    /// Whether a base that is offered takes the place of this one. A newer base of the same group whose
    /// sender is silent gives way to an older one: the sender may be gone.
    fn gives_way_to(&self, partition: PartitionId, head: &Base) -> bool {
        match partition == self.partition {
            true => head.index >= self.head.index || self.asks > 0 || self.is_cut_off,
            false => self.is_cut_off,
        }
    }
}

/// What a piece has led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Nothing,
    /// The site from which the piece came is asked for the next one.
    Ask(Ask),
    Whole(Base),
}

/// The bases that arrive at a site.
#[derive(Debug, Default)]
pub(super) struct Bases {
    arriving: Option<Arriving>,
    /// The newest agreed entry of each group that this site was told of and does not have. It outlasts a
    /// transfer that was given up.
    lacking: BTreeMap<PartitionId, u64>,
}

impl Bases {
    /// The groups of which this site was told of a base, and lacks what the base covers.
    pub fn groups(&self) -> impl Iterator<Item = PartitionId> {
        self.lacking.keys().copied()
    }

    /// A piece has come of a base that this site lacks.
    pub fn take(&mut self, from: NodeId, partition: PartitionId, piece: BasePiece, now_tick: u64) -> Taken {
        let BasePiece { head, total, offset, bytes } = piece;
        let is_offer = bytes.is_empty();
        let is_this = |known: &Arriving| {
            (known.partition, known.from, &known.head, known.total) == (partition, from, &head, total)
        };
        let is_known = self.arriving.as_ref().is_some_and(is_this);
        if !is_known {
            if !is_offer {
                return Taken::Nothing;
            }
            let lacking = self.lacking.entry(partition).or_default();
            *lacking = head.index.max(*lacking);
            if self.arriving.as_ref().is_some_and(|known| !known.gives_way_to(partition, &head)) {
                return Taken::Nothing;
            }
            self.arriving = Some(Arriving {
                partition,
                from,
                head,
                total,
                bytes: Vec::new(),
                asked_tick: now_tick,
                asks: 0,
                is_cut_off: false,
            });
        }
        let Some(arriving) = &mut self.arriving else { return Taken::Nothing };
        // The next piece of a base that arrives has been asked for already. `tick` asks again for a lost one.
        let is_offered_again = is_known && is_offer;
        if is_offered_again || !is_offer && offset != arriving.bytes.len() as u64 {
            return Taken::Nothing;
        }
        arriving.bytes.extend_from_slice(&bytes);
        arriving.is_cut_off = false;
        // A link that was slow stays so: the next piece is given almost as much time as this one took.
        (arriving.asked_tick, arriving.asks) = (now_tick, arriving.asks.saturating_sub(1));
        if (arriving.bytes.len() as u64) < total {
            return Taken::Ask(arriving.ask());
        }
        let Some(whole) = self.arriving.take() else { return Taken::Nothing };
        self.decided(partition, whole.head.index);
        Taken::Whole(Base { state: whole.bytes.into(), ..whole.head })
    }

    /// A group has come so far in another way: this site needs no base up to there.
    pub fn decided(&mut self, partition: PartitionId, index: u64) {
        self.arriving.take_if(|arriving| arriving.partition == partition && arriving.head.index <= index);
        if self.lacking.get(&partition).is_some_and(|lacking| *lacking <= index) {
            self.lacking.remove(&partition);
        }
    }

    /// The link to a site has broken.
    pub fn lost(&mut self, node: NodeId) {
        if let Some(arriving) = self.arriving.as_mut().filter(|arriving| arriving.from == node) {
            arriving.is_cut_off = true;
        }
    }

    /// The question that is asked again now: of whom, for which group.
    pub fn tick(&mut self, now_tick: u64) -> Option<(NodeId, PartitionId, Ask)> {
        let arriving = self.arriving.as_mut()?;
        if now_tick < arriving.asked_tick + (ASK_TICKS << arriving.asks) {
            return None;
        }
        (arriving.asked_tick, arriving.asks) = (now_tick, arriving.asks + 1);
        let again = (arriving.from, arriving.partition, arriving.ask());
        self.arriving.take_if(|arriving| arriving.asks > ASKS_MAX);
        Some(again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: PartitionId = PartitionId(3);
    const LEADER: NodeId = NodeId(1);

    fn base(index: u64, state: &'static str) -> Base {
        Base { index, term: 2, state: Bytes::from_static(state.as_bytes()), ..Base::default() }
    }

    fn ask(index: u64, offset: u64) -> Ask {
        Ask { index, term: 2, offset }
    }

    #[test]
    fn a_base_comes_piece_by_piece_whatever_comes_twice() {
        let (mut bases, base) = (Bases::default(), base(9, "abcdefgh"));
        let mut asked = match bases.take(LEADER, GROUP, BasePiece::offer(&base), 0) {
            Taken::Ask(asked) => asked,
            other => panic!("{other:?}"),
        };
        for offset in [3, 6] {
            let piece = asked.answer(&base, 3);
            assert_eq!(bases.take(LEADER, GROUP, piece.clone(), 0), Taken::Ask(ask(9, offset)));
            assert_eq!(bases.take(LEADER, GROUP, piece, 0), Taken::Nothing);
            asked = ask(9, offset);
        }
        // The leader offers it again, and the piece that was asked for is on its way.
        assert_eq!(bases.take(LEADER, GROUP, BasePiece::offer(&base), 0), Taken::Nothing);
        assert_eq!(bases.groups().collect::<Vec<_>>(), [GROUP]);
        let last = asked.answer(&base, 3);
        assert_eq!(last.bytes, "gh");
        // Nothing of another leader's is put behind it.
        assert_eq!(bases.take(NodeId(2), GROUP, last.clone(), 0), Taken::Nothing);
        assert_eq!(bases.take(LEADER, GROUP, last, 0), Taken::Whole(base.clone()));
        bases.take(LEADER, GROUP, BasePiece::offer(&base), 0);
        bases.take(LEADER, GROUP, ask(9, 0).answer(&base, 3), 0);
        let other = bases.take(NodeId(2), GROUP, BasePiece::offer(&base), 0);
        assert_eq!(other, Taken::Ask(ask(9, 0)));
        assert_eq!(bases.take(NodeId(2), GROUP, ask(9, 0).answer(&base, 8), 0), Taken::Whole(base));
        assert_eq!(bases.groups().count(), 0);
    }

    #[test]
    fn an_empty_state_needs_no_piece() {
        let empty = base(4, "");
        assert_eq!(Bases::default().take(LEADER, GROUP, BasePiece::offer(&empty), 0), Taken::Whole(empty));
    }

    #[test]
    fn a_newer_base_is_begun_anew_and_an_older_one_is_not() {
        let mut bases = Bases::default();
        let (old, new) = (base(9, "abc"), base(12, "xyz"));
        assert_eq!(bases.take(LEADER, GROUP, BasePiece::offer(&old), 0), Taken::Ask(ask(9, 0)));
        assert_eq!(bases.take(LEADER, GROUP, ask(9, 0).answer(&old, 2), 0), Taken::Ask(ask(9, 2)));
        // The leader has the newer one now, and offers it to the site that asks for the older one.
        let offer = ask(9, 2).answer(&new, 2);
        assert_eq!(offer, BasePiece::offer(&new));
        assert_eq!(bases.take(LEADER, GROUP, offer, 0), Taken::Ask(ask(12, 0)));
        for late in [BasePiece::offer(&old), ask(9, 2).answer(&old, 2)] {
            assert_eq!(bases.take(LEADER, GROUP, late, 0), Taken::Nothing);
        }
        assert_eq!(bases.take(LEADER, GROUP, ask(12, 0).answer(&new, 3), 0), Taken::Whole(new));
        // And what the entries have brought is not waited for.
        bases.take(LEADER, GROUP, BasePiece::offer(&old), 0);
        bases.decided(GROUP, 8);
        assert_eq!(bases.groups().count(), 1);
        bases.decided(GROUP, 9);
        assert_eq!(bases.groups().count(), 0);
    }

    #[test]
    fn an_older_base_replaces_a_newer_one_whose_leader_is_silent() {
        let mut bases = Bases::default();
        let (old, new) = (base(9, "abc"), base(12, "xyz"));
        bases.take(LEADER, GROUP, BasePiece::offer(&new), 0);
        let offer = BasePiece::offer(&old);
        assert_eq!(bases.take(NodeId(2), GROUP, offer.clone(), 1), Taken::Nothing);
        assert!(bases.tick(ASK_TICKS).is_some());
        assert_eq!(bases.take(NodeId(2), GROUP, offer, ASK_TICKS), Taken::Ask(ask(9, 0)));
        let whole = bases.take(NodeId(2), GROUP, ask(9, 0).answer(&old, 3), ASK_TICKS);
        assert_eq!(whole, Taken::Whole(old));
        assert_eq!(bases.groups().collect::<Vec<_>>(), [GROUP], "the newer base covered more");
        bases.decided(GROUP, 12);
        assert_eq!(bases.groups().count(), 0);
    }

    #[test]
    fn one_base_arrives_at_a_time_and_gives_way_to_another_group_only_without_its_sender() {
        const OTHER: PartitionId = PartitionId(5);
        let mut bases = Bases::default();
        let (first, second) = (base(9, "abcdef"), base(12, "xyz"));
        assert_eq!(bases.take(LEADER, GROUP, BasePiece::offer(&first), 0), Taken::Ask(ask(9, 0)));
        assert_eq!(bases.take(LEADER, GROUP, ask(9, 0).answer(&first, 3), 0), Taken::Ask(ask(9, 3)));
        // The other group waits, also while the sender of the first one is slow.
        let offer = || BasePiece::offer(&second);
        assert_eq!(bases.take(NodeId(2), OTHER, offer(), 0), Taken::Nothing);
        assert!(bases.tick(ASK_TICKS).is_some());
        assert_eq!(bases.take(NodeId(2), OTHER, offer(), ASK_TICKS), Taken::Nothing);
        assert_eq!(bases.groups().collect::<Vec<_>>(), [GROUP, OTHER], "the site lacks both");
        // A link to another site tells nothing of the sender, and what was here is not lost.
        bases.lost(NodeId(2));
        assert_eq!(bases.take(NodeId(2), OTHER, offer(), ASK_TICKS), Taken::Nothing);
        let last = ask(9, 3).answer(&first, 3);
        assert_eq!(bases.take(LEADER, GROUP, last, ASK_TICKS), Taken::Whole(first.clone()));
        assert_eq!(bases.take(NodeId(2), OTHER, offer(), ASK_TICKS), Taken::Ask(ask(12, 0)));
        // Without its sender, a base gives way. With the sender back, it does not.
        bases.lost(NodeId(2));
        let piece = ask(12, 0).answer(&second, 1);
        assert_eq!(bases.take(NodeId(2), OTHER, piece, ASK_TICKS), Taken::Ask(ask(12, 1)));
        assert_eq!(bases.take(LEADER, GROUP, BasePiece::offer(&first), ASK_TICKS), Taken::Nothing);
        bases.lost(NodeId(2));
        assert_eq!(bases.take(LEADER, GROUP, BasePiece::offer(&first), ASK_TICKS), Taken::Ask(ask(9, 0)));
    }

    #[test]
    fn a_base_takes_no_more_room_than_has_come_of_it() {
        let mut bases = Bases::default();
        let offer = BasePiece { total: BASE_BYTES_MAX as u64, ..BasePiece::offer(&base(9, "")) };
        bases.take(LEADER, GROUP, offer.clone(), 0);
        let piece = BasePiece { bytes: Bytes::from_static(b"abc"), ..offer };
        assert_eq!(bases.take(LEADER, GROUP, piece, 0), Taken::Ask(ask(9, 3)));
        let room = bases.arriving.as_ref().map(|arriving| arriving.bytes.capacity());
        assert!(room.is_some_and(|room| room < 64), "{room:?}");
    }

    #[test]
    fn a_lost_piece_is_asked_for_again_ever_more_rarely_and_not_for_ever() {
        let mut bases = Bases::default();
        bases.take(LEADER, GROUP, BasePiece::offer(&base(9, "abc")), 0);
        let asked: Vec<u64> = (1..10_000).filter(|&tick| bases.tick(tick).is_some()).collect();
        assert_eq!(asked[..4], [20, 60, 140, 300]);
        assert_eq!((asked.len(), bases.arriving.is_none()), (ASKS_MAX as usize + 1, true));
        assert_eq!(bases.groups().collect::<Vec<_>>(), [GROUP], "the site still lacks what the base covers");
        bases.decided(GROUP, 9);
        assert_eq!(bases.groups().count(), 0);
    }

    #[test]
    fn on_a_slow_link_no_piece_is_asked_for_twice_for_long() {
        const DELAY_TICKS: u64 = 100;
        let (mut bases, base) = (Bases::default(), base(9, "abcdefghijkl"));
        bases.take(LEADER, GROUP, BasePiece::offer(&base), 0);
        let mut again = 0;
        for offset in 0..11 {
            let asked_tick = DELAY_TICKS * offset;
            for tick in asked_tick + 1..asked_tick + DELAY_TICKS {
                again += u32::from(bases.tick(tick).is_some());
                // The leader knows nothing of the transfer.
                let offer = BasePiece::offer(&base);
                assert_eq!(bases.take(LEADER, GROUP, offer, tick), Taken::Nothing);
            }
            let piece = ask(9, offset).answer(&base, 1);
            let taken = bases.take(LEADER, GROUP, piece, asked_tick + DELAY_TICKS);
            assert_eq!(taken, Taken::Ask(ask(9, offset + 1)));
        }
        assert!(again <= 12, "{again} questions for 11 pieces were asked again");
    }

    #[test]
    fn what_is_no_piece_is_told() {
        let piece = ask(9, 1).answer(&base(9, "abcd"), 2);
        let read = |piece: &BasePiece| {
            let mut out = Vec::new();
            piece.put(&mut out);
            BasePiece::take(&mut Reader::new(&out))
        };
        assert_eq!(read(&piece), Some(piece.clone()));
        for wrong in [
            BasePiece { offset: 3, ..piece.clone() },
            BasePiece { offset: u64::MAX, ..piece.clone() },
            BasePiece { total: BASE_BYTES_MAX as u64 + 1, ..piece.clone() },
            BasePiece { head: base(9, "abcd"), ..piece.clone() },
        ] {
            assert_eq!(read(&wrong), None, "{wrong:?}");
        }
    }
}
