//! The settings: one table, out of which the flags of `ordo serve`, the keys of its file, CONFIG GET, CONFIG
//! SET and the help text derive. Names, values and units are Redis's wherever Redis has the thing.
//!
//! A new setting is one entry of the `settings!` table below: a field of [`Config`] comes out of it, and
//! nothing else has to be written. Every value has a text form ([`Parameter`]), which is what flags, files
//! and CONFIG exchange.
//!
//! A node of a cluster has two descriptions: its own settings, and the cluster's (`cluster`), which all nodes
//! share. [`Config::validate`] brings them together.

pub mod foreign;
mod http;
mod membership;
mod parameter;
mod password;
mod redis_conf;
mod rewrite;
mod sources;

pub use http::HTTP_CONNECTIONS_MAX;
pub use parameter::{
    LogFormat, LogLevel, OutputLimit, OutputLimits, Parameter, Percentiles, Requests, Share, Users,
};
pub use password::{PASSWORD_VARIABLE, Password};
pub use rewrite::RewriteError;
pub use sources::{ConfigError, Flags, HIDDEN, Invocation, help};

use crate::cluster::ClusterConfig;
use crate::evict::POLICIES;
use crate::hub::NotifyFlags;
use crate::private;
use execute::EngineKind;
use node::FsyncPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What the text form of a setting may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number between the two, both included.
    Number(u64, u64),
    /// A whole number between the two, both included, of either sign.
    Integer(i64, i64),
    /// A number of bytes between the two, with an optional unit (`kb`, `mb`, `gb`: powers of 1024; `k`, `m`,
    /// `g`: of 1000).
    Bytes(u64, u64),
    /// A number of bytes, or a percentage of `maxmemory`.
    Share,
    /// `yes` or `no`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Only this text: the setting is there because Redis has it. The second text says why, and what to do
    /// instead.
    Fixed(&'static str, &'static str),
    /// Any text.
    Text,
    /// A password, or `#` and the digits of its SHA-256.
    Password,
    /// Words with spaces between them.
    Words,
    /// A user: its name, and rules. Given several times, several users.
    Users,
    /// Names of requests: given several times, they add up.
    Requests,
    /// Letters of `notify-keyspace-events`.
    Notify,
    /// Percentiles, with spaces between them.
    Percentiles,
    /// The name of an engine that may serve.
    Engine,
    /// `<class> <hard> <soft> <soft seconds>`, as often as there are classes to set.
    OutputLimits,
}

impl Kind {
    /// What a value must look like, for messages and for the help text.
    pub fn expectation(&self) -> String {
        match self {
            Kind::Number(min, max) => format!("a whole number from {min} to {max}"),
            Kind::Integer(min, max) => format!("a whole number from {min} to {max}"),
            Kind::Bytes(min, _) if *min > 0 => {
                format!("a number of bytes, at least {min}, with an optional unit (kb, mb, gb)")
            }
            Kind::Bytes(..) => "a number of bytes with an optional unit (kb, mb, gb)".to_owned(),
            Kind::Share => {
                "a number of bytes with an optional unit (kb, mb, gb), or a percentage of maxmemory (5%)"
                    .to_owned()
            }
            Kind::Flag => "yes or no".to_owned(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Fixed("", _) => "only an empty text".to_owned(),
            Kind::Fixed(only, _) => format!("only '{only}'"),
            Kind::Text => "a text".to_owned(),
            Kind::Password => "a password, or # and the 64 hexadecimal digits of its SHA-256".to_owned(),
            Kind::Words => "words with spaces between them".to_owned(),
            Kind::Users => "'<name> [<rule> ...]', once for each user".to_owned(),
            Kind::Notify => "letters of KEg$lshzxetdAmn".to_owned(),
            Kind::Requests => {
                "names of requests, EPOCH:SESSION:SEQUENCE, with spaces between them".to_owned()
            }
            Kind::Percentiles => "numbers from 0 to 100 with spaces between them".to_owned(),
            Kind::Engine => {
                let names: Vec<&str> = EngineKind::all_correct().map(EngineKind::name).collect();
                format!("one of {}", names.join(", "))
            }
            Kind::OutputLimits => {
                "'<class> <hard limit> <soft limit> <soft seconds>' with a class of normal, slave or pubsub"
                    .to_owned()
            }
        }
    }
}

/// When a setting may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// At start only.
    AtStart,
    /// Also while running, with CONFIG SET.
    Anytime,
}

