//! The books of sub-transactions that tell only what is final.
//!
//! A book has a latch, under which a value that comes meets whoever waits for it: either the value is there
//! before somebody decides to wait, or the waiter is in the book when the value comes.

use crate::siblings::groups::{self, Groups};
use crate::siblings::{Asked, Exchange, FragmentResults, Message, Note, Told};
use smallvec::SmallVec;
use txn::mutant::{Mutant, is_active};
use txn::{Batch, Epoch, PartitionId, Position};

/// The book of a sub-transaction.
pub(crate) struct Book {
    exchange: Exchange<Asked, Told>,
    /// What it is parked for.
    awaited: Option<Awaited>,
    /// What its fragments came to here, if each was executed by itself.
    told: Option<FragmentResults>,
    /// And what they came to at its siblings.
    heard: Heard,
}

/// What fragments came to at siblings.
pub(crate) type Heard = SmallVec<[(PartitionId, FragmentResults); 1]>;

impl Book {
    /// Whether a partition is a sibling that has not told what its fragments came to.
    fn lacks_fragments_of(&self, from: PartitionId) -> bool {
        !self.exchange.has_settled()
            && self.exchange.siblings().any(|sibling| sibling == from)
            && self.heard.iter().all(|&(known, _)| known != from)
    }

    /// Whether siblings have told this.
    fn has(&self, awaited: &Awaited) -> bool {
        match awaited {
            Awaited::Read { from, asked } => self.exchange.value(*from, asked).is_some(),
            Awaited::Fragments => self.heard.len() == self.exchange.siblings().count(),
        }
    }
}

pub(crate) type Member = groups::Member<Book>;

/// What a sub-transaction waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// What a sibling reads.
    Read { from: PartitionId, asked: Asked },
    /// What the fragments of all siblings come to.
    Fragments,
}

/// All books of a partition.
pub(crate) struct Finals {
    pub(crate) me: PartitionId,
    groups: Groups<Book>,
}

impl Finals {
    pub(crate) fn new(me: PartitionId) -> Finals {
        Finals { me, groups: Groups::default() }
    }

    /// Opens the books of a batch's groups, with what was said of them before. Their members, in order.
    pub(crate) fn open(&self, batch: &Batch) -> Vec<Member> {
        let opened = self.groups.open(batch, |id| Book {
            // All that is told is final: there are no eras.
            exchange: Exchange::new(self.me, &id.partitions, 0),
            awaited: None,
            told: None,
            heard: SmallVec::new(),
        });
        let mut members = Vec::new();
        for (group, said) in opened {
            let mut of_group: Vec<_> = groups::members(&group).collect();
            for (from, notes) in said {
                for note in notes {
                    hear(from, note, &of_group);
                }
            }
            members.append(&mut of_group);
        }
        members
    }

    /// A sub-transaction has read something here, and nothing can change it any more.
    pub(crate) fn tell(&self, member: &Member, read: Vec<(Asked, Told)>) {
        let values: Vec<_> = {
            let mut book = member.book().lock();
            let read = read.into_iter();
            let is_new = |(asked, told): &(Asked, Told)| book.exchange.read(asked.clone(), told.clone());
            read.filter(is_new).collect()
        };
        if !values.is_empty() {
            let note = Note::Final { member: member.place, values };
            self.groups.say(member, self.me, note);
        }
    }

    /// Tells one sibling, or all, what a sub-transaction's fragments came to here, when nothing can change it
    /// any more.
    pub(crate) fn tell_fragments(&self, member: &Member, to: Option<PartitionId>, results: FragmentResults) {
        member.book().lock().told = Some(results.clone());
        let note = Note::Fragments { member: member.place, results };
        match to {
            Some(to) => self.groups.say_to(to, &member.group, vec![note]),
            None => self.groups.say(member, self.me, note),
        }
    }

    /// What a sibling has read, if it has told it.
    pub(crate) fn take(&self, member: &Member, from: PartitionId, asked: &Asked) -> Option<Told> {
        member.book().lock().exchange.take(from, asked)
    }

    /// What the fragments of all siblings came to, as far as they have told it.
    pub(crate) fn take_fragments(&self, member: &Member) -> Heard {
        std::mem::take(&mut member.book().lock().heard)
    }

    /// Whether a sub-transaction must wait for its siblings. If so, its position will be woken, perhaps at
    /// once.
    pub(crate) fn wait(&self, member: &Member, awaited: Awaited) -> bool {
        let mut book = member.book().lock();
        let is_there = book.has(&awaited);
        if !is_there {
            book.awaited = Some(awaited);
        }
        !is_there
    }

    /// Takes what another partition says. Calls `wake` with the position of each sub-transaction that has
    /// what it waited for.
    pub(crate) fn receive(&self, from: PartitionId, message: Message, mut wake: impl FnMut(Position)) {
        for (group, notes) in self.groups.receive(from, message) {
            let members: Vec<_> = groups::members(&group).collect();
            for note in notes {
                hear(from, note, &members).into_iter().for_each(&mut wake);
            }
        }
    }

    /// The newest epoch that a partition has told of.
    pub(crate) fn heard(&self, from: PartitionId) -> Epoch {
        self.groups.heard(from)
    }

    /// Says again what was read here in the groups behind an epoch. What will be read is final too, so all
    /// that is said is taken from any replica.
    pub(crate) fn tell_again(&self, to: PartitionId, behind: Epoch) {
        for group in self.groups.behind(behind, to) {
            let notes = groups::members(&group).flat_map(|member| {
                let (book, member) = (member.book().lock(), member.place);
                let values = book.exchange.told().to_vec();
                let fragments = book.told.clone().map(|results| Note::Fragments { member, results });
                let read = (!values.is_empty()).then_some(Note::Final { member, values });
                read.into_iter().chain(fragments)
            });
            self.groups.say_to(to, &group, notes.collect());
        }
    }

    /// A sub-transaction has final-committed, and so have all before it.
    pub(crate) fn settle(&self, member: &Member) {
        let mut book = member.book().lock();
        book.exchange.settle();
        book.heard.clear();
        drop(book);
        if member.followers().next().is_none() {
            self.groups.close(&member.group);
        }
    }

    pub(crate) fn retract(&self, from: Position) {
        self.groups.retract(from);
    }
    pub(crate) fn forget(&self, upto: Epoch) {
        self.groups.forget(upto);
    }
    pub(crate) fn messages(&self) -> Vec<(PartitionId, Message)> {
        self.groups.take()
    }
}

/// Writes what a sibling says into the book that it is about. Whoever waited for it.
fn hear(from: PartitionId, note: Note, members: &[Member]) -> Option<Position> {
    let (Note::Final { member: place, .. } | Note::Fragments { member: place, .. }) = note else {
        // The other notes are about what may still change: no sibling of this kind says such.
        return None;
    };
    let member = members.get(place as usize)?;
    let mut book = member.book().lock();
    match note {
        Note::Final { values, .. } => {
            book.exchange.learn_final(from, &values);
        }
        Note::Fragments { results, .. } if book.lacks_fragments_of(from) => {
            book.heard.push((from, results));
        }
        _ => {}
    }
    if !book.has(book.awaited.as_ref()?) {
        return None;
    }
    book.awaited = None;
    (!is_active(Mutant::LoseSiblingWake)).then(|| member.position())
}
