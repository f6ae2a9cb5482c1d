//! Speculative commit, in the order of positions (Archie, section 4.3).

use super::Shared;
use super::execution::{Execution, Speculation, Write};
use super::object::Object;
use super::schedule::Worker;
use crate::conservative::{Ended, LiveChange};
use crate::engine::Committed;
use crate::exclusive::Exclusive;
use smallvec::SmallVec;
use store::sync::atomic::{AtomicBool, Ordering};
use store::{RecordCell, Version};
use txn::mutant::{Mutant, is_active};
use txn::{Outcome, Position, Space};

/// Transactions that x-commit before their accesses are used again.
const AT_ONCE: usize = 16;

/// Who x-commits: one worker at a time.
#[derive(Default)]
pub(super) struct XCommitter {
    under_way: Exclusive<Option<XCommit>>,
    /// There is one, which the budget has cut.
    is_cut: AtomicBool,
}

impl XCommitter {
    /// Whether an x-commit has begun and nobody is at it.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }
}

/// A transaction whose turn it is.
struct XCommit {
    execution: Execution,
    /// So many of its records are done.
    done: usize,
    live: LiveChange,
    writes: usize,
}

impl Worker {
    /// X-commits what can be; whether there was any.
    pub(super) fn x_commit(&mut self, shared: &Shared, left: &mut u32) -> bool {
        if !shared.is_x_commit_due() {
            return false;
        }
        let mut accesses: SmallVec<[_; AT_ONCE]> = SmallVec::new();
        let worked = shared.x_committer.under_way.step(|under_way| {
            let mut worked = false;
            while *left > 0
                && accesses.len() < AT_ONCE
                && let Some(mut x_commit) = under_way.take().or_else(|| shared.next_x_commit())
            {
                worked = true;
                match shared.install(&mut x_commit, left) {
                    true => accesses.push(shared.end(x_commit)),
                    false => *under_way = Some(x_commit),
                }
            }
            shared.x_committer.is_cut.store(under_way.is_some(), Ordering::SeqCst);
            worked
        });
        if !accesses.is_empty() {
            self.count_x_commits(shared, accesses.len() as u64);
        }
        accesses.into_iter().for_each(|access| self.recycle(access));
        worked
    }
}

impl Shared {
    /// The next transaction, if it has finished.
    fn next_x_commit(&self) -> Option<XCommit> {
        let next = self.x_committed().next();
        let execution = self.slots.begin_x_commit(next, is_active(Mutant::XCommitDoomed))?;
        let live = execution.live_before();
        Some(XCommit { execution, done: 0, live, writes: 0 })
    }

    /// Step A: installs the versions, and lets the wait-flags go; whether the budget was enough.
    fn install(&self, x_commit: &mut XCommit, left: &mut u32) -> bool {
        let XCommit { execution, done, live, writes } = x_commit;
        let position = execution.position();
        let is_installed = execution.is_successful() && !self.order.is_void(position);
        let access = &mut execution.access;
        if is_installed && access.cleared && *done == 0 && *writes == 0 {
            *writes = 1;
            self.partition.clears().insert(position);
            // Whoever is taken from here on sees that.
            let mut later = position.next();
            while later <= self.order.taken() && !is_active(Mutant::ClearInSilence) {
                self.doom(later);
                later = later.next();
            }
        }
        while let Some(write) = access.writes.list.get_mut(*done) {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            *done += 1;
            let cleared = access.cleared;
            let Write { record, entry, is_written, .. } = write;
            let is_user = record.space() == Space::User;
            let install = |cell: &mut RecordCell<Object>| {
                if cell.meta.writer == position {
                    cell.meta.writer = Position::NONE;
                }
                if !(*is_written && is_installed) {
                    return 0;
                }
                let entry = entry.take();
                let before = !cleared && is_user && cell.live(position.prev(), self.partition.clears());
                let change = i64::from(is_user && entry.is_some()) - i64::from(before);
                cell.insert(Version { position, entry });
                change
            };
            let change = self.partition.with(record, install);
            match live {
                LiveChange::By(count) | LiveChange::To(count) => *count += change,
            }
            *writes += usize::from(*is_written && is_installed);
        }
        *left = left.saturating_sub(1);
        true
    }

    /// Step B: the transaction has x-committed, and those go on who have waited for it.
    fn end(&self, x_commit: XCommit) -> Box<Speculation> {
        let XCommit { mut execution, live, writes, .. } = x_commit;
        let position = execution.position();
        let outcome = execution.outcome.take();
        let Execution { job, mut access, .. } = execution;
        let installed = access.take_installed(writes > 0);
        let was_early = !self.order.is_confirmed(position);
        let ended = outcome.map(|outcome: Outcome| Ended {
            committed: Committed { position, request: job.request, outcome, writes, is_split: false },
            now_ms: job.context.now_ms,
            live,
            terms: access.terms,
            member: None,
            installed,
            was_early,
        });
        // First, so that whoever was woken finds it.
        self.x_committed.store(position.0, Ordering::SeqCst);
        let waiters = self.slots.end(position, ended);
        for waiter in waiters.into_iter().filter(|_| !is_active(Mutant::LoseXCommitWake)) {
            self.counts.parked.fetch_sub(1, Ordering::Relaxed);
            self.make_ready(waiter);
        }
        access
    }

    /// Drops the x-commit that the budget has cut.
    pub(super) fn forget_x_commit(&self) {
        self.x_committer.under_way.exclude(|under_way| *under_way = None);
    }

    /// Everything behind a position is undone. Whoever x-commits may have looked at what is next before that,
    /// so it is not done while anybody does.
    pub(super) fn forget_x_commits_behind(&self, last: Position) {
        self.x_committer.under_way.exclude(|_| self.x_committed.store(last.0, Ordering::SeqCst));
    }
}
