//! The journal: how a process keeps what its consensus groups must not forget, and reads it back.
//!
//! A [`Journal`] is a row of segmented files. It knows of groups, their entries, votes and bases
//! ([`Kept`]), and nothing of what the entries say. The crate is pure: it reaches files through the [`Disk`]
//! trait, which the server implements on a directory and the simulator on a virtual disk that loses, tears
//! and flips what it likes.
//!
//! # The journal
//!
//! A node keeps the entries, votes and bases of its groups. A node that stands alone has one group. The
//! groups share one journal, so that a round of all groups costs one write and one sync:
//!
//! 1. [`Journal::append`] writes what the groups of a round want kept as one record behind the end, with one
//!    write.
//! 2. [`Journal::sync_ticket`] describes what must reach the disk; [`SyncTicket::sync`] makes it durable on
//!    whatever thread may wait, while appends go on; [`Journal::synced`] notes it. Everything up to the
//!    record [`Synced::position`] is then durable.
//!
//! No checkpoint says where to read from; so the journal knows which records the groups' state is made of,
//! removes only what is not, and says in every record what must be there.
//!
//! # Segments
//!
//! The journal is a row of files, `log-<first record>.ordo`, filled with zeros ahead of use so that an append
//! changes no file size (a growing file costs several times the syncs). [`Preparer::prepare_next`] makes the
//! next file ahead of need, under a name that no reader takes for a segment; the append that does not fit any
//! more renames it. [`Truncation`] removes whole files that no group needs. `docs/log-format.md` describes
//! every byte.
//!
//! # What recovery may cut, and what it must not
//!
//! Blocks that were not synced reach a disk in any order, wholly, partly, or not at all. A record that does
//! not check is therefore either a *torn tail*, the normal trace of a crash, or *corruption* of something
//! that was acknowledged. The two must never be confused, so every record carries a *durability claim*: the
//! [`Address`] up to which the journal was known to be on the disk when the record was written. The rule:
//!
//! > A bad record is a torn tail if and only if no record behind it claims that the disk already had it.
//!
//! A torn tail is cut and reported. Corruption refuses to open, says where, and what to do; nothing is
//! changed then. A missing file, a gap in the records' numbers and a broken chain of digests are judged in
//! the same way. Claims of idle journals are made by [markers](Journal::write_marker), small records in which
//! no group keeps anything.
//!
//! Invariants:
//! 1. A claim is written only after the sync that it tells of had succeeded.
//! 2. A record's checksums are seeded with the boot, the segment and the offset, so neither a stale record,
//!    nor a record in a misplaced file, nor bytes that a client chose can be taken for a record.
//! 3. Behind the end of the journal there are only zeros on the disk before the next append is written there:
//!    a cut, or the remains of a failed write, are overwritten with zeros and synced first.
//! 4. A failed write leaves the journal as it was; a failed sync ends it, since what the kernel dropped
//!    nobody can know.

mod disk;
mod error;
mod fuzz;
mod journal;
mod kept;
mod reading;
mod record;
mod recover;
mod report;
mod segment;
mod segments;

pub use disk::{Disk, DiskFile, FileReader, FileWriter};
pub use error::{OpenError, Problem};
pub use fuzz::fuzz_log_reader;
pub use journal::{GroupImage, GroupImages, Journal};
pub use kept::{Base, Entry, EntryKind, HardState, Kept, Members};
pub use reading::{NoPlace, ReadError, ReadFrom, read_records};
pub use record::{Address, RECORD_BYTES_MAX};
pub use report::{Cut, Report};
pub use segments::{
    Appended, LogStatus, Preparer, SEGMENT_BYTES_DEFAULT, SyncTicket, Synced, Truncated, Truncation,
};
