//! The status word of a slot: who is in it, which incarnation, in which state, and what others have asked of
//! it.
//!
//! ```text
//!            fill                 start                     procedure returned, versions installed
//!   EMPTY ─────────► DELIVERED ─────────► RUNNING ─────────────────────────────────────► COMMITTED ───────► FINAL ──► EMPTY
//!                        │                 ▲   │ park at a lock                              │      confirmed,
//!                        │ heavy, met by   │   ▼                                             │      all before final
//!                        │ a light worker  │  PARKED                                         │
//!                        └─────► READY ────┘   │ lock handed on, or doomed                   │ doomed
//!                                 ▲            │                                             │
//!                                 └────────────┴─────────────────────────────────────────────┘
//! ```
//! `RUNNING` belongs to one worker, and only that worker leaves it: to `READY`, too, in the middle of its
//! procedure, for an earlier one or because its thread has something else to do. Others leave it word by
//! flags:
//! - `DOOMED`: the incarnation must be undone. Set on `RUNNING` and `READY`; `PARKED` and `COMMITTED` become
//!   `READY` with it.
//! - `WAKE`: what the transaction was about to park for has come. Set on `RUNNING` only; parking then fails.
//! - `RETRACTED`: the transaction is void: undo it and empty the slot. Comes with `DOOMED`.
//! - `HEAD`: parked until every earlier transaction has final-committed. `HEAVY`: only workers that take
//!   heavy work run it.
//! - `MULTI`: it has siblings: whoever dooms it opens its book first ([`super::siblings`]).
//!
//! Word: 40 bits of position, 1 for `MULTI`, 2 that are free, 13 of incarnation, 5 of other flags, 3 of
//! state. Whoever wants something of a transaction names position and incarnation (a [`Ticket`]); if the slot
//! has moved on, the wish is void, which is right: incarnations that are gone need no dooming. A position's
//! 40 bits last for 12 days at a million transactions a second before *aliasing* (not overflowing); an alias
//! needs a reader that is 2^40 positions old, and readers are collected behind the final position. An alias
//! of the incarnation, after 8,192 restarts of one transaction, dooms or wakes one in vain.

use std::fmt;
use store::sync::atomic::{AtomicU64, Ordering};
use txn::Position;

pub(super) const EMPTY: u64 = 0;
pub(super) const DELIVERED: u64 = 1;
pub(super) const RUNNING: u64 = 2;
pub(super) const PARKED: u64 = 3;
pub(super) const READY: u64 = 4;
pub(super) const COMMITTED: u64 = 5;
pub(super) const FINAL: u64 = 6;
const STATE: u64 = 0b111;

pub(super) const DOOMED: u64 = 1 << 3;
pub(super) const WAKE: u64 = 1 << 4;
pub(super) const RETRACTED: u64 = 1 << 5;
pub(super) const HEAD: u64 = 1 << 6;
pub(super) const HEAVY: u64 = 1 << 7;
pub(super) const MULTI: u64 = 1 << 23;

const INCARNATION_SHIFT: u32 = 8;
const POSITION_SHIFT: u32 = 24;
const POSITION_BITS: u64 = (1 << 40) - 1;

/// An incarnation of a transaction: what locks, waiters and readers name. 48 bits of position, 13 of
/// incarnation, and the marks that a record needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Ticket(u64);

const INCARNATIONS: u16 = 0x1fff;
/// It holds the lock.
pub(super) const LOCKS: u64 = 1 << 15;
/// The lock is reserved: kept by an undone transaction that has not asked for it again.
pub(super) const RESERVED: u64 = 1 << 14;
/// It has read.
pub(super) const READS: u64 = 1 << 13;

impl Ticket {
    /// Nobody.
    pub(super) const NONE: Ticket = Ticket(0);

    pub(super) fn new(position: Position, incarnation: u16) -> Ticket {
        Ticket(position.0 << 16 | u64::from(incarnation & INCARNATIONS))
    }
    /// The ticket on a reserved lock: may be taken over without dooming anybody.
    pub(super) fn reserved(self) -> Ticket {
        Ticket(self.0 | RESERVED)
    }
    #[inline]
    pub(super) fn marked(self, marks: u64) -> Ticket {
        Ticket(self.0 | marks)
    }
    /// Whether it has any of the marks.
    #[inline]
    pub(super) fn has(self, marks: u64) -> bool {
        self.0 & marks != 0
    }
    /// The ticket without any mark.
    #[inline]
    pub(super) fn unmarked(self) -> Ticket {
        Ticket(self.0 & !(LOCKS | RESERVED | READS))
    }
    /// The ticket without these marks; none if it neither holds the lock nor has read then.
    #[inline]
    pub(super) fn without(self, mark: u64) -> Ticket {
        let left = Ticket(self.0 & !mark);
        match left.has(LOCKS | READS) {
            true => left,
            false => Ticket::NONE,
        }
    }
    pub(super) fn is_reserved(self) -> bool {
        self.0 & RESERVED != 0
    }
    #[inline]
    pub(super) fn position(self) -> Position {
        Position(self.0 >> 16)
    }
    pub(super) fn incarnation(self) -> u16 {
        self.0 as u16 & INCARNATIONS
    }
    #[inline]
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{}", self.position(), self.incarnation())
    }
}

