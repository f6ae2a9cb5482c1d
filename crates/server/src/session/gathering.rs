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

use super::thread_context::{Submissions, too_long};
use super::{LIGHT_WORDS_MAX, Session, ThreadContext, is_word};
use crate::observe::{GatheredCalls, Subject};
use node::{Asker, Route};
use redis_surface::table::{COMMANDS_COUNT, Command, CommandNumber, Flags, Group, Resolved, Run};
use redis_surface::{Block, Memory};
use std::sync::Arc;
use txn::{Args, Blob, Footprint, Procedure, Request, SessionId, Weight};

/// Commands of a gathering, at most.
const COMMANDS_MAX: usize = 32;
/// Words of one of its commands, the name not counted, at most.
const WORDS_MAX: usize = 30;
/// Bytes of the words of a gathering before its last command, at most, and of each command.
const BYTES_MAX: usize = 16 << 10;

const _: () = assert!(COMMANDS_MAX * (1 + WORDS_MAX) < LIGHT_WORDS_MAX, "a gathering's work is light");

/// Commands of one connection that follow each other and will be one request. Their sequence numbers are
/// consecutive.
///
/// The command that leads is a request already: it may stay alone. Those that ride are words only.
#[derive(Default)]
pub(super) struct Gathering {
    leader: Option<Leader>,
    /// The arguments of the block, if commands ride: room for its header, and then the words of all commands.
    words: Vec<Blob>,
    /// How many words each command has, its name included.
    counts: Vec<usize>,
    /// What the calls of the commands that ride are about.
    calls: Option<Arc<GatheredCalls>>,
    is_read_only: bool,
    bytes: usize,
}

struct Leader {
    request: Arc<Request>,
    /// The command's name, which is not among the request's arguments.
    name: &'static str,
}

impl Gathering {
    /// Whether a command of a session may ride, which has this sequence number and was routed by these slots.
    fn takes(&self, session: SessionId, sequence: u64, slots_version: u32) -> bool {
        self.leader.as_ref().is_some_and(|Leader { request, .. }| {
            debug_assert!(request.route.of() == 1, "gathered commands are executed in one place");
            request.id.session == session
                && request.id.sequence + self.counts.len() as u64 == sequence
                && request.slots_version == slots_version
                && self.counts.len() < COMMANDS_MAX
                && self.bytes < BYTES_MAX
        })
    }

    /// Begins with a request of a command with this name.
    fn begin(&mut self, request: Arc<Request>, name: &'static str) {
        self.bytes = bytes(&request.args);
        self.is_read_only = request.footprint.read_only;
        self.counts.push(1 + request.args.len());
        self.leader = Some(Leader { request, name });
    }

    /// Adds a command that rides, whose words have these bytes without its name. Gives the sequence number of
    /// the command that leads, and what the call is about.
    fn add(&mut self, name: &'static str, argv: Args, bytes: usize, is_read_only: bool) -> (u64, Subject) {
        let Some(Leader { request, name: first }) = &self.leader else {
            unreachable!("a command rides behind one that leads");
        };
        if self.words.is_empty() {
            self.words.push(Blob::EMPTY);
            self.words.push(Blob::from(*first));
            self.words.extend(request.args.iter().cloned());
        }
        let calls = self.calls.get_or_insert_default();
        let subject = Subject::Gathered(calls.clone(), self.counts.len());
        self.counts.push(argv.len());
        self.words.push(Blob::from(name));
        self.words.extend(argv.0.into_iter().skip(1));
        self.bytes += bytes;
        self.is_read_only &= is_read_only;
        (request.id.sequence, subject)
    }

