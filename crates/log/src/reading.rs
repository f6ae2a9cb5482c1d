//! Reading a journal while its process appends to it: for backups, which follow the order.
//!
//! The reader owns nothing: where it stands is a [`ReadFrom`], which it gives back to whoever asks, and takes
//! again with the next call. So no file stays open between two calls, and a file that is removed meanwhile is
//! an error of the next call ([`ReadError::Gone`]).
//!
//! The journal's owner says up to which record whole records are in the files. Nothing behind that is looked
//! at, so a record that is being written is never taken for a damaged one.

use crate::disk::{Disk, DiskFile};
use crate::journal::kept_of;
use crate::kept::Kept;
use crate::record::{self, Address, Found, HEAD_BYTES, Head, Kind, Place, Tail};
use crate::segment::{HEADER_BYTES, Header, first_of_name, segment_name};
use std::fmt;
use std::io;
use std::str::FromStr;
use txn::Position;

/// Where a reader of a journal goes on: before a record, or at the end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadFrom {
    address: Address,
    tail: Tail,
}

impl fmt::Display for ReadFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReadFrom { address, tail } = self;
        write!(f, "{}:{}:{}:{:016x}", address.segment.0, address.offset, tail.next.0, tail.digest)
    }
}

impl FromStr for ReadFrom {
    type Err = NoPlace;

    /// Reads what [`ReadFrom`]'s `Display` wrote. Whether there is such a place, [`read_records`] finds out.
    fn from_str(text: &str) -> Result<ReadFrom, NoPlace> {
        let parts: Vec<&str> = text.split(':').collect();
        let [segment, offset, next, digest] = parts[..] else {
            return Err(NoPlace);
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| NoPlace);
        let address = Address { segment: Position(number(segment)?), offset: number(offset)? };
        let digest = u64::from_str_radix(digest, 16).map_err(|_| NoPlace)?;
        Ok(ReadFrom { address, tail: Tail { next: Position(number(next)?), digest } })
    }
}

/// A text is no place in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no place in a journal")]
pub struct NoPlace;

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The files from there on are not there any more: no group needed them.
    #[error("the journal no longer has the records from {0} on")]
    Gone(Position),
    /// There is no such record at this place.
    #[error("{file} has no record at offset {offset}")]
    NoRecord {
        /// The segment.
        file: String,
        /// Where.
        offset: u64,
    },
    /// The disk said so.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads what groups kept, from a place on, or from the oldest record that is there, up to the record
/// `until`: about so many bytes of the files, and one record at least. Hands each group's part to `take`, in
/// order. Gives where to go on, and whether `until` was reached.
///
/// # Errors
/// The place is not in the journal any more, or never was.
pub fn read_records<D: Disk>(
    disk: &D,
    from: Option<ReadFrom>,
    until: Position,
    bytes_max: u64,
    take: &mut dyn FnMut(Kept),
) -> Result<(ReadFrom, bool), ReadError> {
    let mut from = match from {
        Some(from) => from,
        None => oldest(disk)?,
    };
    let mut left = bytes_max.max(HEAD_BYTES as u64);
    let mut bytes = Vec::new();
    while from.tail.next <= until && left > 0 {
        let segment = from.address.segment;
        let file = open(disk, segment, from.tail.next)?;
        let boot_id = header(&file, segment)?.boot_id;
        let mut window = left;
        loop {
            read_window(&file, from.address.offset, window, &mut bytes)?;
            let (count, wanted) = take_records(&bytes, boot_id, &mut from, until, take)?;
            left = left.saturating_sub(count);
            match wanted {
                // The first record does not fit into what was read.
                Some(wanted) if count == 0 && wanted > window => window = wanted,
                Some(_) if count == 0 => return Err(no_record(from.address)),
                Some(_) => return Ok((from, false)),
                None => break,
            }
        }
        if from.tail.next <= until {
            // The segment ends here.
            let address = Address { segment: from.tail.next, offset: HEADER_BYTES as u64 };
            if address.segment == segment {
                return Err(no_record(from.address));
            }
            from.address = address;
        }
    }
    Ok((from, from.tail.next > until))
}

/// Takes the whole records at the front of `bytes`, which begin at `from`. Gives the bytes that they have,
/// and how many more the next one needs; none if there is no next one in this segment, or not up to `until`.
fn take_records(
    bytes: &[u8],
    boot_id: u64,
    from: &mut ReadFrom,
    until: Position,
    take: &mut dyn FnMut(Kept),
) -> Result<(u64, Option<u64>), ReadError> {
    let mut at = 0;
    while from.tail.next <= until {
        let rest = &bytes[at..];
        let place = Place { boot_id, address: from.address };
        // A head that checks is believed, also where its record goes on behind what was read.
        if let Some(head) = Head::read(rest, place)
            && head.length as usize > rest.len()
        {
            return Ok((at as u64, Some(u64::from(head.length))));
        }
        match record::read(rest, place, from.tail) {
            Found::Record(head, payload) => {
                if head.kind == Kind::Groups {
                    kept_of(payload).ok_or(no_record(from.address))?.into_iter().for_each(&mut *take);
                }
                at += head.length as usize;
                from.address.offset += u64::from(head.length);
                from.tail = head.tail();
            }
            // Less than a head is left of what was read: of the segment, if nothing was read behind it.
            Found::Nothing if rest.len() < HEAD_BYTES && at > 0 => {
                return Ok((at as u64, Some(HEAD_BYTES as u64)));
            }
            Found::Nothing => break,
            Found::Bad(_) | Found::Foreign(_) => return Err(no_record(from.address)),
        }
    }
    Ok((at as u64, None))
}

fn no_record(address: Address) -> ReadError {
    ReadError::NoRecord { file: segment_name(address.segment), offset: address.offset }
}

/// Before the opening record of the oldest segment.
fn oldest<D: Disk>(disk: &D) -> Result<ReadFrom, ReadError> {
    let segment = disk.list()?.iter().filter_map(|name| first_of_name(name)).min();
    let segment = segment.ok_or(ReadError::Gone(Position::FIRST))?;
    let file = open(disk, segment, segment)?;
    let address = Address { segment, offset: HEADER_BYTES as u64 };
    let place = Place { boot_id: header(&file, segment)?.boot_id, address };
    let mut bytes = Vec::new();
    read_window(&file, address.offset, HEAD_BYTES as u64, &mut bytes)?;
    match Head::read(&bytes, place) {
        Some(head) if head.kind == Kind::Marker && head.number == segment => {
            Ok(ReadFrom { address, tail: head.tail() })
        }
        _ => Err(no_record(address)),
    }
}

fn open<D: Disk>(disk: &D, segment: Position, next: Position) -> Result<D::File, ReadError> {
    disk.open(&segment_name(segment)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ReadError::Gone(next),
        _ => ReadError::Io(error),
    })
}

fn header(file: &impl DiskFile, segment: Position) -> Result<Header, ReadError> {
    let mut bytes = Vec::new();
    read_window(file, 0, HEADER_BYTES as u64, &mut bytes)?;
    Header::read(&bytes).map_err(|_| no_record(Address { segment, offset: 0 }))
}

/// Reads up to so many bytes: fewer at the end of the file.
fn read_window(file: &impl DiskFile, offset: u64, length: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let left = file.len_bytes()?.saturating_sub(offset).min(length);
    bytes.clear();
    bytes.resize(left as usize, 0);
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(offset + done as u64, &mut bytes[done..])? {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    Ok(())
}
