//! One transaction from its first read to its last write.
//!
//! ```text
//!   fetching ──all declared keys of this partition are told──► running ──procedure returned──► installing ──► ended
//!   (only with siblings and declared keys)                      │  ▲
//!                                           a sibling's read ───┘  └─── has come
//! ```

use super::access::{FinalAccess, Pause};
use super::commit::{Ended, LiveChange};
use super::order::{Job, Known};
use super::siblings::{Awaited, Member};
use crate::engine::Committed;
use crate::running;
use crate::siblings::parts::Parts;
use std::sync::Arc;
use std::task::Poll;
use store::{Partition, RecordRef, Version, digest};
use txn::{Entry, Key, KeySets, Outcome, Position, ProcedureFuture, Space, Stop, Weight};

/// A transaction that has begun.
pub(crate) struct Execution {
    job: Job,
    stage: Stage,
    access: Box<FinalAccess>,
}

enum Stage {
    /// It reads what its siblings will want to know.
    Fetching(ProcedureFuture),
    /// The procedure runs, or is parked.
    Running(ProcedureFuture),
    /// The procedure has returned; its writes are being installed.
    Installing {
        outcome: Outcome,
        live: LiveChange,
        /// So many are installed.
        writes: usize,
        /// What those add to the state digest.
        terms: u64,
    },
}

/// How far it has come.
pub(crate) enum Advanced {
    /// The budget is spent.
    Spent(Execution),
    /// It needs what a sibling reads.
    Waits(Execution, Member, Awaited),
    /// It has ended, and does not need its access any more.
    Ended(Ended, Box<FinalAccess>),
}

impl Execution {
    /// Begins a transaction, which may touch only the keys of `declared`, if there are such.
    pub(crate) fn begin(job: Job, declared: Option<Arc<KeySets>>, mut access: Box<FinalAccess>) -> Execution {
        access.begin(&job, declared);
        let stage = match running::start(&job.request, job.context) {
            Ok(future) => Stage::Fetching(future),
            Err(stop) => {
                Stage::Installing { writes: 0, terms: 0, outcome: Err(stop), live: LiveChange::By(0) }
            }
        };
        Execution { job, stage, access }
    }

    /// It notes in which records it installs versions.
    pub(crate) fn noting_installed(mut self) -> Execution {
        self.access.notes_installed = true;
        self
    }

    pub(crate) fn position(&self) -> Position {
        self.job.context.position
    }
    pub(crate) fn known(&self) -> &Known {
        &self.job.known
    }
    pub(crate) fn weight(&self) -> Weight {
        self.job.request.footprint.weight
    }

    /// Goes on until it has ended, must wait, or the budget is spent.
    pub(crate) fn advance(self, left: &mut u32) -> Advanced {
        let Execution { job, mut stage, mut access } = self;
        if let Stage::Fetching(future) = stage {
            while access.fetch() {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    let stage = Stage::Fetching(future);
                    return Advanced::Spent(Execution { job, stage, access });
                }
            }
            stage = Stage::Running(future);
        }
        if let Stage::Running(mut future) = stage {
            access.left = *left;
            access.pause = None;
            let (back, polled) = running::poll(access, &mut future);
            access = back;
            *left = access.left;
            let (outcome, live) = match (polled, access.pause.take()) {
                (Poll::Pending, Some(Pause::Budget)) => {
                    let stage = Stage::Running(future);
                    return Advanced::Spent(Execution { job, stage, access });
                }
                (Poll::Pending, Some(Pause::Sibling(member, awaited))) => {
                    let stage = Stage::Running(future);
                    let execution = Execution { job, stage, access };
                    return Advanced::Waits(execution, member, awaited);
                }
                (Poll::Pending, None) => {
                    let text = "ERR the procedure waited for something other than its transaction";
                    access.judged(Err(Stop::abort(text)))
                }
                (Poll::Ready(outcome), _) => access.judged(outcome),
            };
            let clears = outcome.is_ok() && access.cleared;
            let terms = if clears { digest::of_clear(job.context.position) } else { 0 };
            stage = Stage::Installing { outcome, live, writes: usize::from(clears), terms };
        }
        let Stage::Installing { outcome, mut live, mut writes, mut terms } = stage else {
            unreachable!("the stages before have ended");
        };
        if outcome.is_ok() {
            while let Some((key, entry)) = access.writes.pop() {
                if !access.keeps(&key) {
                    continue;
                }
                if *left == 0 {
                    access.writes.push((key, entry));
                    let stage = Stage::Installing { outcome, live, writes, terms };
                    return Advanced::Spent(Execution { job, stage, access });
                }
                *left -= 1;
                writes += 1;
                let partition = access.partition();
                let position = job.context.position;
                terms = terms.wrapping_add(digest::of_write(&key, position, entry.as_ref()));
                let record = install(partition, position, access.cleared, &key, entry, &mut live);
                if access.notes_installed {
                    access.installed.push(record);
                }
            }
        }
        *left = left.saturating_sub(1);
        let end = running::outcome_term(&job.request, job.context.position, &outcome);
        let ended = Ended {
            committed: Committed {
                position: job.context.position,
                request: job.request,
                outcome,
                writes,
                is_split: false,
            },
            now_ms: job.context.now_ms,
            live,
            terms: terms.wrapping_add(end),
            member: job.member,
            installed: std::mem::take(&mut access.installed),
            was_early: false,
        };
        Advanced::Ended(ended, access)
    }
}

fn install(
    partition: &Partition<()>,
    position: Position,
    cleared: bool,
    key: &Key,
    entry: Option<Entry>,
    live: &mut LiveChange,
) -> RecordRef<()> {
    let mut record = partition.get_or_insert(key);
    let watermark = partition.snapshots().watermark();
    partition.with(&mut record, |cell| {
        if key.space() == Space::User {
            let before = !cleared && cell.live(position.prev(), partition.clears());
            let change = i64::from(entry.is_some()) - i64::from(before);
            match live {
                LiveChange::By(count) | LiveChange::To(count) => *count += change,
            }
        }
        cell.supersede(Version { position, entry }, watermark);
    });
    record
}
