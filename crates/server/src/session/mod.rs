//! What a connection is in the middle of: who it is, which protocol it speaks, its open block, its replies.
//!
//! A session takes commands one at a time ([`Session::command`]) and sorts them:
//!
//! - **reads** run at once, at the newest final snapshot, while nothing of this connection is unfinished.
//!   One that takes long runs on another thread, and the connection waits for it;
//! - **everything else that touches data** becomes a request for the order. A read behind an unfinished write
//!   goes the same way, so that commands take effect in the order in which they were sent;
//! - **commands of the connection itself** (CLIENT, CONFIG, INFO, ...) are answered here. Those that look at
//!   data wait until everything before them is answered ([`Hold`]), and the connection is not read meanwhile.
//!
//! A command that waits for a key is tried again and again ([`waiting`]). What others have for the connection
//! (messages, word that a key was written) arrives as deliveries ([`channels`], [`tracking`]). Before
//! anything else, a command is held against what the connection's user may do ([`acl`]).
//!
//! Replies leave in the order of the commands, whatever finishes first: see [`replies`].
//!
//! A session owns no socket, thread, channel or clock. Its thread lends it a [`ThreadContext`] for each call.
//! The session leaves there the requests that the node is to order, and reads there what time it is; outcomes
//! come back by [`Session::arrived`], other connections' words by [`Session::delivered`].
//!
//! Commands that a client sends one behind the other are ordered together: see [`gathering`].
//!
//! A command's way: [`Session::command`] takes it, [`admission`] refuses, holds, queues or runs it,
//! [`Session::transact`] routes what is a transaction, [`Session::arrived`] takes its outcome, and
//! [`replies`] encodes the reply.

#![deny(clippy::too_many_lines)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, reason = "a session owns no clock and no thread"))]

mod acl;
mod admin;
mod admission;
pub mod audit;
mod backup;
mod calls;
mod channels;
mod client;
mod cluster;
mod config;
mod durability;
mod flights;
mod gathering;
mod geo;
mod hierarchy;
mod identity;
mod info;
mod keyspace;
mod memory;
mod observe;
mod own_commands;
mod reads;
pub mod replies;
mod sorts;
#[cfg(test)]
mod tests;
mod thread_context;
mod tracking;
mod transaction;
mod waiting;

pub(crate) use client::checked_name;
pub(crate) use identity::{NO_AUTH, NO_PASSWORD_SET, WRONG_PASSWORD};

use crate::auth_failures::Attempt;
use crate::cluster::{ChangeTicket, Ticket};
use crate::config::{Config, OutputLimit};
use crate::hub::Delivery;
use crate::net::clients::Client;
use crate::observe::{Call, Subject};
use crate::runtime::{self, ReadOutcome, Routing};
use crate::shared::Shared;
use acl::Identity;
use channels::Subscriptions;
use flights::Flight;
pub use keyspace::Keyspace;
use node::Route;
use node::flights::Flights;
use reads::StrictReads;
use redis_surface::codec::{Protocol, reads_ahead};
use redis_surface::table::{Command, Flags, Run};
use redis_surface::{Involved, Watched};
use replies::{Answered, Replies, Share, Treatment, reply_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use thread_context::{Beyond, Reach, too_long};
pub use thread_context::{Commands, Strays, Submissions, ThreadContext};
use tracking::Tracks;
use transaction::{Block, Published};
use txn::tx::EXPECTED_MAX;
use txn::{
    Args, Event, Footprint, Key, PartitionId, PartitionRoute, Procedure, Reply, Request, RequestId,
    SessionId, Stop, Weight,
};

/// Why a connection's next command waits.
#[derive(Debug)]
enum Hold {
    /// The command runs once everything before it is answered.
    Command(Args),
    /// The next command is looked at once everything before it is answered.
    Answers,
    /// The command is looked at again when CLIENT PAUSE ends.
    Pause(Args),
    /// SAVE is answered once so many checkpoints ended.
    Save(u64),
    /// A change of the cluster is answered once it ended.
    Change(ChangeTicket),
    /// ORDO.BACKUP is answered once what it wants is read.
    Backup(Ticket<Vec<u8>>),
    /// WAITAOF is answered once the log is on disk, or after its time.
    Sync(durability::Syncing),
    /// A command waits for a key: see [`waiting`].
    Waiting,
    /// AUTH waits, because there were failures from its address: see [`identity`].
    Attempt(Box<identity::Held>),
}

/// Whether replies are sent (CLIENT REPLY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speech {
    On,
    Off,
    /// The next command's reply is dropped.
    SkipNext,
    /// The present command's reply is dropped.
    Skipping,
}

