//! The metrics of every server that serves clients.

use super::{Writer, cluster, geo, hierarchy, seconds};
use crate::http::scrape::ServerScrape;
use crate::observe::{BOUNDS_NS, CallCounts, DurationCounts};
use execute::conflicts::Cause;
use prometheus_client::registry::Unit;
use std::fmt;

pub fn encode(server: &ServerScrape, out: &mut Writer<'_>) -> fmt::Result {
    out.gauge_in("ordo_uptime", Unit::Seconds, "How long the server serves.", seconds(server.uptime_ms))?;
    clients(server, out)?;
    network(server, out)?;
    commands(server, out)?;
    memory(server, out)?;
    keyspace(server, out)?;
    subscriptions(server, out)?;
    engine(server, out)?;
    log(server, out)?;
    checkpoints(server, out)?;
    cluster::encode(server.view.as_deref(), out)?;
    hierarchy::encode(server.site.as_ref(), out)?;
    geo::encode(server.site.as_ref(), out)
}

fn clients(server: &ServerScrape, out: &mut Writer<'_>) -> fmt::Result {
    let (clients, totals) = (&server.clients, &server.totals);
    for (name, help, value) in [
        ("ordo_connected_clients", "Connections of clients.", clients.connected),
        ("ordo_blocked_clients", "Clients that wait for a key (BLPOP and the like).", clients.blocked),
        ("ordo_tracking_clients", "Clients that use CLIENT TRACKING.", clients.tracking),
        ("ordo_subscribed_clients", "Clients that have subscribed to channels.", clients.subscribed),
        ("ordo_watching_clients", "Clients that watch keys (WATCH).", clients.watching),
        ("ordo_blocking_keys", "Keys that clients wait for.", clients.blocking_keys),
    ] {
        out.gauge(name, help, value)?;
    }
    out.gauge("ordo_max_clients", "Connections that may be open at once.", server.config.maxclients)?;
    out.gauge_in(
        "ordo_client_input_buffer_max",
        Unit::Bytes,
        "The most that one client has sent and that was not executed.",
        clients.input_bytes_max,
    )?;
    out.gauge_in(
        "ordo_client_output_buffer_max",
        Unit::Bytes,
        "The most that one client has not read.",
        clients.output_bytes_max,
    )?;
    out.counter("ordo_connections_received", "Connections that were accepted.", totals.connections)?;
    out.counter(
        "ordo_connections_rejected",
        "Connections that were refused: too many, or by protected mode.",
        totals.rejected,
    )?;
    out.counters(
        "ordo_connections_closed",
        None,
        "Connections that the server closed, by the limit that they exceeded.",
        [
            ("query_buffer", totals.query_limit_closed),
            ("output_buffer", totals.output_limit_closed),
            ("memory", server.evicted_clients),
        ]
        .map(|(limit, count)| ([("limit", limit)], count)),
    )
}

fn network(server: &ServerScrape, out: &mut Writer<'_>) -> fmt::Result {
    let totals = &server.totals;
    out.counter_in("ordo_client_received", Unit::Bytes, "What clients have sent.", totals.input_bytes)?;
    out.counter_in("ordo_client_sent", Unit::Bytes, "What was sent to clients.", totals.output_bytes)
}

