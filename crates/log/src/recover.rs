//! Opening the journal: reading it back, judging where it ends, and cutting a torn tail.
//!
//! The walk starts at the oldest segment, reads record after record, and stops at the first place that does
//! not hold the next one. If there is nothing behind that place, the journal simply ends there. Otherwise
//! everything behind is searched for a durability claim beyond the place: one claim makes it corruption;
//! without one it is a torn tail. Cutting removes later segments first and then overwrites the rest of the
//! file with zeros; a crash in between only removes more of what had no claims, so the next start judges the
//! same.
//!
//! What was read may have been in the kernel's memory only (after a killed process, or after a sync that
//! failed), so everything without a claim is written again and synced before it counts as durable.

use crate::disk::{Disk, DiskFile};
use crate::error::{OpenError, Problem};
use crate::journal::Images;
use crate::kept::Base;
use crate::record::{Address, Found, HEAD_BYTES, Head, Kind, Place, Tail};
use crate::report::{Cut, Report};
use crate::segment::{
    FORMAT_VERSION, HEADER_BYTES, HeaderError, OpeningError, SegmentReader, first_of_name, is_prepared,
    segment_name, used_bytes,
};
use crate::segments::{Log, Segment, Shared, write_zeros};
use std::io;
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::{PartitionId, Position};

impl<D: Disk> Log<D> {
    /// Opens the journal's files on a disk, or makes the first one. `images` takes the records, in order, and
    /// judges in the end whether they are all that is needed, and those that the caller `accepts`. After an
    /// error it is of no use any more.
    pub fn open(
        disk: Arc<D>,
        segment_bytes: u64,
        boot_id: u64,
        images: &mut Images,
        accepts: &dyn Fn(PartitionId, &Base) -> bool,
    ) -> Result<(Log<D>, Report), OpenError> {
        let shared = Arc::new(Shared::new(disk, segment_bytes, boot_id));
        let names = shared.disk.list().map_err(OpenError::io("listing the directory"))?;
        let segments = segments_of(&names);
        let Some(&oldest) = segments.first() else {
            remove_prepared(&*shared.disk, &names)?;
            let log = begin(shared)?;
            let report = Report::of_none(log.tail.last());
            return Ok((log, report));
        };
        let recovery = Recovery { disk: &*shared.disk, segments: &segments };
        let walk = recovery.walk(oldest, images)?;
        images.accepted_by(accepts)?;
        images.end(oldest, walk.end, walk.tail.next)?;
        // Nothing was changed so far.
        remove_prepared(&*shared.disk, &names)?;
        let report = walk.report();
        recovery.cut(&walk)?;
        recovery.make_durable(&walk)?;

        let first = segments[walk.last];
        let (file, len_bytes) = open_file(&*shared.disk, first)?;
        let offset = walk.end.offset;
        let mut log = Log {
            shared,
            tail: walk.tail,
            current: Segment {
                first,
                file: Arc::new(file),
                boot_id: walk.boot_id,
                offset,
                dirty_until: offset,
                len_bytes,
            },
            older: segments[..walk.last].to_vec(),
            unsynced: Vec::new(),
            durable: walk.end,
            durable_last: walk.tail.last(),
            durable_name: first,
            claimed: walk.claimed,
            last_record_end: walk.last_record_end,
        };
        // A claim for what was found unclaimed. On a full disk it has to wait.
        if let Ok(true) = log.write_marker() {
            log.sync().map_err(OpenError::io("syncing the log"))?;
        }
        Ok((log, report))
    }
}

/// Reads the journal's files as [`Log::open`] does, and changes nothing: a torn tail is left out, and stays
/// on the disk.
pub(crate) fn read_back<D: Disk>(disk: &D, images: &mut Images) -> Result<Report, OpenError> {
    let names = disk.list().map_err(OpenError::io("listing the directory"))?;
    let segments = segments_of(&names);
    let Some(&oldest) = segments.first() else {
        return Ok(Report::of_none(Tail::ORIGIN.last()));
    };
    let walk = Recovery { disk, segments: &segments }.walk(oldest, images)?;
    images.end(oldest, walk.end, walk.tail.next)?;
    Ok(walk.report())
}

