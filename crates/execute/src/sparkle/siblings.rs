//! Multi-partition transactions: the books of those that are under way here, and what is to be said of them.
//!
//! [`crate::siblings`] tells the protocol; this is where the engine keeps to it. A sub-transaction's book has
//! a latch. Under it are decided, together with the transaction's status word: that it read something and
//! tells it; that it took a sibling's value; that it is speculatively committed; and that it is doomed, by an
//! earlier transaction of this partition (which raises its number) or by a sibling's value (which does not,
//! and keeps the incarnation, and with it all read dependencies). What is said may arrive in any order, so
//! nothing else needs to be decided together.

use super::status::{COMMITTED, DOOMED, Effect, MULTI, PARKED, READY, RUNNING, Ticket};
use super::{Shared, Variant};
use crate::siblings::groups::{self, Groups};
use crate::siblings::{AbortNumber, Asked, Basis, Exchange, Message, Note, Told};
use std::collections::VecDeque;
use std::sync::Arc;
use store::sync::atomic::{AtomicU64, Ordering};
use txn::mutant::{Mutant, is_active};
use txn::{Batch, Epoch, PartitionId, Position};

/// The book of a sub-transaction, and what its engine notes beside it.
pub(super) struct Book {
    pub(super) exchange: Exchange<Asked, Told>,
    /// The incarnation at hand is doomed by an earlier transaction of this partition, not only by a sibling's
    /// value.
    doomed_here: bool,
    /// Later members that runs of it aborted.
    raised: Vec<u32>,
    /// Its anchor was said.
    anchored: bool,
}

pub(super) type GroupBook = groups::GroupBook<Book>;
pub(super) type Member = groups::Member<Book>;

impl Member {
    /// What to say when the head has come to it.
    fn anchor(&self, number: AbortNumber) -> Note {
        // Of the others it says that they have their first numbers.
        let later = self.group.notes.lock().raised_behind(self.place);
        let later = later.into_iter().map(|later| (later, self.group.number(later)));
        Note::Anchor {
            member: self.place,
            number,
            raised: later.filter(|_| !is_active(Mutant::AnchorOnlyFirst)).collect(),
        }
    }
    /// What to say when it is speculatively committed, and has aborted these.
    fn confirmation(&self, basis: Basis, raised: Vec<u32>) -> Note {
        let raised = raised.into_iter().map(|later| (later, self.group.number(later)));
        Note::Confirmation { member: self.place, basis, raised: raised.collect() }
    }
}

/// What the engine keeps of multi-partition transactions.
#[derive(Default)]
pub(super) struct Siblings {
    pub(super) groups: Groups<Book>,
    /// The era of new books.
    era: AtomicU64,
    /// Of the epochs up to this one, somebody who heard of them from another replica waits for what is final.
    finals_upto: AtomicU64,
}

impl Siblings {
    pub(super) fn new(era: u64) -> Siblings {
        Siblings { era: AtomicU64::new(era), ..Siblings::default() }
    }

    /// All groups from this position on are void.
    pub(super) fn retract(&self, from: Position) {
        self.groups.retract(from);
        self.era.fetch_add(1, Ordering::SeqCst);
    }
}

/// Why a book gives no value.
pub(super) enum NoValue {
    /// The incarnation is doomed.
    Doomed,
    /// The sibling has not told it yet.
    NotTold,
}

impl Shared {
    /// A slot's sub-transaction.
    pub(super) fn member(&self, position: Position) -> Option<Member> {
        self.slot(position).member.lock().clone()
    }

    // What the transaction does.

    /// It has read something here; `Err` if it is doomed.
    pub(super) fn tell(
        &self,
        member: &Member,
        me: Position,
        asked: Asked,
        told: &Told,
    ) -> Result<(), NoValue> {
        let note = {
            let mut book = member.book().lock();
            if self.slot(me).status.load().has(DOOMED) {
                return Err(NoValue::Doomed);
            }
            if !book.exchange.read(asked.clone(), told.clone()) {
                return Ok(());
            }
            if self.variant == Variant::Conservative && !book.anchored {
                return Ok(());
            }
            Note::Read { member: member.place, number: book.exchange.number(), asked, told: told.clone() }
        };
        self.siblings.groups.say(member, self.me, note);
        Ok(())
    }

    /// It reads something of a sibling's partition.
    pub(super) fn take_from(
        &self,
        member: &Member,
        me: Position,
        from: PartitionId,
        asked: &Asked,
    ) -> Result<Told, NoValue> {
        let mut book = member.book().lock();
        if self.slot(me).status.load().has(DOOMED) {
            return Err(NoValue::Doomed);
        }
        book.exchange.take(from, asked).ok_or(NoValue::NotTold)
    }