    /// Ends the gathering. Gives the request that its commands have become, if there are any.
    pub(super) fn end(&mut self, block: &Arc<dyn Procedure>) -> Option<Arc<Request>> {
        let Leader { request: leader, .. } = self.leader.take()?;
        let Some(calls) = self.calls.take() else {
            self.counts.clear();
            return Some(leader);
        };
        self.words[0] = Block::gathered_header(&self.counts);
        self.counts.clear();
        let room = self.words.len();
        let words = std::mem::replace(&mut self.words, Vec::with_capacity(room));
        let request = Arc::new(Request {
            id: leader.id,
            slots_version: leader.slots_version,
            procedure: block.clone(),
            args: Args(words.into()),
            footprint: Footprint { keys: None, read_only: self.is_read_only, weight: Weight::Light },
            route: leader.route.clone(),
            elsewhere: false,
        });
        calls.became(&request);
        Some(request)
    }
}

impl Submissions {
    /// Makes the present gathering a request among the others.
    pub fn end_gathering(&mut self) {
        let request = self.gathering.end(&self.block);
        self.requests.extend(request);
    }

    /// Whether there is a gathering.
    pub(super) fn gathers(&self) -> bool {
        self.gathering.leader.is_some()
    }
}

/// The commands that may be in a gathering.
pub(super) struct ShortCommands(Box<[bool]>);

impl Default for ShortCommands {
    fn default() -> ShortCommands {
        let mut short = vec![false; COMMANDS_COUNT];
        for number in CommandNumber::all() {
            short[number.index()] = is_short(number.command());
        }
        ShortCommands(short.into())
    }
}

impl Session {
    /// The name of a command that may be in a gathering, if it is one. Notes how much work it is.
    #[inline]
    pub(super) fn gathered_name(
        &mut self,
        thread: &ThreadContext<'_>,
        resolved: &Resolved,
        argv: &Args,
        memory: Memory,
    ) -> Option<&'static str> {
        let is_short = thread.commands.short.0[resolved.number().index()]
            && resolved.subplace.is_none()
            && !self.is_bulky
            && argv.len() <= WORDS_MAX + 1
            && bytes(argv) <= BYTES_MAX
            && !trims(resolved.command, argv);
        if is_short {
            self.work = 1;
        }
        let is_gathered = is_short && memory == Memory::Ample && thread.shared.runtime.gathers_commands();
        is_gathered.then_some(resolved.command.name)
    }

    /// Has a command that may be gathered ride with the commands before it. Gives the command's words back if
    /// it cannot.
    #[inline]
    pub(super) fn ride(
        &mut self,
        thread: &mut ThreadContext<'_>,
        command: &'static Command,
        argv: Args,
    ) -> Option<Args> {
        let sequence = self.replies.next_sequence();
        if !thread.submissions.gathering.takes(self.id, sequence, self.routing.version)
            || !self.strict.is_empty()
        {
            return Some(argv);
        }
        let footprint = command.footprint_without_keys(&argv[1..]);
        let asker = Asker { unfinished: self.has_unfinished_requests(), readonly: self.readonly };
        if node::route(&footprint, asker) != Route::Order {
            return Some(argv);
        }
        self.check_words_alone(command, &argv);
        debug_assert!(too_long(&argv, true).is_none(), "{}: its request is too long", command.name);
        let bytes = bytes(&argv[1..]);
        let submissions = &mut *thread.submissions;
        let (leader, subject) = submissions.gathering.add(command.name, argv, bytes, footprint.read_only);
        submissions.bytes += bytes;
        thread.counters.submitted.add(1);
        self.call_is_about(|| subject);
        self.await_reply(bytes, 0, None);
        self.replies.ride(leader);
        None
    }

    /// Submits a request for the order that others may ride with.
    pub(super) fn lead(&mut self, thread: &mut ThreadContext<'_>, request: Arc<Request>, name: &'static str) {
        thread.counters.submitted.add(1);
        thread.submissions.bytes += bytes(&request.args);
        thread.submissions.end_gathering();
        thread.submissions.gathering.begin(request, name);
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
fn trims(command: &Command, argv: &Args) -> bool {
    let mut options = argv.get(2..).unwrap_or_default().iter().take(2);
    command.group == Group::Stream
        && command.name == "xadd"
        && options.any(|word| is_word(word, "maxlen") || is_word(word, "minid"))
}

fn bytes(words: &[Blob]) -> usize {
    words.iter().map(|word| word.len()).sum()
}
