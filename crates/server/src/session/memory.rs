//! MEMORY: what takes how much of it.

use super::ThreadContext;
use super::keyspace;
use crate::stats::MemoryStats;
use redis_surface::RECORD_BYTES;
use redis_surface::table::MemoryCommand;
use txn::{Blob, Reply};

/// MEMORY and those of its subcommands that tell of the server.
pub(super) fn command(thread: &ThreadContext<'_>, command: MemoryCommand) -> Reply {
    match command {
        MemoryCommand::Doctor => text(doctor(thread)),
        MemoryCommand::MallocStats => text(of_process()),
        MemoryCommand::Purge => Reply::OK,
        MemoryCommand::Stats => stats(thread),
    }
}

fn text(text: String) -> Reply {
    Reply::Verbatim("txt", Blob::from(text))
}

fn stats(thread: &ThreadContext<'_>) -> Reply {
    let MemoryStats { used, resident, peak, startup, buffers, dataset: data } =
        MemoryStats::of(thread.shared);
    let keys = keyspace::keys(&thread.shared.runtime);
    let percent = |part: u64, whole: u64| match whole {
        0 => 0.0,
        whole => part as f64 * 100.0 / whole as f64,
    };
    let number = |value: u64| Reply::Integer(value.cast_signed());
    let fields = [
        ("peak.allocated", number(peak)),
        ("total.allocated", number(used)),
        ("startup.allocated", number(startup)),
        ("replication.backlog", number(0)),
        ("clients.slaves", number(0)),
        ("clients.normal", number(buffers)),
        ("cluster.links", number(0)),
        ("aof.buffer", number(thread.shared.runtime.status().node.in_flight_bytes)),
        ("lua.caches", number(0)),
        ("functions.caches", number(0)),
        ("db.0", database(keys, &number)),
        ("overhead.total", number(startup + buffers)),
        ("keys.count", number(keys)),
        ("keys.bytes-per-key", number(data.checked_div(keys).unwrap_or(0))),
        ("dataset.bytes", number(data)),
        ("dataset.percentage", Reply::Double(percent(data, used))),
        ("peak.percentage", Reply::Double(percent(used, peak))),
        ("allocator.resident", number(resident)),
        ("fragmentation", Reply::Double(resident as f64 / used.max(1) as f64)),
    ];
    let fields = fields.map(|(name, value)| (Reply::bulk(name), value));
    Reply::Map(fields.into())
}

/// What the main tables of the one database take beside its keys and values: Ordo counts them with the
/// dataset.
fn database(keys: u64, number: &impl Fn(u64) -> Reply) -> Reply {
    Reply::Map(vec![
        (Reply::bulk("overhead.hashtable.main"), number(keys * RECORD_BYTES as u64)),
        (Reply::bulk("overhead.hashtable.expires"), number(0)),
        (Reply::bulk("overhead.hashtable.slot-to-keys"), number(0)),
    ])
}

fn doctor(thread: &ThreadContext<'_>) -> String {
    let MemoryStats { used, resident, peak, buffers, .. } = MemoryStats::of(thread.shared);
    let limit = thread.config.maxmemory;
    let mut found = Vec::new();
    if limit > 0 && used > limit {
        found.push(format!(
            "Memory is short: the process has {used} bytes and maxmemory allows {limit}. What takes more \
             is refused. Delete keys, or raise maxmemory."
        ));
    } else if limit > 0 && used / 9 > limit / 10 {
        found.push(format!(
            "Memory will soon be short: the process has {used} bytes of the {limit} that maxmemory allows."
        ));
    }
    if peak / 3 > resident / 2 {
        found.push(format!(
            "The process has had {peak} bytes once, and uses {used} now: large values, or many versions \
             during a long read, were there for a while."
        ));
    }
    if buffers / 4 > used / 10 {
        found.push(format!(
            "Clients' buffers take {buffers} bytes: CLIENT LIST tells whose (qbuf, omem), \
             client-output-buffer-limit bounds them for each client, and maxmemory-clients for all."
        ));
    }
    match found.is_empty() {
        true => {
            "Memory is as it should be: nothing was found that takes more of it than it has to.\n".to_owned()
        }
        false => {
            let found = found.iter().map(|line| format!("- {line}\n"));
            std::iter::once("This was found:\n\n".to_owned()).chain(found).collect()
        }
    }
}

/// What the system says of the memory of this process.
fn of_process() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|line| line.starts_with("Vm") || line.starts_with("Rss"));
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    format!("allocator: mimalloc, which keeps no statistics; of the process the system says:\n{lines}")
}
