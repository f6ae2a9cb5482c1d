//! What all I/O threads share: settings, the list of clients, counters, and the wish to stop.
//!
//! Nothing here is locked for a command. Settings are a snapshot that each thread takes again when their
//! generation changes; counters belong to one thread each and are added up by whoever asks. Only the counts
//! of error replies by their codes and those of calls have locks, each thread its own.

use crate::acl::Acl;
use crate::auth_failures::AuthFailures;
use crate::cluster::Joiners;
use crate::config::{Config, LogLevel};
use crate::error_counts::{self, ErrorCounts};
use crate::evict::NO_EVICTION;
use crate::hub::{Delivery, Hub, PushBudget};
use crate::memory::used_bytes;
use crate::net::clients::Clients;
use crate::observe::{CallCounts, LatencyEvents, Monitors, SlowLog};
use crate::runtime::{Port, Runtime};
use crate::tls::Tls;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use txn::Reply;

/// The settings, and how often they changed.
pub struct Settings {
    now: Mutex<Arc<Config>>,
    generation: AtomicU64,
}

impl Settings {
    /// Settings at the start.
    pub fn new(config: Config) -> Settings {
        Settings { now: Mutex::new(Arc::new(config)), generation: AtomicU64::new(0) }
    }
    /// The present settings.
    pub fn now(&self) -> Arc<Config> {
        self.now.lock().clone()
    }
    /// Changes whenever the settings do.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
    /// Does something by the present settings, which do not change meanwhile.
    pub fn by_now<R>(&self, act: impl FnOnce(&Config) -> R) -> R {
        act(&self.now.lock())
    }
    /// Changes the settings, all or nothing.
    pub fn change<E>(&self, change: impl FnOnce(&mut Config) -> Result<(), E>) -> Result<(), E> {
        let mut now = self.now.lock();
        let mut config = (**now).clone();
        change(&mut config)?;
        *now = Arc::new(config);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// A counter with one writer.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it. Only its owner may: there is no read-modify-write, which is what makes it cheap.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }
    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one I/O thread.
pub struct ThreadCounters {
    /// Commands that were processed.
    pub commands: Counter,
    /// Bytes that were read.
    pub input_bytes: Counter,
    /// Bytes that were written.
    pub output_bytes: Counter,
    /// Connections that were accepted.
    pub connections: Counter,
    /// Connections that were refused because there were too many, or by protected mode.
    pub rejected: Counter,
    /// Connections that were closed because their client did not read.
    pub output_limit_closed: Counter,
    /// Connections that were closed because their command was too long.
    pub query_limit_closed: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Error replies by their codes.
    pub error_counts: ErrorCounts,
    /// Reads that were answered at a snapshot, without the order.
    pub snapshot_reads: Counter,
    /// Commands, blocks and scripts that were submitted to the order.
    pub submitted: Counter,
    /// How often requests had to wait because the order took no more of them.
    pub stalls: Counter,
    /// Ticks of the thread: ten a second, unless a round takes longer.
    pub ticks: Counter,
    /// Calls, by their commands.
    pub calls: Mutex<CallCounts>,
}

impl ThreadCounters {
    fn new(error_counts: ErrorCounts) -> ThreadCounters {
        ThreadCounters {
            commands: Counter::default(),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            connections: Counter::default(),
            rejected: Counter::default(),
            output_limit_closed: Counter::default(),
            query_limit_closed: Counter::default(),
            errors: Counter::default(),
            error_counts,
            snapshot_reads: Counter::default(),
            submitted: Counter::default(),
            stalls: Counter::default(),
            ticks: Counter::default(),
            calls: Mutex::default(),
        }
    }

    /// Counts the errors in a reply that leaves.
    #[inline]
    pub fn note_reply(&self, reply: &Reply) {
        let count = self.error_counts.count(reply);
        if count > 0 {
            self.errors.add(count);
        }
    }
}

/// Sums over all threads, at one time.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// See [`ThreadCounters::commands`].
    pub commands: u64,
    /// See [`ThreadCounters::input_bytes`].
    pub input_bytes: u64,
    /// See [`ThreadCounters::output_bytes`].
    pub output_bytes: u64,
    /// See [`ThreadCounters::connections`].
    pub connections: u64,
    /// See [`ThreadCounters::rejected`].
    pub rejected: u64,
    /// See [`ThreadCounters::output_limit_closed`].
    pub output_limit_closed: u64,
    /// See [`ThreadCounters::query_limit_closed`].
    pub query_limit_closed: u64,
    /// See [`ThreadCounters::errors`].
    pub errors: u64,
    /// See [`ThreadCounters::snapshot_reads`].
    pub snapshot_reads: u64,
    /// See [`ThreadCounters::submitted`].
    pub submitted: u64,
    /// See [`ThreadCounters::stalls`].
    pub stalls: u64,
    /// See [`Runtime::expired_keys`].
    pub expired_keys: u64,
    /// See [`Runtime::lookups`].
    pub hits: u64,
    /// See [`Runtime::lookups`].
    pub misses: u64,
}

impl Totals {
    fn of(threads: &[Arc<ThreadCounters>], runtime: &Runtime) -> Totals {
        let sum =
            |pick: fn(&ThreadCounters) -> &Counter| threads.iter().map(|thread| pick(thread).get()).sum();
        let (hits, misses) = runtime.lookups();
        Totals {
            hits,
            misses,
            commands: sum(|t| &t.commands),
            input_bytes: sum(|t| &t.input_bytes),
            output_bytes: sum(|t| &t.output_bytes),
            connections: sum(|t| &t.connections),
            rejected: sum(|t| &t.rejected),
            output_limit_closed: sum(|t| &t.output_limit_closed),
            query_limit_closed: sum(|t| &t.query_limit_closed),
            errors: sum(|t| &t.errors),
            snapshot_reads: sum(|t| &t.snapshot_reads),
            submitted: sum(|t| &t.submitted),
            stalls: sum(|t| &t.stalls),
            expired_keys: runtime.expired_keys(),
        }
    }

