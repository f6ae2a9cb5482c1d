//! What the order carries.

use crate::blob::Blob;
use crate::hash::mix;
use crate::ids::{PartitionId, SessionId};
use crate::key::{Key, Space};
use crate::procedure::Procedure;
use crate::slots::Slots;
use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The arguments of a procedure: a list of byte strings, up to three of them without an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args(pub SmallVec<[Blob; 3]>);

impl Args {
    /// No arguments.
    pub fn new() -> Args {
        Args::default()
    }
    /// One argument: what native procedures with encoded arguments use.
    pub fn one(bytes: impl Into<Blob>) -> Args {
        Args(SmallVec::from_iter([bytes.into()]))
    }
}
impl Deref for Args {
    type Target = [Blob];
    fn deref(&self) -> &[Blob] {
        &self.0
    }
}
impl<B: Into<Blob>> FromIterator<B> for Args {
    fn from_iter<I: IntoIterator<Item = B>>(iter: I) -> Args {
        Args(iter.into_iter().map(Into::into).collect())
    }
}

/// Who asked, and which of its requests this is: re-proposals of one request share all but the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestId {
    /// The connection or caller.
    pub session: SessionId,
    /// Counts the session's ordered requests from 1.
    pub sequence: u64,
    /// Counts the proposals of this request from 0.
    pub attempt: u32,
}

impl RequestId {
    /// A seed that all attempts share.
    pub fn seed(self) -> u64 {
        mix(self.session.0 ^ mix(self.sequence))
    }
}

/// The key sets of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySets {
    /// Keys that are read and not written.
    pub reads: Vec<Key>,
    /// Keys that are written (and perhaps read).
    pub writes: Vec<Key>,
    /// Keys outside the sets may be written, though not read: rows whose names become known only while the
    /// transaction runs, and which nobody touches without also naming (or finding) one of `writes`, and
    /// nobody writes without writing that one, too. A lock on that one covers them.
    pub covers_inserts: bool,
    /// Other keys may be touched, too: a script is free to. Calls that are likely to touch the same others
    /// share this number.
    pub may_stray: Option<u64>,
}

/// How much processor time a request may take: an I/O thread runs light ones itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Weight {
    /// Bounded and short: a command.
    #[default]
    Light,
    /// Unbounded or long: a script. Left to threads that nobody waits for.
    Heavy,
}

/// What a request touches, as far as it is known before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The keys, where they are known: from the command's definition, from the procedure, or from
    /// reconnaissance. With [`KeySets::may_stray`] they are a guess.
    pub keys: Option<Arc<KeySets>>,
    /// The transaction writes nothing: it may run at a final snapshot and bypass the order.
    pub read_only: bool,
    /// How much processor time it may take.
    pub weight: Weight,
}

impl Footprint {
    /// A footprint about which nothing is known: keys found only while running, may write.
    pub fn unknown() -> Footprint {
        Footprint::default()
    }
    /// A read-only footprint with unknown keys.
    pub fn read_only() -> Footprint {
        Footprint { read_only: true, ..Footprint::default() }
    }
    /// A footprint with declared keys; read-only if there are no writes.
    pub fn of_keys(reads: Vec<Key>, writes: Vec<Key>) -> Footprint {
        Footprint {
            read_only: writes.is_empty(),
            keys: Some(Arc::new(KeySets { reads, writes, ..KeySets::default() })),
            weight: Weight::Light,
        }
    }
    /// The keys, if no others may be touched.
    pub fn certain_keys(&self) -> Option<&Arc<KeySets>> {
        self.keys.as_ref().filter(|keys| keys.may_stray.is_none())
    }
}

/// A transaction as the order carries it.
#[derive(Clone)]
pub struct Request {
    /// Who asked.
    pub id: RequestId,
    /// The version of the slots under which the request was routed: one that the order meets behind a later
    /// one is not executed, and comes again.
    pub slots_version: u32,
    /// What to do.
    pub procedure: Arc<dyn Procedure>,
    /// With what.
    pub args: Args,
    /// What it touches. Not logged: derived again from the procedure and the arguments.
    pub footprint: Footprint,
    /// Through which group's log it goes, and which partitions execute it. All zero where there is one
    /// partition.
    pub route: PartitionRoute,
    /// It only reads, and for a client of another replica, which executes it: here it has its place in the
    /// order, does nothing, and its outcome is nobody's. Not logged.
    pub elsewhere: bool,
}

