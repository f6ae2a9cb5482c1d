//! Opening a log: reading it back, judging where it ends, and cutting a torn tail.
//!
//! The walk starts at the last segment that begins at or before the checkpoint's end, reads record after
//! record, and stops at the first place that does not hold the next one. If there is nothing behind that
//! place, the log simply ends there. Otherwise everything behind is searched for a durability claim beyond
//! the place: one claim makes it corruption; without one it is a torn tail. Cutting removes later segments
//! first and then overwrites the rest of the file with zeros; a crash in between only removes more of what
//! had no claims, so the next start judges the same.
//!
//! What was read may have been in the kernel's memory only (after a killed process, or after a sync that
//! failed), so everything without a claim is written again and synced before the log counts as durable.

use crate::batch::{Batch, Tail};
use crate::disk::{Disk, DiskFile};
use crate::error::{OpenError, Problem};
use crate::log::{Log, LogOptions, Segment, Shared, write_zeros};
use crate::record::{Address, Content, Found, HEAD_BYTES, Head, Kind, Place};
use crate::replay::{Replay, ReplayBatches};
use crate::report::{Cut, Report};
use crate::segment::{
    FORMAT_VERSION, HEADER_BYTES, Header, OpeningError, PayloadError, SegmentReader, first_of_name,
    is_prepared, segment_name, used_bytes,
};
use std::io;
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::{Position, Registry};

impl<D: Disk> Log<D> {
    /// Opens the log on a disk, or makes one. Every batch with a request behind the checkpoint is handed to
    /// `replay`, in order (the first one may begin before the checkpoint's end), and so are empty batches;
    /// those right at the checkpoint's end may be missing, but [`Log::tail`] has their time. After an error
    /// forget what was replayed.
    pub fn open(
        disk: Arc<D>,
        options: LogOptions,
        registry: &Registry,
        replay: &mut dyn FnMut(Batch),
    ) -> Result<(Log<D>, Report), OpenError> {
        let mut replay = ReplayBatches { registry, replay };
        Log::open_with(disk, options, Content::Batches, &mut replay)
    }

    /// Opens a log with any content. That of groups is read from its oldest segment on, and has no
    /// checkpoint.
    pub(crate) fn open_with(
        disk: Arc<D>,
        options: LogOptions,
        content: Content,
        replay: &mut dyn Replay,
    ) -> Result<(Log<D>, Report), OpenError> {
        let shared = Arc::new(Shared::new(disk, content, &options));
        let names = shared.disk.list().map_err(OpenError::io("listing the directory"))?;
        let segments = list_segments(&*shared.disk, &names, content)?;
        let checkpoint = options.checkpoint;
        let Some(&oldest) = segments.first() else {
            remove_prepared(&*shared.disk, &names)?;
            let log = begin(shared, checkpoint, Vec::new())?;
            return Ok((log, Report::new(content, checkpoint, true)));
        };
        if content == Content::Batches && oldest > checkpoint.next {
            return Err(OpenError::BeginsTooLate { wanted: checkpoint.next, found: oldest });
        }
        let recovery = Recovery { disk: &*shared.disk, segments: &segments, checkpoint, content };
        let mut start = match content {
            Content::Batches => segments.partition_point(|&first| first <= checkpoint.next) - 1,
            Content::Groups => 0,
        };
        let walk = loop {
            match recovery.walk(start, replay)? {
                Some(walk) => break walk,
                // The segment lost its opening record to a crash: its predecessor tells where the log ends.
                None => start -= 1,
            }
        };
        replay.end(oldest, walk.end, walk.tail.next)?;
        remove_prepared(&*shared.disk, &names)?;
        let mut report = Report::new(content, walk.tail, false);
        report.segments = (walk.last - start + 1) as u64;
        report.batches = walk.batches;
        report.requests = walk.requests;
        report.bytes = walk.bytes;
        report.cut = recovery.cut(&walk)?;
        recovery.make_durable(&walk)?;

        let mut older = segments[..=walk.last].to_vec();
        if walk.tail.next < checkpoint.next {
            report.ended_before_checkpoint = Some(walk.tail.last());
            report.tail = Tail {
                epoch: walk.tail.epoch.max(checkpoint.epoch),
                time_ms: walk.tail.time_ms.max(checkpoint.time_ms),
                ..checkpoint
            };
            let mut log = begin(shared, report.tail, older)?;
            log.truncate_before(checkpoint.next)
                .map_err(OpenError::io("removing segments behind the checkpoint"))?;
            return Ok((log, report));
        }
        older.pop();
        let first = segments[walk.last];
        let (file, len_bytes) = open_file(&*shared.disk, first)?;
        let offset = walk.end.offset;
        let mut log = Log {
            shared,
            tail: walk.tail,
            time_floor_ms: checkpoint.time_ms,
            current: Segment {
                first,
                file: Arc::new(file),
                boot_id: walk.boot_id,
                offset,
                dirty_until: offset,
                len_bytes,
            },
            older,
            unsynced: Vec::new(),
            durable: walk.end,
            durable_last: walk.tail.last(),
            durable_name: first,
            claimed: walk.claimed,
            last_batch_end: walk.last_batch_end,
        };
        report.tail = log.tail();
        // A claim for what was found unclaimed. On a full disk it has to wait.
        if let Ok(true) = log.write_marker() {
            log.sync().map_err(OpenError::io("syncing the log"))?;
        }
        Ok((log, report))
    }
}