/// The first records of the segments among these files, in order.
fn segments_of(names: &[String]) -> Vec<Position> {
    let mut segments: Vec<Position> = names.iter().filter_map(|name| first_of_name(name)).collect();
    segments.sort_unstable();
    segments
}

/// Makes the first segment, durable at once, and a log that goes on in it.
fn begin<D: Disk>(shared: Arc<Shared<D>>) -> Result<Log<D>, OpenError> {
    let tail = Tail::ORIGIN;
    let name = segment_name(tail.next);
    let action = || format!("creating {name}");
    let fresh = shared.create_fresh().map_err(OpenError::io(action()))?;
    let start = Address { segment: tail.next, offset: HEADER_BYTES as u64 };
    let opening = Head::marker(tail, start).sealed(Place { boot_id: shared.boot_id, address: start });
    let written = fresh.file.write_at(start.offset, &opening).and_then(|()| fresh.file.sync());
    let named =
        written.and_then(|()| shared.disk.rename(&fresh.name, &name)).and_then(|()| shared.disk.sync_dir());
    named.map_err(OpenError::io(action()))?;
    let current = Segment::after_opening(tail.next, fresh.file, shared.boot_id, shared.segment_bytes);
    let durable = current.end();
    Ok(Log {
        shared,
        tail,
        current,
        older: Vec::new(),
        unsynced: Vec::new(),
        durable,
        durable_last: tail.last(),
        durable_name: tail.next,
        claimed: start,
        last_record_end: start,
    })
}

/// Removes prepared segments, which hold nothing.
fn remove_prepared<D: Disk>(disk: &D, names: &[String]) -> Result<(), OpenError> {
    for name in names.iter().filter(|name| is_prepared(name)) {
        disk.remove(name).map_err(OpenError::io(format!("removing {name}")))?;
    }
    Ok(())
}

fn open_file<D: Disk>(disk: &D, first: Position) -> Result<(D::File, u64), OpenError> {
    let opened =
        disk.open(&segment_name(first)).and_then(|file| file.len_bytes().map(|len_bytes| (file, len_bytes)));
    opened.map_err(OpenError::io(format!("opening {}", segment_name(first))))
}

/// What a recovery works on.
struct Recovery<'a, D> {
    disk: &'a D,
    segments: &'a [Position],
}

/// What a walk over the journal found.
struct Walk {
    /// The index of the segment in which the journal ends, and that segment's boot.
    last: usize,
    boot_id: u64,
    end: Address,
    tail: Tail,
    claimed: Address,
    last_record_end: Address,
    records: u64,
    bytes: u64,
    torn: Option<Torn>,
}

impl Walk {
    /// The walk in the words of [`Report`].
    fn report(&self) -> Report {
        let cut = self.torn.as_ref().map(|torn| Cut {
            address: self.end,
            record: self.tail.next,
            bytes: torn.bytes,
            problem: torn.problem,
        });
        Report {
            segments: self.last as u64 + 1,
            records: self.records,
            bytes: self.bytes,
            last: self.tail.last(),
            cut,
            created: false,
        }
    }
}

/// A torn tail, found to be one. It begins where the walk ends.
struct Torn {
    problem: Problem,
    /// Where it ends in the walk's last segment.
    used_bytes: u64,
    /// Its length, in later segments as well.
    bytes: u64,
}

