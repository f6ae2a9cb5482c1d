//! The calls that an I/O thread is in the middle of, and those that have ended since it looked at the clock.

use super::calls::CallCounts;
use super::latency::{COMMAND, FAST_COMMAND};
use super::slowlog::SlowEntry;
use crate::clock::wall_ms;
use crate::config::Config;
use crate::shared::Shared;
use parking_lot::Mutex;
use redis_surface::Block;
use redis_surface::table::{Command, CommandNumber, Flags, Run};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use txn::{Args, Blob, Reply, Request};

/// What a call was about, for the slow log.
#[derive(Debug, Default)]
pub enum Subject {
    /// Its name alone.
    #[default]
    Name,
    /// All its words.
    Words(Box<Args>),
    /// What became of its words: all but the name, and but that of a subcommand of SCRIPT or FUNCTION.
    Request(Arc<Request>),
    /// The command at a place among others that were ordered together.
    Gathered(Arc<GatheredCalls>, usize),
    /// The commands of a block.
    Block(Box<[CommandNumber]>),
}

/// What commands were ordered together with.
#[derive(Debug, Default)]
pub struct GatheredCalls(OnceLock<Arc<Request>>);

impl GatheredCalls {
    /// The commands have become this block.
    pub fn became(&self, block: &Arc<Request>) {
        let is_first = self.0.set(block.clone()).is_ok();
        debug_assert!(is_first, "commands become one block");
    }

    /// The words of the command at a place, without its name.
    fn words(&self, place: usize) -> Vec<Blob> {
        let block = self.0.get().and_then(|request| Block::from_args(&request.args));
        let command = block.and_then(|mut block| block.commands.get_mut(place).map(std::mem::take));
        command.map_or_else(Vec::new, |command| command.0.into_iter().skip(1).collect())
    }
}

/// A call that was admitted.
#[derive(Debug)]
pub struct Call {
    number: CommandNumber,
    /// When, by the tally's clock.
    begun_ns: u64,
    /// Its first word.
    name: Blob,
    /// What it is about.
    pub subject: Subject,
}

/// A call that has ended, and is not yet counted.
struct Ended {
    call: Call,
    client: u64,
    failed: bool,
    /// Those of a block's commands that were answered by an error.
    failed_parts: Vec<usize>,
    /// Whether the block was run.
    ran: bool,
}

/// See the module's head.
pub struct Tally {
    origin: Instant,
    now_ns: Cell<u64>,
    ended: RefCell<Vec<Ended>>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { origin: Instant::now(), now_ns: Cell::new(0), ended: RefCell::default() }
    }
}

/// Into what ended calls go.
pub struct Books<'a> {
    /// The thread's counts.
    pub counts: &'a Mutex<CallCounts>,
    /// What all threads share.
    pub shared: &'a Shared,
    /// The settings.
    pub config: &'a Config,
}

impl Tally {
    /// Reads the clock.
    #[inline]
    pub fn tick(&self) {
        let ns = self.origin.elapsed().as_nanos();
        self.now_ns.set(u64::try_from(ns).unwrap_or(u64::MAX));
    }

    /// The last reading, in nanoseconds since the tally was made.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// Reads the clock, and gives the reading.
    pub fn read_ns(&self) -> u64 {
        self.tick();
        self.now_ns()
    }

    /// A call begins, as of the last reading.
    #[inline]
    pub fn begin(&self, number: CommandNumber, name: &Blob) -> Call {
        Call { number, begun_ns: self.now_ns.get(), name: name.clone(), subject: Subject::Name }
    }

    /// A call that has waited goes on, as of the last reading: its wait does not count.
    pub fn begin_again(&self, call: &mut Call) {
        call.begun_ns = self.now_ns.get();
    }