    /// Its versions are installed: it is speculatively committed, unless it is doomed.
    pub(super) fn commit_member(&self, member: &Member, me: Position, ignore_doom: bool) -> bool {
        let basis = {
            let mut book = member.book().lock();
            if !self.slot(me).status.commit(ignore_doom) {
                return false;
            }
            book.exchange.execute()
        };
        self.say_confirmation(member, basis);
        true
    }

    fn say_confirmation(&self, member: &Member, basis: Option<Basis>) {
        let Some(basis) = basis.filter(|_| self.variant.confirms_speculatively()) else {
            return;
        };
        if member.followers().next().is_none() {
            return;
        }
        let raised = member.book().lock().raised.clone();
        self.siblings.groups.say(member, self.me, member.confirmation(basis, raised));
    }

    /// An undone transaction begins its next incarnation, or the same one again if only a sibling's value was
    /// wrong. The word of the slot then.
    pub(super) fn begin_undo_member(&self, member: &Member, me: Position) -> super::status::Word {
        let mut book = member.book().lock();
        let here = std::mem::take(&mut book.doomed_here);
        if !here && is_active(Mutant::RaiseOnStartOver) {
            book.exchange.abort();
        }
        let keeps = !here && !is_active(Mutant::VoidDependencies);
        self.slot(me).status.begin_undo(keeps)
    }

    // What others do to it.

    /// An earlier transaction of this partition, at `by`, dooms a sub-transaction.
    pub(super) fn doom_member(&self, by: Position, ticket: Ticket) -> Effect {
        let at = ticket.position();
        let Some(member) = self.member(at) else {
            return Effect::Noted;
        };
        let status = &self.slot(at).status;
        let (effect, raised) = {
            let mut book = member.book().lock();
            let word = status.load();
            let is_alive = matches!(word.state(), RUNNING | PARKED | READY | COMMITTED);
            if !word.is_of(ticket) || !is_alive || book.doomed_here {
                return Effect::Noted;
            }
            book.doomed_here = true;
            let raised = book.exchange.abort();
            if raised.is_some() {
                member.group.notes.lock().raise(member.place);
            }
            (status.doom(ticket), raised)
        };
        if raised.is_some() && by >= member.group.first {
            let aborter = (by.0 - member.group.first.0) as usize;
            let mut book = member.group.members[aborter].lock();
            if !book.raised.contains(&member.place) && !is_active(Mutant::ForgetRaised) {
                book.raised.push(member.place);
            }
        }
        effect
    }

    // Final commit.

    /// Whether nothing that its siblings told is in doubt any more.
    pub(super) fn is_settled(&self, at: Position) -> bool {
        let Some(member) = self.member(at).filter(|_| !is_active(Mutant::CommitUnsettled)) else {
            return true;
        };
        let Some(before) = member.place.checked_sub(1) else {
            return member.book().lock().exchange.is_settled(None);
        };
        let before = member.group.members[before as usize].lock();
        let book = member.book().lock();
        book.exchange.is_settled(Some(&before.exchange))
    }

    /// It has final-committed.
    pub(super) fn settle_member(&self, at: Position) {
        let member = self.slot(at).member.lock().take();
        if let Some(member) = member {
            let values = {
                let mut book = member.book().lock();
                book.exchange.settle();
                let is_awaited = self.siblings.finals_upto.load(Ordering::SeqCst) >= member.group.id.epoch.0;
                is_awaited.then(|| book.exchange.told().to_vec())
            };
            if let Some(values) = values {
                let note = Note::Final { member: member.place, values };
                self.siblings.groups.say(&member, self.me, note);
            }
            if member.followers().next().is_none() {
                self.siblings.groups.close(&member.group);
            }
        }
    }

    /// The head has come to a transaction: its siblings are told that nothing here can abort it any more.
    pub(super) fn say_anchor(&self, at: Position) {
        if !self.slot(at).status.load().has(MULTI) {
            return;
        }
        let Some(member) = self.member(at).filter(|member| member.position() == at) else {
            return;
        };
        let (number, values) = {
            let mut book = member.book().lock();
            if book.anchored {
                return;
            }
            book.anchored = true;
            let kept_back = self.variant == Variant::Conservative;
            let told = book.exchange.told();
            let values = if kept_back { told.to_vec() } else { Vec::new() };
            (book.exchange.number(), values)
        };
        self.siblings.groups.say(&member, self.me, member.anchor(number));
        for (asked, told) in values {
            let note = Note::Read { member: member.place, number, asked, told };
            self.siblings.groups.say(&member, self.me, note);
        }
    }

    /// Says again what was said to a partition of the groups behind an epoch: what it was told before may be
    /// lost.
    pub(super) fn tell_again(&self, to: PartitionId, behind: Epoch, heard: Epoch) {
        // Before the books are looked at: who final-commits afterwards says so.
        self.siblings.finals_upto.fetch_max(heard.0, Ordering::SeqCst);
        for group in self.siblings.groups.behind(behind, to) {
            let notes = groups::members(&group).flat_map(|member| self.notes_of(&member));
            let notes = notes.collect();
            self.siblings.groups.say_to(to, &group, notes);
        }
    }