/// Completes a transaction command when its request is answered.
#[derive(Debug)]
pub enum Completion {
    /// WATCH: these keys, with the versions that the reply tells.
    Watch(Vec<Key>),
    /// What depends on users: what came of it is noted here, and the rest completes the command itself.
    Acted(Option<Box<Completion>>),
    /// EXEC: these commands of the connection itself run now, and their replies go to these places among the
    /// others; and who got what was published is known here only.
    Exec {
        /// The commands, with their places.
        own: Vec<(usize, Args)>,
        /// Among the other commands' replies, those of PUBLISH.
        published: Vec<(usize, Published)>,
    },
    /// PUBLISH.
    Publish(Published),
    /// A command that waits for a key was tried.
    Attempt,
    /// What a command waits for begins behind these ends of streams.
    StreamEnds,
    /// This is the reply.
    Answer(Reply),
}

impl Completion {
    /// Whether what the connection does next depends on it.
    fn holds(&self) -> bool {
        !matches!(self, Completion::Publish(_))
    }
}

/// A command or block of more words than this takes long enough to leave it to an executor.
const LIGHT_WORDS_MAX: usize = 1024;
/// The server reads no more of a connection whose unfinished work is that of this number of short commands.
/// Other connections' commands are ordered behind it, and wait for it.
const UNFINISHED_WORK_MAX: usize = 1024;
/// The work of a command that takes longer than a short one (see [`gathering`]).
const LONG_WORK: usize = 8;
/// The work of one that may have a large reply: of a script, of a block beside its words.
const BULKY_WORK: usize = 16;
/// So many words of a request are the work of a short command, too.
const WORDS_OF_WORK: usize = 4;
/// How many bytes of arguments its unfinished requests may have before the connection is not read any more.
const UNFINISHED_BYTES_MAX: usize = 64 << 20;
/// How many bytes of encoded replies may wait behind unfinished requests before the connection is not read
/// any more.
const HELD_BYTES_MAX: usize = 4 << 20;

/// The state of a connection above its bytes.
pub struct Session {
    id: SessionId,
    client: Arc<Client>,
    authenticated: bool,
    /// Its user.
    identity: Identity,
    /// READONLY: reads may be a little old.
    readonly: bool,
    protocol: Protocol,
    speech: Speech,
    block: Option<Block>,
    watched: BTreeMap<Key, Watched>,
    /// What they take.
    watched_bytes: usize,
    /// By which slots its first watched key was looked at.
    watched_by: u32,
    replies: Replies,
    /// What is being answered: a command that was admitted, as long as no request of it is under way, or a
    /// request that has ended.
    call: Option<Call>,
    hold: Option<Hold>,
    /// A read that runs on another thread.
    aside: Option<Flight>,
    strict: StrictReads,
    /// Requests that are on their way through the order.
    flights: Flights<Reach>,
    /// Through which group they go, and by whose slots they were routed.
    home: PartitionId,
    routing: Routing,
    subscriptions: Subscriptions,
    tracks: Option<Box<Tracks>>,
    /// The command that waits for a key.
    waiting: Option<Box<waiting::Waiting>>,
    /// The reply of the present command may be large.
    is_bulky: bool,
    /// The work of the present command, but for its words: see [`Share`].
    work: usize,
    /// The present command's name, if it may be ordered together with others: see [`gathering`].
    gathered: Option<&'static str>,
    /// Beyond so many bytes that the client has not taken, its commands wait.
    output_max: usize,
    /// An authentication has waited as long as it must, and comes next.
    attempt: Option<Attempt>,
    closing: bool,
}