/// Makes a segment at `tail`, durable at once, and a log that goes on in it.
fn begin<D: Disk>(shared: Arc<Shared<D>>, tail: Tail, older: Vec<Position>) -> Result<Log<D>, OpenError> {
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
        time_floor_ms: 0,
        current,
        older,
        unsynced: Vec::new(),
        durable,
        durable_last: tail.last(),
        durable_name: tail.next,
        claimed: start,
        last_batch_end: start,
    })
}

/// The first positions of all segments, in order.
fn list_segments<D: Disk>(disk: &D, names: &[String], content: Content) -> Result<Vec<Position>, OpenError> {
    let mut segments: Vec<Position> = names.iter().filter_map(|name| first_of_name(name)).collect();
    segments.sort_unstable();
    if let Some(&oldest) = segments.first() {
        check_content(disk, oldest, content)?;
    }
    Ok(segments)
}

/// Prepared segments hold nothing.
fn remove_prepared<D: Disk>(disk: &D, names: &[String]) -> Result<(), OpenError> {
    for name in names.iter().filter(|name| is_prepared(name)) {
        disk.remove(name).map_err(OpenError::io(format!("removing {name}")))?;
    }
    Ok(())
}

/// Looks at one header before anything else is judged, so that a log with another content is called that, and
/// not incomplete.
fn check_content<D: Disk>(disk: &D, first: Position, wanted: Content) -> Result<(), OpenError> {
    let name = segment_name(first);
    let (file, len_bytes) = open_file(disk, first)?;
    let mut bytes = Vec::new();
    read_whole(&file, len_bytes.min(HEADER_BYTES as u64), &mut bytes)
        .map_err(OpenError::io(format!("reading {name}")))?;
    match Header::read(&bytes) {
        Ok(header) if header.content != wanted => {
            Err(OpenError::Content { name, found: header.content, wanted })
        }
        // A bad header is judged where the segment is read.
        _ => Ok(()),
    }
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
    checkpoint: Tail,
    content: Content,
}

/// What a walk over the log found.
struct Walk {
    /// The index of the segment in which the log ends, and that segment's boot.
    last: usize,
    boot_id: u64,
    end: Address,
    tail: Tail,
    claimed: Address,
    last_batch_end: Address,
    batches: u64,
    requests: u64,
    bytes: u64,
    torn: Option<Torn>,
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
    /// Reads the log from a segment on. `None` if that segment has no opening record and an earlier one may
    /// tell more.
    fn walk(&self, start: usize, replay: &mut dyn Replay) -> Result<Option<Walk>, OpenError> {
        let mut bytes = Vec::new();
        let mut walk: Option<Walk> = None;
        for index in start..self.segments.len() {
            self.load(index, &mut bytes)?;
            let mut reader = match self.open_segment(index, &bytes) {
                Ok(reader) => reader,
                Err(OpeningError::Header(version)) => return Err(self.header_error(index, version)),
                Err(OpeningError::Content(found)) => return Err(self.content_error(index, found)),
                Err(OpeningError::Shortened) => return Err(self.shortened(index, bytes.len())),
                Err(OpeningError::Opening(reader)) => {
                    let opening = reader.address();
                    self.judge(index, opening, Problem::Opening, walk.as_ref())?;
                    let Some(walk) = walk else {
                        return match start {
                            0 => Err(self.corrupt(opening, Problem::Opening, None)),
                            _ => Ok(None),
                        };
                    };
                    // The segment goes as a whole, and its predecessor becomes the last one.
                    return Ok(Some(self.torn(walk, Problem::Opening)?));
                }
            };
            if let Some(previous) = walk.take_if(|walk| walk.tail != reader.tail) {
                return Ok(Some(self.torn(previous, Problem::Missing)?));
            }
            let found = walk.get_or_insert_with(|| Walk {
                last: index,
                boot_id: reader.boot_id(),
                end: reader.address(),
                tail: reader.tail,
                claimed: reader.claimed,
                last_batch_end: reader.address(),
                batches: 0,
                requests: 0,
                bytes: 0,
                torn: None,
            });
            found.last = index;
            found.boot_id = reader.boot_id();
            found.claimed = found.claimed.max(reader.claimed);
            let bad = self.read_segment(&mut reader, found, replay)?;
            let bad = bad.or_else(|| {
                let last = index + 1 == self.segments.len();
                (last && reader.used_bytes() > reader.offset).then_some(Problem::Missing)
            });
            if let Some(problem) = bad {
                return walk.map(|walk| self.torn(walk, problem)).transpose();
            }
        }
        Ok(walk)
    }