/// One entry of the table.
pub struct Setting {
    /// Its name as a flag (after `--`), in a file, and in CONFIG.
    pub name: &'static str,
    /// What its values look like.
    pub kind: Kind,
    /// The text form of its default.
    pub default: &'static str,
    /// When it may change.
    pub change: Change,
    /// What it does, in a line.
    pub help: &'static str,
    /// Its text form.
    pub get: fn(&Config) -> String,
    /// Sets it from a text form.
    pub set: fn(&mut Config, &str) -> Result<(), String>,
}

macro_rules! settings {
    ($(
        $field:ident: $type:ty, $name:literal, $kind:expr, $default:literal, $change:ident,
            $help:literal;
    )*) => {
        /// The values of all settings.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $(#[doc = $help] pub $field: $type,)*
            /// The cluster that `cluster` describes, and the name of this node in it: see
            /// [`Config::validate`]. `None` for a server that stands alone.
            pub cluster: Option<(ClusterConfig, String)>,
            /// The file that the settings were read from, if there was one.
            pub file: Option<PathBuf>,
            /// What a file in Redis's form asks for, and what happens instead.
            pub notes: Vec<String>,
            /// Whether that file names a password or users.
            file_has_secrets: bool,
            /// What CONFIG SET has set of parameters that change nothing here.
            remembered: BTreeMap<&'static str, String>,
            /// The names of the settings that somebody has set.
            given: BTreeSet<&'static str>,
        }

        /// All settings, in the order in which the help text lists them.
        pub static SETTINGS: &[Setting] = &[$(Setting {
            name: $name,
            kind: $kind,
            default: $default,
            change: Change::$change,
            help: $help,
            get: |config| config.$field.to_text(),
            set: |config, text| {
                config.$field = <$type as Parameter>::from_text(text, &$kind, &config.$field)?;
                config.given.insert($name);
                Ok(())
            },
        },)*];

        impl Default for Config {
            fn default() -> Config {
                let mut config = Config {
                    $($field: <$type as Default>::default(),)*
                    cluster: None,
                    file: None,
                    notes: Vec::new(),
                    file_has_secrets: false,
                    remembered: BTreeMap::new(),
                    given: BTreeSet::new(),
                };
                for setting in SETTINGS {
                    (setting.set)(&mut config, setting.default).expect("defaults are valid: a test sets \
                                                                        them all");
                }
                config.given.clear();
                config
            }
        }
    };
}

const GIB: u64 = 1 << 30;

const ALWAYS_LOGGED: Kind = Kind::Fixed(
    "yes",
    "the log is the database, so Ordo always writes it: leave the setting out, and see appendfsync for how \
     soon the log reaches the disk",
);
const NO_SNAPSHOTS: Kind = Kind::Fixed(
    "",
    "Ordo writes a checkpoint whenever the log has grown enough: leave the setting out, and see \
     checkpoint-log-size",
);
const ONE_DATABASE: Kind = Kind::Fixed(
    "1",
    "Ordo has one database, number 0: leave the setting out, and keep what were other databases apart by \
     prefixes of their keys, or run a server for each",
);

const NO_KEY_PASS: Kind = Kind::Fixed(
    "",
    "encrypted keys are not read: leave the setting out, decrypt the key once (openssl pkey -in KEY -out \
     PLAIN), and let only the server's user read it",
);

/// A number of elements that decides about Redis's inner forms.
const FORM_COUNT: Kind = Kind::Number(0, i64::MAX as u64);
/// A number of bytes that decides about Redis's inner forms.
const FORM_BYTES: Kind = Kind::Bytes(0, i64::MAX as u64);

