//! The console: a page for people at `/`, and what it shows as JSON at `/console.json`.
//!
//! The page asks once a second, and computes rates from what grows: the server keeps nothing for it. What it
//! shows is what `/metrics`, INFO, `ordo admin status` and SLOWLOG tell. It loads nothing from elsewhere, and
//! a browser that follows [`POLICY`] would refuse to.

use super::scrape::{Scrape, ServerScrape};
use crate::cluster::geo::GeoClusterStatus;
use crate::cluster::hierarchy::HierarchyStatus;
use crate::cluster::{ClusterStatus, Problem, Severity, Verdict, problems, verdict};
use crate::observe::{SlowEntry, shown_key};
use crate::readiness::{Readiness, Verdict as Ready};
use crate::runtime::Told;
use execute::conflicts::{self, Cause};
use serde::Serialize;
use std::collections::BTreeMap;
use txn::Blob;

/// The page.
pub const PAGE: &str = include_str!("page.html");
/// Its script.
pub const SCRIPT: &str = include_str!("page.js");
/// Its looks.
pub const STYLE: &str = include_str!("page.css");
/// What a browser may load for the page, and who may show it in a frame.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                          img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// So many of the newest slow calls are shown.
pub const SLOW_SHOWN: usize = 20;
/// Of so many commands, those that took most time together.
const COMMANDS_SHOWN: usize = 12;
/// So many conflicts between transactions are shown.
const CONFLICTS_SHOWN: usize = 12;
/// More of `maxmemory` than this share is a problem.
const MEMORY_NEAR: f64 = 0.9;

/// What the page shows.
#[derive(Serialize)]
pub struct Console {
    version: &'static str,
    /// Milliseconds since the process started to serve.
    uptime_ms: u64,
    ready: bool,
    /// `None` while the data is being loaded.
    server: Option<Server>,
    verdict: Verdict,
    problems: Vec<Problem>,
    cluster: Option<ClusterStatus>,
    /// The validators as this node sees them, with what they have decided for its own clients.
    hierarchy: Option<HierarchyStatus>,
    geo: Option<GeoClusterStatus>,
}

#[derive(Serialize)]
struct Server {
    engine: &'static str,
    appendfsync: String,
    keys: u64,
    keys_that_expire: u64,
    clients: usize,
    clients_blocked: usize,
    /// Milliseconds since this node last knew to have executed everything that was agreed.
    staleness_ms: Option<u64>,
    grows: Grows,
    memory: Memory,
    commands: Vec<Command>,
    slow: Vec<Slow>,
    conflicts: Vec<Conflict>,
    causes: BTreeMap<&'static str, u64>,
}

/// What only grows, but at CONFIG RESETSTAT.
#[derive(Serialize)]
struct Grows {
    commands: u64,
    committed: u64,
    restarts: u64,
    suspensions: u64,
    input_bytes: u64,
    output_bytes: u64,
    hits: u64,
    misses: u64,
    expired: u64,
    evicted: u64,
    errors: u64,
    log_syncs: u64,
    log_syncs_s: f64,
}

/// In bytes.
#[derive(Serialize)]
struct Memory {
    data: u64,
    connections: u64,
    startup: u64,
    used: u64,
    resident: u64,
    /// `maxmemory`; 0 if there is none.
    limit: u64,
    log_since_checkpoint: u64,
    last_checkpoint: u64,
}

#[derive(Serialize)]
struct Command {
    name: &'static str,
    calls: u64,
    failed: u64,
    ns: u64,
    /// Of all calls since the start.
    p50_ns: u64,
    p99_ns: u64,
}

#[derive(Serialize)]
struct Slow {
    at_s: u64,
    us: u64,
    words: String,
    client: String,
}

/// Over what transactions wait for each other or start over, lately.
#[derive(Serialize)]
struct Conflict {
    /// Empty if it is not known, or none.
    key: String,
    cause: &'static str,
    /// The earlier transaction's procedure. Empty if it is not known.
    by: String,
    of: String,
    count: u64,
}

impl Console {
    /// What a page shows of what was collected.
    pub fn of(scrape: &Scrape, readiness: &Readiness, slow: Vec<SlowEntry>) -> Console {
        let server = scrape.server.as_ref();
        let cluster = server.and_then(|server| Some((*server.view.as_ref()?.status).clone()));
        let mut problems = cluster.as_ref().map(problems).unwrap_or_default();
        let told = server.and_then(|server| Some(server.site.as_ref()?.told()));
        problems.extend(told.as_ref().map(Told::own_problems).unwrap_or_default());
        let (hierarchy, geo) = match told {
            Some(Told::Hierarchy(status)) => (Some(status), None),
            Some(Told::Geo(status)) => (None, Some(status)),
            None => (None, None),
        };
        problems.extend(server.map(own_problems).unwrap_or_default());
        if let Ready::NotReady(reason) = &readiness.verdict {
            problems.push(problem(
                Severity::Critical,
                "not-ready",
                format!("This node is not ready: {reason}."),
                "Send clients to another one meanwhile. docs/runbook.md tells more under OrdoNotReady.",
            ));
        }
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
        Console {
            version: env!("CARGO_PKG_VERSION"),
            uptime_ms: server.map_or(0, |server| server.uptime_ms),
            ready: scrape.is_ready,
            server: server.map(|server| Server::of(server, scrape.process.resident_bytes, slow)),
            verdict: verdict(&problems),
            problems,
            cluster,
            hierarchy,
            geo,
        }
    }
}