    /// A call of a client (its number) has ended with this reply.
    #[inline]
    pub fn end(&self, call: Call, client: u64, reply: &Reply) {
        let is_error = |reply: &Reply| matches!(reply, Reply::Error(_));
        let (mut failed_parts, mut ran) = (Vec::new(), false);
        if let (Subject::Block(_), Reply::Array(replies)) = (&call.subject, reply) {
            let failed = replies.iter().enumerate().filter(|(_, reply)| is_error(reply));
            failed_parts = failed.map(|(place, _)| place).collect();
            ran = true;
        }
        self.ended.borrow_mut().push(Ended { call, client, failed: is_error(reply), failed_parts, ran });
    }

    /// Reads the clock if calls have ended, and counts them.
    #[inline]
    pub fn settle(&self, books: &Books<'_>) {
        if !self.ended.borrow().is_empty() {
            self.tick();
            self.count(books);
        }
    }

    fn count(&self, books: &Books<'_>) {
        let now_ns = self.now_ns.get();
        let config = books.config;
        let slow_ns =
            u64::try_from(config.slowlog_log_slower_than).map_or(u64::MAX, |us| us.saturating_mul(1000));
        let event_ns = match config.latency_monitor_threshold {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        let mut slow = Vec::new();
        let mut counts = books.counts.lock();
        for ended in self.ended.borrow_mut().drain(..) {
            let ns = now_ns - ended.call.begun_ns;
            let count = counts.of(ended.call.number);
            count.add(ns, ended.failed);
            if config.latency_tracking {
                count.record(ns);
            }
            if let (Subject::Block(parts), true) = (&ended.call.subject, ended.ran) {
                let share_ns = ns / (parts.len() as u64).max(1);
                for (place, part) in parts.iter().enumerate() {
                    let failed = ended.failed_parts.contains(&place);
                    counts.of(*part).add(share_ns, failed);
                }
            }
            if ns >= slow_ns || ns >= event_ns {
                slow.push((ns, ended));
            }
        }
        drop(counts);
        for (ns, ended) in slow {
            if ns >= event_ns {
                let is_fast = ended.call.number.command().is(Flags::FAST);
                let event = if is_fast { FAST_COMMAND } else { COMMAND };
                let took = Duration::from_nanos(ns);
                books.shared.latency.note(event, took, wall_ms() / 1000);
            }
            if ns >= slow_ns && ended.is_logged() {
                ended.log(books, ns / 1000);
            }
        }
    }
}

impl Ended {
    /// EXEC itself is nothing without its block.
    fn is_logged(&self) -> bool {
        self.ran || !self.call.number.command().is(Flags::SKIP_SLOWLOG)
    }

    fn log(self, books: &Books<'_>, us: u64) {
        let client = books.shared.clients.by_id(self.client);
        let (address, client_name) = client.map_or_else(Default::default, |client| {
            (client.address.to_string(), client.labels.lock().name.clone())
        });
        let entry =
            SlowEntry { id: 0, at_s: wall_ms() / 1000, us, words: self.call.words(), address, client_name };
        // This may be the call that has changed it.
        let len_max = books.shared.settings.now().slowlog_max_len;
        let len_max = usize::try_from(len_max).unwrap_or(usize::MAX);
        books.shared.slow_log.push(entry, len_max);
    }
}

impl Call {
    /// The command.
    #[inline]
    pub fn command(&self) -> &'static Command {
        self.number.command()
    }

    fn words(&self) -> Vec<Blob> {
        let name = std::iter::once(self.name.clone());
        match &self.subject {
            Subject::Name => name.collect(),
            Subject::Words(words) => words.to_vec(),
            Subject::Request(request) => {
                let command = self.number.command();
                let is_of_scripts = matches!(command.run, Run::Script(_));
                let own = (command.name != command.own_name() && is_of_scripts)
                    .then(|| Blob::from(command.own_name()));
                name.chain(own).chain(request.args.iter().cloned()).collect()
            }
            Subject::Gathered(calls, place) => name.chain(calls.words(*place)).collect(),
            Subject::Block(parts) => {
                let parts = parts.iter().map(|part| Blob::from(part.command().name));
                name.chain(parts).collect()
            }
        }
    }
}