impl Session {
    /// The session of a new connection.
    pub fn new(client: Arc<Client>, shared: &Shared) -> Session {
        Session {
            id: client.session,
            client,
            authenticated: shared.acl.default_is_open(),
            identity: Identity::new(shared),
            readonly: false,
            protocol: Protocol::Resp2,
            speech: Speech::On,
            block: None,
            watched: BTreeMap::new(),
            watched_bytes: 0,
            watched_by: 0,
            replies: Replies::new(),
            call: None,
            hold: None,
            aside: None,
            strict: StrictReads::default(),
            flights: Flights::default(),
            home: PartitionId(0),
            routing: Routing::alone(),
            subscriptions: Subscriptions::default(),
            tracks: None,
            waiting: None,
            is_bulky: false,
            work: LONG_WORK,
            gathered: None,
            output_max: usize::MAX,
            attempt: None,
            closing: false,
        }
    }

    /// The order's name for the connection.
    pub fn id(&self) -> SessionId {
        self.id
    }
    /// What others may know of the connection.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }
    /// The replies.
    pub fn replies(&mut self) -> &mut Replies {
        &mut self.replies
    }
    /// Whether the client must still authenticate.
    pub fn stranger(&self, shared: &Shared) -> bool {
        !self.authenticated && !shared.acl.default_is_open()
    }
    /// Whether the next command may be taken.
    pub fn takes_commands(&self) -> bool {
        self.could_take_commands() && !self.output_is_full()
    }
    /// Whether nothing but unread replies keeps the next command from being taken.
    pub fn waits_for_reader(&self) -> bool {
        self.could_take_commands() && self.output_is_full()
    }
    /// Has commands wait while the client has not taken so many bytes of replies.
    pub fn limit_output(&mut self, output_max: usize) {
        self.output_max = output_max;
    }
    /// Beyond which bytes that it does not take the client is closed.
    pub fn output_limit(&self, config: &Config) -> OutputLimit {
        let limits = &config.client_output_buffer_limit;
        match self.listens() || self.monitors() {
            true => limits.pubsub,
            false => limits.normal,
        }
    }
    /// Whether the client is to be closed at once, because it has not taken so many bytes.
    pub fn is_over_hard_limit(&self, config: &Config) -> bool {
        let hard_bytes = self.output_limit(config).hard_bytes;
        hard_bytes > 0 && self.replies.unsent_bytes() as u64 > hard_bytes
    }
    fn output_is_full(&self) -> bool {
        self.replies.unsent_bytes() >= self.output_max
    }
    fn could_take_commands(&self) -> bool {
        self.hold.is_none()
            && self.aside.is_none()
            && !self.closing
            && self.replies.awaited_work() < UNFINISHED_WORK_MAX
            && self.replies.awaited_bytes() < UNFINISHED_BYTES_MAX
            && self.replies.held_bytes() < HELD_BYTES_MAX
    }
    /// Whether the connection is to be closed once its replies are sent.
    pub fn closing(&self) -> bool {
        self.closing
    }
    /// Whether the connection waits for something that no reply brings: it is to be resumed now and then.
    pub fn waits_for_time(&self) -> bool {
        matches!(
            self.hold,
            Some(Hold::Pause(_) | Hold::Save(_) | Hold::Change(_) | Hold::Backup(_) | Hold::Sync(_))
        )
    }
    /// Whether a held command can go on.
    pub fn resumable(&self) -> bool {
        self.hold.is_some()
            && !matches!(self.hold, Some(Hold::Waiting | Hold::Attempt(_)))
            && !self.replies.awaits()
            && !self.waits_for_time()
    }
    /// What the session keeps beside its replies: a block, names, arguments of requests that are on their
    /// way.
    pub fn held_bytes(&self) -> usize {
        let load = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        let block_bytes = load(&self.client.block_bytes);
        block_bytes + self.subscriptions.bytes() + self.watched_bytes + self.replies.awaited_bytes()
    }
    /// Whether nothing is unfinished.
    pub fn idle(&self) -> bool {
        !self.replies.awaits() && self.hold.is_none()
    }
    /// Takes no more commands, and closes the connection once its replies are sent.
    pub fn close_after_replies(&mut self) {
        self.closing = true;
        self.hold = None;
    }

