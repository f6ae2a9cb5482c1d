//! The moments of the past whose versions are kept.
//!
//! A moment says up to which position transactions had final-committed when a time was over. Only the
//! engine's committer notes moments: one whenever the epoch time moves on from one transaction to the next,
//! also between transactions that it publishes together. The keeper of the history forgets the oldest
//! moments, and raises the floor of the [`Snapshots`](crate::snapshots::Snapshots) to the oldest state that
//! is left: behind that floor no version is collected that a reader of a kept moment can see.
//!
//! A history begins without a moment. The state that is published then is none: the committer may have
//! committed later transactions already, whose times it has not noted.
//!
//! Invariants, where a history is kept; without one there are no moments and there is no floor:
//! 1. Times and positions of the moments ascend. The floor is neither above the oldest moment nor above the
//!    published state; it is set under the moments' lock, and only rises.
//! 2. Between the times of two neighbours no other state ended. So a time between them shows the state of
//!    the former.
//! 3. A state is noted before its successor is published. So a thread that holds the lock, and finds a state
//!    published, finds all moments before it.

use crate::publish::Final;
use crate::snapshots::Snapshots;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::view::Snapshot;
use std::collections::VecDeque;
use txn::Position;

/// A past that is shorter than this goes as a whole when there is no room for it.
const SPAN_MIN_MS: u64 = 1_000;
/// Room for so many moments is never given back.
const MOMENTS_SPARE: usize = 1_024;

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
    /// Changed under the moments' lock.
    is_kept: AtomicBool,
    moments: Mutex<VecDeque<Moment>>,
}

impl History {
    /// Whether a history is kept, for callers without the lock. One that misses the beginning of a history
    /// only has it begin later.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    /// The committer has come to `ended`, and its next state is of the time `next_ms`.
    #[inline]
    pub fn note(&self, ended: Final, next_ms: u64) {
        if ended.time_ms != next_ms && self.is_kept() {
            self.push(ended);
        }
    }

    fn push(&self, Final { position, time_ms, .. }: Final) {
        let mut moments = self.moments.lock();
        // The history may have ended while the committer waited for the lock.
        let is_next = moments.back().is_none_or(|last| last.position < position);
        if self.is_kept() && is_next {
            debug_assert!(moments.back().is_none_or(|last| last.time_ms < time_ms), "times ascend");
            moments.push_back(Moment { time_ms, position });
        }
    }

    /// Begins a history: `open` and `close` a snapshot of the newest state.
    pub fn begin(
        &self,
        snapshots: &Snapshots,
        open: impl FnOnce() -> Snapshot,
        close: impl FnOnce(Snapshot),
    ) {
        let mut moments = self.moments.lock();
        moments.clear();
        self.is_kept.store(true, Ordering::SeqCst);
        let snapshot = open();
        snapshots.keep_from(Some(snapshot.position));
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
        if !self.is_kept() {
            return;
        }
        let newest = published();
        let is_behind_all = moments.back().is_none_or(|last| last.position < newest.position);
        let count = match newest.time_ms <= time_ms && is_behind_all {
            // Nothing has been written since: the newest state is all that such readers need.
            true => moments.len(),
            false => moments.partition_point(|moment| moment.time_ms <= time_ms).saturating_sub(1),
        };
        forget(&mut moments, count, newest, snapshots);
    }

    /// Forgets the older half of the moments, for room; all of them, where they span less than a second.
    /// Gives how many milliseconds of the past are left: 0 if there are none.
    pub fn forget_half(&self, snapshots: &Snapshots, published: impl FnOnce() -> Final) -> u64 {
        let mut moments = self.moments.lock();
        if !self.is_kept() {
            return 0;
        }
        let newest = published();
        let span_ms = |moments: &VecDeque<Moment>| {
            moments.front().map_or(0, |oldest| newest.time_ms.saturating_sub(oldest.time_ms))
        };
        let count = match span_ms(&moments) < SPAN_MIN_MS {
            true => moments.len(),
            false => moments.len().div_ceil(2),
        };
        forget(&mut moments, count, newest, snapshots);
        span_ms(&moments)
    }

