//! Parameters of Redis that change nothing here. Clients and tools set and read them all the same: CONFIG SET takes them, CONFIG GET
//! tells what was set last, and the next start forgets it.
//!
//! What Redis lets nobody change while it runs is told and not taken, and so is what would promise something that Ordo does not do.

use super::Config;

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

/// Parameters that take numbers.
const NUMBERS: &str = "\
active-defrag-cycle-max=25 active-defrag-cycle-min=1 active-defrag-ignore-bytes=104857600 \
active-defrag-max-scan-fields=1000 active-defrag-threshold-lower=10 active-defrag-threshold-upper=100 \
active-expire-effort=1 auto-aof-rewrite-min-size=67108864 auto-aof-rewrite-percentage=100 \
cluster-link-sendbuf-limit=0 cluster-migration-barrier=1 cluster-node-timeout=15000 \
cluster-replica-validity-factor=10 hz=10 maxmemory-eviction-tenacity=10 repl-backlog-size=1048576 \
repl-backlog-ttl=3600 repl-diskless-sync-delay=5 repl-diskless-sync-max-replicas=0 \
repl-ping-replica-period=10 repl-timeout=60 replica-priority=100 set-max-listpack-entries=128 \
set-max-listpack-value=64";

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
    (
        "cluster-slave-validity-factor",
        "cluster-replica-validity-factor",
    ),
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
    Number,
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
    let lists = [
        (FLAGS, Takes::Flag),
        (NUMBERS, Takes::Number),
        (TEXTS, Takes::Text),
        (FIXED, Takes::Nothing),
    ];
    lists.into_iter().flat_map(|(list, takes)| {
        let words = list.split(' ').filter_map(|word| word.split_once('='));
        words.map(move |(name, default)| Parameter {
            name,
            default,
            takes,
        })
    })
}

impl Parameter {
    /// The parameter of a name, in any case.
    pub fn named(name: &str) -> Option<Parameter> {
        let old = OLD_NAMES
            .iter()
            .find(|(old, _)| old.eq_ignore_ascii_case(name));
        let name = old.map_or(name, |(_, new)| new);
        parameters().find(|parameter| parameter.name.eq_ignore_ascii_case(name))
    }

    /// All names, old ones too, with their parameters.
    pub fn all() -> impl Iterator<Item = (&'static str, Parameter)> {
        let old = OLD_NAMES.iter();
        let old = old.filter_map(|&(old, new)| Some((old, Parameter::named(new)?)));
        parameters()
            .map(|parameter| (parameter.name, parameter))
            .chain(old)
    }

    /// What was set last.
    pub fn get(self, config: &Config) -> &str {
        let remembered = config.remembered.get(self.name);
        remembered.map_or(self.default, String::as_str)
    }

    /// Remembers a value, or tells why Redis would not take it.
    pub fn set(self, config: &mut Config, text: &str) -> Result<(), String> {
        let is_taken = match self.takes {
            Takes::Flag => text.eq_ignore_ascii_case("yes") || text.eq_ignore_ascii_case("no"),
            Takes::Number => text.parse::<i64>().is_ok(),
            Takes::Text => true,
            Takes::Nothing if text == self.default => true,
            Takes::Nothing => return Err("can't set immutable config".to_owned()),
        };
        if !is_taken {
            return Err(match self.takes {
                Takes::Flag => "argument must be 'yes' or 'no'".to_owned(),
                _ => "argument couldn't be parsed into an integer".to_owned(),
            });
        }
        config
            .remembered
            .insert(self.name, text.to_ascii_lowercase());
        Ok(())
    }
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
            (
                "HZ",
                "fifty",
                Err("argument couldn't be parsed into an integer"),
            ),
            ("lazyfree-lazy-expire", "YES", Ok("yes")),
            (
                "lazyfree-lazy-expire",
                "perhaps",
                Err("argument must be 'yes' or 'no'"),
            ),
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
        assert_eq!(parameter("activerehashing").get(&config), "yes");
    }
}