    /// The connection is closed: nobody is to wait for it, or to tell it anything.
    pub fn ended_for_good(&mut self, shared: &Shared) {
        if let Some(waiting) = self.waiting.take() {
            self.leave_lines(shared, &waiting);
        }
        self.unsubscribe_from_all(shared);
        self.track_no_more(shared);
        self.monitor_no_more(shared);
        shared.runtime.forget(self.id);
        shared.hub.gone(self.id);
    }

    /// Whether the connection listens to anything.
    pub fn listens(&self) -> bool {
        self.subscriptions.count() > 0
    }

    /// Ends the connection with an error that is its client's fault.
    pub fn refuse_input(&mut self, thread: &ThreadContext<'_>, error: &Reply) {
        thread.counters.note_reply(error);
        self.replies.push(error, self.protocol);
        self.close_after_replies();
    }

    /// Looks at what the client has sent and no command is taken from yet. If reads come next that will be
    /// answered here ([`Session::read_one`]), has their records loaded together.
    pub fn look_ahead(&self, thread: &ThreadContext<'_>, bytes: &[u8]) {
        if self.has_unfinished_requests() {
            return;
        }
        let mut hashes = [0; EXPECTED_MAX];
        let count = reads_ahead(bytes, &mut hashes);
        // One record alone is loaded by who reads it.
        if count > 1 {
            thread.shared.runtime.expect(thread.port, &hashes[..count]);
        }
    }

    /// Takes a command.
    pub fn command(&mut self, thread: &mut ThreadContext<'_>, argv: Args) {
        thread.counters.commands.add(1);
        if self.speech == Speech::SkipNext {
            self.speech = Speech::Skipping;
        }
        self.admit(thread, argv);
        self.note_progress(thread.shared);
        self.looked_at(thread);
    }

    /// The present command was looked at: if it waits for nothing, that was all.
    fn looked_at(&mut self, thread: &ThreadContext<'_>) {
        if self.hold.is_none() {
            // What is not answered by a reply of its own has ended as well.
            self.end_call(thread, &Reply::Nil);
            if self.speech == Speech::Skipping {
                self.speech = Speech::On;
            }
        }
    }

    /// Goes on with a command that was held, if what it waited for is over.
    pub fn resume(&mut self, thread: &mut ThreadContext<'_>) {
        if self.replies.awaits() {
            return;
        }
        match self.hold.take() {
            None | Some(Hold::Answers) => {}
            Some(Hold::Command(argv) | Hold::Pause(argv)) => {
                // Unless it has to wait on.
                self.client.paused.store(false, Ordering::Relaxed);
                self.admit(thread, argv);
                self.note_progress(thread.shared);
            }
            Some(hold @ (Hold::Waiting | Hold::Attempt(_))) => self.hold = Some(hold),
            Some(Hold::Save(saves)) if thread.shared.saves_ended() < saves => {
                thread.shared.start_save();
                self.hold = Some(Hold::Save(saves));
            }
            Some(Hold::Save(_)) => self.answer(thread, &Session::saved(thread)),
            Some(Hold::Sync(syncing)) => self.look_at_disk(thread, syncing),
            Some(Hold::Change(ticket)) => match ticket.try_take() {
                Some(outcome) => self.answer(thread, &cluster::changed(outcome)),
                None => self.hold = Some(Hold::Change(ticket)),
            },
            Some(Hold::Backup(ticket)) => match ticket.try_take() {
                Some(outcome) => self.answer(thread, &backup::read_outcome(outcome)),
                None => self.hold = Some(Hold::Backup(ticket)),
            },
        }
        self.looked_at(thread);
    }

