//! Consecutive commands of one connection as one transaction.
//!
//! A client that pipelines sends its next commands before it has the replies to the last. The session orders
//! such commands together: the first *leads*, those behind it *ride*, and what is ordered is one block
//! ([`redis_surface::Block`]), as between MULTI and EXEC. So the order, the log, the engine and the final
//! commit are asked once for all of them, and a collection that they write one after the other is copied once
//! and then changed in place.
//!
//! No client can tell, but that it sees the effects of a gathering together. Each command has its own reply,
//! errors included, its own place among the connection's replies, and its own entry in the statistics. What
//! the clients were promised holds: every command is a part of one strictly serializable transaction, and the
//! connection's commands take effect in the order in which they were sent.
//!
//! A gathering is small, so that it delays no first reply by much and conflicts with few others: commands on
//! the data of one partition whose work and reply are short. It ends where the connection's round ends, and
//! where anything else is submitted. Engines whose requests declare their keys plan each command by itself.

use super::thread_context::Submissions;
use super::{Session, ThreadContext};
use redis_surface::table::{Command, Flags, Group, Resolved, Run};
use redis_surface::{Block, Memory};
use std::sync::Arc;
use txn::{Args, Blob, Footprint, Procedure, Request, Weight};

/// Commands of a gathering, at most.
const COMMANDS_MAX: usize = 32;
/// Words of one of its commands, the name not counted, at most.
const WORDS_MAX: usize = 32;
/// Bytes of the words of a gathering before its last command, at most, and of each command.
const BYTES_MAX: usize = 16 << 10;

/// Requests of one connection that follow each other and will be one. Their sequence numbers are consecutive.
#[derive(Default)]
pub(super) struct Gathering {
    members: Vec<Member>,
    bytes: usize,
}

struct Member {
    request: Arc<Request>,
    /// The command's name, which is not among the request's arguments.
    name: &'static str,
}

impl Gathering {
    /// Whether a request may ride with those that are here.
    fn takes(&self, request: &Request) -> bool {
        self.members.last().is_some_and(|last| {
            let last = &last.request;
            last.id.session == request.id.session
                && last.id.sequence + 1 == request.id.sequence
                && last.slots_version == request.slots_version
                && self.members.len() < COMMANDS_MAX
                && self.bytes < BYTES_MAX
        })
    }

    /// The one request that its members have become; none of an empty one.
    pub(super) fn end(&mut self, block: &Arc<dyn Procedure>) -> Option<Arc<Request>> {
        self.bytes = 0;
        if self.members.len() <= 1 {
            return self.members.pop().map(|member| member.request);
        }
        let read_only = self.members.iter().all(|member| member.request.footprint.read_only);
        let leader = self.members[0].request.clone();
        let command = |member: Member| {
            let words = member.request.args.iter().cloned();
            Args(std::iter::once(Blob::from(member.name)).chain(words).collect())
        };
        let commands = self.members.drain(..).map(command).collect();
        let args = Block { commands, ..Block::default() }.to_args();
        Some(Arc::new(Request {
            id: leader.id,
            slots_version: leader.slots_version,
            procedure: block.clone(),
            args,
            footprint: Footprint { keys: None, read_only, weight: Weight::Light },
            route: leader.route.clone(),
            elsewhere: false,
        }))
    }
}

impl Submissions {
    /// Adds a request of a command with this name that may lead others, or ride. Gives the sequence number of
    /// the request that it rides with.
    fn gather(&mut self, request: Arc<Request>, name: &'static str) -> Option<u64> {
        if !self.gathering.takes(&request) {
            self.end_gathering();
        }
        let leader = self.gathering.members.first().map(|leader| leader.request.id.sequence);
        self.gathering.bytes += bytes(&request.args);
        self.gathering.members.push(Member { request, name });
        leader
    }

    /// Makes the present gathering a request among the others.
    pub fn end_gathering(&mut self) {
        let request = self.gathering.end(&self.block);
        self.requests.extend(request);
    }

    /// Whether there is a gathering.
    pub(super) fn gathers(&self) -> bool {
        !self.gathering.members.is_empty()
    }
}

impl Session {
    /// The name of a command that may be in a gathering, if it is one.
    #[inline]
    pub(super) fn gathered_name(
        &self,
        thread: &ThreadContext<'_>,
        resolved: &Resolved,
        argv: &Args,
        memory: Memory,
    ) -> Option<&'static str> {
        let is_gathered = is_short(resolved.command)
            && resolved.subplace.is_none()
            && !self.is_bulky
            && memory == Memory::Ample
            && argv.len() <= WORDS_MAX + 1
            && bytes(argv) <= BYTES_MAX
            && thread.shared.runtime.gathers_commands();
        is_gathered.then_some(resolved.command.name)
    }

    /// Submits a request for the order: with others if it may be gathered.
    pub(super) fn order_gathered(
        &mut self,
        thread: &mut ThreadContext<'_>,
        request: Arc<Request>,
        name: &'static str,
    ) {
        thread.counters.submitted.add(1);
        thread.submissions.bytes += bytes(&request.args);
        if let Some(leader) = thread.submissions.gather(request, name) {
            self.replies.ride(leader);
        }
    }
}

/// Whether a command names its keys, and its work and its reply are short.
fn is_short(command: &Command) -> bool {
    let is_fast = command.is(Flags::FAST) || command.group == Group::String;
    let long = [Flags::HEAVY, Flags::PUBSUB, Flags::BLOCKING, Flags::MOVABLEKEYS];
    let is_data = matches!(command.run, Run::Data(_)) && !command.keys.is_empty();
    is_data && is_fast && !long.into_iter().any(|flag| command.is(flag))
}

fn bytes(words: &Args) -> usize {
    words.iter().map(|word| word.len()).sum()
}
