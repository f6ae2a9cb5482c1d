//! What of Redis's commands is there: the page docs/redis-compatibility.md, made of the command table so that
//! it cannot drift. A test compares the two.

use crate::table::{ABSENT, COMMANDS, Command, Flags};
use crate::{REDIS_VERSION, certified};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Commands whose effect or reply differs from Redis's, and how. Families under the name of one of them are
/// told at each.
pub const DIFFERENCES: &[(&str, &str)] = &[
    ("bgrewriteaof", "starts a checkpoint: the log is shortened by checkpoints"),
    ("bgsave", "starts a checkpoint"),
    (
        "blpop brpop blmove brpoplpush blmpop bzpopmin bzpopmax bzmpop",
        "who waits is served by a transaction of its own behind the push: whoever pushes may see the \
         element for a moment",
    ),
    ("client|no-touch", "taken, and without effect"),
    (
        "client|pause",
        "holds what this node's clients send, but not CLIENT, ORDO.BACKUP, ORDO.CHANGES, ORDO.CLUSTER and \
         SHUTDOWN; keys expire meanwhile. WRITE holds every script that is not called by EVAL_RO, \
         EVALSHA_RO or FCALL_RO, and not PFCOUNT, which writes nothing",
    ),
    (
        "client|tracking",
        "BCAST is refused where nodes keep only some of the partitions: see \
         [clusters](cluster.md#zones-with-several-nodes)",
    ),
    (
        "cluster|failover cluster|forget cluster|reset cluster|meet cluster|replicate cluster|addslots \
         cluster|addslotsrange cluster|delslots cluster|delslotsrange cluster|flushslots cluster|setslot \
         cluster|bumpepoch cluster|saveconfig cluster|set-config-epoch",
        "refused: `ordo admin` changes clusters",
    ),
    ("cluster|links", "always empty: `ordo admin status` and INFO tell of the links between nodes"),
    (
        "cluster|slots cluster|shards cluster|nodes",
        "tell where keys are executed: every node takes every command for all keys",
    ),
    ("auth hello", "wait up to `auth-delay-max-ms` after failures from the same address ([acl.md](acl.md))"),
    ("config|get", "`requirepass` is told as `#` and the SHA-256 of the password, which is not kept"),
    (
        "config|set",
        "knows Ordo's settings (`ordo serve --help` lists them). Redis's other parameters change nothing: \
         those that Redis changes while it runs are taken, told by CONFIG GET, and forgotten by the next \
         start. `appendonly` and `save` are taken and stay as they are: there is always a log. The classes \
         `m` and `n` of \
         `notify-keyspace-events` have no events. `proto-max-bulk-len` is for the words of commands: what \
         APPEND, SETRANGE and SETBIT make has at most 512 MB, as every replica must say the same of it",
    ),
    ("config|rewrite", "the file is TOML, or in the form of redis.conf; its comments and its order stay"),
    (
        "eval evalsha eval_ro evalsha_ro",
        "limits of steps (what it executes, and what its calls look at, change and reply) and memory end a \
         script, and roll it back; it can't print addresses or see a clock that moves; any keys of any \
         slot. `redis.log` checks its arguments and writes nothing: a script may run several times, on \
         every replica, before it \
         counts once. What each node would answer differently is not allowed: INFO, LASTSAVE, SLOWLOG, \
         PUBSUB, CLUSTER, READONLY, READWRITE, and MEMORY but for USAGE; use them outside. Scripts that \
         only read run beside the order, as many at once as there are workers, in turns of 10 ms: 16 of \
         them (or as many \
         as there are workers); further ones wait for the end of one",
    ),
    (
        "exec",
        "commands of the connection itself (CLIENT, CONFIG, INFO, ...) run when all others have, and are \
         held against what the user may do by then. ACL LOAD, CLIENT TRACKING and CONFIG SET requirepass \
         are refused when they are queued. SUBSCRIBE and its kin confirm each name in EXEC's array, which \
         is longer then than the block",
    ),
    ("fcall fcall_ro", "as scripts; what the functions of a library share does not outlive a call"),
    (
        "incrbyfloat hincrbyfloat",
        "exact where both numbers have at most 20 digits before the point and 17 behind it; sums beyond \
         10^37, and of numbers with more digits behind the point, have 64 bits, where Redis has 80",
    ),
    (
        "info",
        "has Ordo's facts under Redis's names where they mean the same. In `commandstats` and \
         `latencystats` a call lasts from its admission to its reply, the order and the disk included and \
         waiting for a key not; a MULTI block's time is EXEC's, and its commands have equal shares of it; \
         what scripts and functions call is not counted. `keyspace` counts the keys of the partitions that \
         this node keeps; `expires` and `avg_ttl` are exact up to 8,192 keys of a partition, and estimated \
         from as many beyond; scripts, functions and libraries are counted among 16,384 records at most. \
         `keyspace_hits` and `keyspace_misses` count what commands, blocks and scripts look for that only \
         read, at the node of their client. What Redis has and Ordo has not (forks, replication buffers, \
         defragmentation) is 0",
    ),
    (
        "latency|doctor latency|graph latency|history latency|latest latency|reset",
        "the events are `command`, `fast-command`, `aof-fsync-always` (`aof-fsync` where nobody waits for \
         it) and `checkpoint`",
    ),
    ("latency|histogram", "calls are measured as in `INFO commandstats`"),
    (
        "hscan sscan zscan",
        "a collection that Redis 7.2 would hold packed (OBJECT ENCODING tells) comes whole, as there",
    ),
    ("lolwut", "draws something else"),
    ("mget", "an error if the values have more than 512 MiB together"),
    (
        "memory|doctor memory|malloc-stats memory|stats",
        "tell of the memory of the process: the allocator keeps no statistics",
    ),
    ("memory|purge", "without effect: the allocator gives back by itself what it does not need"),
    (
        "monitor",
        "shows what the clients of this node send, without what scripts and functions call; a line ends \
         after 256 KiB",
    ),
    ("object|encoding", "tells what Redis would use for such a value: Ordo's own forms have no such names"),
    (
        "object|freq object|idletime",
        "when a key was used is known for eviction only, to each node by itself: it is not told. The idle \
         time is 0, and FREQ says that no LFU policy is selected, under every policy",
    ),
    ("pfcount", "writes nothing: no estimate is kept in the value"),
    (
        "publish spublish",
        "ordered like a write, and sent once final; the reply counts the listeners of this node, and is 0 \
         in scripts. Whom messages of scripts reach in [clusters](cluster.md#zones-with-several-nodes), \
         and in which order those of different channels come, is told there",
    ),
    (
        "role",
        "offsets are 0. In a cluster it tells of the node as CLUSTER NODES does: a node that leads no \
         partition is a replica",
    ),
    ("save", "writes a checkpoint; other connections are served meanwhile"),
    ("select", "there is one database, 0"),
    (
        "slowlog|get",
        "calls are measured as in `INFO commandstats`; a slow MULTI block is one entry, EXEC with the \
         names of the block's commands",
    ),
    (
        "script|kill function|kill",
        "stops reads beside the order: EVAL_RO, EVALSHA_RO and FCALL_RO whose keys are of one partition, \
         with no unanswered write of their connection before them. What is ordered ends at its limits, and \
         UNKILLABLE says so",
    ),
    (
        "wait",
        "at once: what was answered is in the logs of a majority, so one replica of three is certain (0 on \
         a node by itself, and where sites commit alone: there use ORDO.WAIT)",
    ),
    (
        "waitaof",
        "at once under `appendfsync always`: the log is synced at a majority. Otherwise this node's is \
         synced for the asking, and 0 is said of the others",
    ),
    ("watch", "FLUSHALL and FLUSHDB are a change of every watched key, also of one that was not there"),
    ("xadd xtrim", "`~` trims to the very number"),
    (
        "zscore zmscore zincrby zrange",
        "scores in RESP2 have the fewest digits that tell them, as in Redis 7.2",
    ),
];