    /// Runs a transaction: at a snapshot if that is the same to everyone, else through the order.
    fn transact(
        &mut self,
        thread: &mut ThreadContext<'_>,
        procedure: Arc<dyn Procedure>,
        args: Args,
        mut footprint: Footprint,
        reach: Reach,
        completion: Option<Completion>,
    ) {
        let gathered = self.gathered.take();
        if args.len() > LIGHT_WORDS_MAX {
            footprint.weight = Weight::Heavy;
        }
        let id = RequestId { session: self.id, sequence: self.replies.next_sequence(), attempt: 0 };
        let runtime = &thread.shared.runtime;
        if let Some(error) = too_long(&args, runtime.is_member() || runtime.is_certified()) {
            return self.answer(thread, &error);
        }
        // A read is validated like a write, and so sees all that was acknowledged anywhere.
        footprint.read_only &= !runtime.is_certified() || self.readonly;
        if runtime.engine_needs().declared_keys && footprint.keys.is_none() {
            // Every replica derives the same keys when it takes the request out of the order.
            footprint.keys = procedure.footprint(&args).keys;
        }
        let beyond = reach.strays.and_then(|script| thread.strays.beyond(script));
        let partition_route = self.partition_route(thread, &reach.involved, beyond);
        if reach.has_lost_sight(&self.routing) {
            return self.answer(thread, &Reply::NilArray);
        }
        let asker = node::Asker { unfinished: self.has_unfinished_requests(), readonly: self.readonly };
        let route = match partition_route.partitions.len() {
            _ if runtime.is_certified() => Route::Order,
            1 => node::route(&footprint, asker),
            // Only the order has a place that is the same at all of them.
            _ => Route::Order,
        };
        // A replica by itself does not know what was acknowledged elsewhere.
        let may_be_old = self.readonly && runtime.is_fresh(thread.now_ms) && self.strict.is_empty();
        let strict = route != Route::Order && runtime.is_member() && !may_be_old;
        let request = Arc::new(Request {
            id,
            slots_version: self.routing.version,
            procedure,
            args,
            footprint,
            route: partition_route,
            elsewhere: false,
        });
        self.call_is_about(|| Subject::Request(request.clone()));
        let may_widen = reach.strays.is_some() && request.route.partitions.len() < runtime.partitions_count();
        let flight = Flight::new(request, reach);
        let request = &flight.request;
        let outcome = match route {
            Route::Snapshot if !strict => match thread.shared.runtime.read(thread.port, request) {
                ReadOutcome::Done(outcome) => Some(outcome),
                ReadOutcome::Interrupted => Some(Err(runtime::KILLED)),
                ReadOutcome::MustOrder => None,
            },
            _ => None,
        };
        let strayed = match outcome {
            Some(Err(Stop::Undeclared(missing))) => Some(missing),
            _ => None,
        };
        if let Some(outcome) = outcome.filter(|_| strayed.is_none()) {
            return self.answer_read(thread, outcome, completion);
        }
        let bytes = request.args.iter().map(|word| word.len()).sum();
        self.await_reply(bytes, request.args.len(), completion);
        if let Some(missing) = strayed {
            return self.order_again(thread, flight, missing);
        }
        if may_widen {
            // What follows must not overtake it, should it come again.
            self.hold_for_answers();
        }
        if strict {
            let partition = request.route.partitions.first().copied();
            let read = (request.id, partition.unwrap_or_default());
            thread.submissions.strict.push(read);
            self.strict.add(flight);
            return;
        }
        if !self.strict.is_empty() {
            return self.strict.add_ordered(flight);
        }
        if route == Route::Aside && runtime.read_aside(thread.port, request.clone()) {
            // What is sent behind it must not take effect before it reads.
            self.aside = Some(flight);
            return;
        }
        match gathered.filter(|_| flight.request.route.of() == 1) {
            Some(name) => self.lead(thread, flight.request, name),
            None => self.order(thread, flight),
        }
    }

