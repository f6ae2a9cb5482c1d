//! What final-committed transactions have to tell ([`txn::told`]), in the order in which each partition
//! committed them. A node tells what is executed at partitions that it keeps.
//!
//! Several threads step an engine, and what one of them committed may come out of its hands after what
//! another one committed later. So while somebody listens, whoever steps an engine reports each position that
//! was committed, with what it has to tell or without, and the [`Sequence`] of the partition holds back what
//! comes too early.
//!
//! *Beginning* in the middle of all that must not wait for what was committed before anybody listened. A
//! committing thread makes the new end of the partition visible before it looks whether somebody listens; a
//! beginning says that somebody does before it looks at the end. So of every position behind that end there
//! will be a report. (Reports carry the number of the beginning that they saw: those of an earlier one are
//! nobody's any more.)

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use txn::{Event, Outcome, PartitionId, Position, Reply, RequestId, Told};

/// So much may come too early before what it waits for is given up: that would be a bug, and must not become
/// one of memory.
const EARLY_MAX: usize = 1 << 16;

/// What a transaction has to tell.
#[derive(Debug)]
pub struct NewsItem {
    /// Which request it was.
    pub id: RequestId,
    /// Where it stands in the order of the partition that tells of it.
    pub at: (PartitionId, Position),
    /// What happened.
    pub events: Vec<Event>,
}

/// Who listens. It is called with a lock held, so it must be quick, and must not come back to the runtime.
pub trait NewsListener: Send + Sync + 'static {
    /// A transaction has something to tell.
    fn told(&self, item: NewsItem);
}

/// A committed position.
pub(super) struct Commit {
    generation: u64,
    position: Position,
    item: Option<NewsItem>,
}

/// The seam between those who step engines and those who listen.
#[derive(Default)]
pub(super) struct News {
    /// Odd while somebody listens. Changes with each beginning and each end.
    generation: AtomicU64,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    listener: Option<Arc<dyn NewsListener>>,
    sequences: BTreeMap<PartitionId, Sequence>,
}

impl News {
    /// Has somebody told from now on. `ends` looks at the ends of the partitions.
    pub fn begin(
        &self,
        listener: Arc<dyn NewsListener>,
        ends: impl FnOnce() -> Vec<(PartitionId, Position)>,
    ) {
        let mut books = self.books.lock();
        if books.listener.is_some() {
            return;
        }
        self.generation.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let sequence = |(partition, end): (PartitionId, Position)| (partition, Sequence::behind(end));
        books.sequences = ends().into_iter().map(sequence).collect();
        books.listener = Some(listener);
    }

    /// Nobody listens any more.
    pub fn end(&self) {
        let mut books = self.books.lock();
        if books.listener.take().is_some() {
            self.generation.fetch_add(1, Ordering::SeqCst);
            books.sequences.clear();
        }
    }

    /// Takes what a transaction has to tell off its outcome. The result is to be given to [`News::committed`]
    /// by the same thread; `None` if nobody listens.
    pub fn take(
        &self,
        at: (PartitionId, Position),
        id: RequestId,
        is_told: bool,
        outcome: &mut Outcome,
    ) -> Option<Commit> {
        let mut events = Vec::new();
        if let Ok(reply @ Reply::Told(_)) = outcome
            && let Reply::Told(told) = std::mem::replace(reply, Reply::Nil)
        {
            let Told { reply: own, events: of_reply } = *told;
            *reply = own;
            events = of_reply;
        }
        fence(Ordering::SeqCst);
        let generation = self.generation.load(Ordering::SeqCst);
        if generation.is_multiple_of(2) {
            return None;
        }
        let item = (is_told && !events.is_empty()).then_some(NewsItem { id, at, events });
        Some(Commit { generation, position: at.1, item })
    }

