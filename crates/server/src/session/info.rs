//! INFO: Redis's sections and field names, and a section `ordo` of our own.

use super::cluster::topology::{Topology, split_address};
use super::keyspace::Keyspace;
use super::{ThreadContext, geo, hierarchy};
use crate::cluster::ClusterView;
use crate::config::foreign::Parameter;
use crate::observe::shown_key;
use crate::stats::{ClientStats, CpuStats, InterestStats, MemoryStats, ScriptStats, system_bytes};
use execute::conflicts::Cause;
use redis_surface::REDIS_VERSION;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use txn::{Args, Blob, Reply};

/// How many conflicts INFO tells of.
const CONFLICTS_MAX: usize = 16;

type Section = (&'static str, bool, fn(&ThreadContext<'_>, &mut String));

/// Name, whether INFO without arguments shows it, and its text.
const SECTIONS: &[Section] = &[
    ("Server", true, server),
    ("Clients", true, clients),
    ("Memory", true, memory),
    ("Persistence", true, persistence),
    ("Stats", true, stats),
    ("Replication", true, replication),
    ("CPU", true, cpu),
    ("Modules", true, |_, _| {}),
    ("Commandstats", false, commandstats),
    ("Errorstats", true, errorstats),
    ("Latencystats", false, latencystats),
    ("Cluster", true, |thread, out| {
        let enabled = thread.shared.runtime.cluster_view().is_some();
        field(out, "cluster_enabled", u8::from(enabled));
    }),
    (ORDO_CLUSTER, true, |thread, out| {
        if let Some(view) = thread.shared.runtime.cluster_view() {
            ordo_cluster(&view, out);
        }
    }),
    (HIERARCHY, true, hierarchy::section),
    (GEO, true, geo::section),
    (CONFLICTS, false, |_, _| {}),
    ("Keyspace", true, keyspace),
    ("Ordo", true, ordo),
];

/// The section that only a node of a cluster has.
const ORDO_CLUSTER: &str = "Ordo_cluster";
/// The section that only a node of a hierarchy has.
const HIERARCHY: &str = "Hierarchy";

/// The section that only a site that commits alone has.
const GEO: &str = "Geo";

/// The section that tells less to a user who may not read all keys.
const CONFLICTS: &str = "Conflicts";

/// INFO [section ...].
pub(super) fn command(thread: &ThreadContext<'_>, argv: &Args, reads_all_keys: bool) -> Reply {
    let wanted: Vec<String> =
        argv[1..].iter().map(|word| String::from_utf8_lossy(word).to_ascii_lowercase()).collect();
    let shows = |name: &str, by_default: bool| {
        if wanted.is_empty() {
            return by_default;
        }
        wanted.iter().any(|word| match word.as_str() {
            "all" | "everything" => true,
            "default" => by_default,
            word => word.eq_ignore_ascii_case(name),
        })
    };
    let protocol = thread.shared.runtime.certified_protocol();
    let mut text = String::new();
    for (name, by_default, write) in SECTIONS {
        let missing = match *name {
            ORDO_CLUSTER => thread.shared.runtime.cluster_view().is_none(),
            HIERARCHY => protocol != Some("hierarchy"),
            GEO => protocol != Some("pcsi"),
            _ => false,
        };
        if shows(name, *by_default) && !missing {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {name}\r\n");
            write(thread, &mut text);
            if *name == CONFLICTS {
                conflicts(thread, reads_all_keys, &mut text);
            }
        }
    }
    Reply::Verbatim("txt", Blob::from(text))
}

pub(super) fn field(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(out, "{name}:{value}\r\n");
}

fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "K", "M", "G", "T"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes}B") } else { format!("{value:.2}{}", UNITS[unit]) }
}