/// The partitions that a request involves, in order.
pub type Partitions = SmallVec<[PartitionId; 2]>;

/// Transactions over the same partitions that follow each other at all of these, in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The place of the first among the partition's requests of the epoch.
    pub first: usize,
    /// How many there are.
    pub members: usize,
    /// Which part of the epoch it stands in: a part has one group of the same partitions.
    pub part: u32,
}

/// A request's way through a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRoute {
    /// The group whose log takes it. Chosen for each connection, so that its commands keep their order.
    pub home: PartitionId,
    /// The partitions that execute it.
    pub partitions: Partitions,
    /// Whose the slots are, where it is executed.
    pub slots: Slots,
}

impl Default for PartitionRoute {
    fn default() -> PartitionRoute {
        PartitionRoute::single(PartitionId(0))
    }
}

impl PartitionRoute {
    /// Through a partition's own group, to that partition only.
    pub fn single(partition: PartitionId) -> PartitionRoute {
        PartitionRoute {
            home: partition,
            partitions: Partitions::from_slice(&[partition]),
            slots: Slots::even(1),
        }
    }

    /// Through a partition's own group, to that partition out of several.
    pub fn one_of(partition: PartitionId, slots: &Slots) -> PartitionRoute {
        PartitionRoute { slots: slots.clone(), ..PartitionRoute::single(partition) }
    }

    /// To these partitions out of several, in any order and perhaps more than once: through the group of one
    /// of them. To the first of all if there are none.
    pub fn over(partitions: impl IntoIterator<Item = PartitionId>, slots: &Slots) -> PartitionRoute {
        let mut partitions: Partitions = partitions.into_iter().collect();
        partitions.sort_unstable();
        partitions.dedup();
        let Some(&home) = partitions.first() else {
            return PartitionRoute::one_of(PartitionId(0), slots);
        };
        PartitionRoute { home, partitions, slots: slots.clone() }
    }

    /// To the partitions that have these keys.
    pub fn of_keys<'a>(keys: impl IntoIterator<Item = &'a Key>, slots: &Slots) -> PartitionRoute {
        let partitions = keys.into_iter().map(|key| slots.partition_of_key(key));
        PartitionRoute::over(partitions, slots)
    }

    /// To every partition.
    pub fn everywhere(slots: &Slots) -> PartitionRoute {
        PartitionRoute {
            home: PartitionId(0),
            partitions: (0..slots.of()).map(PartitionId).collect(),
            slots: slots.clone(),
        }
    }

    /// How many partitions there are.
    pub fn of(&self) -> u16 {
        self.slots.of()
    }

    /// Whether the transaction may touch a key where it runs: it has no siblings to ask for those of other
    /// partitions. (Each partition has the system's space for itself.)
    #[inline]
    pub fn holds(&self, key: &Key) -> bool {
        match self.part() {
            None => true,
            Some(partition) => key.space() == Space::System || self.slots.partition_of_key(key) == partition,
        }
    }

    /// The only partition at which the transaction runs, if there are others.
    #[inline]
    pub fn part(&self) -> Option<PartitionId> {
        match self.partitions[..] {
            [partition] if self.slots.of() > 1 => Some(partition),
            _ => None,
        }
    }
}

impl Request {
    /// The [`Request::slots_version`] of what is right whose ever the slots are.
    pub const ANY_SLOTS: u32 = u32::MAX;

    /// A request with the footprint that its procedure derives.
    pub fn new(id: RequestId, procedure: Arc<dyn Procedure>, args: Args) -> Request {
        let footprint = procedure.footprint(&args);
        Request {
            id,
            slots_version: 0,
            procedure,
            args,
            footprint,
            route: PartitionRoute::default(),
            elsewhere: false,
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{:?} of session {} #{}",
            self.procedure.name(),
            self.args.0,
            self.id.session.0,
            self.id.sequence
        )
    }
}