/// What runs against Ordo, unmodified, and what of it is different there.
const CLIENTS: &str = "\n## Client libraries, applications and tools\n\n\
`tests/clients/run` runs redis-py, node-redis, ioredis, go-redis, Jedis, Lettuce and redis-rs against a \
server and, with their cluster \
clients, against three nodes: pools, pipelines, transactions with WATCH races, scripts and functions, \
streams with groups, commands that \
wait, messages, invalidations, iterators and errors, in RESP2 and RESP3. `tests/applications/run` runs \
Celery, RQ, BullMQ, Asynq and \
Redisson's locks end to end, also while a node of three is killed and started again. `tests/tools/run` \
runs redis-cli in its modes and \
redis-benchmark with all of its tests. Their versions are pinned beside them. What is different:\n\n\
| who | what |\n|---|---|\n\
| every cluster client | it is never sent elsewhere (MOVED, ASK). It is not needed, as any node answers \
for all keys; it finds another \
node when its own is gone, as do ordinary clients that are given several addresses |\n\
| cluster clients that ask all primaries and add up what they say (DBSIZE, KEYS, SCAN) | each node has all \
keys, so each key is there \
once for every primary. Ask one node |\n\
| cluster clients, commands with keys of several slots | some refuse them, others send a part to each \
node, which is no longer one transaction. An \
ordinary client sends them whole |\n\
| cluster clients that read from replicas | a node that leads any partition is shown as a primary and \
nowhere as a replica, as clients know a \
node by one role. A `READONLY` connection to any node reads what that node has |\n\
| clients that keep copies (CLIENT TRACKING) | redis-py and Jedis do so with servers that say they are \
Redis 7.4 or later, and Ordo says 7.2. The \
others do. A writer may have its reply before the copies of others are called back |\n\
| whoever takes jobs off a list with BLPOP, BRPOP or their like | as with Redis, what was taken is lost if \
the connection breaks before the reply \
is there. Celery's transport does so |\n\
| redis-cli | `--rdb`, `--functions-rdb` and `--replica` want SYNC; `--hotkeys` wants a policy of LFU; \
`--cluster set-timeout` wants a setting that is \
`election_timeout_ms` here |\n";

