//! Waiting for keys: BLPOP and its kin, XREAD BLOCK.
//!
//! The connection tries the command. If there is nothing, it enters the lines of its keys ([`crate::hub`])
//! and tries once more, so that what came in between is not missed; then it waits. This second attempt goes
//! through the order even if it only reads: a write that was executed before anybody was interested tells
//! nothing when it is committed, and a snapshot of the time before does not have it. Whenever one of its keys
//! is written and nobody is before it, it tries again. A node is not told of what is written at partitions
//! that it does not keep: there it tries again every so often.

use super::thread_context::too_long;
use super::{Completion, Hold, Reach, Session, ThreadContext};
use crate::shared::Shared;
use redis_surface::waiting::Wait;
use redis_surface::{Action, Involved, table};
use std::sync::atomic::Ordering;
use txn::{Args, Blob, Footprint, Key, Reply};

/// What is written where this node keeps no replica it is not told of: then it looks every so often.
const LOOK_MS: u64 = 25;
const UNBLOCKED: Reply = Reply::error("UNBLOCKED client unblocked via CLIENT UNBLOCK");

/// A command that waits.
pub(super) struct Waiting {
    wait: Wait,
    keys: Vec<Key>,
    deadline_ms: Option<u64>,
    /// When it looks whether or not it was told to.
    look_ms: Option<u64>,
    /// It is in the lines of its keys.
    has_entered: bool,
    /// The next attempt is the first behind that.
    is_second: bool,
    /// An attempt is under way.
    tries: bool,
    /// And there is reason for another one.
    again: bool,
    /// Somebody ended it: with an error, or as if the time were up.
    ended: Option<bool>,
}

