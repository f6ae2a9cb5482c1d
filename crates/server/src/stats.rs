//! Numbers of a server that INFO, MEMORY and the HTTP port's `/metrics` tell: each is collected here, so that
//! all of them tell the same.
//!
//! What a node counts by itself is in [`RuntimeStatus`](crate::runtime::RuntimeStatus), what a cluster is in
//! [`ClusterView`](crate::cluster::ClusterView), and what the I/O threads count in
//! [`Totals`](crate::shared::Totals).

use crate::hub::Kind;
use crate::memory::{resident_bytes, used_bytes};
use crate::net::clients::Client;
use crate::shared::Shared;
use redis_surface::Kept;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// How many there are.
    pub connected: usize,
    /// The most bytes that one of them has sent and that are not executed.
    pub input_bytes_max: usize,
    /// The most bytes that one of them has not read.
    pub output_bytes_max: usize,
    /// Those that wait for a key.
    pub blocked: usize,
    /// Those that are told when keys are written (CLIENT TRACKING).
    pub tracking: usize,
    /// Those that have subscribed to something.
    pub subscribed: usize,
    /// Those that watch keys (WATCH).
    pub watching: usize,
    /// Keys that are waited for.
    pub blocking_keys: usize,
    /// Of those, the keys that waiters also want to be told of if they go.
    pub blocking_keys_on_nokey: usize,
}

impl ClientStats {
    /// Looks at all connections.
    pub fn of(shared: &Shared) -> ClientStats {
        let all = shared.clients.all();
        let largest = |pick: fn(&Client) -> usize| all.iter().map(|client| pick(client)).max().unwrap_or(0);
        let count = |has: fn(&Arc<Client>) -> bool| all.iter().filter(|client| has(client)).count();
        let (blocking_keys, blocking_keys_on_nokey) = shared.hub.waited_for();
        ClientStats {
            connected: all.len(),
            input_bytes_max: largest(|client| client.input_bytes.load(Ordering::Relaxed)),
            output_bytes_max: largest(|client| client.output_bytes.load(Ordering::Relaxed)),
            blocked: count(|client| client.is_blocked()),
            tracking: count(|client| client.tracking.load(Ordering::Relaxed) > 0),
            subscribed: count(|client| client.listens()),
            watching: count(|client| client.watched.load(Ordering::Relaxed) > 0),
            blocking_keys,
            blocking_keys_on_nokey,
        }
    }
}

/// What connections want to be told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterestStats {
    /// Channels with subscribers.
    pub channels: usize,
    /// Patterns with subscribers.
    pub patterns: usize,
    /// Shard channels with subscribers.
    pub shard_channels: usize,
    /// Keys of which some connection is told when they are written.
    pub tracked_keys: usize,
    /// Pairs of such a key and a connection.
    pub tracked_items: usize,
    /// Prefixes of keys of which connections are told.
    pub tracked_prefixes: usize,
}

impl InterestStats {
    /// Looks at what is subscribed to and tracked.
    pub fn of(shared: &Shared) -> InterestStats {
        let count = |kind: Kind| shared.hub.channels(|channels| channels.names(kind).count());
        let (tracked_keys, tracked_items, tracked_prefixes) = shared.hub.tracked();
        InterestStats {
            channels: count(Kind::Channel),
            patterns: count(Kind::Pattern),
            shard_channels: count(Kind::Shard),
            tracked_keys,
            tracked_items,
            tracked_prefixes,
        }
    }
}

/// Memory of the process, in bytes.
///
/// `used == startup + dataset + buffers`, but where buffers were counted while they changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// What was asked of the allocator and not given back.
    pub used: u64,
    /// What the system gave the process.
    pub resident: u64,
    /// The most that the process has had.
    pub peak: u64,
    /// What it used when it had started.
    pub startup: u64,
    /// What the buffers of all connections take.
    pub buffers: u64,
    /// What is left for data.
    pub dataset: u64,
}

impl MemoryStats {
    /// Asks the allocator, the system and the connections.
    pub fn of(shared: &Shared) -> MemoryStats {
        let used = used_bytes();
        let startup = shared.startup_bytes.min(used);
        let clients = shared.clients.all();
        let buffered = clients.iter().map(|client| {
            client.input_bytes.load(Ordering::Relaxed) + client.buffer_bytes.load(Ordering::Relaxed)
        });
        let buffers = buffered.sum::<usize>() as u64;
        MemoryStats {
            used,
            resident: resident_bytes(),
            peak: proc_bytes("/proc/self/status", "VmHWM:").max(used),
            startup,
            buffers,
            dataset: (used - startup).saturating_sub(buffers),
        }
    }
}

/// The memory of the machine, in bytes; 0 where the system does not tell.
pub fn system_bytes() -> u64 {
    proc_bytes("/proc/meminfo", "MemTotal:")
}

/// A number of kilobytes from a file of /proc, in bytes; 0 if it is not there.
fn proc_bytes(file: &str, name: &str) -> u64 {
    let kilobytes = std::fs::read_to_string(file).ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    });
    kilobytes.unwrap_or(0) * 1024
}

/// The scripts and functions that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptStats {
    /// Scripts that EVALSHA finds.
    pub scripts: u64,
    /// Functions.
    pub functions: u64,
    /// Libraries of functions.
    pub libraries: u64,
    /// What all of them take, in bytes.
    pub bytes: u64,
}

impl ScriptStats {
    /// Counts the scripts and functions among the store's own records, at most 16,384 of them.
    pub fn of(shared: &Shared) -> ScriptStats {
        const RECORDS_MAX: usize = 16_384;
        let mut kept = ScriptStats::default();
        shared.runtime.for_each_system_record(RECORDS_MAX, |(key, entry)| {
            let count = match Kept::of(key) {
                Some(Kept::Script) => &mut kept.scripts,
                Some(Kept::Function) => &mut kept.functions,
                Some(Kept::Library) => &mut kept.libraries,
                None => return,
            };
            *count += 1;
            kept.bytes += (key.heap_bytes() + entry.value.heap_bytes()) as u64;
        });
        kept
    }
}

/// Processor time of the process, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuStats {
    /// In the process itself.
    pub user_s: f64,
    /// In the system on its behalf.
    pub system_s: f64,
}

impl CpuStats {
    /// Asks the system. Zero where it does not tell.
    pub fn of_process() -> CpuStats {
        // Fields 14 and 15 of /proc/self/stat, in ticks of 10 ms; the name before them may hold spaces, and
        // ends with ')'.
        let ticks = std::fs::read_to_string("/proc/self/stat").ok().and_then(|text| {
            let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
            Some((fields.get(11)?.parse::<u64>().ok()?, fields.get(12)?.parse::<u64>().ok()?))
        });
        let (user, system) = ticks.unwrap_or_default();
        CpuStats { user_s: user as f64 / 100.0, system_s: system as f64 / 100.0 }
    }
}
