//! Parameters of Redis that change nothing here. Clients and tools set and read them all the same: CONFIG SET
//! takes them, CONFIG GET tells what was set last, and the next start forgets it.
//!
//! What Redis lets nobody change while it runs is told and not taken, and so is what would promise something
//! that Ordo does not do.

use super::Config;
use super::parameter::bytes_from_text;

/// Parameters that take yes or no, with Redis's defaults.
const FLAGS: &str = "\
activedefrag=no activerehashing=yes aof-rewrite-incremental-fsync=yes aof-timestamp-enabled=no \
aof-use-rdb-preamble=yes cluster-allow-pubsubshard-when-down=yes cluster-allow-reads-when-down=no \
cluster-allow-replica-migration=yes cluster-replica-no-failover=no cluster-require-full-coverage=yes \
crash-log-enabled=yes dynamic-hz=yes jemalloc-bg-thread=yes lazyfree-lazy-eviction=no \
lazyfree-lazy-expire=no lazyfree-lazy-server-del=no lazyfree-lazy-user-del=no lazyfree-lazy-user-flush=no \
no-appendfsync-on-rewrite=no rdb-del-sync-files=no rdb-save-incremental-fsync=yes rdbcompression=yes \
repl-disable-tcp-nodelay=no repl-diskless-sync=yes replica-announced=yes \
replica-ignore-disk-write-errors=no replica-ignore-maxmemory=yes replica-lazy-flush=no \
replica-read-only=yes replica-serve-stale-data=yes sanitize-dump-payload=no \
stop-writes-on-bgsave-error=yes";

/// The largest number of parameters that Redis keeps in 32 bits.
const INT_MAX: i64 = i32::MAX as i64;

/// Parameters that take numbers, with Redis's bounds.
const NUMBERS: &[(&str, i64, i64)] = &[
    (
        "auto-aof-rewrite-percentage=100 cluster-migration-barrier=1 \
         cluster-replica-validity-factor=10 hz=10 repl-diskless-sync-delay=5 \
         repl-diskless-sync-max-replicas=0 replica-priority=100",
        0,
        INT_MAX,
    ),
    ("repl-ping-replica-period=10 repl-timeout=60", 1, INT_MAX),
    (
        "cluster-node-timeout=15000 repl-backlog-ttl=3600 set-max-listpack-entries=128 \
         set-max-listpack-value=64",
        0,
        i64::MAX,
    ),
    ("active-defrag-max-scan-fields=1000", 1, i64::MAX),
    ("active-defrag-cycle-max=25 active-defrag-cycle-min=1", 1, 99),
    ("active-defrag-threshold-lower=10 active-defrag-threshold-upper=100", 0, 1000),
    ("active-expire-effort=1", 1, 10),
    ("maxmemory-eviction-tenacity=10", 0, 100),
];

/// Parameters that take numbers of bytes, also with units, and the least that Redis takes. CONFIG GET tells
/// them in bytes.
const MEMORY: &[(&str, i64)] = &[
    ("active-defrag-ignore-bytes=104857600 repl-backlog-size=1048576", 1),
    ("auto-aof-rewrite-min-size=67108864 cluster-link-sendbuf-limit=0", 0),
];

/// Parameters that take any text.
const TEXTS: &str = "\
propagation-error-behavior=ignore repl-diskless-load=disabled shutdown-on-sigint=default \
shutdown-on-sigterm=default";

/// Parameters that are told only.
const FIXED: &str = "\
always-show-logo=no aof-disable-auto-gc=no aof-load-truncated=yes aof_rewrite_cpulist= \
appenddirname=appendonlydir appendfilename=appendonly.aof bgsave_cpulist= bind-source-addr= bio_cpulist= \
cluster-announce-bus-port=0 cluster-announce-hostname= cluster-announce-ip= cluster-announce-port=0 \
cluster-announce-tls-port=0 cluster-config-file=nodes.conf cluster-port=0 \
cluster-preferred-endpoint-type=ip crash-memcheck-enabled=yes daemonize=no dbfilename=dump.rdb \
disable-thp=yes enable-debug-command=no enable-module-command=no enable-protected-configs=no \
ignore-warnings= io-threads-do-reads=no logfile= min-replicas-max-lag=10 min-replicas-to-write=0 \
oom-score-adj=no pidfile= rdbchecksum=yes replica-announce-ip= replica-announce-port=0 server_cpulist= \
set-proc-title=yes socket-mark-id=0 supervised=no syslog-enabled=no syslog-facility=local0 \
syslog-ident=redis tls-ciphers= tls-ciphersuites= tls-client-cert-file= tls-client-key-file= \
tls-dh-params-file= tls-prefer-server-ciphers=no tls-replication=no tls-session-cache-timeout=300 \
unixsocket= unixsocketperm=0";

