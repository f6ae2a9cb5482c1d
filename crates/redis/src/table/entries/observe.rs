//! What operators look at: the slow log, latency, memory, what clients send.

use super::ConnectionCommand as C;
use super::*;
use crate::commands::keys;

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
    slow_log("slowlog|get", -2, SlowLogCommand::Get),
    server("slowlog|help", 2, help!("SLOWLOG")).always(),
    slow_log("slowlog|len", 2, SlowLogCommand::Len),
    slow_log("slowlog|reset", 2, SlowLogCommand::Reset),
];

const LATENCY: &[Command] = &[
    latency("latency|doctor", 2, LatencyCommand::Doctor),
    latency("latency|graph", 3, LatencyCommand::Graph),
    server("latency|help", 2, help!("LATENCY")).always(),
    latency("latency|histogram", -2, LatencyCommand::Histogram),
    latency("latency|history", 3, LatencyCommand::History),
    latency("latency|latest", 2, LatencyCommand::Latest),
    latency("latency|reset", -2, LatencyCommand::Reset),
];

const MEMORY: &[Command] = &[
    memory("memory|doctor", MemoryCommand::Doctor),
    server("memory|help", 2, help!("MEMORY")).always(),
    memory("memory|malloc-stats", MemoryCommand::MallocStats),
    memory("memory|purge", MemoryCommand::Purge),
    memory("memory|stats", MemoryCommand::Stats),
    server("memory|usage", -3, data!(keys::memory_usage)).readonly().keys(RO_SECOND),
];

pub(super) const COMMANDS: &[Command] = &[
    server("latency", -2, Run::Container(LATENCY)),
    server("memory", -2, Run::Container(MEMORY)),
    server("monitor", 1, Run::Connection(C::Monitor)).admin().noscript().always(),
    server("slowlog", -2, Run::Container(SLOW_LOG)),
];
