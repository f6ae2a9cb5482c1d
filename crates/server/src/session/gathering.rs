//! Consecutive commands of one connection as one transaction.
//!
//! A client that pipelines sends its next commands before it has the replies to the last. The session orders
//! short ones together: the first command *leads*, those behind it *ride*, and the order gets one block
//! ([`redis_surface::Block`]), as between MULTI and EXEC. So the order, the log, the engine and the final
//! commit are asked once for all of them, and a collection that they change one after the other is copied
//! once and then changed in place.
//!
//! Other clients see the effects of a gathering together. Each command has its own reply, its own place among
//! the connection's replies, its own limits, and its own entry in the statistics, where it lasts as long as
//! the gathering does. What clients were promised holds: every command is a part of one strictly serializable
//! transaction, and the connection's commands take effect in the order in which they were sent. If the
//! transaction fails as a whole (a procedure panics, an operator has the request skipped), so do all of its
//! commands.
//!
//! A gathering is small, so that it delays no first reply by much and conflicts with few other transactions:
//! it has commands whose work is short (`is_short`). It ends where the connection's round ends, and where
//! the thread submits anything else. Only a server with one partition gathers, and no engine whose requests
//! declare their keys: such an engine plans each command by itself.

use super::thread_context::Submissions;
use super::{LIGHT_WORDS_MAX, Session, ThreadContext, is_word};
use redis_surface::table::{Command, Flags, Group, Resolved, Run};
use redis_surface::{Block, Memory};
use std::sync::Arc;
use txn::{Args, Blob, Footprint, Procedure, Request, Weight};

/// Commands of a gathering, at most.
const COMMANDS_MAX: usize = 32;
/// Words of one of its commands, the name not counted, at most.
const WORDS_MAX: usize = 30;
/// Bytes of the words of a gathering before its last command, at most, and of each command.
const BYTES_MAX: usize = 16 << 10;

const _: () = assert!(COMMANDS_MAX * (1 + WORDS_MAX) < LIGHT_WORDS_MAX, "a gathering's work is light");

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
    /// Whether a request may ride with the members.
    fn takes(&self, request: &Request) -> bool {
        self.members.last().is_some_and(|last| {
            let last = &last.request;
            debug_assert!(request.route.of() == 1 && last.route.of() == 1, "they are executed in one place");
            last.id.session == request.id.session
                && last.id.sequence + 1 == request.id.sequence
                && last.slots_version == request.slots_version
                && self.members.len() < COMMANDS_MAX
                && self.bytes < BYTES_MAX
        })
    }

    /// Ends the gathering. Gives the request that its members have become, if there are any.
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
        let args = Block { commands, is_gathered: true, ..Block::default() }.to_args();
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
            && !trims(argv)
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

/// Commands that look fast by their flags, and may take as long as a word of theirs says.
const MAY_BE_LONG: [&str; 5] = ["lpop", "rpop", "zpopmin", "zpopmax", "setrange"];

/// Whether a command names its keys, and its work is short.
fn is_short(command: &Command) -> bool {
    let is_fast = command.is(Flags::FAST) || command.group == Group::String;
    let long = [Flags::HEAVY, Flags::PUBSUB, Flags::BLOCKING, Flags::MOVABLEKEYS];
    let is_data = matches!(command.run, Run::Data(_)) && !command.keys.is_empty();
    is_data
        && is_fast
        && !long.into_iter().any(|flag| command.is(flag))
        && !MAY_BE_LONG.contains(&command.name)
}

/// Whether XADD takes entries away, of which there may be many.
fn trims(argv: &Args) -> bool {
    let options = argv.get(2..).unwrap_or_default().iter().take(2);
    is_word(&argv[0], "xadd")
        && options.into_iter().any(|word| is_word(word, "maxlen") || is_word(word, "minid"))
}

fn bytes(words: &Args) -> usize {
    words.iter().map(|word| word.len()).sum()
}