    /// The outcome of a command that reads one record, if it may read it at the newest final snapshot, and
    /// needs no request for that: where there is one partition, and nobody else acknowledges writes.
    #[inline]
    fn read_one(
        &self,
        thread: &ThreadContext<'_>,
        command: &'static Command,
        argv: &Args,
    ) -> Option<txn::Outcome> {
        let runtime = &thread.shared.runtime;
        let asker = node::Asker { unfinished: self.has_unfinished_requests(), readonly: self.readonly };
        let may_read = node::route(&command.footprint_without_keys(&argv[1..]), asker) == Route::Snapshot
            && argv.len() <= LIGHT_WORDS_MAX
            && runtime.partitions_count() == 1
            && !runtime.is_member()
            && !runtime.is_certified();
        let (key, operation) = command.one_read(&argv[1..]).filter(|_| may_read)?;
        self.check_words_alone(command, argv);
        match runtime.read_one(thread.port, &key, operation, thread.now_ms) {
            ReadOutcome::Done(outcome) => Some(outcome),
            // The order decides.
            ReadOutcome::MustOrder | ReadOutcome::Interrupted => None,
        }
    }

    /// Holds, in debug builds, that a command may run by its words alone, as [`Session::read_one`] and
    /// [`Session::ride`] run it: [`Session::act`] and [`Session::transact`] would neither refuse it nor treat
    /// it in a way of its own. A new refusal there needs a line here.
    fn check_words_alone(&self, command: &Command, argv: &Args) {
        debug_assert!(!self.must_act(command), "{}: its request says who acts", command.name);
        debug_assert!(!command.is(Flags::PUBSUB), "{}: its reply is completed by its node", command.name);
        debug_assert!(matches!(command.run, Run::Data(_)), "{}: it is no data command", command.name);
        debug_assert!(argv.len() <= LIGHT_WORDS_MAX, "{}: its request is heavy", command.name);
    }

    /// Answers the present command with what it read at a snapshot.
    fn answer_read(
        &mut self,
        thread: &mut ThreadContext<'_>,
        outcome: txn::Outcome,
        completion: Option<Completion>,
    ) {
        thread.counters.snapshot_reads.add(1);
        let reply = reply_of(outcome);
        let reply = match completion {
            None => Some(reply),
            Some(completion) => self.complete(thread, completion, reply),
        };
        if let Some(reply) = reply {
            self.answer(thread, &reply);
        }
    }

    /// Gives the reply to a request its place among the connection's replies. `bytes` and `words`: those of
    /// the request's arguments.
    fn await_reply(&mut self, bytes: usize, words: usize, completion: Option<Completion>) {
        let treatment = match completion {
            Some(completion) => {
                if completion.holds() {
                    // What follows depends on how this ends.
                    self.hold = Some(Hold::Answers);
                }
                Treatment::Complete { completion: Box::new(completion), speaks: self.speaks() }
            }
            None if self.speaks() => Treatment::Send,
            None => Treatment::Drop,
        };
        let call = self.call.take();
        let share = Share { bytes, work: self.work + words / WORDS_OF_WORK, bulky: self.is_bulky };
        self.replies.expect(treatment, self.protocol, share, call);
    }

    /// Answers the present command.
    fn answer(&mut self, thread: &ThreadContext<'_>, reply: &Reply) {
        thread.counters.note_reply(reply);
        self.end_call(thread, reply);
        if self.speaks() {
            self.replies.push(reply, self.protocol);
        }
    }

    /// Answers the command that was held.
    fn answer_late(&mut self, thread: &ThreadContext<'_>, reply: &Reply) {
        self.answer(thread, reply);
        if self.speech == Speech::Skipping && self.hold.is_none() {
            self.speech = Speech::On;
        }
    }