/// What Redis calls the kind of server.
pub(super) fn mode(thread: &ThreadContext<'_>) -> &'static str {
    match thread.shared.runtime.cluster_view() {
        Some(_) => "cluster",
        None => "standalone",
    }
}

fn server(thread: &ThreadContext<'_>, out: &mut String) {
    let uptime_s = thread.now_ms.saturating_sub(thread.shared.started_ms) / 1000;
    field(out, "redis_version", REDIS_VERSION);
    // Ordo is no build of Redis: exporters take these for labels.
    field(out, "redis_git_sha1", "00000000");
    field(out, "redis_git_dirty", 0);
    field(out, "redis_build_id", env!("CARGO_PKG_VERSION"));
    field(out, "server_name", "ordo");
    field(out, "ordo_version", env!("CARGO_PKG_VERSION"));
    field(out, "redis_mode", mode(thread));
    field(out, "os", format_args!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
    field(out, "arch_bits", usize::BITS);
    field(out, "monotonic_clock", "POSIX clock_gettime");
    field(out, "multiplexing_api", "epoll");
    field(out, "process_supervised", "no");
    field(out, "process_id", std::process::id());
    field(out, "run_id", &thread.shared.run_id);
    field(out, "tcp_port", thread.shared.address.port());
    field(out, "server_time_usec", thread.clocks.wall_ms() * 1000);
    field(out, "uptime_in_seconds", uptime_s);
    field(out, "uptime_in_days", uptime_s / 86_400);
    let hz = Parameter::named("hz").map_or("", |hz| hz.get(thread.config));
    field(out, "hz", hz);
    field(out, "configured_hz", hz);
    // Redis's clock of uses: seconds, in 24 bits.
    field(out, "lru_clock", (thread.now_ms / 1000) & 0xff_ffff);
    let executable = std::env::current_exe().unwrap_or_default();
    field(out, "executable", executable.display());
    let file = thread.config.file.as_ref().map(|file| file.display().to_string());
    field(out, "config_file", file.unwrap_or_default());
    field(out, "io_threads_active", u64::from(thread.shared.io_threads > 1));
}

fn clients(thread: &ThreadContext<'_>, out: &mut String) {
    let clients = ClientStats::of(thread.shared);
    field(out, "connected_clients", clients.connected);
    field(out, "cluster_connections", 0);
    field(out, "maxclients", thread.config.maxclients);
    field(out, "client_recent_max_input_buffer", clients.input_bytes_max);
    field(out, "client_recent_max_output_buffer", clients.output_bytes_max);
    field(out, "blocked_clients", clients.blocked);
    field(out, "tracking_clients", clients.tracking);
    field(out, "pubsub_clients", clients.subscribed);
    field(out, "watching_clients", clients.watching);
    field(out, "clients_in_timeout_table", 0);
    field(out, "total_blocking_keys", clients.blocking_keys);
    field(out, "total_blocking_keys_on_nokey", clients.blocking_keys_on_nokey);
}

fn memory(thread: &ThreadContext<'_>, out: &mut String) {
    let MemoryStats { used, resident, peak, startup, buffers, dataset } = MemoryStats::of(thread.shared);
    let share = |part: u64, whole: u64| format!("{:.2}%", part as f64 * 100.0 / whole.max(1) as f64);
    let ratio = |part: u64, whole: u64| format!("{:.2}", part as f64 / whole.max(1) as f64);
    let total = system_bytes();
    let counted = ScriptStats::of(thread.shared);
    for (name, bytes) in [
        ("used_memory", used),
        ("used_memory_rss", resident),
        ("used_memory_peak", peak),
        ("total_system_memory", total),
        ("maxmemory", thread.config.maxmemory),
    ] {
        field(out, name, bytes);
        field(out, &format!("{name}_human"), human(bytes));
    }
    field(out, "used_memory_peak_perc", share(used, peak));
    field(out, "used_memory_overhead", startup + buffers);
    field(out, "used_memory_startup", startup);
    field(out, "used_memory_dataset", dataset);
    field(out, "used_memory_dataset_perc", share(dataset, used));
    field(out, "maxmemory_policy", &thread.config.maxmemory_policy);
    // The allocator hands on what it has: what is resident is what it holds.
    field(out, "allocator_allocated", used);
    field(out, "allocator_active", resident);
    field(out, "allocator_resident", resident);
    field(out, "allocator_frag_ratio", ratio(resident, used));
    field(out, "allocator_frag_bytes", resident.saturating_sub(used));
    field(out, "allocator_rss_ratio", ratio(resident, resident));
    field(out, "mem_fragmentation_ratio", ratio(resident, used));
    field(out, "mem_fragmentation_bytes", resident.saturating_sub(used));
    field(out, "mem_clients_normal", thread.shared.clients.memory_bytes());
    field(out, "mem_clients_pushes", thread.shared.pushes.total_bytes());
    // The oldest moment that ORDO.AT can read; 0 if no past is kept, and also if it begins with the empty
    // database.
    field(out, "history_oldest_ms", thread.shared.runtime.oldest_past_ms().unwrap_or(0));
    field(out, "mem_allocator", "mimalloc");
    field(out, "number_of_cached_scripts", counted.scripts);
    field(out, "number_of_functions", counted.functions);
    field(out, "number_of_libraries", counted.libraries);
    field(out, "used_memory_scripts", counted.bytes);
    field(out, "used_memory_scripts_human", human(counted.bytes));
    zeros(
        out,
        &[
            "allocator_rss_bytes",
            "rss_overhead_bytes",
            "used_memory_lua",
            "used_memory_vm_eval",
            "used_memory_vm_functions",
            "used_memory_vm_total",
            "mem_not_counted_for_evict",
            "mem_replication_backlog",
            "mem_total_replication_buffers",
            "mem_clients_slaves",
            "mem_cluster_links",
            "mem_aof_buffer",
            "active_defrag_running",
            "lazyfree_pending_objects",
            "lazyfreed_objects",
        ],
    );
}

/// Fields that exporters read, of what Redis has and Ordo has not.
fn zeros(out: &mut String, names: &[&str]) {
    for name in names {
        field(out, name, 0);
    }
}

fn persistence(thread: &ThreadContext<'_>, out: &mut String) {
    let status = thread.shared.runtime.status();
    let node = status.node;
    let save = if node.checkpoint_error.is_none() { "ok" } else { "err" };
    let write = if node.refused.is_none() { "ok" } else { "err" };
    field(out, "loading", 0);
    // As in Redis: data is served while newer data comes.
    let is_behind = thread.shared.runtime.certified_is_behind();
    field(out, "async_loading", u8::from(is_behind));
    field(out, "rdb_changes_since_last_save", status.changes_since_checkpoint);
    field(out, "rdb_bgsave_in_progress", u8::from(node.checkpoint_in_progress));
    field(out, "rdb_last_save_time", thread.shared.last_save_s());
    field(out, "rdb_last_bgsave_status", save);
    field(out, "rdb_saves", node.checkpoints);
    field(out, "aof_enabled", 1);
    field(out, "aof_rewrite_in_progress", 0);
    field(out, "aof_last_bgrewrite_status", save);
    field(out, "aof_last_write_status", write);
    field(out, "aof_current_size", node.log_bytes_since_checkpoint);
    field(out, "rdb_last_bgsave_time_sec", -1);
    field(out, "rdb_current_bgsave_time_sec", -1);
    zeros(
        out,
        &[
            "current_fork_perc",
            "current_save_keys_processed",
            "current_save_keys_total",
            "rdb_last_cow_size",
            "rdb_last_load_keys_expired",
            "rdb_last_load_keys_loaded",
            "aof_rewrite_scheduled",
            "module_fork_in_progress",
        ],
    );
}

fn stats(thread: &ThreadContext<'_>, out: &mut String) {
    let totals = thread.shared.totals();
    let rates = thread.shared.rates();
    field(out, "total_connections_received", totals.connections);
    field(out, "total_commands_processed", totals.commands);
    field(out, "instantaneous_ops_per_sec", rates.commands);
    field(out, "total_net_input_bytes", totals.input_bytes);
    field(out, "total_net_output_bytes", totals.output_bytes);
    field(out, "instantaneous_input_kbps", format_args!("{:.2}", rates.input_bytes as f64 / 1024.0));
    field(out, "instantaneous_output_kbps", format_args!("{:.2}", rates.output_bytes as f64 / 1024.0));
    field(out, "rejected_connections", totals.rejected);
    field(out, "evicted_clients", thread.shared.clients.evicted());
    field(out, "client_query_buffer_limit_disconnections", totals.query_limit_closed);
    field(out, "client_output_buffer_limit_disconnections", totals.output_limit_closed);
    field(out, "total_error_replies", totals.errors);
    for (reason, count) in thread.shared.acl.denied() {
        let name = if reason == "command" { "cmd" } else { reason };
        field(out, &format!("acl_access_denied_{name}"), count);
    }
    field(out, "expired_keys", totals.expired_keys);
    field(out, "keyspace_hits", totals.hits);
    field(out, "keyspace_misses", totals.misses);
    field(out, "evicted_keys", thread.shared.evicted.load(Ordering::Relaxed));
    let interests = InterestStats::of(thread.shared);
    field(out, "pubsub_channels", interests.channels);
    field(out, "pubsub_patterns", interests.patterns);
    field(out, "pubsubshard_channels", interests.shard_channels);
    field(out, "tracking_total_keys", interests.tracked_keys);
    field(out, "tracking_total_items", interests.tracked_items);
    field(out, "tracking_total_prefixes", interests.tracked_prefixes);
    zeros(
        out,
        &[
            "sync_full",
            "sync_partial_ok",
            "sync_partial_err",
            "expired_stale_perc",
            "expired_time_cap_reached_count",
            "latest_fork_usec",
            "total_forks",
            "migrate_cached_sockets",
            "slave_expires_tracked_keys",
            "active_defrag_hits",
            "active_defrag_misses",
            "active_defrag_key_hits",
            "active_defrag_key_misses",
            "total_net_repl_input_bytes",
            "total_net_repl_output_bytes",
            "unexpected_error_replies",
        ],
    );
}

/// `master`, or what Redis calls a node of a cluster that leads nothing.
pub(super) fn role(thread: &ThreadContext<'_>, follower: &'static str) -> &'static str {
    match thread.shared.runtime.cluster_view() {
        Some(view) if Topology::of(&view).primary_of(view.me).is_some() => follower,
        _ => "master",
    }
}

fn replication(thread: &ThreadContext<'_>, out: &mut String) {
    match thread.shared.runtime.cluster_view() {
        Some(view) => places(&view, out),
        None => {
            field(out, "role", "master");
            field(out, "connected_slaves", 0);
        }
    }
    field(out, "master_failover_state", "no-failover");
    field(out, "master_replid", &thread.shared.run_id);
    field(out, "master_repl_offset", 0);
    field(out, "master_replid2", "0".repeat(40));
    field(out, "second_repl_offset", -1);
    zeros(
        out,
        &[
            "repl_backlog_active",
            "repl_backlog_size",
            "repl_backlog_first_byte_offset",
            "repl_backlog_histlen",
        ],
    );
}

/// ROLE. Positions of the order stand where Redis has offsets: nobody lags behind a node in bytes.
pub(super) fn role_command(thread: &ThreadContext<'_>) -> Reply {
    let text = |text: &str| Reply::bulk(text.as_bytes());
    let Some(view) = thread.shared.runtime.cluster_view() else {
        return Reply::Array(vec![text("master"), Reply::Integer(0), Reply::Array(Vec::new())]);
    };
    let topology = Topology::of(&view);
    let address_of = |node| {
        let entry = view.map.nodes.get(&node);
        split_address(entry.map_or("", |entry| entry.client_address.as_str()))
    };
    if let Some(primary) = topology.primary_of(view.me) {
        let (host, port) = address_of(primary);
        let state = match topology.reachable(primary) {
            true => "connected",
            false => "connect",
        };
        return Reply::Array(vec![
            text("slave"),
            text(host),
            Reply::Integer(port.into()),
            text(state),
            Reply::Integer(0),
        ]);
    }
    let followers = topology
        .nodes()
        .filter(|&(node, _)| topology.primary_of(node) == Some(view.me) && topology.reachable(node));
    let followers = followers.map(|(node, _)| {
        let (host, port) = address_of(node);
        Reply::Array(vec![text(host), text(&port.to_string()), text("0")])
    });
    Reply::Array(vec![text("master"), Reply::Integer(0), Reply::Array(followers.collect())])
}

/// Whom a node of a cluster follows, and who follows it, as CLUSTER NODES has it.
fn places(view: &ClusterView, out: &mut String) {
    let topology = Topology::of(view);
    if let Some(primary) = topology.primary_of(view.me) {
        let entry = view.map.nodes.get(&primary);
        let address = entry.map_or("", |entry| &entry.client_address);
        let (host, port) = split_address(address);
        let link = if topology.reachable(primary) { "up" } else { "down" };
        field(out, "role", "slave");
        field(out, "master_host", host);
        field(out, "master_port", port);
        field(out, "master_link_status", link);
    } else {
        field(out, "role", "master");
    }
    let followers = topology
        .nodes()
        .filter(|&(node, _)| topology.primary_of(node) == Some(view.me) && topology.reachable(node));
    field(out, "connected_slaves", followers.count());
}

fn cpu(_: &ThreadContext<'_>, out: &mut String) {
    let CpuStats { user_s, system_s } = CpuStats::of_process();
    field(out, "used_cpu_sys", format_args!("{system_s:.6}"));
    field(out, "used_cpu_user", format_args!("{user_s:.6}"));
    zeros(out, &["used_cpu_sys_children", "used_cpu_user_children"]);
}

fn commandstats(thread: &ThreadContext<'_>, out: &mut String) {
    for (number, count) in thread.shared.call_totals().iter() {
        let us = count.ns / 1000;
        let us_per_call = match count.calls {
            0 => 0.0,
            calls => count.ns as f64 / 1000.0 / calls as f64,
        };
        field(
            out,
            &format!("cmdstat_{}", number.command().name),
            format_args!(
                "calls={},usec={us},usec_per_call={us_per_call:.2},rejected_calls={},failed_calls={}",
                count.calls, count.rejected, count.failed
            ),
        );
    }
}

fn latencystats(thread: &ThreadContext<'_>, out: &mut String) {
    let percentiles = &thread.config.latency_tracking_info_percentiles.0;
    for (number, count) in thread.shared.call_totals().iter() {
        let Some(histogram) = &count.histogram else {
            continue;
        };
        let shown = percentiles.iter().map(|&percentile| {
            let ns = histogram.value_at_percentile(percentile);
            format!("p{percentile}={:.3}", ns as f64 / 1000.0)
        });
        field(
            out,
            &format!("latency_percentiles_usec_{}", number.command().name),
            shown.collect::<Vec<_>>().join(","),
        );
    }
}

fn errorstats(thread: &ThreadContext<'_>, out: &mut String) {
    for (code, count) in thread.shared.error_totals() {
        // A script's code may hold what has a meaning in INFO; Redis replaces it in the same way.
        let code = code.replace(['#', ':', '\r', '\n'], "_");
        field(out, &format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn keyspace(thread: &ThreadContext<'_>, out: &mut String) {
    let Keyspace { keys, expires, ttl_ms_average } = Keyspace::at(&thread.shared.runtime);
    if keys > 0 {
        let told = format_args!("keys={keys},expires={expires},avg_ttl={ttl_ms_average}");
        field(out, "db0", told);
    }
}

fn ordo(thread: &ThreadContext<'_>, out: &mut String) {
    let status = thread.shared.runtime.status();
    let (node, engine) = (&status.node, &status.engine);
    let totals = thread.shared.totals();
    field(out, "engine", status.engine_name);
    field(out, "io_threads", thread.shared.io_threads);
    field(out, "workers", status.workers);
    field(out, "appendfsync", status.fsync);
    field(out, "delivered_position", node.delivered);
    // One journal for all partitions: what it counts are records.
    field(out, "log_written_record", status.log.last);
    field(out, "log_synced_record", status.log.durable);
    field(out, "confirmed_position", node.confirmed);
    field(out, "final_committed_position", node.final_committed);
    field(out, "checkpoint_epoch", node.checkpoint.0);
    field(out, "epoch_time_ms", thread.shared.runtime.engine().view().final_time_ms());
    field(out, "batches", node.epochs);
    field(out, "in_flight_bytes", node.in_flight_bytes);
    field(out, "syncs", node.syncs);
    field(out, "write_failures", node.write_failures);
    field(out, "sync_failures", node.sync_failures);
    field(out, "log_bytes_since_checkpoint", node.log_bytes_since_checkpoint);
    field(out, "restarts", engine.restarts);
    field(out, "suspensions", engine.suspensions);
    field(out, "speculated_before_confirmation", engine.speculated_before_confirmation);
    field(out, "speculation_window", engine.window);
    field(out, "parked", engine.parked);
    field(out, "split", engine.split);
    field(out, "snapshot_reads", totals.snapshot_reads);
    field(out, "ordered_requests", totals.submitted);
}

/// Over which keys transactions wait for each other or start over.
fn conflicts(thread: &ThreadContext<'_>, shows_keys: bool, out: &mut String) {
    let conflicts = thread.shared.runtime.conflicts();
    for (cause, count) in Cause::ALL.iter().zip(conflicts.causes) {
        field(out, &format!("conflicts_{}", cause.name()), count);
    }
    for (place, (conflict, count)) in conflicts.lately.iter().take(CONFLICTS_MAX).enumerate() {
        let cause = conflict.cause.name();
        let by = conflict.by.as_deref().unwrap_or_default();
        // A key comes last, because it may hold anything but the end of a line.
        let key = conflict.key.as_ref().filter(|_| shows_keys).map(shown_key).unwrap_or_default();
        let told = format_args!("count={count},cause={cause},by={by},of={},key={key}", conflict.of);
        field(out, &format!("conflict{place}"), told);
    }
}

fn ordo_cluster(view: &ClusterView, out: &mut String) {
    let led = view.leaders.values().filter(|&&leader| leader == view.me);
    field(out, "cluster", &view.status.cluster);
    field(out, "node", view.me.0);
    field(out, "map_version", view.map.version);
    field(out, "level", view.map.level);
    let own = view.map.nodes.get(&view.me);
    field(out, "level_known", own.map_or(0, |entry| entry.level));
    field(out, "epoch", view.epoch);
    field(out, "staleness_ms", view.staleness_ms);
    field(out, "partitions", view.map.partitions.len());
    field(out, "partitions_kept", view.map.kept_by(view.me).count());
    field(out, "partitions_led", led.count());
    field(out, "nodes", view.map.nodes.len());
    field(out, "nodes_unreachable", view.unreachable.len());
    let nodes = &view.status.nodes;
    let outs = nodes.iter().filter(|node| node.out.is_some());
    field(out, "nodes_out", outs.count());
    let own = nodes.iter().find(|node| node.id == view.me.0);
    let cause = own.and_then(|own| own.out.as_deref()).unwrap_or("");
    // A line of INFO ends where its text does.
    field(out, "out", cause.replace(['\r', '\n'], " "));
    let counters = view.counters;
    field(out, "epochs_confirmed", counters.epochs);
    field(out, "epochs_retracted", counters.retracted);
    field(out, "delivery", counters.delivery);
    field(out, "opt_batches", counters.opt_batches);
    field(out, "reorders", counters.reorders);
    field(out, "epochs_ahead", counters.epochs_ahead);
    field(out, "overlap_ms", counters.overlap_ms);
    field(out, "transactions", counters.transactions);
    field(out, "speculated_before_confirmation", counters.speculated_before_confirmation);
    field(out, "restarts", counters.restarts);
    field(out, "sibling_rounds", counters.sibling_rounds);
    field(out, "sibling_messages", counters.sibling_frames);
    field(out, "sibling_notes", counters.sibling_notes);
    field(out, "feeds_lapsed", counters.feeds_lapsed);
    field(out, "backlog_bytes", counters.backlog_bytes);
    field(out, "backlog_full", counters.backlog_full);
    field(out, "states_compared", counters.states_compared);
    field(out, "states_differing", counters.states_differing);
    field(out, "states_epoch", counters.states_epoch);
    field(out, "messages_sent", counters.messages_sent);
    field(out, "message_bytes_sent", counters.message_bytes_sent);
    field(out, "messages_received", counters.messages_received);
    field(out, "message_bytes_received", counters.message_bytes_received);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_a_cluster_has_the_role_that_cluster_nodes_shows() {
        let mut view = crate::cluster::tests::view();
        let told = |view: &ClusterView| {
            let mut out = String::new();
            places(view, &mut out);
            out
        };
        // It leads partition 0; node d, of its zone, keeps nothing that it leads.
        let followers = "role:master\r\nconnected_slaves:";
        assert!(told(&view).starts_with(followers), "{}", told(&view));
        view.leaders = view.map.partition_ids().map(|partition| (partition, txn::NodeId(2))).collect();
        let want = "role:slave\r\nmaster_host:10.0.0.2\r\nmaster_port:6380\r\nmaster_link_status:up\r\n\
                    connected_slaves:0\r\n";
        assert_eq!(told(&view), want);
        view.me = txn::NodeId(2);
        assert_eq!(told(&view), "role:master\r\nconnected_slaves:3\r\n");
        view.unreachable = vec![txn::NodeId(3)];
        assert_eq!(told(&view), "role:master\r\nconnected_slaves:2\r\n");
    }

    #[test]
    fn a_node_of_a_cluster_tells_what_it_leads_and_how_old_its_reads_are() {
        let mut out = String::new();
        ordo_cluster(&crate::cluster::tests::view(), &mut out);
        let wanted = "cluster:test\r\nnode:1\r\nmap_version:1\r\nlevel:1\r\nlevel_known:0\r\nepoch:100\r\n\
                      staleness_ms:12\r\npartitions:3\r\n\
                      partitions_kept:2\r\npartitions_led:1\r\nnodes:4\r\nnodes_unreachable:0\r\n\
                      nodes_out:0\r\nout:\r\n\
                      epochs_confirmed:90\r\nepochs_retracted:1\r\ndelivery:mimox\r\nopt_batches:70\r\n\
                      reorders:2\r\nepochs_ahead:60\r\noverlap_ms:180\r\n\
                      transactions:4000\r\n\
                      speculated_before_confirmation:3000\r\nrestarts:5\r\nsibling_rounds:50\r\n\
                      sibling_messages:40\r\nsibling_notes:900\r\nfeeds_lapsed:6\r\nbacklog_bytes:512\r\nbacklog_full:3\r\n\
                      states_compared:80\r\nstates_differing:2\r\nstates_epoch:64\r\nmessages_sent:700\r\n\
                      message_bytes_sent:80000\r\nmessages_received:600\r\n\
                      message_bytes_received:70000\r\n";
        assert_eq!(out, wanted);
    }
}