fn commands(server: &ServerScrape, out: &mut Writer<'_>) -> fmt::Result {
    let totals = &server.totals;
    let calls = || server.calls.iter().map(|(number, count)| ([("command", number.command().name)], count));
    out.counter("ordo_commands_processed", "Commands that were processed.", totals.commands)?;
    out.counters(
        "ordo_command_calls",
        None,
        "Calls that were answered, by command.",
        calls().map(|(command, count)| (command, count.calls)),
    )?;
    out.counters(
        "ordo_command",
        Some(Unit::Seconds),
        "How long calls took from their admission to their reply, by command.",
        calls().map(|(command, count)| (command, count.ns as f64 / 1e9)),
    )?;
    out.counters(
        "ordo_command_failed_calls",
        None,
        "Calls that were answered by an error, by command.",
        calls().map(|(command, count)| (command, count.failed)),
    )?;
    out.counters(
        "ordo_command_rejected_calls",
        None,
        "Calls that were refused before they ran, by command.",
        calls().map(|(command, count)| (command, count.rejected)),
    )?;
    let (sum_s, buckets) = call_durations(&server.calls);
    out.durations(
        "ordo_command_duration",
        "How long calls of all commands took from their admission to their reply, where latency-tracking is \
         on.",
        sum_s,
        &buckets,
    )?;
    out.counter("ordo_error_replies", "Error replies.", totals.errors)?;
    let errors = server.errors.iter().map(|(code, &count)| ([("code", &**code)], count));
    out.counters("ordo_errors", None, "Error replies, by the first word of the error.", errors)?;
    let denied = server.acl_denied.iter().map(|&(reason, count)| ([("reason", reason)], count));
    out.counters("ordo_acl_denied", None, "What users were denied, by what it was.", denied)?;
    out.counter(
        "ordo_slow_calls",
        "Calls that took longer than slowlog-log-slower-than.",
        server.slow_calls,
    )?;
    out.gauge("ordo_slow_log_entries", "Calls that the slow log keeps.", server.slow_log_entries)?;
    out.counter(
        "ordo_snapshot_reads",
        "Reads that were answered at a snapshot, without the order.",
        totals.snapshot_reads,
    )?;
    out.counter(
        "ordo_ordered_requests",
        "Commands, blocks and scripts that were submitted to the order.",
        totals.submitted,
    )?;
    out.counter(
        "ordo_order_stalls",
        "How often an I/O thread had to wait because the order took no more requests.",
        totals.stalls,
    )
}

/// How long calls took in sum, and how many of them ended in each bucket.
fn call_durations(calls: &CallCounts) -> (f64, Vec<(f64, u64)>) {
    let mut counts = DurationCounts::default();
    for histogram in calls.iter().filter_map(|(_, count)| count.histogram.as_ref()) {
        for step in histogram.iter_recorded() {
            let (ns, count) = (step.value_iterated_to(), step.count_at_value());
            counts.buckets[BOUNDS_NS.partition_point(|&bound_ns| bound_ns < ns)] += count;
            counts.sum_s += ns as f64 / 1e9 * count as f64;
        }
    }
    (counts.sum_s, buckets(&counts))
}

/// The buckets as [`Writer::durations`] takes them.
fn buckets(counts: &DurationCounts) -> Vec<(f64, u64)> {
    let bounds = BOUNDS_NS.iter().map(|&ns| ns as f64 / 1e9).chain([f64::INFINITY]);
    bounds.zip(counts.buckets).collect()
}

fn memory(server: &ServerScrape, out: &mut Writer<'_>) -> fmt::Result {
    let memory = &server.memory;
    out.gauge_in(
        "ordo_memory_used",
        Unit::Bytes,
        "What was asked of the allocator and not given back.",
        memory.used,
    )?;
    out.gauge_in("ordo_memory_peak", Unit::Bytes, "The most that the process has had.", memory.peak)?;
    out.gauge_in(
        "ordo_memory_limit",
        Unit::Bytes,
        "maxmemory: above it entries are evicted or writes refused. 0: no limit.",
        server.config.maxmemory,
    )?;
    out.gauges(
        "ordo_memory",
        Some(Unit::Bytes),
        "What was asked of the allocator, by its use. The uses add up to ordo_memory_used_bytes.",
        [("startup", memory.startup), ("dataset", memory.dataset), ("client_buffers", memory.buffers)]
            .map(|(kind, bytes)| ([("type", kind)], bytes)),
    )?;
    out.gauge_in("ordo_memory_clients", Unit::Bytes, "What connections take.", server.client_bytes)?;
    out.gauge_in(
        "ordo_memory_pushes",
        Unit::Bytes,
        "What waits to be pushed to subscribers and other listeners.",
        server.push_bytes,
    )?;
    out.gauge_in(
        "ordo_memory_scripts",
        Unit::Bytes,
        "What scripts and functions take.",
        server.scripts.bytes,
    )?;
    out.gauge_in("ordo_machine_memory", Unit::Bytes, "The memory of the machine.", server.machine_bytes)
}