    fn speaks(&self) -> bool {
        self.speech == Speech::On
    }

    /// Takes no more commands before everything is answered.
    fn hold_for_answers(&mut self) {
        self.hold.get_or_insert(Hold::Answers);
    }

    /// Whether requests of this connection are on their way through the order.
    fn has_unfinished_requests(&self) -> bool {
        self.replies.awaited_count() > self.strict.len()
    }

    /// Through which group a transaction goes, and which partitions execute it: through the one that the
    /// connection's unfinished requests go through, so that they keep their order.
    fn partition_route(
        &mut self,
        thread: &ThreadContext<'_>,
        involved: &Involved,
        beyond: Option<Beyond>,
    ) -> PartitionRoute {
        let runtime = &thread.shared.runtime;
        if runtime.partitions_count() == 1 {
            return PartitionRoute::default();
        }
        // Strict reads too: one may turn out to need the order.
        let awaits = self.replies.awaits();
        if !awaits {
            runtime.refresh_routing(&mut self.routing);
        }
        let slots = &self.routing.slots;
        let mut route = match beyond {
            None => involved.route(slots),
            Some(Beyond::Everywhere) => Involved::Unknown.route(slots),
            Some(Beyond::These(more)) => {
                let told = involved.route(slots);
                PartitionRoute::over(told.partitions.iter().copied().chain(more), slots)
            }
        };
        match awaits {
            true => route.home = self.home,
            false => self.home = route.home,
        }
        route
    }

    /// Takes the outcome of a request of this session.
    pub fn arrived(&mut self, thread: &mut ThreadContext<'_>, id: RequestId, outcome: txn::Outcome) {
        if self.strict_read_arrived(thread, id, &outcome) {
            return self.submit_again(thread);
        }
        if let Some(flight) = self.aside.take_if(|flight| flight.request.id == id) {
            match outcome {
                Err(Stop::Restart) => return self.order(thread, flight),
                Err(Stop::Undeclared(missing)) => return self.order_again(thread, flight, missing),
                _ => thread.counters.snapshot_reads.add(1),
            }
        } else if self.flights.is_late(id) || self.comes_again(thread, id, &outcome) {
            return;
        }
        self.ended(thread, id, outcome);
        self.note_end(thread);
        self.submit_again(thread);
        self.read_in_turn(thread);
    }

    /// The connection is told of its own writes that are answered now.
    fn note_end(&mut self, thread: &mut ThreadContext<'_>) {
        self.note_progress(thread.shared);
        while let Some(names) = self.told_of_own() {
            let behind = None;
            self.delivered(thread, Delivery::Invalidate { names, behind });
        }
    }

    /// Takes the last word on a request.
    fn ended(&mut self, thread: &mut ThreadContext<'_>, id: RequestId, outcome: txn::Outcome) {
        // What is read beside the order reaches nobody who takes events off replies.
        if let Ok(Reply::Told(told)) = &outcome
            && told.events.contains(&Event::ReadNothing)
        {
            thread.shared.hub.read_nothing(id);
        }
        if !self.replies.arrived(id.sequence, outcome) {
            return;
        }
        while let Some((Answered { treatment, protocol, outcome, bulky, call }, after)) =
            self.replies.next_answered()
        {
            let reply = reply_of(outcome);
            self.call = call;
            let (reply, speaks) = match treatment {
                Treatment::Send => (Some(reply), true),
                Treatment::Drop => (Some(reply), false),
                Treatment::Complete { completion, speaks } => {
                    (self.complete(thread, *completion, reply), speaks)
                }
            };
            if let Some(reply) = reply {
                thread.counters.note_reply(&reply);
                if let Some(call) = self.call.take() {
                    thread.tally.end(call, self.client.id, &reply);
                }
                if speaks {
                    self.replies.complete(&reply, protocol, bulky);
                }
            }
            self.replies.release(after);
        }
    }
}

/// Compares a word of a command with a lower-case name.
pub(crate) fn is_word(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}