    /// What was added since `before`.
    fn since(&self, before: &Totals) -> Totals {
        Totals {
            commands: self.commands - before.commands,
            input_bytes: self.input_bytes - before.input_bytes,
            output_bytes: self.output_bytes - before.output_bytes,
            connections: self.connections - before.connections,
            rejected: self.rejected - before.rejected,
            output_limit_closed: self.output_limit_closed - before.output_limit_closed,
            query_limit_closed: self.query_limit_closed - before.query_limit_closed,
            errors: self.errors - before.errors,
            snapshot_reads: self.snapshot_reads - before.snapshot_reads,
            submitted: self.submitted - before.submitted,
            stalls: self.stalls - before.stalls,
            expired_keys: self.expired_keys - before.expired_keys,
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
        }
    }
}

/// Rates over the last second or so, sampled by the first I/O thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Commands a second.
    pub commands: u64,
    /// Bytes read a second.
    pub input_bytes: u64,
    /// Bytes written a second.
    pub output_bytes: u64,
}

#[derive(Default)]
struct Sample {
    at_ms: u64,
    commands: u64,
    input_bytes: u64,
    output_bytes: u64,
    rates: Rates,
}

/// CLIENT PAUSE.
#[derive(Default)]
pub struct Pause {
    /// Until when nothing goes on.
    all_until_ms: AtomicU64,
    /// Until when no writes go on.
    writes_until_ms: AtomicU64,
}

impl Pause {
    /// Pauses until a time. As in Redis, a pause that is on becomes neither shorter nor weaker.
    pub fn pause(&self, until_ms: u64, writes_only: bool, now_ms: u64) {
        let until_ms = self.writes_until_ms.fetch_max(until_ms, Ordering::SeqCst).max(until_ms);
        if !writes_only || self.all_until_ms.load(Ordering::SeqCst) > now_ms {
            self.all_until_ms.fetch_max(until_ms, Ordering::SeqCst);
        }
    }
    /// Ends a pause.
    pub fn end(&self) {
        self.all_until_ms.store(0, Ordering::SeqCst);
        self.writes_until_ms.store(0, Ordering::SeqCst);
    }
    /// Whether a command that writes, or one that does not, has to wait now.
    #[inline]
    pub fn holds(&self, writes: bool, now_ms: u64) -> bool {
        let until_ms = match writes {
            true => &self.writes_until_ms,
            false => &self.all_until_ms,
        };
        until_ms.load(Ordering::Relaxed) > now_ms
    }
}

