//! What operators look at: the slow log, latency, memory, what clients send.

use super::ConnectionCommand as C;
use super::*;
use crate::commands::{keys, pure};
use txn::{Blob, Reply};

const fn server(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Server, run)
}
const fn slow_log(name: &'static str, arity: i16, command: SlowLogCommand) -> Command {
    server(name, arity, Run::Connection(C::SlowLog(command))).admin().always()
}
const fn latency(name: &'static str, arity: i16, command: LatencyCommand) -> Command {
    server(name, arity, Run::Connection(C::Latency(command))).admin().noscript().always()
}
const fn memory(name: &'static str, command: MemoryCommand) -> Command {
    server(name, 2, Run::Connection(C::Memory(command)))
}

const SLOW_LOG: &[Command] = &[
    slow_log("slowlog|get", -2, SlowLogCommand::Get).about(
        "2.2.12",
        "O(N) in the number of entries",
        "Replies the newest entries of the slow log.",
    ),
    server("slowlog|help", 2, Run::Pure(slow_log_help)).always().about("6.2.0", "O(1)", "Explains SLOWLOG."),
    slow_log("slowlog|len", 2, SlowLogCommand::Len).about(
        "2.2.12",
        "O(1)",
        "Counts the entries of the slow log.",
    ),
    slow_log("slowlog|reset", 2, SlowLogCommand::Reset).about(
        "2.2.12",
        "O(N) in the number of entries",
        "Forgets the entries of the slow log.",
    ),
];

fn slow_log_help(_: &[Blob]) -> Reply {
    pure::help(
        "SLOWLOG",
        &[
            "GET [<count>]",
            "    The newest <count> entries (10 unless it is told, all of them for -1), the newest first. \
             An entry has:",
            "    its number, its time, the microseconds that it took, its words, its client's address and \
             name.",
            "LEN",
            "    The number of entries.",
            "RESET",
            "    Forgets all entries.",
        ],
    )
}

const LATENCY: &[Command] = &[
    latency("latency|doctor", 2, LatencyCommand::Doctor).about(
        "2.8.13",
        "O(1)",
        "Tells in words which events took long, and what to do.",
    ),
    latency("latency|graph", 3, LatencyCommand::Graph).about(
        "2.8.13",
        "O(1)",
        "Draws how long the events of a kind took.",
    ),
    server("latency|help", 2, Run::Pure(latency_help)).always().about("2.8.13", "O(1)", "Explains LATENCY."),
    latency("latency|histogram", -2, LatencyCommand::Histogram).about(
        "7.0.0",
        "O(N) in the number of commands",
        "Replies how long the calls of commands took.",
    ),
    latency("latency|history", 3, LatencyCommand::History).about(
        "2.8.13",
        "O(1)",
        "Replies how long the events of a kind took.",
    ),
    latency("latency|latest", 2, LatencyCommand::Latest).about(
        "2.8.13",
        "O(1)",
        "Replies how long the newest event of each kind took.",
    ),
    latency("latency|reset", -2, LatencyCommand::Reset).about("2.8.13", "O(1)", "Forgets events."),
];

fn latency_help(_: &[Blob]) -> Reply {
    pure::help(
        "LATENCY",
        &[
            "DOCTOR",
            "    Which events took long, and what to do.",
            "GRAPH <event>",
            "    A drawing of how long the events of a kind took.",
            "HISTORY <event>",
            "    How long the events of a kind took, and when that was.",
            "LATEST",
            "    The newest event of each kind.",
            "RESET [<event> ...]",
            "    Forgets the events of these kinds, or of all.",
            "HISTOGRAM [<command> ...]",
            "    How many calls of these commands, or of all, took at most how many microseconds.",
        ],
    )
}

const MEMORY: &[Command] = &[
    memory("memory|doctor", MemoryCommand::Doctor).about(
        "4.0.0",
        "O(1)",
        "Tells in words how memory is used.",
    ),
    server("memory|help", 2, Run::Pure(memory_help)).always().about("4.0.0", "O(1)", "Explains MEMORY."),
    memory("memory|malloc-stats", MemoryCommand::MallocStats).about(
        "4.0.0",
        "O(1)",
        "Tells what the system says of the memory of the process.",
    ),
    memory("memory|purge", MemoryCommand::Purge).about(
        "4.0.0",
        "O(1)",
        "Nothing: the allocator gives back by itself what it does not need.",
    ),
    memory("memory|stats", MemoryCommand::Stats).about(
        "4.0.0",
        "O(N) in the number of connections",
        "Tells what takes how much memory.",
    ),
    server("memory|usage", -3, data!(keys::memory_usage)).readonly().keys(RO_SECOND).about(
        "4.0.0",
        "O(1)",
        "Estimates the bytes that a key takes.",
    ),
];

fn memory_help(_: &[Blob]) -> Reply {
    pure::help(
        "MEMORY",
        &[
            "DOCTOR",
            "    How memory is used, in words.",
            "MALLOC-STATS",
            "    What the system says of the memory of the process.",
            "PURGE",
            "    Nothing: the allocator gives back by itself what it does not need.",
            "STATS",
            "    What takes how much memory.",
            "USAGE <key> [SAMPLES <count>]",
            "    About how many bytes a key and its value take.",
        ],
    )
}

pub(super) const COMMANDS: &[Command] = &[
    server("latency", -2, Run::Container(LATENCY)).about("2.8.13", "", "Tells what took long."),
    server("memory", -2, Run::Container(MEMORY)).about("4.0.0", "", "Tells about memory."),
    server("monitor", 1, Run::Connection(C::Monitor)).admin().noscript().always().about(
        "1.0.0",
        "",
        "Shows what the clients of this node send.",
    ),
    server("slowlog", -2, Run::Container(SLOW_LOG)).about("2.2.12", "", "Tells which calls took long."),
];