    /// The last position at a time.
    pub fn position_at(&self, time_ms: u64, published: impl FnOnce() -> Final) -> Result<Position, NoPast> {
        let moments = self.moments.lock();
        if !self.is_kept() {
            return Err(NoPast::NotKept);
        }
        let newest = published();
        if time_ms >= newest.time_ms {
            return Ok(newest.position);
        }
        let behind = moments.partition_point(|moment| moment.time_ms <= time_ms);
        let found = behind.checked_sub(1).map(|place| moments[place].position);
        found.ok_or(NoPast::Before(oldest_ms(&moments, newest)))
    }

    /// The time of the oldest state that can be read.
    pub fn oldest_ms(&self, published: impl FnOnce() -> Final) -> Option<u64> {
        let moments = self.moments.lock();
        self.is_kept().then(|| oldest_ms(&moments, published()))
    }
}

fn oldest_ms(moments: &VecDeque<Moment>, newest: Final) -> u64 {
    moments.front().map_or(newest.time_ms, |oldest| oldest.time_ms.min(newest.time_ms))
}

/// Forgets the first `count` moments. The floor rises to the oldest state that is left.
fn forget(moments: &mut VecDeque<Moment>, count: usize, newest: Final, snapshots: &Snapshots) {
    moments.drain(..count);
    if moments.capacity() > 4 * moments.len().max(MOMENTS_SPARE) {
        moments.shrink_to(2 * moments.len());
    }
    let oldest = moments.front().map_or(newest.position, |oldest| oldest.position);
    // Moments that the committer notes within a run are ahead of the published state, which is read, too.
    snapshots.keep_from(Some(oldest.min(newest.position)));
    if cfg!(debug_assertions) {
        check_invariants(moments, newest, snapshots);
    }
}