/// How what is used compares with `maxmemory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryState {
    /// There is room.
    Ample,
    /// There is none, and entries go: what may take memory waits.
    Evicting,
    /// There is none, and nothing may go: what may take memory is refused.
    Short,
}

/// How a stop was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// With a checkpoint first.
    Save,
    /// Just so: the log has everything.
    Plain,
}

/// What all I/O threads share.
pub struct Shared {
    /// The node.
    pub runtime: Arc<Runtime>,
    /// The settings.
    pub settings: Settings,
    /// What connections are secured with.
    pub tls: Arc<Tls>,
    /// The users.
    pub acl: Acl,
    /// Who gave wrong passwords.
    pub auth_failures: Arc<AuthFailures>,
    /// The connections.
    pub clients: Clients,
    /// Who wants to be told of what others do.
    pub hub: Arc<Hub>,
    /// How much may be pushed to connections that do not read.
    pub pushes: Arc<PushBudget>,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Slow calls.
    pub slow_log: SlowLog,
    /// Slow events of all kinds.
    pub latency: Arc<LatencyEvents>,
    /// Who sees what clients send.
    pub monitors: Monitors,
    /// Nodes that wait to join the cluster.
    pub joiners: Joiners,
    /// A [`MemoryState`].
    memory: AtomicU8,
    /// Entries that were evicted since the start.
    pub evicted: AtomicU64,
    /// When this process started, in milliseconds since 1970.
    pub started_ms: u64,
    /// The memory of the process when it began to serve, in bytes.
    pub startup_bytes: u64,
    /// Names this run of the server.
    pub run_id: String,
    /// The first address that is listened on.
    pub address: SocketAddr,
    /// The number of I/O threads.
    pub io_threads: usize,
    /// Whether the last SAVE or BGSAVE went well.
    pub last_save_ok: AtomicBool,
    /// Whether a checkpoint that a client asked for is being written.
    saving: AtomicBool,
    saves_ended: AtomicU64,
    counters: Vec<Arc<ThreadCounters>>,
    reset: Mutex<Totals>,
    sample: Mutex<Sample>,
    stopping: Mutex<Option<Stopping>>,
    stop_asked: Condvar,
    stopped: AtomicBool,
    /// See [`Shared::follow_log_level`].
    log_level: OnceLock<LogLevelHook>,
}

/// Is told how much is to be logged, whenever that may have changed.
pub type LogLevelHook = Box<dyn Fn(LogLevel) + Send + Sync>;

/// What is known at the start.
pub struct Origin {
    /// See [`Shared::started_ms`].
    pub started_ms: u64,
    /// See [`Shared::run_id`].
    pub run_id: String,
    /// See [`Shared::address`].
    pub address: SocketAddr,
    /// See [`Shared::io_threads`].
    pub io_threads: usize,
    /// See [`Shared::tls`].
    pub tls: Arc<Tls>,
    /// See [`Shared::auth_failures`].
    pub auth_failures: Arc<AuthFailures>,
}