    /// All that is to be said of a sub-transaction as it is now.
    fn notes_of(&self, member: &Member) -> Vec<Note> {
        let place = member.place;
        let (told, number, is_settled, is_anchored, basis, raised) = {
            let book = member.book().lock();
            let exchange = &book.exchange;
            (
                exchange.told().to_vec(),
                exchange.number(),
                exchange.has_settled(),
                book.anchored,
                exchange.confirmed().cloned(),
                book.raised.clone(),
            )
        };
        if is_settled {
            return vec![Note::Final { member: place, values: told }];
        }
        let mut notes = Vec::new();
        if is_anchored {
            notes.push(member.anchor(number));
        }
        if is_anchored || self.variant != Variant::Conservative {
            notes.extend(told.into_iter().map(|(asked, told)| Note::Read {
                member: place,
                number,
                asked,
                told,
            }));
        }
        if let Some(basis) = basis.filter(|_| self.variant.confirms_speculatively()) {
            notes.push(member.confirmation(basis, raised));
        }
        notes
    }

    // What siblings say.

    /// Takes what another partition says.
    pub(super) fn receive(&self, from: PartitionId, message: Message) {
        for (group, notes) in self.siblings.groups.receive(from, message) {
            self.hear(from, &group, notes);
        }
    }

    /// Opens the books of a batch's groups, and takes what was said of them before. Their members, in order.
    pub(super) fn open_groups(&self, batch: &Batch) -> VecDeque<Member> {
        let era = self.siblings.era.load(Ordering::SeqCst);
        let opened = self.siblings.groups.open(batch, |id| Book {
            exchange: Exchange::new(self.me, &id.partitions, era),
            doomed_here: false,
            raised: Vec::new(),
            anchored: false,
        });
        let mut members = VecDeque::new();
        for (group, said) in opened {
            for (from, notes) in said {
                self.hear(from, &group, notes);
            }
            members.extend(groups::members(&group));
        }
        members
    }

    fn hear(&self, from: PartitionId, group: &Arc<GroupBook>, notes: Vec<Note>) {
        for note in notes {
            match note {
                Note::Read { member, number, asked, told } => {
                    self.hear_of(group, member, |book| book.learn(from, number, &[(asked, told)]))
                }
                Note::Final { member, values } => {
                    self.hear_of(group, member, |book| book.learn_final(from, &values));
                }
                Note::Anchor { member, number, raised } => {
                    let first = AbortNumber::first(number.era);
                    let members = group.members.len() as u32;
                    let who = (from, number.era);
                    let begun = group.notes.lock().begin(who, member, members);
                    for later in begun {
                        self.hear_number(group, later, from, first);
                    }
                    for (later, number) in raised {
                        self.hear_number(group, later, from, number);
                    }
                    self.hear_of(group, member, |book| book.learn_anchor(from, number));
                }
                Note::Confirmation { member, basis, raised } => {
                    for (later, number) in raised {
                        self.hear_number(group, later, from, number);
                    }
                    self.hear_of(group, member, |book| {
                        book.learn_confirmation(from, &basis);
                        crate::siblings::Heard::default()
                    });
                }
                // All partitions have one engine, and this one executes transactions whole.
                Note::Fragments { .. } => {}
            }
        }
    }

    fn hear_number(&self, group: &GroupBook, place: u32, from: PartitionId, number: AbortNumber) {
        if let Some(book) = group.members.get(place as usize) {
            book.lock().exchange.learn_number(from, number);
        }
    }

    fn hear_of(
        &self,
        group: &Arc<GroupBook>,
        place: u32,
        learn: impl FnOnce(&mut Exchange<Asked, Told>) -> crate::siblings::Heard,
    ) {
        let Some(book) = group.members.get(place as usize) else {
            return;
        };
        let member = Member { group: group.clone(), place };
        let at = member.position();
        let status = &self.slot(at).status;
        let (basis, effect) = {
            let mut book = book.lock();
            let heard = learn(&mut book.exchange);
            // A slot that holds another transaction, or is not filled yet, has nobody to tell.
            let word = status.load();
            let is_here = word.is_at(at) && word.has(MULTI) && !group.is_void();
            let ticket = Ticket::new(at, word.incarnation());
            let effect = if heard.restart {
                book.exchange.start_over();
                is_here.then(|| status.doom(ticket))
            } else if heard.wake {
                is_here.then(|| status.wake(ticket, false))
            } else {
                None
            };
            (heard.confirm, effect)
        };
        if let Some(effect) = effect {
            self.effect(at, effect);
        }
        self.say_confirmation(&member, basis);
    }
}

impl GroupBook {
    fn number(&self, place: u32) -> AbortNumber {
        self.members[place as usize].lock().exchange.number()
    }
}