/// Names that Redis has had for parameters, and still takes.
const OLD_NAMES: &[(&str, &str)] = &[
    ("cluster-slave-no-failover", "cluster-replica-no-failover"),
    ("cluster-slave-validity-factor", "cluster-replica-validity-factor"),
    ("min-slaves-max-lag", "min-replicas-max-lag"),
    ("min-slaves-to-write", "min-replicas-to-write"),
    ("repl-ping-slave-period", "repl-ping-replica-period"),
    ("slave-announce-ip", "replica-announce-ip"),
    ("slave-announce-port", "replica-announce-port"),
    ("slave-ignore-maxmemory", "replica-ignore-maxmemory"),
    ("slave-lazy-flush", "replica-lazy-flush"),
    ("slave-priority", "replica-priority"),
    ("slave-read-only", "replica-read-only"),
    ("slave-serve-stale-data", "replica-serve-stale-data"),
];

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Flag,
    /// From the first to the second.
    Number(i64, i64),
    /// This number of bytes, or more.
    Memory(i64),
    Text,
    Nothing,
}

/// A parameter of Redis without effect here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its present name.
    pub name: &'static str,
    default: &'static str,
    takes: Takes,
}

fn parameters() -> impl Iterator<Item = Parameter> {
    let others = [(FLAGS, Takes::Flag), (TEXTS, Takes::Text), (FIXED, Takes::Nothing)];
    let numbers = NUMBERS.iter();
    let numbers = numbers.map(|&(list, min, max)| (list, Takes::Number(min, max)));
    let memory = MEMORY.iter().map(|&(list, min)| (list, Takes::Memory(min)));
    let lists = others.into_iter().chain(numbers).chain(memory);
    lists.flat_map(|(list, takes)| {
        let words = list.split(' ').filter_map(|word| word.split_once('='));
        words.map(move |(name, default)| Parameter { name, default, takes })
    })
}

impl Parameter {
    /// The parameter of a name, in any case.
    pub fn named(name: &str) -> Option<Parameter> {
        let old = OLD_NAMES.iter().find(|(old, _)| old.eq_ignore_ascii_case(name));
        let name = old.map_or(name, |(_, new)| new);
        parameters().find(|parameter| parameter.name.eq_ignore_ascii_case(name))
    }

    /// All names, old ones too, with their parameters.
    pub fn all() -> impl Iterator<Item = (&'static str, Parameter)> {
        let old = OLD_NAMES.iter();
        let old = old.filter_map(|&(old, new)| Some((old, Parameter::named(new)?)));
        parameters().map(|parameter| (parameter.name, parameter)).chain(old)
    }

    /// Whether a text is the value that Redis has without being told.
    pub(super) fn is_default(self, text: &str) -> bool {
        let is_same_size = || bytes_from_text(text).is_some_and(|bytes| bytes.to_string() == self.default);
        text.eq_ignore_ascii_case(self.default) || (matches!(self.takes, Takes::Memory(_)) && is_same_size())
    }

    /// Whether nobody may set it to anything else.
    pub(super) fn is_fixed(self) -> bool {
        self.takes == Takes::Nothing
    }

    /// What was set last.
    pub fn get(self, config: &Config) -> &str {
        let remembered = config.remembered.get(self.name);
        remembered.map_or(self.default, String::as_str)
    }

    /// Remembers a value, or tells why Redis would not take it.
    pub fn set(self, config: &mut Config, text: &str) -> Result<(), String> {
        let kept = match self.takes {
            Takes::Flag => flag(text)?,
            Takes::Number(min, max) => {
                let number: Option<i64> = text.parse().ok();
                // "+5" and "05" are none, as in Redis.
                let number = number.filter(|number| number.to_string() == text);
                within(number.ok_or("argument couldn't be parsed into an integer")?, min, max)?
            }
            Takes::Memory(min) => {
                let bytes = bytes_from_text(text).ok_or("argument must be a memory value")?;
                within(i64::try_from(bytes).unwrap_or(-1), min, i64::MAX)?
            }
            Takes::Text => text.to_ascii_lowercase(),
            Takes::Nothing if text == self.default => text.to_owned(),
            Takes::Nothing => return Err("can't set immutable config".to_owned()),
        };
        config.remembered.insert(self.name, kept);
        Ok(())
    }
}

fn flag(text: &str) -> Result<String, String> {
    match text.to_ascii_lowercase() {
        flag if flag == "yes" || flag == "no" => Ok(flag),
        _ => Err("argument must be 'yes' or 'no'".to_owned()),
    }
}