/// A value of a status word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    pub(super) fn new(ticket: Ticket, state: u64) -> Word {
        Word(
            (ticket.position().0 & POSITION_BITS) << POSITION_SHIFT
                | u64::from(ticket.incarnation()) << INCARNATION_SHIFT
                | state,
        )
    }
    #[inline]
    pub(super) fn state(self) -> u64 {
        self.0 & STATE
    }
    #[inline]
    pub(super) fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }
    /// Another state, flags kept.
    pub(super) fn in_state(self, state: u64) -> Word {
        Word(self.0 & !STATE | state)
    }
    pub(super) fn with(self, flags: u64) -> Word {
        Word(self.0 | flags)
    }
    pub(super) fn without(self, flags: u64) -> Word {
        Word(self.0 & !flags)
    }
    pub(super) fn incarnation(self) -> u16 {
        (self.0 >> INCARNATION_SHIFT) as u16 & INCARNATIONS
    }
    /// The next incarnation, running, without what was asked of this one.
    fn next_incarnation(self) -> Word {
        let next = u64::from((self.incarnation() + 1) & INCARNATIONS) << INCARNATION_SHIFT;
        let cleared = self.0 & !(u64::from(INCARNATIONS) << INCARNATION_SHIFT);
        Word(cleared | next).without(DOOMED | WAKE | HEAD)
    }
    pub(super) fn is_at(self, position: Position) -> bool {
        self.0 >> POSITION_SHIFT == position.0 & POSITION_BITS
    }
    #[inline]
    pub(super) fn is_of(self, ticket: Ticket) -> bool {
        self.is_at(ticket.position()) && self.incarnation() == ticket.incarnation()
    }
    /// Whether it is that incarnation, which has begun, is not final, and is not doomed yet.
    pub(super) fn is_doomable(self, ticket: Ticket) -> bool {
        let has_begun = matches!(self.state(), RUNNING | READY | PARKED | COMMITTED);
        has_begun && self.is_of(ticket) && !self.has(DOOMED)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = ["EMPTY", "DELIVERED", "RUNNING", "PARKED", "READY", "COMMITTED", "FINAL", "?"]
            [self.state() as usize];
        write!(f, "@{}.{} {state}", self.0 >> POSITION_SHIFT, self.incarnation())?;
        for (flag, name) in
            [(DOOMED, "DOOMED"), (WAKE, "WAKE"), (RETRACTED, "RETRACTED"), (HEAD, "HEAD"), (HEAVY, "HEAVY")]
        {
            if self.has(flag) {
                write!(f, "+{name}")?;
            }
        }
        Ok(())
    }
}

/// What a wish did to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing, or a flag that the owner will see.
    Noted,
    /// The transaction became ready: put it into the ready set. Whether it was parked.
    MadeReady {
        /// It was parked (and not committed).
        parked: bool,
    },
}

/// A status word that workers share.
///
/// Sequentially consistent throughout: beside the handing over of what a slot holds (which release and
/// acquire would do) it takes part in two store-load races, with [`store::Clears`] and with the head's
/// advance.
#[derive(Debug, Default)]
pub(super) struct StatusWord(AtomicU64);

