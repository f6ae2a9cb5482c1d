//! Admission: a command's way from its words to what runs it.
//!
//! [`Session::admit`] is the whole way. A command is *refused* (it is unknown, its user may not run it, or
//! memory is short), *held* (an operator has paused the node, entries are being evicted, or replies must come
//! first), *queued* in an open block, or *run*. What runs either answers here (commands of the connection
//! itself) or becomes a transaction ([`Session::transact`]).

use super::sorts::{
    authenticates, bulky_max, during_pause, ends_block, looks_at_data, makes_much, may_set_passwords,
    may_write, speaks_http, waits_for_writers,
};
use super::transaction::{self, Published};
use super::{BULKY_WORK, Completion, Hold, LONG_WORK, NO_AUTH, Session, ThreadContext};
use crate::observe::Subject;
use crate::runtime::NO_PAST_OF_CLUSTERS;
use crate::shared::MemoryState;
use redis_surface::acl::{Deed, secrets};
use redis_surface::commands::{sites, transactions};
use redis_surface::table::{
    self, Command, CommandNumber, ConnectionCommand, Flags, ResolveError, Resolved, Run,
};
use redis_surface::waiting::Wait;
use redis_surface::{Action, Caller, Memory, certified, errors};
use std::sync::atomic::Ordering;
use txn::{Args, Reply};

const BLOCK_OUT_OF_MEMORY: Reply = Reply::error(
    "EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.",
);

impl Session {
    /// Takes a command all the way: refuses, holds, queues or runs it.
    pub(super) fn admit(&mut self, thread: &mut ThreadContext<'_>, mut argv: Args) {
        let resolved = match table::resolve(&argv) {
            Ok(resolved) => resolved,
            Err(error) => return self.refuse_unresolved(thread, error, &argv),
        };
        let (command, number) = (resolved.command, resolved.number());
        let password_refusal = hash_passwords(command, &mut argv);
        self.client.note_command(number);
        if self.user_is_gone(thread) {
            return self.close_after_replies();
        }
        if let Some(error) = self.access_refusal(thread, &resolved, &argv) {
            return self.reject(thread, Some(number), error);
        }
        if makes_much(command) {
            thread.shared.look_at_memory();
        }
        let memory = thread.memory();
        if let Some(error) = self.memory_refusal(command, memory) {
            return self.reject(thread, Some(number), error);
        }
        if self.waits_for_pause_or_eviction(thread, command) {
            self.client.paused.store(true, Ordering::Relaxed);
            self.hold = Some(Hold::Pause(argv));
            return;
        }
        if self.block.is_some() && !ends_block(command) {
            self.audit_command(thread, command, &argv);
            return self.queue(thread, resolved, argv);
        }
        let bulky_max = bulky_max(command, &argv);
        if self.waits_for_replies(thread, command, bulky_max) {
            self.hold = Some(Hold::Command(argv));
            return;
        }
        self.is_bulky = bulky_max.is_some();
        self.work = if self.is_bulky { BULKY_WORK } else { LONG_WORK };
        if authenticates(command, &argv) && self.attempt.is_none() {
            let Some(at_once) = self.begin_attempt(thread, argv) else {
                return;
            };
            argv = at_once;
        }
        self.begin_call(thread, &resolved, &argv);
        self.note_reads(thread, command, &argv, true);
        if !matches!(command.run, Run::Connection(_)) {
            self.forget_caching();
        }
        match password_refusal {
            Some(error) => {
                self.call_is_about(|| Subject::Words(Box::new(argv)));
                self.answer(thread, &error);
            }
            None => self.run(thread, resolved, argv, memory),
        }
    }

    /// Answers words that name no command, or too few or too many words for their command.
    fn refuse_unresolved(&mut self, thread: &ThreadContext<'_>, error: ResolveError, argv: &Args) {
        if speaks_http(argv) {
            tracing::warn!("a client sent an HTTP request, perhaps a web page's: its connection is closed");
            return self.close_after_replies();
        }
        let number = match error {
            ResolveError::Arity(resolved) => Some(resolved.number()),
            ResolveError::Unknown | ResolveError::UnknownSubcommand(_) => None,
        };
        self.reject(thread, number, error.reply(argv, Caller::Block));
    }