    /// Tells what has its turn of what a partition has committed.
    pub fn committed(&self, partition: PartitionId, commits: &mut Vec<Commit>) {
        let mut books = self.books.lock();
        let generation = self.generation.load(Ordering::SeqCst);
        let Books { listener, sequences } = &mut *books;
        let sequence = sequences.get_mut(&partition);
        let (Some(listener), Some(sequence)) = (listener, sequence) else {
            return commits.clear();
        };
        for commit in commits.drain(..) {
            if commit.generation == generation {
                sequence.take(commit.position, commit.item, &mut |item| listener.told(item));
            }
        }
    }
}

/// The order of a partition's commits.
#[derive(Debug)]
struct Sequence {
    /// The position whose turn it is.
    next: Position,
    /// What came before its turn.
    early: BTreeMap<Position, Option<NewsItem>>,
}

impl Sequence {
    fn behind(end: Position) -> Sequence {
        Sequence { next: end.next(), early: BTreeMap::new() }
    }

    fn take(&mut self, position: Position, item: Option<NewsItem>, tell: &mut impl FnMut(NewsItem)) {
        if position > self.next {
            self.early.insert(position, item);
            if self.early.len() <= EARLY_MAX {
                return;
            }
            tracing::error!(
                "nothing was heard of position {} although {EARLY_MAX} behind it are committed: this is a \
                 bug, please report it",
                self.next.0
            );
            self.next = self.early.keys().next().copied().unwrap_or(position);
        } else {
            item.into_iter().for_each(&mut *tell);
            if position < self.next {
                return;
            }
            self.next = position.next();
        }
        while let Some(item) = self.early.remove(&self.next) {
            item.into_iter().for_each(&mut *tell);
            self.next = self.next.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::SessionId;

    #[derive(Default)]
    struct Heard(Mutex<Vec<u64>>);

    impl NewsListener for Heard {
        fn told(&self, item: NewsItem) {
            self.0.lock().push(item.id.sequence);
        }
    }

    const PARTITION: PartitionId = PartitionId(3);

    fn id(sequence: u64) -> RequestId {
        RequestId { session: SessionId(1), sequence, attempt: 0 }
    }

    fn commit(news: &News, position: u64) -> Option<Commit> {
        let mut outcome = Ok(Reply::Told(Box::new(Told { reply: Reply::OK, events: vec![Event::Cleared] })));
        let at = (PARTITION, Position(position));
        let commit = news.take(at, id(position), true, &mut outcome);
        assert_eq!(outcome, Ok(Reply::OK), "who asked gets the reply without them");
        commit
    }

    #[test]
    fn news_come_in_the_order_of_the_positions() {
        let (news, heard) = (News::default(), Arc::new(Heard::default()));
        assert!(commit(&news, 9).is_none(), "nobody listens");
        news.begin(heard.clone(), || vec![(PARTITION, Position(10))]);
        for positions in [&[12, 13][..], &[9, 11], &[15], &[14]] {
            let mut commits = positions.iter().filter_map(|&at| commit(&news, at)).collect();
            news.committed(PARTITION, &mut commits);
        }
        assert_eq!(*heard.0.lock(), [9, 11, 12, 13, 14, 15]);
    }

    #[test]
    fn what_an_earlier_listener_was_to_hear_is_not_for_the_next() {
        let (news, heard) = (News::default(), Arc::new(Heard::default()));
        news.begin(heard.clone(), || vec![(PARTITION, Position(10))]);
        let mut early: Vec<Commit> = commit(&news, 12).into_iter().collect();
        news.end();
        news.begin(heard.clone(), || vec![(PARTITION, Position(20))]);
        news.committed(PARTITION, &mut early);
        assert!(heard.0.lock().is_empty());
    }

    #[test]
    fn a_position_of_which_nothing_is_ever_heard_does_not_stop_all_others() {
        let mut sequence = Sequence::behind(Position(0));
        let mut count = 0;
        for position in 2..=EARLY_MAX as u64 + 2 {
            let item = NewsItem { id: id(position), at: (PARTITION, Position(position)), events: Vec::new() };
            sequence.take(Position(position), Some(item), &mut |_| count += 1);
        }
        assert_eq!((count, sequence.early.len()), (EARLY_MAX + 1, 0));
    }
}