impl StatusWord {
    #[inline]
    pub(super) fn load(&self) -> Word {
        Word(self.0.load(Ordering::SeqCst))
    }
    /// For whoever owns the slot (fills, or empties it).
    pub(super) fn store(&self, word: Word) {
        self.0.store(word.0, Ordering::SeqCst);
    }
    #[inline]
    fn swap_if(&self, old: Word, new: Word) -> bool {
        self.0.compare_exchange(old.0, new.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
    /// Changes the word as long as `change` gives a new one; returns the old and the new word.
    fn update(&self, mut change: impl FnMut(Word) -> Option<Word>) -> Option<(Word, Word)> {
        let mut old = self.load();
        loop {
            let new = change(old)?;
            if self.swap_if(old, new) {
                return Some((old, new));
            }
            old = self.load();
        }
    }

    /// A worker starts the transaction at `position`.
    pub(super) fn start(&self, position: Position) -> Option<Word> {
        self.update(|word| {
            (word.is_at(position) && word.state() == DELIVERED).then(|| word.in_state(RUNNING))
        })
        .map(|(_, new)| new)
    }
    /// A worker takes whatever transaction is ready here.
    pub(super) fn resume(&self) -> Option<Word> {
        self.update(|word| (word.state() == READY).then(|| word.in_state(RUNNING))).map(|(_, new)| new)
    }
    /// A light worker leaves a delivered heavy transaction to others.
    pub(super) fn leave_heavy(&self, position: Position) -> bool {
        self.update(|word| (word.is_at(position) && word.state() == DELIVERED).then(|| word.in_state(READY)))
            .is_some()
    }
    /// Dooms an incarnation.
    pub(super) fn doom(&self, ticket: Ticket) -> Effect {
        let changed = self.update(|word| {
            if !word.is_doomable(ticket) {
                return None;
            }
            let doomed = word.with(DOOMED);
            Some(if matches!(word.state(), PARKED | COMMITTED) { doomed.in_state(READY) } else { doomed })
        });
        made_ready(changed)
    }
    /// What a parked (or soon to be parked) incarnation waits for has come.
    pub(super) fn wake(&self, ticket: Ticket, lose_wake_up: bool) -> Effect {
        let changed = self.update(|word| {
            if !word.is_of(ticket) {
                return None;
            }
            match word.state() {
                RUNNING if lose_wake_up => None,
                RUNNING => Some(word.with(WAKE)),
                PARKED => Some(word.in_state(READY).without(HEAD)),
                _ => None,
            }
        });
        made_ready(changed)
    }
    /// The head has come to `position`: wakes a transaction that is parked for that.
    pub(super) fn wake_head(&self, position: Position) -> Effect {
        let changed = self.update(|word| {
            (word.is_at(position) && word.state() == PARKED && word.has(HEAD))
                .then(|| word.in_state(READY).without(HEAD))
        });
        made_ready(changed)
    }
    /// The owner parks the transaction; fails if it was doomed, or if what it waits for has come (which
    /// clears `WAKE`).
    pub(super) fn park(&self, flags: u64) -> bool {
        let changed = self.update(|word| {
            debug_assert_eq!(word.state(), RUNNING);
            if word.has(DOOMED) {
                return None;
            }
            Some(if word.has(WAKE) { word.without(WAKE) } else { word.in_state(PARKED).with(flags) })
        });
        changed.is_some_and(|(_, new)| new.state() == PARKED)
    }
    /// The owner speculatively commits the transaction; fails if it is doomed (unless told to ignore that).
    pub(super) fn commit(&self, ignore_doom: bool) -> bool {
        self.update(|word| {
            debug_assert_eq!(word.state(), RUNNING);
            (ignore_doom || !word.has(DOOMED)).then(|| word.in_state(COMMITTED).without(WAKE))
        })
        .is_some()
    }
    /// The committer final-commits the head.
    pub(super) fn finalize(&self, position: Position) -> bool {
        self.update(|word| (word.is_at(position) && word.state() == COMMITTED).then(|| word.in_state(FINAL)))
            .is_some()
    }
    /// The owner begins to undo the incarnation. From here on its tickets are void: what still names them is
    /// about to be undone anyway. If the same incarnation is to run again, they are not.
    pub(super) fn begin_undo(&self, again: bool) -> Word {
        let changed = self.update(|word| {
            debug_assert_eq!(word.state(), RUNNING);
            Some(match again {
                true => word.without(DOOMED | WAKE | HEAD),
                false => word.next_incarnation(),
            })
        });
        changed.map_or_else(|| self.load(), |(_, new)| new)
    }
    /// The owner gives an undone transaction back to be run again; fails if it was doomed or retracted
    /// meanwhile.
    pub(super) fn give_back(&self) -> bool {
        self.update(|word| (!word.has(DOOMED)).then(|| word.in_state(READY).without(WAKE))).is_some()
    }
    /// The transaction is void. If it had not begun the slot is empty now; else it is doomed.
    pub(super) fn retract(&self, position: Position) -> Effect {
        let changed = self.update(|word| {
            if !word.is_at(position) {
                return None;
            }
            match word.state() {
                DELIVERED => Some(word.in_state(EMPTY)),
                RUNNING | READY => Some(word.with(DOOMED | RETRACTED)),
                PARKED | COMMITTED => Some(word.with(DOOMED | RETRACTED).in_state(READY)),
                _ => None,
            }
        });
        made_ready(changed)
    }
}

fn made_ready(changed: Option<(Word, Word)>) -> Effect {
    match changed {
        Some((old, new)) if new.state() == READY && old.state() != READY => {
            Effect::MadeReady { parked: old.state() == PARKED }
        }
        _ => Effect::Noted,
    }
}
