//! The moments of the past whose versions are kept.
//!
//! A moment says up to which position transactions had final-committed when a time was over. The engine's
//! committer notes one whenever the epoch time moves on; the keeper of the history forgets the oldest, and
//! raises the floor of the [`Snapshots`](crate::snapshots::Snapshots) to the oldest that is left: behind that
//! floor no version is collected that a reader of a kept moment can see.
//!
//! Invariants:
//! 1. Times and positions of the moments ascend. The oldest moment's position is the floor, which is set
//!    under the moments' lock.
//! 2. A state is noted before its successor is published. So who holds the lock, and finds a state published,
//!    finds all moments before it.

use crate::publish::Final;
use crate::snapshots::Snapshots;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::view::Snapshot;
use std::collections::VecDeque;
use txn::Position;

/// The end of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    time_ms: u64,
    position: Position,
}

/// Why nothing of a moment can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPast {
    /// No history is kept.
    NotKept,
    /// The moment is before the oldest one that is kept, which is of this time, in milliseconds since 1970.
    Before(u64),
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct History {
    is_kept: AtomicBool,
    moments: Mutex<VecDeque<Moment>>,
}

fn push(moments: &mut VecDeque<Moment>, Final { time_ms, position, .. }: Final) {
    match moments.back_mut() {
        Some(last) if last.time_ms == time_ms => last.position = position,
        _ => moments.push_back(Moment { time_ms, position }),
    }
}

