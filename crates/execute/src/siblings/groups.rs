//! The groups that a partition knows of, and what it is about to say of them: what engines keep alike,
//! whatever they keep in the book of a sub-transaction.
//!
//! ```text
//!  (said of early) ──delivered──► open ──its last member final-commits──► closed ──forgotten──►
//!                                  │
//!                                  └──retracted──► (as if it had never been; comes again, or never)
//! ```
//!
//! A message may come before its group is delivered: it waits. It may be about a group that was retracted
//! everywhere: it waits until its epoch is over. It may come when the group is closed: nobody needs it then.
//! A group that is closed stays known, because a replica of another partition that starts anew wants to know
//! what was read.

use super::{GroupId, Message, Note};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use store::sync::Mutex;
use store::sync::atomic::{AtomicBool, Ordering};
use txn::mutant::{Mutant, is_active};
use txn::{Batch, Epoch, Group, PartitionId, Position};

/// A group of which this partition has delivered transactions, with a book of each.
pub(crate) struct GroupBook<B> {
    pub(crate) id: GroupId,
    /// The position of its first member.
    pub(crate) first: Position,
    pub(crate) members: Box<[Mutex<B>]>,
    /// What is noted of many of them. Nobody waits for another latch behind this one.
    pub(crate) notes: Mutex<GroupNotes>,
    /// It was retracted. Nothing is said of it from then on: its transactions are undone one after the other,
    /// and those that are still alive meanwhile read what never was. Set before the first of them is
    /// retracted; each of them is under its latch, so that nobody who has found the group alive there touches
    /// what comes into its place afterwards.
    void: AtomicBool,
}

/// What an engine notes of a group, so that not every member must be asked each time.
#[derive(Default)]
pub(crate) struct GroupNotes {
    /// Members that were aborted after they had told something.
    raised: BTreeSet<u32>,
    /// From which member on a process of a sibling is known to have begun all with its first number.
    begun: BTreeMap<(PartitionId, u64), u32>,
}

impl GroupNotes {
    /// A member's number was raised.
    pub(crate) fn raise(&mut self, member: u32) {
        self.raised.insert(member);
    }

    /// The members behind this one whose numbers were raised.
    pub(crate) fn raised_behind(&self, member: u32) -> Vec<u32> {
        let behind = member.saturating_add(1)..;
        self.raised.range(behind).copied().collect()
    }

    /// A process of a sibling says of all members behind this one, out of so many, how far they are. Of which
    /// it had not said so.
    pub(crate) fn begin(&mut self, (from, era): (PartitionId, u64), behind: u32, members: u32) -> Range<u32> {
        let first = behind.saturating_add(1).min(members);
        let begun = self.begun.entry((from, era)).or_insert(members);
        let news = first..(*begun).max(first);
        *begun = first.min(*begun);
        news
    }
}

impl<B> GroupBook<B> {
    pub(crate) fn is_void(&self) -> bool {
        self.void.load(Ordering::SeqCst)
    }
}

/// A sub-transaction: its place in its group.
pub(crate) struct Member<B> {
    pub(crate) group: Arc<GroupBook<B>>,
    pub(crate) place: u32,
}

impl<B> Clone for Member<B> {
    fn clone(&self) -> Member<B> {
        Member { group: self.group.clone(), place: self.place }
    }
}

impl<B> Member<B> {
    pub(crate) fn book(&self) -> &Mutex<B> {
        &self.group.members[self.place as usize]
    }
    pub(crate) fn position(&self) -> Position {
        self.group.first.advanced(u64::from(self.place))
    }
    /// Whether it has a part at this partition.
    pub(crate) fn has(&self, partition: PartitionId) -> bool {
        self.group.id.partitions.contains(&partition)
    }
    /// The members behind it.
    pub(crate) fn followers(&self) -> impl Iterator<Item = u32> + use<B> {
        self.place + 1..self.group.members.len() as u32
    }
}

/// All members of a group, in order.
pub(crate) fn members<B>(group: &Arc<GroupBook<B>>) -> impl Iterator<Item = Member<B>> {
    let group = group.clone();
    (0..group.members.len() as u32).map(move |place| Member { group: group.clone(), place })
}

/// What a partition said of a group.
pub(crate) type Said = (PartitionId, Vec<Note>);

/// To whom, of which group, what.
type ToSay<B> = (PartitionId, Arc<GroupBook<B>>, Note);

/// The groups that an engine knows of.
pub(crate) struct Groups<B> {
    known: Mutex<Known<B>>,
    /// What is to be said, to whom.
    outbox: Mutex<Vec<ToSay<B>>>,
    /// There may be something in it: spares the latch, since most have nothing to say most of the time.
    has_said: AtomicBool,
}

struct Known<B> {
    open: BTreeMap<GroupId, Arc<GroupBook<B>>>,
    closed: BTreeMap<GroupId, Arc<GroupBook<B>>>,
    /// What was said of groups that are not delivered here.
    early: BTreeMap<Epoch, Vec<(GroupId, Said)>>,
    /// The newest epoch that each partition has told of.
    heard: BTreeMap<PartitionId, Epoch>,
    /// All epochs before this one have been final-committed here.
    current: Epoch,
}

impl<B> Default for Groups<B> {
    fn default() -> Groups<B> {
        let known = Known {
            open: BTreeMap::new(),
            closed: BTreeMap::new(),
            early: BTreeMap::new(),
            heard: BTreeMap::new(),
            current: Epoch::default(),
        };
        Groups { known: Mutex::new(known), outbox: Mutex::default(), has_said: AtomicBool::new(false) }
    }
}