    /// The error of a command that this connection may not run, or cannot run in its present state.
    fn access_refusal(
        &mut self,
        thread: &ThreadContext<'_>,
        resolved: &Resolved,
        argv: &Args,
    ) -> Option<Reply> {
        let command = resolved.command;
        if !self.authenticated && !command.is(Flags::NO_AUTH) && self.stranger(thread.shared) {
            return Some(NO_AUTH);
        }
        self.denied(thread, resolved, argv)
            .or_else(|| self.refuses_while_listening(command))
            .or_else(|| self.refuses_while_monitoring(command))
            .or_else(|| family_refusal(thread, command))
            .or_else(|| {
                // As Redis answers PING while it cannot write its file: a health check sends PING.
                let reason = (command.name == "ping").then(|| thread.shared.runtime.out()).flatten()?;
                Some(Reply::error_owned(reason.to_string()))
            })
    }

    /// The error of a command that may take memory where there is none.
    fn memory_refusal(&self, command: &Command, memory: Memory) -> Option<Reply> {
        if memory != Memory::Short {
            return None;
        }
        // As in Redis, an open block takes no command at all then: what is queued takes memory.
        let grows = command.is(Flags::DENYOOM) || self.block.is_some() && !ends_block(command);
        if grows {
            return Some(errors::OUT_OF_MEMORY);
        }
        (is_exec(command) && self.needs_memory()).then_some(BLOCK_OUT_OF_MEMORY)
    }

    /// Whether a command waits for the end of CLIENT PAUSE, or for entries to be evicted.
    fn waits_for_pause_or_eviction(&self, thread: &ThreadContext<'_>, command: &Command) -> bool {
        let writes = match is_exec(command) {
            true => self.block_writes(),
            false => waits_for_writers(command),
        };
        let is_paused = thread.shared.pause.holds(writes, thread.now_ms) && !during_pause(command);
        let needs_memory = || match is_exec(command) {
            true => self.needs_memory(),
            false => command.is(Flags::DENYOOM) && self.block.is_none(),
        };
        is_paused || thread.shared.memory() == MemoryState::Evicting && needs_memory()
    }

    /// Whether a command waits until the commands before it are answered.
    fn waits_for_replies(
        &self,
        thread: &ThreadContext<'_>,
        command: &Command,
        bulky_max: Option<usize>,
    ) -> bool {
        // The reads before it must not see what it writes.
        let overtakes_reads = || !self.strict.is_empty() && may_write(command);
        // RESET rolls an open transaction back, and with it what is under way.
        let is_behind_all = |own| {
            looks_at_data(own)
                || matches!(own, ConnectionCommand::Reset) && thread.shared.runtime.is_certified()
        };
        let must_see_all =
            || self.replies.awaits() && matches!(command.run, Run::Connection(own) if is_behind_all(own));
        overtakes_reads()
            || must_see_all()
            // It reads beside the order, on another thread.
            || matches!(command.run, Run::Past) && self.replies.awaits()
            || bulky_max.is_some_and(|count_max| !self.replies.takes_bulky(count_max))
    }

    /// Runs a command that was admitted.
    fn run(&mut self, thread: &mut ThreadContext<'_>, resolved: Resolved, argv: Args, memory: Memory) {
        let command = resolved.command;
        if command.is(Flags::BLOCKING)
            && let Some(wait) = Wait::of(&argv)
        {
            if let Some(protocol) = thread.shared.runtime.certified_protocol() {
                return self.answer(thread, &certified::refused(command, protocol, certified::WAITS));
            }
            self.call_is_about(|| Subject::Words(Box::new(argv)));
            return self.begin_waiting(thread, wait);
        }
        match command.run {
            Run::Pure(_) if command.name == "ping" && self.only_listens() => {
                self.answer(thread, &Session::pong(&argv));
            }
            Run::Connection(own) => {
                if argv.len() > 1 {
                    self.call_is_about(|| Subject::Words(Box::new(argv.clone())));
                }
                let reply = self.own_command(thread, own, &argv);
                self.attempt = None;
                if let Some(reply) = reply {
                    self.answer(thread, &reply);
                }
            }
            _ => self.run_prepared(thread, resolved, argv, memory),
        }
    }