fn problem(severity: Severity, kind: &'static str, cause: String, next: &str) -> Problem {
    Problem { severity, kind, nodes: Vec::new(), partitions: Vec::new(), cause, next: next.to_owned() }
}

/// What is wrong with the server itself.
fn own_problems(server: &ServerScrape) -> Vec<Problem> {
    let node = &server.runtime.node;
    let mut problems = Vec::new();
    if let Some(text) = &node.refused {
        problems.push(problem(
            Severity::Critical,
            "refuses",
            format!("Requests are refused: {text}."),
            "docs/runbook.md tells what to do under OrdoRequestsRefused.",
        ));
    }
    if let Some(error) = &node.checkpoint_error {
        problems.push(problem(
            Severity::Warning,
            "checkpoint",
            format!("The last checkpoint could not be written: {error}."),
            "The log grows, and a start takes longer, until one can: look at the disk.",
        ));
    }
    let (used, limit) = (server.memory.used, server.config.maxmemory);
    if limit > 0 && used as f64 > limit as f64 * MEMORY_NEAR {
        problems.push(problem(
            Severity::Warning,
            "memory",
            format!("{} % of maxmemory is used.", used * 100 / limit),
            match server.config.maxmemory_policy.as_str() {
                crate::evict::NO_EVICTION => "Beyond it, writes are refused: raise maxmemory, or delete.",
                _ => "Beyond it, keys are evicted: raise maxmemory if they are needed.",
            },
        ));
    }
    problems
}

impl Server {
    fn of(server: &ServerScrape, resident: u64, slow: Vec<SlowEntry>) -> Server {
        let node = &server.runtime.node;
        let engines = server.runtime.engines.iter().map(|(_, status)| status);
        let syncs = &server.runtime.log_syncs;
        Server {
            engine: server.runtime.engine_name,
            appendfsync: server.runtime.fsync.to_string(),
            keys: server.keyspace.keys,
            keys_that_expire: server.keyspace.expires,
            clients: server.clients.connected,
            clients_blocked: server.clients.blocked,
            staleness_ms: server.view.as_ref().map(|view| view.staleness_ms),
            grows: Grows {
                commands: server.totals.commands,
                committed: node.final_committed.0,
                restarts: engines.clone().map(|status| status.restarts).sum(),
                suspensions: engines.map(|status| status.suspensions).sum(),
                input_bytes: server.totals.input_bytes,
                output_bytes: server.totals.output_bytes,
                hits: server.totals.hits,
                misses: server.totals.misses,
                expired: server.totals.expired_keys,
                evicted: server.evicted_keys,
                errors: server.totals.errors,
                log_syncs: syncs.buckets.iter().sum(),
                log_syncs_s: syncs.sum_s,
            },
            memory: Memory {
                data: server.memory.dataset,
                connections: server.memory.buffers,
                startup: server.memory.startup,
                used: server.memory.used,
                resident,
                limit: server.config.maxmemory,
                log_since_checkpoint: node.log_bytes_since_checkpoint,
                last_checkpoint: node.last_checkpoint_bytes,
            },
            commands: commands(server),
            slow: slow.into_iter().map(Slow::of).collect(),
            conflicts: server.conflicts.lately.iter().take(CONFLICTS_SHOWN).map(Conflict::of).collect(),
            causes: Cause::ALL.iter().map(|cause| cause.name()).zip(server.conflicts.causes).collect(),
        }
    }
}

fn commands(server: &ServerScrape) -> Vec<Command> {
    let quantile = |count: &crate::observe::CallCount, share: f64| {
        count.histogram.as_ref().map_or(0, |histogram| histogram.value_at_quantile(share))
    };
    let mut commands: Vec<Command> = server
        .calls
        .iter()
        .map(|(number, count)| Command {
            name: number.command().name,
            calls: count.calls,
            failed: count.failed,
            ns: count.ns,
            p50_ns: quantile(count, 0.5),
            p99_ns: quantile(count, 0.99),
        })
        .collect();
    commands.sort_by_key(|command| std::cmp::Reverse(command.ns));
    commands.truncate(COMMANDS_SHOWN);
    commands
}

impl Conflict {
    fn of((conflict, count): &(conflicts::Conflict, u64)) -> Conflict {
        Conflict {
            key: conflict.key.as_ref().map(shown_key).unwrap_or_default(),
            cause: conflict.cause.name(),
            by: conflict.by.as_deref().unwrap_or_default().to_owned(),
            of: conflict.of.to_string(),
            count: *count,
        }
    }
}

impl Slow {
    fn of(entry: SlowEntry) -> Slow {
        let text = |word: &Blob| String::from_utf8_lossy(word).into_owned();
        let words: Vec<String> = entry.words.iter().map(text).collect();
        Slow { at_s: entry.at_s, us: entry.us, words: words.join(" "), client: entry.address.to_string() }
    }
}