fn keyspace(server: &ServerScrape, out: &mut Writer<'_>) -> fmt::Result {
    let (keyspace, totals) = (&server.keyspace, &server.totals);
    out.gauge("ordo_keys", "Keys that this node keeps.", keyspace.keys)?;
    out.gauge(
        "ordo_keys_with_expiry",
        "Keys that this node keeps with a time to live: estimated from a sample where there are many.",
        keyspace.expires,
    )?;
    out.gauge_in(
        "ordo_key_ttl_average",
        Unit::Seconds,
        "How long keys with a time to live still have, on average over a sample.",
        seconds(keyspace.ttl_ms_average),
    )?;
    out.counter("ordo_keyspace_hits", "Keys that reads at snapshots looked for and found.", totals.hits)?;
    out.counter(
        "ordo_keyspace_misses",
        "Keys that reads at snapshots looked for and did not find.",
        totals.misses,
    )?;
    out.counter(
        "ordo_expired_keys",
        "Keys that were removed because they had expired.",
        totals.expired_keys,
    )?;
    out.counter("ordo_evicted_keys", "Keys that were removed at maxmemory.", server.evicted_keys)?;
    out.gauge("ordo_scripts", "Scripts that are kept.", server.scripts.scripts)?;
    out.gauge("ordo_functions", "Functions that are kept.", server.scripts.functions)
}

fn subscriptions(server: &ServerScrape, out: &mut Writer<'_>) -> fmt::Result {
    let interests = &server.interests;
    out.gauges(
        "ordo_pubsub_channels",
        None,
        "What clients have subscribed to, by its kind.",
        [
            ("channel", interests.channels),
            ("pattern", interests.patterns),
            ("shard_channel", interests.shard_channels),
        ]
        .map(|(kind, count)| ([("kind", kind)], count)),
    )?;
    out.gauge("ordo_tracked_keys", "Keys that are remembered for CLIENT TRACKING.", interests.tracked_keys)
}

fn engine(server: &ServerScrape, out: &mut Writer<'_>) -> fmt::Result {
    let engines = &server.runtime.engines;
    for (name, help, value) in ENGINE_COUNTERS {
        let values = engines.iter().map(|(partition, engine)| ([("partition", partition.0)], value(engine)));
        out.counters(name, None, help, values)?;
    }
    for (name, help, value) in ENGINE_GAUGES {
        let values = engines.iter().map(|(partition, engine)| ([("partition", partition.0)], value(engine)));
        out.gauges(name, None, help, values)?;
    }
    let causes = Cause::ALL.iter().zip(server.conflicts.causes);
    out.counters(
        "ordo_conflicts",
        None,
        "Waits of transactions for each other and restarts, by why (about).",
        causes.map(|(cause, count)| ([("cause", cause.name())], count)),
    )?;
    out.gauge("ordo_workers", "Threads that execute transactions.", server.runtime.workers)?;
    out.gauge_in(
        "ordo_in_flight",
        Unit::Bytes,
        "Requests of this node's clients that are not known to be in the order.",
        server.runtime.node.in_flight_bytes,
    )?;
    out.gauge(
        "ordo_requests_refused",
        "1 while this node refuses all requests, else 0.",
        u32::from(server.runtime.node.refused.is_some()),
    )?;
    out.counter("ordo_epochs_confirmed", "Epochs that were confirmed.", server.runtime.node.epochs)?;
    out.gauge_in(
        "ordo_epoch_time",
        Unit::Seconds,
        "The time of the last final-committed epoch of the first partition, in seconds since 1970.",
        seconds(server.final_time_ms),
    )
}