impl History {
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::SeqCst)
    }

    /// Before the committer publishes a state: `ended` is the one that is published, `time_ms` the new one's.
    pub fn note(&self, ended: Final, time_ms: u64) {
        if ended.time_ms != time_ms {
            push(&mut self.moments.lock(), ended);
        }
    }

    /// Begins with the newest state: `open` and `close` a snapshot of it.
    pub fn begin(
        &self,
        snapshots: &Snapshots,
        open: impl FnOnce() -> Snapshot,
        close: impl FnOnce(Snapshot),
    ) {
        let mut moments = self.moments.lock();
        // The committer notes all states behind the one that is opened now.
        self.is_kept.store(true, Ordering::SeqCst);
        let snapshot = open();
        let (position, time_ms) = (snapshot.position, snapshot.time_ms);
        push(&mut moments, Final { position, time_ms, live: 0 });
        snapshots.keep_from(Some(position));
        close(snapshot);
    }

    pub fn end(&self, snapshots: &Snapshots) {
        let mut moments = self.moments.lock();
        self.is_kept.store(false, Ordering::SeqCst);
        *moments = VecDeque::new();
        snapshots.keep_from(None);
    }

    /// Forgets the moments that readers since a time do not need.
    pub fn forget_before(&self, time_ms: u64, snapshots: &Snapshots, published: impl FnOnce() -> Final) {
        let mut moments = self.moments.lock();
        push(&mut moments, published());
        let needed = moments.partition_point(|moment| moment.time_ms <= time_ms);
        moments.drain(..needed.saturating_sub(1));
        snapshots.keep_from(moments.front().map(|moment| moment.position));
    }

    /// Forgets the older half of the moments, for room. False if there is but one.
    pub fn forget_half(&self, snapshots: &Snapshots, published: impl FnOnce() -> Final) -> bool {
        let mut moments = self.moments.lock();
        push(&mut moments, published());
        let count = moments.len();
        if count > 1 {
            moments.drain(..count.div_ceil(2));
            snapshots.keep_from(moments.front().map(|moment| moment.position));
        }
        count > 1
    }

    /// The last position at a time.
    pub fn position_at(&self, time_ms: u64, published: impl FnOnce() -> Final) -> Result<Position, NoPast> {
        let moments = self.moments.lock();
        let oldest = moments.front().ok_or(NoPast::NotKept)?;
        let newest = published();
        if time_ms >= newest.time_ms {
            return Ok(newest.position);
        }
        let behind = moments.partition_point(|moment| moment.time_ms <= time_ms);
        let found = behind.checked_sub(1).map(|place| moments[place].position);
        found.ok_or(NoPast::Before(oldest.time_ms))
    }

    /// The time of the oldest moment.
    pub fn oldest_ms(&self) -> Option<u64> {
        self.moments.lock().front().map(|moment| moment.time_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Partition, View};
    use txn::{Entry, Key};

    fn at(time_ms: u64, position: u64) -> Final {
        Final { position: Position(position), time_ms, live: 0 }
    }

    /// The entry of a key at a time.
    fn held(partition: &Partition<()>, time_ms: u64) -> Result<Option<Entry>, NoPast> {
        let snapshot = partition.open_at(time_ms)?;
        let read = partition.read_at(&snapshot, &Key::from("a"));
        partition.close(snapshot);
        Ok(read.entry)
    }

    fn write(partition: &Partition<()>, time_ms: u64, position: u64, value: Option<&str>) {
        let entry = value.map(Entry::new);
        let mut live = 0;
        partition.install(Position(position), false, [(Key::from("a"), entry)], &mut live);
        partition.publish(at(time_ms, position));
        // All that may be collected is.
        partition.collect(usize::MAX);
    }

    #[test]
    fn each_time_shows_what_had_been_written_when_it_was_over() {
        let partition = Partition::new();
        write(&partition, 10, 1, Some("early"));
        assert_eq!(held(&partition, 10), Err(NoPast::NotKept));
        partition.keep_history(Some(0));
        write(&partition, 20, 2, Some("twenty"));
        write(&partition, 20, 3, Some("twenty again"));
        write(&partition, 25, 4, None);
        write(&partition, 40, 5, Some("forty"));
        let entry = |text: &str| Ok(Some(Entry::new(text)));
        for (time_ms, want) in [
            (9, Err(NoPast::Before(10))),
            (10, entry("early")),
            (19, entry("early")),
            (20, entry("twenty again")),
            (24, entry("twenty again")),
            (25, Ok(None)),
            (39, Ok(None)),
            (40, entry("forty")),
            (1_000, entry("forty")),
        ] {
            assert_eq!(held(&partition, time_ms), want, "{time_ms}");
        }
        // What no reader since 22 needs goes: the state of 20 is the one of 22.
        partition.keep_history(Some(22));
        partition.collect(usize::MAX);
        assert_eq!(held(&partition, 19), Err(NoPast::Before(20)));
        assert_eq!(held(&partition, 22), entry("twenty again"));
        assert_eq!(partition.census().versions, 3);
        // Without another write, time goes by as well.
        partition.keep_history(Some(1_000));
        partition.collect(usize::MAX);
        assert_eq!(partition.census().versions, 1);
        assert_eq!((held(&partition, 39), held(&partition, 50)), (Err(NoPast::Before(40)), entry("forty")));
        partition.keep_history(None);
        assert_eq!(held(&partition, 50), Err(NoPast::NotKept));
    }

    #[test]
    fn half_of_the_past_goes_for_its_memory_and_readers_keep_theirs() {
        let partition = Partition::new();
        partition.keep_history(Some(0));
        for time in 1..=8 {
            write(&partition, time * 10, time, Some("x"));
        }
        let reader = partition.open_at(15).expect("it is kept");
        assert!(partition.shorten_history());
        partition.collect(usize::MAX);
        assert_eq!(held(&partition, 49), Err(NoPast::Before(50)));
        assert!(partition.read_at(&reader, &Key::from("a")).entry.is_some());
        partition.close(reader);
        assert!(partition.shorten_history() && partition.shorten_history());
        partition.collect(usize::MAX);
        assert_eq!(partition.census().versions, 1);
        assert!(!partition.shorten_history(), "the newest state is no past");
        assert!(held(&partition, 80).is_ok());
    }
}