/// The first invariant of the module's head.
fn check_invariants(moments: &VecDeque<Moment>, newest: Final, snapshots: &Snapshots) {
    let ascend = |one: &Moment, next: &Moment| one.time_ms < next.time_ms && one.position < next.position;
    let ends = moments.front().zip(moments.back());
    assert!(moments.len() < 2 || ends.is_some_and(|(first, last)| ascend(first, last)), "{ends:?}");
    let floor = snapshots.floor().expect("a history has a floor");
    assert!(floor <= newest.position, "the floor {floor} is above the published {newest:?}");
    assert!(ends.is_none_or(|(first, _)| floor <= first.position), "{floor} is above the oldest: {ends:?}");
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
        assert_eq!(partition.oldest_past_ms(), Some(10));
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
        assert_eq!((held(&partition, 50), partition.oldest_past_ms()), (Err(NoPast::NotKept), None));
    }

    /// Commits at these times, and publishes the last of them alone; between the first two it may do
    /// something else.
    fn run(partition: &Partition<()>, times: &[u64], between: impl Fn()) {
        let mut before = partition.published();
        for (number, &time_ms) in times.iter().enumerate() {
            if number == 1 {
                between();
            }
            let ended = at(time_ms, before.position.0 + 1);
            let entry = Some(Entry::new(time_ms.to_string().as_str()));
            partition.install(ended.position, false, [(Key::from("a"), entry)], &mut 0);
            partition.note_past(before, time_ms);
            before = ended;
        }
        partition.publish(before);
        partition.collect(usize::MAX);
    }

    #[test]
    fn transactions_that_are_published_together_have_their_moments() {
        let partition = Partition::new();
        run(&partition, &[990], || {});
        partition.keep_history(Some(0));
        run(&partition, &[995, 998, 998, 1_002], || {});
        // The keeper comes by between the commits of a run and their publication.
        run(&partition, &[1_005, 1_007, 1_009], || partition.keep_history(Some(991)));
        for (time_ms, want) in [
            (989, Err(NoPast::Before(990))),
            (990, Ok("990")),
            (994, Ok("990")),
            (995, Ok("995")),
            (1_000, Ok("998")),
            (1_002, Ok("1002")),
            (1_006, Ok("1005")),
            (1_008, Ok("1007")),
            (1_009, Ok("1009")),
        ] {
            assert_eq!(held(&partition, time_ms), want.map(|text| Some(Entry::new(text))), "{time_ms}");
        }
    }

    #[test]
    fn a_history_that_begins_in_the_middle_of_a_run_does_not_know_its_beginning() {
        let partition = Partition::new();
        run(&partition, &[990], || {});
        // The transaction of 995 has been committed unnoted when the history begins.
        run(&partition, &[995, 998, 1_002], || {
            partition.keep_history(Some(0));
            partition.keep_history(Some(991));
        });
        assert_eq!(held(&partition, 992), Err(NoPast::Before(995)));
        assert_eq!(held(&partition, 996), Ok(Some(Entry::new("995"))));
        assert_eq!(held(&partition, 999), Ok(Some(Entry::new("998"))));
    }

    #[test]
    fn a_thread_that_comes_too_late_leaves_nothing_of_a_history_that_has_ended() {
        // A committer, the keeper and the evictor have found a history, and get the lock when it has ended.
        let (history, snapshots) = (History::default(), Snapshots::default());
        history.push(at(10, 1));
        history.forget_before(5, &snapshots, || at(20, 2));
        assert_eq!(history.forget_half(&snapshots, || at(20, 2)), 0);
        assert!(history.moments.lock().is_empty());
        assert_eq!(snapshots.floor(), None, "nothing is kept");
        assert_eq!(history.position_at(10, || at(20, 2)), Err(NoPast::NotKept));
    }

    #[test]
    fn half_of_the_past_goes_for_its_memory_and_readers_keep_theirs() {
        let partition = Partition::new();
        partition.keep_history(Some(0));
        for time in 1..=8 {
            write(&partition, time * 1_000, time, Some("x"));
        }
        let reader = partition.open_at(1_500).expect("it is kept");
        // The moments are those of 0 to 7 seconds; the state of the eighth is the newest.
        assert_eq!(partition.shorten_history(), 4_000);
        partition.collect(usize::MAX);
        assert_eq!(held(&partition, 3_999), Err(NoPast::Before(4_000)));
        assert!(partition.read_at(&reader, &Key::from("a")).entry.is_some());
        partition.close(reader);
        assert_eq!(partition.shorten_history(), 2_000);
        assert_eq!(partition.shorten_history(), 1_000);
        // Less than a second is left, and goes as a whole.
        write(&partition, 8_100, 9, Some("x"));
        write(&partition, 8_200, 10, Some("x"));
        partition.keep_history(Some(8_050));
        assert_eq!((partition.oldest_past_ms(), partition.shorten_history()), (Some(8_000), 0));
        partition.collect(usize::MAX);
        assert_eq!(partition.census().versions, 1);
        assert_eq!(partition.shorten_history(), 0, "the newest state is no past");
        assert!(held(&partition, 8_200).is_ok());
    }

    #[test]
    fn moments_that_are_forgotten_give_their_room_back() {
        let (history, snapshots) = (History::default(), Snapshots::default());
        let partition = Partition::<()>::new();
        history.begin(&snapshots, || partition.open(), |snapshot| partition.close(snapshot));
        (1..100_000).for_each(|time| history.note(at(time, time), time + 1));
        history.forget_before(99_990, &snapshots, || at(100_000, 100_000));
        let moments = history.moments.lock();
        assert_eq!(moments.front(), Some(&Moment { time_ms: 99_990, position: Position(99_990) }));
        assert!(moments.capacity() <= 4 * MOMENTS_SPARE, "{}", moments.capacity());
    }
}