impl<B> Groups<B> {
    /// Opens the groups of a batch that is being delivered. With each, what was said of it before.
    pub(crate) fn open(
        &self,
        batch: &Batch,
        book: impl Fn(&GroupId) -> B,
    ) -> Vec<(Arc<GroupBook<B>>, Vec<Said>)> {
        if batch.groups.is_empty() {
            return Vec::new();
        }
        let mut known = self.known.lock();
        let open = |group: &Group| {
            let &Group { first, members, part } = group;
            let id = GroupId {
                epoch: batch.epoch,
                digest: batch.digest,
                part,
                partitions: batch.requests[first].route.partitions.clone(),
            };
            let group = Arc::new(GroupBook {
                first: batch.first.advanced(first as u64),
                members: (0..members).map(|_| Mutex::new(book(&id))).collect(),
                notes: Mutex::default(),
                id: id.clone(),
                void: AtomicBool::new(false),
            });
            known.open.insert(id.clone(), group.clone());
            let Some(early) = known.early.get_mut(&id.epoch) else {
                return (group, Vec::new());
            };
            let (of_it, others) =
                std::mem::take(early).into_iter().partition::<Vec<_>, _>(|(of, _)| *of == id);
            *early = others;
            (group, of_it.into_iter().map(|(_, said)| said).collect())
        };
        batch.groups.iter().map(open).collect()
    }

    /// The group is final-committed here, and so is all of the epochs before.
    pub(crate) fn close(&self, group: &GroupBook<B>) {
        let mut known = self.known.lock();
        if let Some((id, group)) = known.open.remove_entry(&group.id) {
            known.closed.insert(id, group);
        }
        let epoch = group.id.epoch;
        if known.current < epoch {
            known.current = epoch;
            known.early = known.early.split_off(&epoch);
        }
    }

    /// The newest epoch that a partition has told of.
    pub(crate) fn heard(&self, from: PartitionId) -> Epoch {
        let known = self.known.lock();
        known.heard.get(&from).copied().unwrap_or_default()
    }

    /// No replica will ask for what was read in these epochs.
    pub(crate) fn forget(&self, upto: Epoch) {
        let mut known = self.known.lock();
        known.closed.retain(|id, _| id.epoch > upto);
        // What was said of groups that were never opened here, or were retracted.
        known.early = known.early.split_off(&Epoch(upto.0 + 1));
    }

    /// All groups from this position on are void.
    pub(crate) fn retract(&self, from: Position) {
        self.known.lock().open.retain(|_, group| {
            let stays = group.first < from;
            group.void.fetch_or(!stays, Ordering::SeqCst);
            stays
        });
    }

    /// Whom a message concerns: what it says of groups that are under way. The rest waits, or is dropped.
    pub(crate) fn receive(&self, from: PartitionId, message: Message) -> Vec<(Arc<GroupBook<B>>, Vec<Note>)> {
        let mut known = self.known.lock();
        let mut heard = Vec::new();
        for (id, notes) in message.groups {
            let newest = known.heard.entry(from).or_default();
            *newest = (*newest).max(id.epoch);
            match known.open.get(&id) {
                Some(group) => heard.push((group.clone(), notes)),
                None if id.epoch < known.current || known.closed.contains_key(&id) => {}
                None if is_active(Mutant::DropEarlyMessages) => {}
                None => {
                    let early = known.early.entry(id.epoch).or_default();
                    early.push((id, (from, notes)));
                }
            }
        }
        heard
    }

    /// The groups behind an epoch in which a partition has a part.
    pub(crate) fn behind(&self, epoch: Epoch, partition: PartitionId) -> Vec<Arc<GroupBook<B>>> {
        let known = self.known.lock();
        let is_wanted =
            |group: &&Arc<GroupBook<B>>| group.id.epoch > epoch && group.id.partitions.contains(&partition);
        let closed = known.closed.values();
        let closed = closed.filter(|_| !is_active(Mutant::TellOpenGroupsOnly));
        let all = closed.chain(known.open.values());
        all.filter(is_wanted).cloned().collect()
    }

    /// Says something of a sub-transaction to all its siblings.
    pub(crate) fn say(&self, member: &Member<B>, me: PartitionId, note: Note) {
        if member.group.is_void() {
            return;
        }
        let mut outbox = self.outbox.lock();
        for &to in member.group.id.partitions.iter().filter(|&&to| to != me) {
            outbox.push((to, member.group.clone(), note.clone()));
        }
        self.has_said.store(true, Ordering::SeqCst);
    }

    /// Says something to one partition.
    pub(crate) fn say_to(&self, to: PartitionId, group: &Arc<GroupBook<B>>, notes: Vec<Note>) {
        if group.is_void() {
            return;
        }
        let notes = notes.into_iter().map(|note| (to, group.clone(), note));
        self.outbox.lock().extend(notes);
        self.has_said.store(true, Ordering::SeqCst);
    }

    /// What is to be said now: one message for each partition.
    pub(crate) fn take(&self) -> Vec<(PartitionId, Message)> {
        // What is said after this is there to be taken by whoever said it, or later.
        if !self.has_said.load(Ordering::SeqCst) || !self.has_said.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        let outbox = std::mem::take(&mut *self.outbox.lock());
        let mut messages: BTreeMap<PartitionId, Message> = BTreeMap::new();
        for (to, group, note) in outbox {
            let groups = &mut messages.entry(to).or_default().groups;
            match groups.iter_mut().rfind(|(id, _)| *id == group.id) {
                Some((_, notes)) => notes.push(note),
                None => groups.push((group.id.clone(), vec![note])),
            }
        }
        messages.into_iter().collect()
    }
}