impl Shared {
    /// The shared state of a server that starts.
    pub fn new(runtime: Arc<Runtime>, config: Config, origin: Origin) -> Shared {
        let budget = Arc::new(PushBudget::default());
        budget.set_hard_limit(config.client_output_buffer_limit.pubsub.hard_bytes);
        let hub = Arc::new(Hub::new(budget.clone()));
        hub.set_notify(config.notify_keyspace_events);
        let latency = runtime.latency().clone();
        latency.set_threshold_ms(config.latency_monitor_threshold);
        Shared {
            runtime,
            acl: Acl::new(&config.requirepass),
            settings: Settings::new(config),
            tls: origin.tls,
            auth_failures: origin.auth_failures,
            clients: Clients::new(budget.clone()),
            hub,
            pause: Pause::default(),
            slow_log: SlowLog::default(),
            latency,
            monitors: Monitors::new(budget.clone()),
            pushes: budget,
            joiners: Joiners::default(),
            memory: AtomicU8::new(MemoryState::Ample as u8),
            evicted: AtomicU64::new(0),
            started_ms: origin.started_ms,
            startup_bytes: used_bytes(),
            run_id: origin.run_id,
            address: origin.address,
            io_threads: origin.io_threads,
            last_save_ok: AtomicBool::new(true),
            saving: AtomicBool::new(false),
            saves_ended: AtomicU64::new(0),
            counters: ErrorCounts::of_threads(origin.io_threads)
                .into_iter()
                .map(|error_counts| Arc::new(ThreadCounters::new(error_counts)))
                .collect(),
            reset: Mutex::default(),
            sample: Mutex::default(),
            stopping: Mutex::default(),
            log_level: OnceLock::new(),
            stop_asked: Condvar::new(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Looks whether too much memory is used: ten times a second. Where entries may be evicted, that is
    /// looked at more often ([`crate::evict`]).
    pub fn look_at_memory(&self) {
        self.settings.by_now(|config| self.look_at_memory_by(config));
    }
    /// The same, by settings that are about to be those of now.
    fn look_at_memory_by(&self, config: &Config) {
        let limit = config.maxmemory;
        if limit == 0 || used_bytes() <= limit {
            self.set_memory(MemoryState::Ample);
        } else if config.maxmemory_policy == NO_EVICTION {
            self.set_memory(MemoryState::Short);
        }
    }
    /// The limit of memory, or what happens there, has changed. Where entries go now, commands wait for that,
    /// whatever was found before.
    pub fn memory_settings_changed(&self, config: &Config) {
        if self.memory() == MemoryState::Short && config.maxmemory_policy != NO_EVICTION {
            self.set_memory(MemoryState::Evicting);
        }
        self.look_at_memory_by(config);
    }
    /// Says how much room there is, as found by settings that are those of now still.
    pub fn memory_found(&self, by: &Config, state: MemoryState) {
        self.settings.by_now(|now| {
            if (now.maxmemory, &now.maxmemory_policy) == (by.maxmemory, &by.maxmemory_policy) {
                self.set_memory(state);
            }
        });
    }
    /// Whether commands that may take memory are taken.
    #[inline]
    pub fn memory(&self) -> MemoryState {
        match self.memory.load(Ordering::Relaxed) {
            0 => MemoryState::Ample,
            1 => MemoryState::Evicting,
            _ => MemoryState::Short,
        }
    }
    fn set_memory(&self, state: MemoryState) {
        self.memory.store(state as u8, Ordering::Relaxed);
    }

    /// Has all go by these settings who do not look at them by themselves.
    pub fn look_at_settings(&self, config: &Config) {
        self.pushes.set_hard_limit(config.client_output_buffer_limit.pubsub.hard_bytes);
        self.hub.set_notify(config.notify_keyspace_events);
        self.hub.set_tracked_max(config.tracking_table_max_keys);
        self.latency.set_threshold_ms(config.latency_monitor_threshold);
        let len_max = usize::try_from(config.slowlog_max_len).unwrap_or(usize::MAX);
        self.slow_log.truncate(len_max);
        if let Some(hook) = self.log_level.get() {
            hook(config.loglevel);
        }
    }

    /// Whoever writes the log follows the setting from now on.
    pub fn follow_log_level(&self, hook: LogLevelHook) {
        // The first one stays: a process has one log.
        let _ = self.log_level.set(hook);
    }

    /// The counters of an I/O thread.
    pub fn counters(&self, thread: usize) -> Arc<ThreadCounters> {
        self.counters[thread].clone()
    }

    /// Sums since the start, or since CONFIG RESETSTAT.
    pub fn totals(&self) -> Totals {
        Totals::of(&self.counters, &self.runtime).since(&self.reset.lock())
    }

    /// Calls by their commands, over the same time.
    pub fn call_totals(&self) -> CallCounts {
        let mut totals = CallCounts::default();
        for thread in &self.counters {
            totals.merge(&thread.calls.lock());
        }
        totals
    }

    /// Error replies by their codes, over the same time.
    pub fn error_totals(&self) -> BTreeMap<Box<str>, u64> {
        error_counts::totals(self.counters.iter().map(|thread| &thread.error_counts))
    }

    /// CONFIG RESETSTAT.
    pub fn reset_totals(&self) {
        self.acl.forget_denied();
        error_counts::reset(self.counters.iter().map(|thread| &thread.error_counts));
        for thread in &self.counters {
            *thread.calls.lock() = CallCounts::default();
        }
        *self.reset.lock() = Totals::of(&self.counters, &self.runtime);
    }

    /// Looks for changes of users, and has all connections look who they are now. One, whose command that
    /// was, does so itself.
    pub fn refresh_users(&self, port: &Port, but: Option<u64>) {
        let was_open = self.acl.is_open_against_settings();
        if !self.acl.refresh(&self.runtime, port) {
            return;
        }
        if !was_open && self.acl.is_open_against_settings() {
            tracing::warn!(
                "requirepass is set, and the user 'default' takes any password since an ACL SETUSER: \
                 anybody who reaches this server may use it. CONFIG SET requirepass gives 'default' a \
                 password again"
            );
        }
        for client in self.clients.all() {
            if but != Some(client.id) {
                client.mailbox.deliver(client.session, Delivery::Users);
            }
        }
    }

    /// Takes a sample for [`Shared::rates`].
    pub fn sample(&self, now_ms: u64) {
        let totals = Totals::of(&self.counters, &self.runtime);
        let mut sample = self.sample.lock();
        let elapsed_ms = now_ms.saturating_sub(sample.at_ms);
        if elapsed_ms == 0 {
            return;
        }
        let rate = |now: u64, before: u64| now.saturating_sub(before) * 1000 / elapsed_ms;
        let rates = Rates {
            commands: rate(totals.commands, sample.commands),
            input_bytes: rate(totals.input_bytes, sample.input_bytes),
            output_bytes: rate(totals.output_bytes, sample.output_bytes),
        };
        *sample = Sample {
            at_ms: now_ms,
            commands: totals.commands,
            input_bytes: totals.input_bytes,
            output_bytes: totals.output_bytes,
            rates,
        };
    }

    /// Rates as of the last sample.
    pub fn rates(&self) -> Rates {
        self.sample.lock().rates
    }

    /// Starts writing a checkpoint, unless one that a client asked for is being written. Whether it started.
    pub fn start_save(self: &Arc<Shared>) -> bool {
        if self.saving.swap(true, Ordering::SeqCst) {
            return false;
        }
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("ordo-save".to_owned());
        let spawned = thread.spawn(move || {
            let result = shared.runtime.checkpoint();
            if let Err(error) = &result {
                tracing::error!("the checkpoint that a client asked for failed: {error}");
            }
            shared.save_ended(result.is_ok());
        });
        if let Err(error) = spawned {
            tracing::error!("no thread for a checkpoint: {error}");
            self.save_ended(false);
        }
        true
    }

    fn save_ended(&self, ok: bool) {
        self.last_save_ok.store(ok, Ordering::SeqCst);
        self.saves_ended.fetch_add(1, Ordering::SeqCst);
        self.saving.store(false, Ordering::SeqCst);
    }

    /// The ticks that each I/O thread has made.
    pub fn thread_ticks(&self) -> Vec<u64> {
        self.counters.iter().map(|counters| counters.ticks.get()).collect()
    }

    /// When the newest checkpoint was written, or else when the server started, in seconds since 1970.
    pub fn last_save_s(&self) -> u64 {
        self.runtime.status().node.last_checkpoint_at_ms.max(self.started_ms) / 1000
    }

    /// How many checkpoints that clients asked for have ended.
    pub fn saves_ended(&self) -> u64 {
        self.saves_ended.load(Ordering::SeqCst)
    }

    /// Asks the server to stop.
    pub fn stop(&self, how: Stopping) {
        self.stopping.lock().get_or_insert(how);
        self.stopped.store(true, Ordering::SeqCst);
        self.stop_asked.notify_all();
    }

    /// Whether a stop was asked for.
    pub fn stopping(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Waits until a stop is asked for, or until this time.
    pub fn wait_for_stop_until(&self, until: Instant) -> Option<Stopping> {
        let mut stopping = self.stopping.lock();
        while stopping.is_none() && !self.stop_asked.wait_until(&mut stopping, until).timed_out() {}
        *stopping
    }

    /// Waits until a stop is asked for.
    pub fn wait_for_stop(&self) -> Stopping {
        let mut stopping = self.stopping.lock();
        loop {
            if let Some(how) = *stopping {
                return how;
            }
            self.stop_asked.wait(&mut stopping);
        }
    }
}