/// The page, with the tests of Redis's own suite that fail: lines `unit|test|reason`.
pub fn page(expected_failures: &str) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "# Commands of Redis\n\n\
         Ordo tells clients that it is Redis {REDIS_VERSION}. This page is made of its command table: \
         `cargo run --package ordo-redis --example compatibility > docs/redis-compatibility.md`. (A test \
         fails when it is old.)\n\n\
         Everywhere: keys of different slots may meet in any command, block or script; a MULTI block, a \
         script and a function are one transaction that happens at one time, in the order of all of them; \
         `TIME` and expiry go by the order's clock, which stands still inside a transaction.\n\n\
         A command without a remark does what Redis's does. *Differs* says how it does not.\n\n\
         | command | since | |\n|---|---|---|\n"
    );
    for command in commands_by_name() {
        let name = command.name.to_uppercase().replace('|', " ");
        let remark = match difference(command.name) {
            Some(how) => format!("differs: {how}"),
            None if name.starts_with("ORDO.") => "Ordo's own".to_owned(),
            None => String::new(),
        };
        let _ = writeln!(page, "| {name} | {} | {remark} |", command.documentation().since);
    }
    page.push_str(
        "\n## Where transactions are certified\n\n\
         Where the `cluster.toml` says `protocol = \"hierarchy\"` ([hierarchy.md](hierarchy.md)) or \
         `protocol = \"pcsi\"` ([geo.md](geo.md)), \
         transactions are certified rather than ordered. Commands do what they do elsewhere, `WATCH` and \
         scripts included, with these exceptions. Entries expire by the clock of the node that looks, and \
         are removed soon after that, by the clock of the node that leads their partition or of the site \
         that resolves their key. DBSIZE counts the \
         keys that the client's node has, and nobody certifies that: it may be older than what others \
         were told, and inside a transaction older or newer than the snapshot. It counts expired keys until they are removed. Keyspace events \
         are not sent. With `protocol = \"pcsi\"` transactions read snapshots, and only writes conflict: \
         [geo.md](geo.md#what-snapshots-allow-write-skew). `ORDO.IDEMPOTENT` is \
         refused there: nobody removes the records of ids. `ORDO.SESSION` and `ORDO.WAIT` are served only \
         there ([geo.md](geo.md#what-is-promised)).\n\n\
         | command | why it is refused, and what instead |\n|---|---|\n",
    );
    for (why, names) in refused_where_certified(&commands_by_name()) {
        let _ = writeln!(page, "| {} | {why} |", names.join(", "));
    }
    page.push_str("\n## Absent\n\n| command | why, and what instead |\n|---|---|\n");
    for (names, why) in ABSENT {
        let names: Vec<String> = names.split(' ').map(|name| name.to_uppercase().replace('|', " ")).collect();
        let _ = writeln!(page, "| {} | {why} |", names.join(", "));
    }
    page.push_str(CLIENTS);
    page.push_str(
        "\n## Redis's own tests\n\n`tests/redis-suite/run` runs Redis 7.0's Tcl suite, unmodified, against \
         a server. These of its tests fail, or may:\n\n| unit | test | why |\n|---|---|---|\n",
    );
    for line in expected_failures.lines() {
        let cells: Vec<&str> = line.splitn(3, '|').collect();
        if let [unit, test, why] = cells[..] {
            let test = test.replace('|', "\\|");
            let _ = match unit.strip_prefix('~') {
                Some(unit) => writeln!(page, "| {unit} | {test} | now and then: {why} |"),
                None => {
                    let unit = unit.trim_start_matches('!');
                    writeln!(page, "| {unit} | {test} | {why} |")
                }
            };
        }
    }
    page
}

