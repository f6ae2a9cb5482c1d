//! What is collected of a server at one time for `/metrics`: what INFO tells, from where INFO has it.

use crate::cluster::ClusterView;
use crate::config::Config;
use crate::observe::CallCounts;
use crate::readiness::{Readiness, Verdict};
use crate::runtime::{CertifiedStatus, RuntimeStatus};
use crate::session::Keyspace;
use crate::shared::{Shared, Totals};
use crate::stats::{ClientStats, CpuStats, InterestStats, MemoryStats, ScriptStats, system_bytes};
use execute::conflicts::Conflicts;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Everything that is told of one process.
pub struct Scrape {
    pub process: ProcessStats,
    pub is_ready: bool,
    /// `None` while the data is being loaded.
    pub server: Option<ServerScrape>,
}

/// What the system knows of the process.
pub struct ProcessStats {
    pub started_s: f64,
    pub cpu: CpuStats,
    pub resident_bytes: u64,
    pub open_files: u64,
    /// 0 where the system does not tell.
    pub open_files_max: u64,
}

/// Everything that is told of a server which serves clients.
pub struct ServerScrape {
    pub uptime_ms: u64,
    pub config: Arc<Config>,
    pub clients: ClientStats,
    pub interests: InterestStats,
    pub memory: MemoryStats,
    /// What connections take, and what was pushed to them and not sent yet, in bytes.
    pub client_bytes: u64,
    pub push_bytes: u64,
    pub machine_bytes: u64,
    pub scripts: ScriptStats,
    pub keyspace: Keyspace,
    pub totals: Totals,
    pub calls: CallCounts,
    pub errors: BTreeMap<Box<str>, u64>,
    pub acl_denied: Vec<(&'static str, u64)>,
    pub evicted_keys: u64,
    pub evicted_clients: u64,
    pub slow_calls: u64,
    pub slow_log_entries: u64,
    pub last_save_s: u64,
    pub final_time_ms: u64,
    pub runtime: RuntimeStatus,
    pub conflicts: Conflicts,
    /// `None` where the server stands alone.
    pub view: Option<Arc<ClusterView>>,
    /// `None` where requests are ordered.
    pub site: Option<CertifiedStatus>,
}

impl Scrape {
    /// Collects everything. `shared` is `None` while the data is being loaded.
    pub fn of(shared: Option<&Shared>, started_s: f64) -> Scrape {
        let limit = rlimit::Resource::NOFILE.get();
        Scrape {
            process: ProcessStats {
                started_s,
                cpu: CpuStats::of_process(),
                resident_bytes: crate::memory::resident_bytes(),
                // One of them is the directory that is read.
                open_files: std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64 - 1),
                open_files_max: limit.map_or(0, |(soft, _)| soft),
            },
            is_ready: Readiness::of(shared).verdict == Verdict::Ready,
            server: shared.map(ServerScrape::of),
        }
    }
}

impl ServerScrape {
    fn of(shared: &Shared) -> ServerScrape {
        let runtime = &shared.runtime;
        ServerScrape {
            uptime_ms: runtime.now_ms().saturating_sub(shared.started_ms),
            config: shared.settings.now(),
            clients: ClientStats::of(shared),
            interests: InterestStats::of(shared),
            memory: MemoryStats::of(shared),
            client_bytes: shared.clients.memory_bytes() as u64,
            push_bytes: shared.pushes.total_bytes() as u64,
            machine_bytes: system_bytes(),
            scripts: ScriptStats::of(shared),
            keyspace: Keyspace::at(runtime),
            totals: shared.totals(),
            calls: shared.call_totals(),
            errors: shared.error_totals(),
            acl_denied: shared.acl.denied().collect(),
            evicted_keys: shared.evicted.load(Ordering::Relaxed),
            evicted_clients: shared.clients.evicted(),
            slow_calls: shared.slow_log.pushed(),
            slow_log_entries: shared.slow_log.len() as u64,
            last_save_s: shared.last_save_s(),
            final_time_ms: runtime.engine().view().final_time_ms(),
            runtime: runtime.status(),
            conflicts: runtime.conflicts(),
            view: runtime.cluster_view(),
            site: runtime.certified_status(),
        }
    }
}
