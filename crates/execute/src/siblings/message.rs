//! What partitions tell each other of their sub-transactions.

use super::exchange::{AbortNumber, Basis};
use txn::tx::Read;
use txn::{Epoch, FragmentValue, Key, Partitions, ScanPage, ScanRange};

/// What a sub-transaction reads of its partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// A record.
    Key(Key),
    /// A part of the key space.
    Page(ScanRange),
    /// The number of entries.
    Count,
}

/// What it found there, as it was before the transaction: its own writes are no part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A record.
    Record(Read),
    /// A page.
    Page(ScanPage),
    /// A number of entries.
    Count(i64),
}

impl Told {
    /// The record, if it is one.
    pub fn into_record(self) -> Read {
        match self {
            Told::Record(read) => read,
            Told::Page(_) | Told::Count(_) => Read::default(),
        }
    }
}

/// A group, wherever it is met. Digests of what was retracted are met by nobody.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId {
    /// Its epoch.
    pub epoch: Epoch,
    /// The chained digest of all batches up to this epoch's.
    pub digest: u64,
    /// The part of the epoch.
    pub part: u32,
    /// The partitions of its transactions; a part of an epoch has one group of them.
    pub partitions: Partitions,
}

/// What some of a transaction's fragments came to, with their places.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FragmentResults {
    /// Their values, as far as they are not nil.
    pub values: Vec<(u16, FragmentValue)>,
    /// What they noted, if they did.
    pub notes: Vec<(u16, Vec<txn::Note>)>,
}

/// What a partition says of one transaction of a group, by its place there.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// It has read this, under this number.
    Read {
        /// Which transaction.
        member: u32,
        /// Under which number.
        number: AbortNumber,
        /// What was read.
        asked: Asked,
        /// What was found.
        told: Told,
    },
    /// All before it have final-committed: the number is its last one. Those behind it have these or greater
    /// ones; the first ones of the era where they are not named.
    Anchor {
        /// Which transaction.
        member: u32,
        /// Its number.
        number: AbortNumber,
        /// Later members that were aborted.
        raised: Vec<(u32, AbortNumber)>,
    },
    /// It is speculatively committed.
    Confirmation {
        /// Which transaction.
        member: u32,
        /// On what basis.
        basis: Basis,
        /// Later members that runs of it aborted.
        raised: Vec<(u32, AbortNumber)>,
    },
    /// It has read this, and nothing can change it any more: everything before it that could is final. Once
    /// it has final-committed, this is all that it read.
    Final {
        /// Which transaction.
        member: u32,
        /// What it read.
        values: Vec<(Asked, Told)>,
    },
    /// Its fragments at this partition were executed each by itself, and nothing can change it any more.
    Fragments {
        /// Which transaction.
        member: u32,
        /// What they came to.
        results: FragmentResults,
    },
}

/// What one partition tells another one in one round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// By group.
    pub groups: Vec<(GroupId, Vec<Note>)>,
}

impl Message {
    /// How many notes it has.
    pub fn notes(&self) -> usize {
        self.groups.iter().map(|(_, notes)| notes.len()).sum()
    }
}