fn commands_by_name() -> Vec<&'static Command> {
    let mut commands: Vec<&Command> = COMMANDS
        .iter()
        .flat_map(|command| std::iter::once(command).chain(command.subcommands()))
        .filter(|command| command.subcommands().is_empty() || command.name == "command")
        .collect();
    commands.sort_by_key(|command| command.name);
    commands
}

/// The commands that are refused where transactions are certified, by the reason.
fn refused_where_certified(commands: &[&Command]) -> BTreeMap<&'static str, Vec<String>> {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for command in commands {
        let shown = command.name.to_uppercase().replace('|', " ");
        if let Some(why) = certified::refusal(command) {
            by_reason.entry(why).or_default().push(shown);
        } else if command.is(Flags::BLOCKING) {
            let shown = match command.name {
                "xread" | "xreadgroup" => format!("{shown} with BLOCK"),
                _ => format!("{shown} outside a block"),
            };
            by_reason.entry(certified::WAITS).or_default().push(shown);
        }
    }
    by_reason
}

fn difference(name: &str) -> Option<&'static str> {
    let found = DIFFERENCES.iter().find(|(names, _)| names.split(' ').any(|known| known == name));
    found.map(|(_, how)| *how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_of_commands_that_there_are() {
        let all = COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands()));
        let all: Vec<&str> = all.map(|command| command.name).collect();
        for (names, _) in DIFFERENCES {
            for name in names.split(' ') {
                assert!(all.contains(&name), "{name}");
            }
        }
    }

    #[test]
    fn the_page_is_up_to_date() {
        let page = page(include_str!("../../../tests/redis-suite/expected-failures"));
        assert!(
            page == include_str!("../../../docs/redis-compatibility.md"),
            "run cargo run --package ordo-redis --example compatibility > docs/redis-compatibility.md"
        );
    }
}