fn within(number: i64, min: i64, max: i64) -> Result<String, String> {
    match (min..=max).contains(&number) {
        true => Ok(number.to_string()),
        false => Err(format!("argument must be between {min} and {max} inclusive")),
    }
}

/// Whether a name is that of a setting with one value here, of which CONFIG SET takes every value of Redis,
/// because Ordo does what tools ask for with it. The error tells why Redis would not take the value.
pub fn is_without_effect(name: &str, value: &str) -> Result<bool, String> {
    match name {
        "appendonly" => flag(value).map(|_| true),
        "save" if is_schedule(value) => Ok(true),
        "save" => Err("Invalid save parameters".to_owned()),
        _ => Ok(false),
    }
}

/// Whether a text is a schedule of snapshots: pairs of seconds and changes, or nothing.
fn is_schedule(text: &str) -> bool {
    if text.is_empty() {
        return true;
    }
    let numbers: Option<Vec<i64>> = text.split(' ').map(|word| word.parse().ok()).collect();
    let numbers = numbers.unwrap_or_default();
    let (pairs, odd) = numbers.as_chunks::<2>();
    odd.is_empty()
        && !pairs.is_empty()
        && pairs.iter().all(|&[seconds, changes]| seconds >= 1 && changes >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OLD_NAMES, SETTINGS};

    #[test]
    fn parameters_have_one_name_and_none_of_them_is_a_setting() {
        let mut names: Vec<&str> = Parameter::all().map(|(name, _)| name).collect();
        names.extend(SETTINGS.iter().map(|setting| setting.name));
        names.extend(OLD_NAMES.iter().map(|(old, _)| old));
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(parameters().count() > 100);
    }

    #[test]
    fn what_is_set_is_told_and_what_redis_would_refuse_is_refused() {
        let mut config = Config::default();
        let parameter = |name| Parameter::named(name).expect("known");
        for (name, value, told) in [
            ("hz", "50", Ok("50")),
            ("HZ", "fifty", Err("argument couldn't be parsed into an integer")),
            ("hz", "-5", Err("argument must be between 0 and 2147483647 inclusive")),
            ("hz", "+5", Err("argument couldn't be parsed into an integer")),
            ("hz", "10mb", Err("argument couldn't be parsed into an integer")),
            ("active-expire-effort", "11", Err("argument must be between 1 and 10 inclusive")),
            ("repl-backlog-size", "100MB", Ok("104857600")),
            ("repl-backlog-size", "-1", Err("argument must be a memory value")),
            ("repl-backlog-size", "0", Err("argument must be between 1 and 9223372036854775807 inclusive")),
            ("auto-aof-rewrite-min-size", "64mb", Ok("67108864")),
            ("active-defrag-ignore-bytes", "100mb", Ok("104857600")),
            ("cluster-link-sendbuf-limit", "1gb", Ok("1073741824")),
            ("lazyfree-lazy-expire", "YES", Ok("yes")),
            ("lazyfree-lazy-expire", "perhaps", Err("argument must be 'yes' or 'no'")),
            ("slave-read-only", "no", Ok("no")),
            ("unixsocket", "", Ok("")),
            ("unixsocket", "/tmp/s", Err("can't set immutable config")),
        ] {
            let set = parameter(name).set(&mut config, value);
            match told {
                Ok(told) => {
                    assert_eq!(set, Ok(()));
                    assert_eq!(parameter(name).get(&config), told);
                }
                Err(why) => assert_eq!(set, Err(why.to_owned())),
            }
        }
        assert_eq!(parameter("replica-read-only").get(&config), "no");
        // Every default is a value that is taken, and told as it is.
        for parameter in parameters().filter(|parameter| !parameter.default.is_empty()) {
            let mut config = Config::default();
            assert_eq!(parameter.set(&mut config, parameter.default), Ok(()));
            assert_eq!(parameter.get(&config), parameter.default);
        }
        assert_eq!(parameter("activerehashing").get(&config), "yes");
    }

    #[test]
    fn values_that_have_no_effect_are_values_of_redis() {
        for (name, value, is_taken) in [
            ("appendonly", "no", true),
            ("appendonly", "YES", true),
            ("appendonly", "junk", false),
            ("save", "", true),
            ("save", "900 1 300 0", true),
            ("save", "junk", false),
            ("save", "900", false),
            ("save", "900 1 junk", false),
            ("save", "0 1", false),
            ("save", "900 -1", false),
            ("save", "900  1", false),
        ] {
            let found = is_without_effect(name, value);
            assert_eq!(found.is_ok(), is_taken, "{name} {value}");
        }
        assert_eq!(is_without_effect("timeout", "junk"), Ok(false));
    }
}