impl<D: Disk> Recovery<'_, D> {
    /// Reads the journal from its oldest segment on, which begins with the record `oldest`.
    fn walk(&self, oldest: Position, images: &mut Images) -> Result<Walk, OpenError> {
        let opening = Address { segment: oldest, offset: HEADER_BYTES as u64 };
        let mut walk = Walk {
            last: 0,
            boot_id: 0,
            end: opening,
            tail: Tail { next: oldest, ..Tail::ORIGIN },
            claimed: Address { segment: Position::NONE, offset: 0 },
            last_record_end: opening,
            records: 0,
            bytes: 0,
            torn: None,
        };
        let mut bytes = Vec::new();
        for index in 0..self.segments.len() {
            self.load(index, &mut bytes)?;
            let mut reader = match self.open_segment(index, &bytes) {
                Ok(reader) => reader,
                Err(OpeningError::Header(error)) => return Err(self.header_error(index, error)),
                Err(OpeningError::Shortened) => return Err(self.shortened(index, bytes.len())),
                Err(OpeningError::Opening(reader)) => {
                    let opening = reader.address();
                    if index == 0 {
                        return Err(corrupt(opening, oldest, Problem::Opening));
                    }
                    self.judge(index, opening, walk.tail.next, Problem::Opening)?;
                    // The segment goes as a whole, and its predecessor becomes the last one.
                    return self.torn(walk, Problem::Opening);
                }
            };
            if index == 0 {
                walk.tail = reader.tail;
            } else if walk.tail != reader.tail {
                return self.torn(walk, Problem::Missing);
            }
            walk.last = index;
            walk.boot_id = reader.boot_id();
            walk.claimed = walk.claimed.max(reader.claimed);
            let bad = self.read_segment(&mut reader, &mut walk, images)?;
            let bad = bad.or_else(|| {
                let last = index + 1 == self.segments.len();
                (last && reader.used_bytes() > reader.offset).then_some(Problem::Missing)
            });
            if let Some(problem) = bad {
                return self.torn(walk, problem);
            }
        }
        Ok(walk)
    }

    /// The walk ends here, and something else follows.
    fn torn(&self, walk: Walk, problem: Problem) -> Result<Walk, OpenError> {
        let torn = self.judge(walk.last, walk.end, walk.tail.next, problem)?;
        Ok(Walk { torn: Some(torn), ..walk })
    }

    /// Reads a segment's records. Returns what is wrong where it stops, if anything obviously is.
    fn read_segment(
        &self,
        reader: &mut SegmentReader<'_>,
        walk: &mut Walk,
        images: &mut Images,
    ) -> Result<Option<Problem>, OpenError> {
        loop {
            let address = reader.address();
            walk.end = address;
            let (head, payload) = match reader.next() {
                Found::Record(head, payload) => (head, payload),
                Found::Nothing => return Ok(None),
                Found::Bad(problem) => return Ok(Some(problem)),
                Found::Foreign(problem) => return Err(corrupt(address, walk.tail.next, problem)),
            };
            if head.kind == Kind::Groups {
                images
                    .record(head.number, payload)
                    .map_err(|problem| corrupt(address, head.number, problem))?;
                walk.records += 1;
                walk.bytes += reader.address().offset - address.offset;
                walk.last_record_end = reader.address();
            }
            walk.claimed = walk.claimed.max(reader.claimed);
            walk.tail = reader.tail;
        }
    }

    /// Judges a place that does not hold the next record, `next`: an error if it had been durable, else what
    /// to cut.
    fn judge(&self, index: usize, bad: Address, next: Position, problem: Problem) -> Result<Torn, OpenError> {
        let mut bytes = Vec::new();
        let mut torn = Torn { problem, used_bytes: 0, bytes: 0 };
        for later in index..self.segments.len() {
            self.load(later, &mut bytes)?;
            let mut reader = match self.open_segment(later, &bytes) {
                Ok(reader) | Err(OpeningError::Opening(reader)) => reader,
                Err(OpeningError::Header(error)) => return Err(self.header_error(later, error)),
                Err(OpeningError::Shortened) => return Err(self.shortened(later, bytes.len())),
            };
            let start = if later == index { bad.offset } else { HEADER_BYTES as u64 };
            reader.offset = start as usize;
            if reader.proves_durable(bad) {
                return Err(corrupt(bad, next, problem));
            }
            let used_bytes = reader.used_bytes() as u64;
            if later == index {
                torn.used_bytes = used_bytes;
            }
            torn.bytes += used_bytes.saturating_sub(start);
        }
        Ok(torn)
    }

    /// Cuts the torn tail of a walk, if it has one.
    fn cut(&self, walk: &Walk) -> Result<(), OpenError> {
        let Some(torn) = &walk.torn else {
            return Ok(());
        };
        let later = &self.segments[walk.last + 1..];
        for &first in later.iter().rev() {
            let name = segment_name(first);
            let action = || format!("removing {name}, which was never synced");
            self.disk.remove(&name).map_err(OpenError::io(action()))?;
        }
        if !later.is_empty() {
            self.disk.sync_dir().map_err(OpenError::io("syncing the directory"))?;
        }
        let first = walk.end.segment;
        let action = || format!("cutting the torn tail of {}", segment_name(first));
        let (file, _) = open_file(self.disk, first)?;
        write_zeros(&file, walk.end.offset, torn.used_bytes)
            .and_then(|()| file.sync())
            .map_err(OpenError::io(action()))
    }

    /// Makes everything durable that was read and is not claimed to be. It is written once more before it is
    /// synced: where a sync had failed, the kernel may take for clean what never reached the disk.
    fn make_durable(&self, walk: &Walk) -> Result<(), OpenError> {
        if is_active(Mutant::TrustWhatWasRead) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let last = walk.last + 1;
        let claimed_segments = self.segments[..last].partition_point(|&first| first < walk.claimed.segment);
        for (index, &first) in self.segments.iter().enumerate().take(last).skip(claimed_segments) {
            let claimed =
                if first == walk.claimed.segment { walk.claimed.offset } else { HEADER_BYTES as u64 };
            let file = self.load(index, &mut bytes)?;
            let used = used_bytes(&bytes);
            let unclaimed = bytes.get(claimed as usize..used).unwrap_or_default();
            let made_durable = file.write_at(claimed, unclaimed).and_then(|()| file.sync());
            made_durable.map_err(OpenError::io(format!("making {} durable", segment_name(first))))?;
        }
        self.disk.sync_dir().map_err(OpenError::io("syncing the directory"))
    }

    fn open_segment<'a>(&self, index: usize, bytes: &'a [u8]) -> Result<SegmentReader<'a>, OpeningError<'a>> {
        SegmentReader::open(bytes, self.segments[index])
    }

    fn load(&self, index: usize, bytes: &mut Vec<u8>) -> Result<D::File, OpenError> {
        let (file, len_bytes) = open_file(self.disk, self.segments[index])?;
        let action = || format!("reading {}", segment_name(self.segments[index]));
        read_whole(&file, len_bytes, bytes).map_err(OpenError::io(action()))?;
        Ok(file)
    }

    /// No crash shortens a segment: its length was durable before it got its name.
    fn shortened(&self, index: usize, len_bytes: usize) -> OpenError {
        let first = self.segments[index];
        corrupt(Address { segment: first, offset: len_bytes as u64 }, first, Problem::Shortened)
    }

    fn header_error(&self, index: usize, error: HeaderError) -> OpenError {
        let first = self.segments[index];
        let name = segment_name(first);
        match error {
            HeaderError::Damaged => corrupt(Address { segment: first, offset: 0 }, first, Problem::Header),
            HeaderError::Older => OpenError::Older { name },
            HeaderError::Version(version) => OpenError::Version { name, version, known: FORMAT_VERSION },
        }
    }
}

fn corrupt(address: Address, record: Position, problem: Problem) -> OpenError {
    OpenError::Corrupt { address, record, problem }
}

/// Reads the first `len_bytes` of a file, fewer if it is shorter.
fn read_whole(file: &impl DiskFile, len_bytes: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let len = usize::try_from(len_bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    bytes.clear();
    bytes.resize(len, 0);
    let mut done = 0;
    while done < len {
        match file.read_at(done as u64, &mut bytes[done..])? {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    Ok(())
}

const _: () =
    assert!(HEADER_BYTES + HEAD_BYTES <= 1 << 20, "the smallest sensible segment holds its opening record");