    /// Runs a command that is a transaction, or that depends on nothing but its words.
    fn run_prepared(
        &mut self,
        thread: &mut ThreadContext<'_>,
        resolved: Resolved,
        argv: Args,
        memory: Memory,
    ) {
        let command = resolved.command;
        let gathered = self.gathered_name(thread, &resolved, &argv, memory);
        let argv = match gathered {
            None => argv,
            Some(_) => match self.ride(thread, command, argv) {
                None => return,
                Some(argv) => argv,
            },
        };
        if let Some(outcome) = self.read_one(thread, command, &argv) {
            self.call_is_about(|| Subject::Words(Box::new(argv)));
            return self.answer_read(thread, outcome, None);
        }
        if matches!(command.run, Run::Past) && !thread.shared.runtime.has_past() {
            return self.answer(thread, &NO_PAST_OF_CLUSTERS);
        }
        let reach = thread.reach(std::slice::from_ref(&argv));
        let is_pure = matches!(command.run, Run::Pure(_) | Run::Container(_));
        let acts = self.must_act(command);
        if acts || is_pure && argv.len() > 1 {
            // Its words are not those of a request.
            self.call_is_about(|| Subject::Words(Box::new(argv.clone())));
        }
        if acts {
            return self.act(thread, Deed::Command(argv, memory), reach, None);
        }
        let publishes = command.is(Flags::PUBSUB);
        let published = publishes.then(|| Published::of(&argv)).flatten();
        let completion = published.map(Completion::Publish);
        let table = &thread.commands.table;
        let prepared = match memory {
            Memory::Short => table.prepare_short(resolved, argv),
            Memory::Ample => table.prepare_resolved(resolved, argv),
        };
        match prepared.action {
            Action::Transaction { procedure, args, footprint } => {
                self.gathered = gathered;
                self.transact(thread, procedure, args, footprint, reach, completion);
            }
            Action::Reply(reply) => self.answer(thread, &reply),
            Action::Connection { .. } | Action::Acl { .. } => self.answer(thread, &errors::NOT_IN_BLOCK),
        }
    }

    /// Refuses a command (`number`, if the table has it), and with it the block that it was meant for.
    pub(super) fn reject(
        &mut self,
        thread: &ThreadContext<'_>,
        number: Option<CommandNumber>,
        mut error: Reply,
    ) {
        if let Some(number) = number {
            thread.counters.calls.lock().of(number).rejected += 1;
        }
        if number.is_some_and(|number| is_exec(number.command())) {
            self.end_block();
            error = transaction::aborted(error);
        } else if let Some(block) = &mut self.block {
            block.faulty = true;
        }
        self.answer(thread, &error);
    }
}

/// The error of a command that is not for the family of protocols which runs here.
fn family_refusal(thread: &ThreadContext<'_>, command: &Command) -> Option<Reply> {
    if let Some(protocol) = thread.shared.runtime.certified_protocol() {
        let of_family = || match protocol {
            "pcsi" => certified::refusal_of_sites(command),
            _ => certified::refusal_of_validators(command),
        };
        let why = certified::refusal(command).or_else(of_family);
        return why.map(|why| certified::refused(command, protocol, why));
    }
    let needs_sites = sites::NAMES.contains(&command.name).then_some(sites::NEEDS_SITES);
    let needs_certification = transactions::NAMES.contains(&command.name);
    needs_sites.or(needs_certification.then_some(transactions::NEEDS_CERTIFICATION))
}

fn is_exec(command: &Command) -> bool {
    matches!(command.run, Run::Connection(ConnectionCommand::Exec))
}

/// Puts hashes into the places of the passwords that a command sets. Gives the error if the command is
/// refused for one of them.
#[inline]
fn hash_passwords(command: &Command, argv: &mut Args) -> Option<Reply> {
    let hashed = may_set_passwords(command).then(|| secrets::hashed(argv)).flatten()?;
    *argv = hashed.words;
    hashed.refusal
}