    /// The walk ends here, and something else follows.
    fn torn(&self, walk: Walk, problem: Problem) -> Result<Walk, OpenError> {
        let torn = self.judge(walk.last, walk.end, problem, Some(&walk))?;
        Ok(Walk { torn: Some(torn), ..walk })
    }

    /// Reads a segment's records. Returns what is wrong where it stops, if anything obviously is.
    fn read_segment(
        &self,
        reader: &mut SegmentReader<'_>,
        walk: &mut Walk,
        replay: &mut dyn Replay,
    ) -> Result<Option<Problem>, OpenError> {
        loop {
            let address = reader.address();
            walk.end = address;
            let (head, payload) = match reader.next() {
                Found::Record(head, payload) => (head, payload),
                Found::Nothing => return Ok(None),
                Found::Bad(problem) => return Ok(Some(problem)),
                Found::Foreign(problem) => return Err(self.corrupt(address, problem, Some(walk))),
            };
            if head.kind != Kind::Marker {
                if head.tail().next > self.checkpoint.next || head.first >= self.checkpoint.next {
                    let requests = replay.record(&head, payload).map_err(|error| match error {
                        PayloadError::Problem(problem) => self.corrupt(address, problem, Some(walk)),
                        PayloadError::Request(position, cause) => {
                            OpenError::Request { address, position, cause }
                        }
                    })?;
                    walk.batches += 1;
                    walk.requests += requests;
                    walk.bytes += reader.address().offset - address.offset;
                }
                walk.last_batch_end = reader.address();
            }
            walk.claimed = walk.claimed.max(reader.claimed);
            walk.tail = reader.tail;
        }
    }

    /// Judges a place that does not hold the next record: an error if it had been durable, else what to cut.
    fn judge(
        &self,
        index: usize,
        bad: Address,
        problem: Problem,
        walk: Option<&Walk>,
    ) -> Result<Torn, OpenError> {
        let mut bytes = Vec::new();
        let mut torn = Torn { problem, used_bytes: 0, bytes: 0 };
        for later in index..self.segments.len() {
            self.load(later, &mut bytes)?;
            let mut reader = match self.open_segment(later, &bytes) {
                Ok(reader) | Err(OpeningError::Opening(reader)) => reader,
                Err(OpeningError::Header(version)) => return Err(self.header_error(later, version)),
                Err(OpeningError::Content(found)) => return Err(self.content_error(later, found)),
                Err(OpeningError::Shortened) => return Err(self.shortened(later, bytes.len())),
            };
            let start = if later == index { bad.offset } else { HEADER_BYTES as u64 };
            reader.offset = start as usize;
            if reader.proves_durable(bad) {
                return Err(self.corrupt(bad, problem, walk));
            }
            let used_bytes = reader.used_bytes() as u64;
            if later == index {
                torn.used_bytes = used_bytes;
            }
            torn.bytes += used_bytes.saturating_sub(start);
        }
        Ok(torn)
    }

    /// Cuts the torn tail of a walk.
    fn cut(&self, walk: &Walk) -> Result<Option<Cut>, OpenError> {
        let Some(torn) = &walk.torn else {
            return Ok(None);
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
            .map_err(OpenError::io(action()))?;
        Ok(Some(Cut {
            address: walk.end,
            position: walk.tail.next,
            bytes: torn.bytes,
            problem: torn.problem,
        }))
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
        SegmentReader::open(bytes, self.segments[index], self.content)
    }

    fn load(&self, index: usize, bytes: &mut Vec<u8>) -> Result<D::File, OpenError> {
        let (file, len_bytes) = open_file(self.disk, self.segments[index])?;
        let action = || format!("reading {}", segment_name(self.segments[index]));
        read_whole(&file, len_bytes, bytes).map_err(OpenError::io(action()))?;
        Ok(file)
    }

    fn corrupt(&self, address: Address, problem: Problem, walk: Option<&Walk>) -> OpenError {
        let position = walk.map_or(address.segment, |walk| walk.tail.next);
        OpenError::Corrupt { content: self.content, address, position, problem }
    }

    /// No crash shortens a segment: its length was durable before it got its name.
    fn shortened(&self, index: usize, len_bytes: usize) -> OpenError {
        let address = Address { segment: self.segments[index], offset: len_bytes as u64 };
        self.corrupt(address, Problem::Shortened, None)
    }

    fn content_error(&self, index: usize, found: Content) -> OpenError {
        OpenError::Content { name: segment_name(self.segments[index]), found, wanted: self.content }
    }

    fn header_error(&self, index: usize, version: Option<u32>) -> OpenError {
        let first = self.segments[index];
        match version {
            Some(version) => OpenError::Version { name: segment_name(first), version, known: FORMAT_VERSION },
            None => self.corrupt(Address { segment: first, offset: 0 }, Problem::Header, None),
        }
    }
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