impl Session {
    /// Whether the connection waits for a key.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether it waits, and has an attempt under way: there is a reply to come.
    pub fn tries(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.tries)
    }

    /// When it gives that up, or when an authentication has waited long enough, in milliseconds since 1970.
    pub fn deadline_ms(&self) -> Option<u64> {
        let Some(waiting) = &self.waiting else {
            return self.attempt_at_ms();
        };
        let next = [waiting.deadline_ms, waiting.look_ms];
        let next = next.into_iter().flatten().min();
        next.filter(|_| !waiting.tries)
    }

    /// Begins to wait.
    pub(super) fn begin_waiting(&mut self, thread: &mut ThreadContext<'_>, wait: Wait) {
        if let Some(error) = too_long(wait.argv(), thread.shared.runtime.is_member()) {
            return self.answer(thread, &error);
        }
        let ends = wait.ends();
        // Not less than it asks for, wherever in its millisecond it begins.
        let now_ms = thread.clocks.steady_ms() + 1;
        self.waiting = Some(Box::new(Waiting {
            keys: wait.keys().iter().map(Key::from).collect(),
            look_ms: None,
            deadline_ms: wait.timeout_ms.map(|ms| now_ms.saturating_add(ms)),
            wait,
            has_entered: false,
            is_second: false,
            tries: true,
            again: false,
            ended: None,
        }));
        if ends.is_empty() {
            return self.attempt(thread);
        }
        let keys = ends.iter().map(Key::from).collect();
        let reach = Reach::of(Involved::Keys(keys));
        let procedure = thread.commands.stream_ends.clone();
        let args = Args(ends.into_iter().collect());
        let completion = Some(Completion::StreamEnds);
        self.transact(thread, procedure, args, Footprint::read_only(), reach, completion);
    }

    /// The ends of the streams that the command waits for are known.
    pub(super) fn ends_are_known(&mut self, thread: &mut ThreadContext<'_>, reply: Reply) -> Option<Reply> {
        let Reply::Array(ends) = reply else {
            self.stop_waiting(thread);
            return Some(reply);
        };
        let ids = ends.into_iter().filter_map(|end| match end {
            Reply::Bulk(id) => Some(id),
            _ => None,
        });
        let ids: Vec<_> = ids.collect();
        if let Some(waiting) = &mut self.waiting {
            waiting.wait.ends_are(&ids);
        }
        self.attempt(thread);
        None
    }

    /// Tries the command for those keys for which nobody was there before.
    fn attempt(&mut self, thread: &mut ThreadContext<'_>) {
        let session = self.id();
        let hub = thread.shared.hub.clone();
        let Some(waiting) = &mut self.waiting else {
            return;
        };
        let wait = &waiting.wait;
        let is_first = !waiting.has_entered;
        let is_next = |key: &Blob| hub.is_next(session, &Key::from(key), &wait.manner);
        let (argv, behind) = match is_first {
            true => (Some(wait.argv().clone()), wait.behind(is_next)),
            false => (wait.attempt(is_next), None),
        };
        let Some(argv) = argv else {
            waiting.tries = false;
            return self.wait_on(thread);
        };
        waiting.tries = true;
        waiting.again = false;
        let is_second = std::mem::take(&mut waiting.is_second);
        if !is_first {
            self.call_goes_on(thread);
            // As in Redis 7.2: what the user may do may have changed meanwhile.
            if let Some(error) = self.denied_meanwhile(thread, &argv) {
                self.stop_waiting(thread);
                return self.answer_late(thread, &error);
            }
        }
        let Ok(resolved) = table::resolve(&argv) else {
            return;
        };
        let reach = thread.reach(std::slice::from_ref(&argv));
        let completion = Some(Completion::Attempt);
        let again = match behind {
            Some(words) => Some((thread.commands.behind.clone(), words)),
            None if is_first => None,
            None => Some((thread.commands.retry.clone(), argv.clone())),
        };
        if let Some((procedure, words)) = again {
            let mut footprint = resolved.command.footprint_without_keys(&[]);
            footprint.read_only &= !is_second;
            return self.transact(thread, procedure, words, footprint, reach, completion);
        }
        let prepared = thread.commands.table.prepare_resolved(resolved, argv);
        if let Action::Transaction { procedure, args, footprint } = prepared.action {
            self.transact(thread, procedure, args, footprint, reach, completion);
        }
    }

    /// An attempt has ended. The reply, if that is the last word.
    pub(super) fn attempted(&mut self, thread: &mut ThreadContext<'_>, reply: Reply) -> Option<Reply> {
        let waiting = self.waiting.as_mut()?;
        waiting.tries = false;
        if !Wait::found_nothing(&reply) {
            self.stop_waiting(thread);
            return Some(reply);
        }
        if let Some(reply) = self.time_is_up(thread) {
            return Some(reply);
        }
        self.wait_on(thread);
        None
    }

    /// The reply if the command does not wait any longer.
    fn time_is_up(&mut self, thread: &ThreadContext<'_>) -> Option<Reply> {
        let waiting = self.waiting.as_ref()?;
        let reply = match waiting.ended {
            Some(true) => UNBLOCKED,
            Some(false) => Wait::NOTHING,
            None if waiting.deadline_ms.is_some_and(|at_ms| at_ms <= thread.now_ms) => Wait::NOTHING,
            None => return None,
        };
        self.stop_waiting(thread);
        Some(reply)
    }

    /// There is nothing yet.
    fn wait_on(&mut self, thread: &mut ThreadContext<'_>) {
        if self.closing {
            // Nobody is there to wait, or may.
            return self.stop_waiting(thread);
        }
        let listener = self.listener();
        let Some(waiting) = &mut self.waiting else {
            return;
        };
        self.hold = Some(Hold::Waiting);
        if !waiting.has_entered {
            waiting.has_entered = true;
            waiting.is_second = true;
            let hub = &thread.shared.hub;
            hub.begin_interest(&thread.shared.runtime);
            hub.wait(&listener, &waiting.keys, &waiting.wait.manner);
            self.client.waits.fetch_add(1, Ordering::SeqCst);
            self.client.blocked.store(true, Ordering::SeqCst);
            return self.attempt(thread);
        }
        if std::mem::take(&mut waiting.again) {
            return self.attempt(thread);
        }
        let runtime = &thread.shared.runtime;
        let is_told = |key: &Key| runtime.keeps(key);
        let looks = runtime.is_spread() && !waiting.keys.iter().all(is_told);
        waiting.look_ms = looks.then_some(thread.now_ms + LOOK_MS);
    }

    /// The command waits no more.
    pub(super) fn stop_waiting(&mut self, thread: &ThreadContext<'_>) {
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        self.leave_lines(thread.shared, &waiting);
        if matches!(self.hold, Some(Hold::Waiting)) {
            self.hold = None;
        }
    }

    /// Others need not wait for the connection.
    pub(super) fn leave_lines(&self, shared: &Shared, waiting: &Waiting) {
        if waiting.has_entered {
            self.client.blocked.store(false, Ordering::SeqCst);
            shared.hub.leave(self.client.session, &waiting.keys, &waiting.wait.manner);
            shared.hub.end_interest(1);
        }
    }

    /// A key was written, or the time may be up.
    pub(super) fn look_again(&mut self, thread: &mut ThreadContext<'_>) {
        let Some(waiting) = &mut self.waiting else {
            return self.look_at_attempt(thread);
        };
        if waiting.tries {
            waiting.again = true;
            return;
        }
        self.call_goes_on(thread);
        match self.time_is_up(thread) {
            Some(reply) => self.answer_late(thread, &reply),
            None => self.attempt(thread),
        }
    }

    /// CLIENT UNBLOCK of this wait, which may have ended since.
    pub(super) fn unblocked(&mut self, thread: &mut ThreadContext<'_>, wait: u64, with_error: bool) {
        let is_meant =
            |waiting: &Waiting| waiting.has_entered && self.client.waits.load(Ordering::SeqCst) == wait;
        if !self.waiting.as_deref().is_some_and(is_meant) {
            return;
        }
        self.call_goes_on(thread);
        if let Some(waiting) = &mut self.waiting {
            waiting.ended = Some(with_error);
            if !waiting.tries
                && let Some(reply) = self.time_is_up(thread)
            {
                self.answer_late(thread, &reply);
            }
        }
    }
}
