//! What a connection's calls leave behind: their counts and durations, and what monitors see of them.
//!
//! [`Session::call`] is what is being answered. It begins where a command is run, goes into the queue of
//! replies with the request that it becomes ([`super::replies`]), comes back with the request's outcome, and
//! ends with the reply.

use super::{Session, ThreadContext};
use crate::observe::Subject;
use crate::shared::Shared;
use redis_surface::table::{self, Command, CommandNumber, ConnectionCommand, Flags, Resolved, Run};
use std::sync::atomic::Ordering;
use txn::{Args, Blob, Reply};

/// MONITOR in a block.
pub(super) const NO_MONITOR_IN_BLOCK: Reply =
    Reply::error("ERR MONITOR isn't allowed for DENY BLOCKING client");

impl Session {
    /// A command is run from here on.
    #[inline]
    pub(super) fn begin_call(&mut self, thread: &ThreadContext<'_>, resolved: &Resolved, argv: &Args) {
        let command = resolved.command;
        if !command.is(Flags::FAST) {
            // What was done before it ended before it.
            thread.settle();
        }
        self.audit_command(thread, command, argv);
        self.call = Some(thread.tally.begin(resolved.number(), &argv[0]));
        if !thread.shared.monitors.is_empty() {
            self.show_to_monitors(thread, command, argv);
        }
    }

    /// What is being answered has this reply.
    #[inline]
    pub(super) fn end_call(&mut self, thread: &ThreadContext<'_>, reply: &Reply) {
        let Some(call) = self.call.take() else {
            return;
        };
        let takes_long = !call.command().is(Flags::FAST);
        thread.tally.end(call, self.client.id, reply);
        if takes_long {
            thread.settle();
        }
    }

    /// Says what the present call is about, unless that is known.
    #[inline]
    pub(super) fn call_is_about(&mut self, subject: impl FnOnce() -> Subject) {
        if let Some(call) = &mut self.call
            && matches!(call.subject, Subject::Name)
        {
            call.subject = subject();
        }
    }

    /// That the connection has waited is no part of how long its call takes.
    pub(super) fn call_goes_on(&mut self, thread: &ThreadContext<'_>) {
        if let Some(call) = &mut self.call {
            thread.tally.begin_again(call);
        }
    }

    /// Tells those who monitor of a command that is about to run.
    pub(super) fn show_to_monitors(&self, thread: &ThreadContext<'_>, command: &Command, argv: &[Blob]) {
        let is_exec = matches!(command.run, Run::Connection(ConnectionCommand::Exec));
        // EXEC is shown behind the commands of its block.
        if !is_exec || self.runs_no_block() {
            self.show_all_to_monitors(thread, command, argv);
        }
    }

    fn show_all_to_monitors(&self, thread: &ThreadContext<'_>, command: &Command, argv: &[Blob]) {
        // Those that Redis skips are those that run others, which it shows behind them.
        if command.is(Flags::ADMIN) {
            return;
        }
        thread.shared.monitors.tell(thread.clocks.wall(), self.client.address, argv);
    }

    /// Tells those who monitor of a block's commands, and then of EXEC.
    pub(super) fn show_block_to_monitors(
        &self,
        thread: &ThreadContext<'_>,
        numbers: &[CommandNumber],
        commands: &[Args],
    ) {
        for (number, argv) in numbers.iter().zip(commands) {
            self.show_all_to_monitors(thread, number.command(), argv);
        }
        if let Some(exec) = table::find(b"exec") {
            self.show_all_to_monitors(thread, exec, &[Blob::from("exec")]);
        }
    }

    /// MONITOR.
    pub(super) fn monitor(&mut self, thread: &ThreadContext<'_>) -> Reply {
        if !self.client.monitors.swap(true, Ordering::Relaxed) {
            thread.shared.monitors.add(self.listener());
        }
        Reply::OK
    }

    /// Whether the connection monitors.
    pub fn monitors(&self) -> bool {
        self.client.monitors.load(Ordering::Relaxed)
    }

    /// It does not any more.
    pub(super) fn monitor_no_more(&self, shared: &Shared) {
        if self.client.monitors.swap(false, Ordering::Relaxed) {
            shared.monitors.remove(self.client.session);
        }
    }

    /// The error of a command that a connection cannot run while it monitors.
    pub(super) fn refuses_while_monitoring(&self, command: &Command) -> Option<Reply> {
        let looks_at_keys = command.is(Flags::READONLY)
            || command.is(Flags::WRITE)
            || matches!(command.run, Run::Script(script) if script.runs_code());
        (looks_at_keys && self.monitors())
            .then(|| Reply::error("ERR Replica can't interact with the keyspace"))
    }
}