/// Names that Redis has had for settings, and still takes.
pub static OLD_NAMES: &[(&str, &str)] = &[
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("lua-time-limit", "busy-reply-threshold"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
];

settings! {
    port: u64, "port", Kind::Number(0, 65535), "6379", AtStart,
        "The TCP port to listen on. 0 lets the system pick a free one, or means none where there is a \
         tls-port.";
    bind: Vec<String>, "bind", Kind::Words, "127.0.0.1 -::1", AtStart,
        "The addresses, or names of this machine, to listen on. One with a leading '-' is skipped where \
         the machine does not have it.";
    protected_mode: bool, "protected-mode", Kind::Flag, "yes", Anytime,
        "Without a password, serve clients of this machine only.";
    requirepass: Password, "requirepass", Kind::Password, "", Anytime,
        "The password that clients must give with AUTH. Empty: that of requirepass-file, or else of the \
         variable ORDO_REQUIREPASS, or else none. On the command line every user of the machine could see \
         it.";
    requirepass_file: String, "requirepass-file", Kind::Text, "", AtStart,
        "The file that has the password, and nothing else. Only the server's user should read it.";
    auth_delay_max_ms: u64, "auth-delay-max-ms", Kind::Number(0, 60_000), "1000", Anytime,
        "Milliseconds that AUTH waits at most when there were failures from its address (docs/acl.md). 0: \
         it never waits.";
    aclfile: String, "aclfile", Kind::Text, "", AtStart,
        "The file of the users (docs/acl.md), in the data's directory unless it says otherwise. A server \
         that stands alone reads it whenever it starts, a cluster when it has no users yet. Empty: none.";
    user: Users, "user", Kind::Users, "", AtStart,
        "A user that is made if no users were ever made, as ACL SETUSER would. Not together with aclfile.";
    acl_pubsub_default: String, "acl-pubsub-default",
        Kind::Choice(&["resetchannels", "allchannels"]), "resetchannels", Anytime,
        "Whether new users may use all channels or none.";
    acllog_max_len: u64, "acllog-max-len", Kind::Number(0, 1 << 20), "128", Anytime,
        "How many entries ACL LOG keeps.";
    cluster_file: String, "cluster", Kind::Text, "", AtStart,
        "The file that describes the cluster, the same at every node (docs/cluster.md). Empty: this server \
         stands alone.";
    node: String, "node", Kind::Text, "", AtStart,
        "The name of this node in the cluster's file. It listens at its client_address there, unless port \
         or bind say otherwise.";
    engine: EngineKind, "engine", Kind::Engine, "sparkle", AtStart,
        "How transactions are executed (docs/engines.md). The same at every node of a cluster: its file may \
         say it for all.";
    behaviour_level: u64, "behaviour-level", Kind::Number(0, 1 << 31), "0", AtStart,
        "For tests of upgrades only: the newest behaviour that this node says to know, so that one build \
         can act as another. 0: what this build knows.";
    tls_port: u64, "tls-port", Kind::Number(0, 65535), "0", AtStart,
        "The TCP port on which clients are served by TLS (docs/tls.md). 0: none. With one, port 0 means \
         that there is no other.";
    tls_cluster: String, "tls-cluster", Kind::Choice(&["auto", "ephemeral", "yes", "no"]), "auto", AtStart,
        "How the nodes of the cluster encrypt what they say to each other. auto: without files, unless \
         both are on one machine's loopback; ephemeral: without files; yes: with certificates, which they \
         show each other; no: not at all. The same at every node.";
    tls_cert_file: String, "tls-cert-file", Kind::Text, "", Anytime,
        "The file of this server's certificate (PEM), and of those between it and the CA.";
    tls_key_file: String, "tls-key-file", Kind::Text, "", Anytime,
        "The file of the certificate's private key (PEM, not encrypted).";
    tls_key_file_pass: String, "tls-key-file-pass", NO_KEY_PASS, "", Anytime,
        "The pass phrase of an encrypted key. There is none.";
    tls_ca_cert_file: String, "tls-ca-cert-file", Kind::Text, "", Anytime,
        "The file of the certificates (PEM) of those who sign certificates of clients and nodes.";
    tls_ca_cert_dir: String, "tls-ca-cert-dir", Kind::Text, "", Anytime,
        "A directory of such files; all are read.";
    tls_auth_clients: String, "tls-auth-clients", Kind::Choice(&["yes", "no", "optional"]), "yes", Anytime,
        "Whether clients must show a certificate that one of the CAs has signed. optional: only if they \
         have one.";
    tls_protocols: Vec<String>, "tls-protocols", Kind::Words, "", Anytime,
        "The versions of TLS that are spoken: TLSv1.2, TLSv1.3. Empty: both.";
    tls_session_caching: bool, "tls-session-caching", Kind::Flag, "yes", Anytime,
        "Whether clients that come again may go on with the keys of before.";
    tls_session_cache_size: u64, "tls-session-cache-size", Kind::Number(1, 1 << 24), "20480", Anytime,
        "How many sessions are kept for that.";
    http_port: u64, "http-port", Kind::Number(0, 65535), "0", AtStart,
        "The TCP port of the HTTP server for operators, with /healthz, /readyz and /metrics \
         (docs/monitoring.md). 0: none.";
    http_bind: Vec<String>, "http-bind", Kind::Words, "127.0.0.1 -::1", AtStart,
        "The addresses, or names of this machine, where http-port is, written as those of bind. One that \
         other machines may reach needs an http-token-file.";
    http_token_file: String, "http-token-file", Kind::Text, "", AtStart,
        "The file that has the token, and nothing else, that requests to http-port must show \
         (Authorization: Bearer). Only the server's user should read it. Empty: none is asked for.";
    dir: String, "dir", Kind::Text, ".", AtStart,
        "The directory of the input log and the checkpoints.";
    skip: Requests, "skip", Kind::Requests, "", AtStart,
        "Requests of the order that this node does not execute, because they end whoever does \
         (docs/poisoned.md). The node remembers them. In a cluster, the same at every node.";
    appendonly: bool, "appendonly", ALWAYS_LOGGED, "yes", Anytime,
        "Whether there is an input log. There always is: the log is the database.";
    appendfsync: FsyncPolicy, "appendfsync", Kind::Choice(&["always", "everysec", "no"]), "always", AtStart,
        "When the log reaches the disk: before each acknowledgement, once a second, or when the system \
         pleases.";
    checkpoint_log_size: u64, "checkpoint-log-size", Kind::Bytes(0, u64::MAX), "16mb", AtStart,
        "A checkpoint is written whenever the log has grown by as much as the last checkpoint takes, and \
         by this much at least (256 KiB if the last one was 2 s ago, or is what a start has found); the \
         log before it is removed. 0: only when SAVE or BGSAVE ask for it.";
    save: String, "save", NO_SNAPSHOTS, "", Anytime,
        "Redis's snapshot schedule. Empty: see checkpoint-log-size.";
    io_threads: u64, "io-threads", Kind::Number(0, 128), "0", AtStart,
        "Threads that serve connections. 0: one, and a quarter of the processors where there are more than \
         four.";
    workers: u64, "workers", Kind::Number(0, 1024), "0", AtStart,
        "Threads that execute transactions, beside the I/O threads' own help. 0: as many as there are \
         processors.";
    databases: u64, "databases", ONE_DATABASE, "1", AtStart,
        "The number of databases that SELECT knows.";
    maxclients: u64, "maxclients", Kind::Number(1, 1_000_000), "10000", Anytime,
        "The number of connections that may be open at once.";
    timeout: u64, "timeout", Kind::Number(0, 1 << 31), "0", Anytime,
        "Seconds after which an idle connection is closed. 0: never.";
    tcp_keepalive: u64, "tcp-keepalive", Kind::Number(0, 1 << 15), "300", Anytime,
        "Seconds between probes of quiet new connections. 0: none.";
    tcp_backlog: u64, "tcp-backlog", Kind::Number(1, 65535), "511", AtStart,
        "The number of connections that may wait to be accepted.";
    proto_max_bulk_len: u64, "proto-max-bulk-len", Kind::Bytes(1 << 20, 4 * GIB), "536870912", Anytime,
        "The longest argument of a command.";
    client_query_buffer_limit: u64, "client-query-buffer-limit",
        Kind::Bytes(1 << 20, 64 * GIB), "1073741824", Anytime,
        "The longest command. A connection that sends a longer one is closed.";
    client_output_buffer_limit: OutputLimits, "client-output-buffer-limit", Kind::OutputLimits,
        "normal 1gb 256mb 60 slave 256mb 64mb 60 pubsub 32mb 8mb 60", Anytime,
        "How far a client may fall behind in reading its replies before it is closed: at once beyond the \
         hard limit, or after so many seconds beyond the soft one. 0: no limit.";
    maxmemory_clients: Share, "maxmemory-clients", Kind::Share, "0", Anytime,
        "Memory that all clients' buffers may take together, in bytes or as a percentage of maxmemory: \
         above it, the clients that take most are closed. 0: no limit.";
    maxmemory: u64, "maxmemory", Kind::Bytes(0, u64::MAX), "0", Anytime,
        "Memory above which entries are evicted, or writes refused: see maxmemory-policy. 0: no limit. The \
         same for all nodes of a cluster: leaders evict.";
    maxmemory_policy: String, "maxmemory-policy", Kind::Choice(POLICIES), "noeviction", Anytime,
        "What goes at maxmemory: the least recently or frequently used entries, random ones, or those that \
         expire next; of all keys, or of those with a time to live. noeviction: writes are refused.";
    maxmemory_samples: u64, "maxmemory-samples", Kind::Number(1, i32::MAX as u64), "5", Anytime,
        "How many keys Redis looks at for a victim. Without effect: Ordo takes the best of about a thousand.";
    history_seconds: u64, "history-seconds", Kind::Number(0, 3600), "0", Anytime,
        "For how many seconds old versions are kept for ORDO.AT, as long as maxmemory leaves room for them. \
         0: no longer than somebody reads them. Without effect in a cluster.";
    lfu_log_factor: u64, "lfu-log-factor", Kind::Number(0, 255), "10", Anytime,
        "How slowly the counters of uses grow that the lfu policies keep: the higher, the more uses they \
         tell apart.";
    lfu_decay_time: u64, "lfu-decay-time", Kind::Number(0, 65535), "1", Anytime,
        "Minutes after which a counter of uses has shrunk by one. 0: it does not.";
    notify_keyspace_events: NotifyFlags, "notify-keyspace-events", Kind::Notify, "", Anytime,
        "Which changes of keys are published, and where: letters as in Redis, of which m and n have no \
         events. Empty: none.";
    tracking_table_max_keys: u64, "tracking-table-max-keys", Kind::Number(0, u64::MAX), "1000000", Anytime,
        "How many keys are remembered for clients that are told when they are written (CLIENT TRACKING). \
         0: any number.";
    shutdown_timeout: u64, "shutdown-timeout", Kind::Number(0, 86400), "10", Anytime,
        "Seconds that a shutdown waits for what is in flight.";
    slowlog_log_slower_than: i64, "slowlog-log-slower-than", Kind::Integer(-1, i64::MAX), "10000", Anytime,
        "Microseconds from which on a call is kept in the slow log (SLOWLOG). 0: all calls are. -1: none is.";
    slowlog_max_len: u64, "slowlog-max-len", Kind::Number(0, i64::MAX as u64), "128", Anytime,
        "How many calls the slow log keeps.";
    latency_monitor_threshold: u64, "latency-monitor-threshold",
        Kind::Number(0, i64::MAX as u64), "0", Anytime,
        "Milliseconds from which on an event is kept for LATENCY. 0: none is.";
    latency_tracking: bool, "latency-tracking", Kind::Flag, "yes", Anytime,
        "Whether it is kept how long the calls of each command take: INFO latencystats, LATENCY HISTOGRAM.";
    latency_tracking_info_percentiles: Percentiles, "latency-tracking-info-percentiles",
        Kind::Percentiles, "50 99 99.9", Anytime,
        "Which percentiles INFO latencystats shows.";
    hash_max_listpack_entries: u64, "hash-max-listpack-entries", FORM_COUNT, "512", Anytime,
        "Redis's bound for small hashes. Kept for its clients and without effect: a hash has one form \
         here, whatever its size.";
    hash_max_listpack_value: u64, "hash-max-listpack-value", FORM_BYTES, "64", Anytime,
        "Redis's bound for the fields and values of small hashes. Without effect, as \
         hash-max-listpack-entries.";
    list_max_listpack_size: i64, "list-max-listpack-size",
        Kind::Integer(-(1 << 31), (1 << 31) - 1), "-2", Anytime,
        "Redis's size of a list's parts. Without effect, as hash-max-listpack-entries.";
    list_compress_depth: u64, "list-compress-depth", FORM_COUNT, "0", Anytime,
        "How many parts Redis leaves uncompressed at a list's ends. Without effect, as \
         hash-max-listpack-entries.";
    set_max_intset_entries: u64, "set-max-intset-entries", FORM_COUNT, "512", Anytime,
        "Redis's bound for small sets of integers. Without effect, as hash-max-listpack-entries.";
    zset_max_listpack_entries: u64, "zset-max-listpack-entries", FORM_COUNT, "128", Anytime,
        "Redis's bound for small sorted sets. Without effect, as hash-max-listpack-entries.";
    zset_max_listpack_value: u64, "zset-max-listpack-value", FORM_BYTES, "64", Anytime,
        "Redis's bound for the members of small sorted sets. Without effect, as hash-max-listpack-entries.";
    stream_node_max_entries: u64, "stream-node-max-entries", FORM_COUNT, "100", Anytime,
        "Redis's size of a stream's parts, in entries. Without effect, as hash-max-listpack-entries.";
    stream_node_max_bytes: u64, "stream-node-max-bytes", FORM_BYTES, "4096", Anytime,
        "Redis's size of a stream's parts, in bytes. Without effect, as hash-max-listpack-entries.";
    hll_sparse_max_bytes: u64, "hll-sparse-max-bytes", FORM_BYTES, "3000", Anytime,
        "Redis's bound for sparse HyperLogLogs. Without effect: all replicas keep the same bytes, so the \
         bound is 3000 everywhere.";
    busy_reply_threshold: u64, "busy-reply-threshold", FORM_COUNT, "5000", Anytime,
        "Milliseconds after which Redis refuses commands because of a script. Without effect: no script \
         keeps others from being answered.";
    loglevel: LogLevel, "loglevel", Kind::Choice(LogLevel::WORDS), "notice", Anytime,
        "How much is said on standard error. At the start the variable RUST_LOG wins.";
    audit_log: bool, "audit-log", Kind::Flag, "no", Anytime,
        "Whether the log tells who ran administrative commands, or removed everything, and who was refused a \
         login, a command, a key or a channel.";
    log_format: LogFormat, "log-format", Kind::Choice(LogFormat::WORDS), "text", AtStart,
        "How it is said: lines for people, or an object of JSON in each line.";
}

impl Config {
    /// The entry of a name, in any case; an old name has the entry of the new one.
    pub fn setting(name: &str) -> Option<&'static Setting> {
        let name =
            OLD_NAMES.iter().find(|(old, _)| old.eq_ignore_ascii_case(name)).map_or(name, |(_, new)| new);
        SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
    }

    /// Whether somebody has set a setting.
    pub fn has(&self, name: &str) -> bool {
        self.given.contains(name)
    }

    /// Whether new users and selectors have all channels.
    pub fn all_channels_by_default(&self) -> bool {
        self.acl_pubsub_default == "allchannels"
    }

    /// Where the ACL file is, if there is one.
    pub fn acl_path(&self) -> Option<String> {
        let path = std::path::Path::new(&self.dir).join(&self.aclfile);
        (!self.aclfile.is_empty()).then(|| path.to_string_lossy().into_owned())
    }

    /// What to say of files with secrets that every user of the machine may read.
    pub fn exposed_secrets(&self) -> Vec<String> {
        let own = |path: &str| (!path.is_empty()).then(|| PathBuf::from(path));
        let files = [
            (self.acl_path().map(PathBuf::from), "the users and the hashes of their passwords"),
            (own(&self.requirepass_file), "the password"),
            (own(&self.tls_key_file), "the private key"),
            (own(&self.http_token_file), "the token of the HTTP port"),
            (self.file.clone().filter(|_| self.file_has_secrets), "the password, or hashes of passwords"),
        ];
        let complaints = files.into_iter();
        complaints.filter_map(|(path, what)| private::complaint(&path?, what)).collect()
    }

    /// Whether clients are served by TLS alone: then `client_address` in the cluster's description is where
    /// that is.
    pub fn serves_tls_only(&self) -> bool {
        self.tls_port > 0 && self.port == 0
    }

    /// The users that the settings name.
    pub fn users(&self) -> Result<Vec<(txn::Blob, redis_surface::acl::User)>, String> {
        let texts = self.user.0.iter().map(String::as_str);
        redis_surface::acl::file::directives(texts, self.all_channels_by_default())
    }

    /// The number of I/O threads: the setting, or what fits the machine.
    pub fn io_threads_effective(&self, processors: usize) -> usize {
        match self.io_threads {
            0 if processors <= 4 => 1,
            0 => processors / 4,
            count => count as usize,
        }
    }

    /// The number of workers: the setting, or what fits the machine.
    pub fn workers_effective(&self, processors: usize) -> usize {
        if self.workers == 0 { processors.max(1) } else { self.workers as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_survive_their_text_form() {
        let config = Config::default();
        for setting in SETTINGS {
            let mut copy = config.clone();
            (setting.set)(&mut copy, &(setting.get)(&config))
                .unwrap_or_else(|e| panic!("{}: {e}", setting.name));
            assert!(copy.given.remove(setting.name), "it was set");
            assert_eq!(copy, config, "{}", setting.name);
        }
    }

    #[test]
    fn bad_values_are_refused() {
        let cases = [
            ("port", "65536"),
            ("port", "-1"),
            ("port", "x"),
            ("protected-mode", "maybe"),
            ("appendfsync", "sometimes"),
            ("appendonly", "no"),
            ("maxclients", "0"),
            ("proto-max-bulk-len", "1kb"),
            ("maxmemory", "12zb"),
            ("maxmemory-clients", "101%"),
            ("maxmemory-clients", "many"),
            ("client-output-buffer-limit", "normal 1 2"),
            ("client-output-buffer-limit", "friends 1 2 3"),
            ("save", "900 1"),
        ];
        for (name, text) in cases {
            let setting = Config::setting(name).expect("exists");
            let mut config = Config::default();
            assert!((setting.set)(&mut config, text).is_err(), "{name} {text}");
            assert_eq!(config, Config::default(), "a refused value changes nothing");
        }
    }

    #[test]
    fn a_setting_with_one_value_says_why_and_what_to_do() {
        for (name, text, wants) in [
            ("databases", "16", ["one database", "prefixes"]),
            ("appendonly", "no", ["the log is the database", "appendfsync"]),
            ("save", "900 1", ["checkpoint", "checkpoint-log-size"]),
        ] {
            let setting = Config::setting(name).expect("exists");
            let refusal = (setting.set)(&mut Config::default(), text).expect_err("refused");
            assert!(refusal.starts_with(&format!("'{text}' is not possible: ")));
            for want in wants {
                assert!(refusal.contains(want), "{name}: {refusal}");
            }
        }
    }

    #[test]
    fn files_with_secrets_that_everybody_may_read_are_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
        let names = ["ordo.toml", "users.acl", "password", "key"];
        for name in names {
            std::fs::write(path(name), "requirepass = 'x'").expect("written");
        }
        let set_mode = |mode| {
            for name in names {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
                std::fs::set_permissions(path(name), mode).expect("ours");
            }
        };
        let mut config = Config::default();
        config.read_file(path("ordo.toml").as_ref()).expect("settings");
        config.dir = path("");
        config.aclfile = "users.acl".to_owned();
        config.requirepass_file = path("password");
        config.tls_key_file = path("key");
        set_mode(0o640);
        assert_eq!(config.exposed_secrets(), Vec::<String>::new());
        set_mode(0o604);
        let told = config.exposed_secrets();
        for name in names {
            assert!(told.iter().any(|text| text.starts_with(&path(name))), "{name}: {told:?}");
        }
        std::fs::write(path("ordo.toml"), "port = 1").expect("written");
        let mut plain = Config::default();
        plain.read_file(path("ordo.toml").as_ref()).expect("settings");
        assert_eq!(plain.exposed_secrets(), Vec::<String>::new(), "it has no secret");
    }

    #[test]
    fn old_names_are_those_of_settings() {
        for (old, new) in OLD_NAMES {
            assert!(SETTINGS.iter().all(|setting| setting.name != *old));
            assert_eq!(Config::setting(old).expect(old).name, *new);
        }
        let mut config = Config::default();
        let setting = Config::setting("List-Max-Ziplist-Size").expect("exists");
        (setting.set)(&mut config, "-5").expect("a negative number");
        assert_eq!(config.list_max_listpack_size, -5);
        assert!((setting.set)(&mut config, "-2147483649").is_err());
    }

    #[test]
    fn units_are_those_of_redis() {
        let mut config = Config::default();
        let setting = Config::setting("MaxMemory").expect("case does not matter");
        for (text, bytes) in
            [("100", 100), ("1k", 1000), ("1kb", 1024), ("2MB", 2 << 20), ("1g", 1_000_000_000), ("1gb", GIB)]
        {
            (setting.set)(&mut config, text).expect(text);
            assert_eq!(config.maxmemory, bytes, "{text}");
        }
    }

    #[test]
    fn output_limits_of_classes_not_named_stay() {
        let mut config = Config::default();
        let setting = Config::setting("client-output-buffer-limit").expect("exists");
        (setting.set)(&mut config, "normal 10mb 1mb 5").expect("valid");
        assert_eq!(
            (setting.get)(&config),
            "normal 10485760 1048576 5 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
        );
    }
}