/// A metric of an engine: its name, its help, and its value.
type OfEngine = (&'static str, &'static str, fn(&execute::Status) -> u64);

const ENGINE_COUNTERS: [OfEngine; 4] = [
    ("ordo_engine_restarts", "Incarnations of transactions that were thrown away.", |engine| engine.restarts),
    ("ordo_engine_suspensions", "Times that a transaction had to wait for another.", |engine| {
        engine.suspensions
    }),
    (
        "ordo_engine_speculated_before_confirmation",
        "Transactions that had been executed when their place in the order was confirmed.",
        |engine| engine.speculated_before_confirmation,
    ),
    ("ordo_engine_split", "Transactions that were executed fragment by fragment.", |engine| engine.split),
];

const ENGINE_GAUGES: [OfEngine; 6] = [
    ("ordo_engine_window", "The speculation window, in transactions. 0: the engine has none.", |engine| {
        engine.window
    }),
    ("ordo_engine_parked", "Transactions that wait for another one.", |engine| engine.parked),
    ("ordo_engine_ready", "Transactions that wait for a worker.", |engine| engine.ready),
    ("ordo_delivered_position", "The last position that the engine was given.", |engine| engine.delivered.0),
    ("ordo_confirmed_position", "The last confirmed position.", |engine| engine.confirmed.0),
    ("ordo_final_committed_position", "The last final-committed position.", |engine| {
        engine.final_committed.0
    }),
];

fn log(server: &ServerScrape, out: &mut Writer<'_>) -> fmt::Result {
    let (log, node) = (&server.runtime.log, &server.runtime.node);
    out.gauge("ordo_log_segments", "Segments of the log on the disk.", log.segments)?;
    out.gauge("ordo_log_written_record", "The last record of the log.", log.last.0)?;
    out.gauge("ordo_log_synced_record", "The last record that is known to be on the disk.", log.durable.0)?;
    out.gauge_in(
        "ordo_log_since_checkpoint",
        Unit::Bytes,
        "What the log has grown by since the last checkpoint was ordered.",
        node.log_bytes_since_checkpoint,
    )?;
    let syncs = &server.runtime.log_syncs;
    out.durations("ordo_log_sync_duration", "How long syncs of the log took.", syncs.sum_s, &buckets(syncs))?;
    out.counter("ordo_log_sync_failures", "Syncs of the log that failed.", node.sync_failures)?;
    out.counter("ordo_log_write_failures", "Writes of the log that failed.", node.write_failures)
}

fn checkpoints(server: &ServerScrape, out: &mut Writer<'_>) -> fmt::Result {
    let node = &server.runtime.node;
    out.gauge_in(
        "ordo_checkpoint_last_timestamp",
        Unit::Seconds,
        "When the last checkpoint was written, or else when the server started, in seconds since 1970.",
        server.last_save_s,
    )?;
    out.gauge_in(
        "ordo_checkpoint_last_size",
        Unit::Bytes,
        "The size of the last checkpoint. 0: this process has written none.",
        node.last_checkpoint_bytes,
    )?;
    out.gauge("ordo_checkpoint_epoch", "The epoch of the newest checkpoint.", node.checkpoint.0)?;
    out.gauge(
        "ordo_checkpoint_in_progress",
        "1 while a checkpoint is written, else 0.",
        u32::from(node.checkpoint_in_progress),
    )?;
    out.gauge(
        "ordo_checkpoint_failing",
        "1 if the last attempt to write a checkpoint failed, else 0.",
        u32::from(node.checkpoint_error.is_some()),
    )?;
    out.counter("ordo_checkpoints_written", "Checkpoints that were written.", node.checkpoints)?;
    out.counter(
        "ordo_checkpoint_failures",
        "Checkpoints that could not be written.",
        node.checkpoints_failed,
    )?;
    out.gauge(
        "ordo_changes_since_checkpoint",
        "Records written that no checkpoint has.",
        server.runtime.changes_since_checkpoint,
    )
}
