//! What an entry of the command table says.

use super::documentation::{self, Documentation};
use super::kinds::{AclCommand, ConnectionCommand, ScriptCommand};
use super::per_key::PerKey;
use crate::arguments::Arguments;
use txn::fragments::Operation;
use txn::{Args, Blob, FragmentKind, Fragments, Key, ProcedureFuture, Reply, Tx};

/// A set of command flags: Redis's, and a few of our own that COMMAND does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub(super) u32);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Writes.
    pub const WRITE: Flags = Flags(1);
    /// Reads and never writes.
    pub const READONLY: Flags = Flags(1 << 1);
    /// Refused when memory is short.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// For administrators.
    pub const ADMIN: Flags = Flags(1 << 3);
    /// Publish and subscribe.
    pub const PUBSUB: Flags = Flags(1 << 4);
    /// Not allowed in scripts.
    pub const NOSCRIPT: Flags = Flags(1 << 5);
    /// May wait.
    pub const BLOCKING: Flags = Flags(1 << 6);
    /// Answered while data is loaded.
    pub const LOADING: Flags = Flags(1 << 7);
    /// Answered by a stale replica.
    pub const STALE: Flags = Flags(1 << 8);
    /// Not shown by MONITOR.
    pub const SKIP_MONITOR: Flags = Flags(1 << 9);
    /// Not logged as slow.
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 10);
    /// Constant or logarithmic time.
    pub const FAST: Flags = Flags(1 << 11);
    /// Allowed before authentication.
    pub const NO_AUTH: Flags = Flags(1 << 12);
    /// Not allowed between MULTI and EXEC.
    pub const NO_MULTI: Flags = Flags(1 << 13);
    /// Which arguments are keys depends on other arguments.
    pub const MOVABLEKEYS: Flags = Flags(1 << 14);
    /// Answered while a script hogs the server.
    pub const ALLOW_BUSY: Flags = Flags(1 << 15);
    /// Not answered while data is loaded asynchronously.
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 16);
    /// May name no key at all.
    pub const NO_MANDATORY_KEYS: Flags = Flags(1 << 17);
    /// Ours: a read whose reply depends on the present time or on chance. It is ordered like a write, because
    /// a final snapshot has the time and the seed of the last write, however long ago that was.
    pub const ORDERED: Flags = Flags(1 << 24);
    /// Ours: takes time in proportion to the whole database.
    pub const HEAVY: Flags = Flags(1 << 25);

    /// The flags of both.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// COMMAND's names of the flags, in COMMAND's order.
pub const FLAG_NAMES: &[(Flags, &str)] = &[
    (Flags::WRITE, "write"),
    (Flags::READONLY, "readonly"),
    (Flags::DENYOOM, "denyoom"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::NOSCRIPT, "noscript"),
    (Flags::BLOCKING, "blocking"),
    (Flags::LOADING, "loading"),
    (Flags::STALE, "stale"),
    (Flags::SKIP_MONITOR, "skip_monitor"),
    (Flags::SKIP_SLOWLOG, "skip_slowlog"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::NO_ASYNC_LOADING, "no_async_loading"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
    (Flags::MOVABLEKEYS, "movablekeys"),
    (Flags::ALLOW_BUSY, "allow_busy"),
];

/// The ACL categories, in Redis's order.
pub const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The family of a command: its documentation group and its ACL category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Strings.
    String,
    /// Hashes.
    Hash,
    /// Lists.
    List,
    /// Sets.
    Set,
    /// Sorted sets.
    SortedSet,
    /// Strings as bits.
    Bitmap,
    /// Strings as sketches of sets.
    HyperLogLog,
    /// Sorted sets as places.
    Geo,
    /// Streams.
    Stream,
    /// Keys of any type.
    Generic,
    /// SORT: generic, but in the categories of what it sorts.
    Sort,
    /// The cluster.
    Cluster,
    /// The connection itself.
    Connection,
    /// The server.
    Server,
    /// Lua.
    Scripting,
    /// Blocks.
    Transactions,
    /// Messages.
    PubSub,
}

impl Group {
    /// COMMAND DOCS's name.
    pub fn name(self) -> &'static str {
        match self {
            Group::String => "string",
            Group::Hash => "hash",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Bitmap => "bitmap",
            Group::HyperLogLog => "hyperloglog",
            Group::Geo => "geo",
            Group::Stream => "stream",
            Group::Generic | Group::Sort => "generic",
            Group::Cluster => "cluster",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Scripting => "scripting",
            Group::Transactions => "transactions",
            Group::PubSub => "pubsub",
        }
    }
    /// The ACL category of the group's commands, if it has one.
    pub fn category(self) -> Option<&'static str> {
        match self {
            Group::String => Some("string"),
            Group::Hash => Some("hash"),
            Group::List => Some("list"),
            Group::Set => Some("set"),
            Group::SortedSet => Some("sortedset"),
            Group::Bitmap => Some("bitmap"),
            Group::HyperLogLog => Some("hyperloglog"),
            Group::Geo => Some("geo"),
            Group::Stream => Some("stream"),
            Group::Generic => Some("keyspace"),
            Group::Connection => Some("connection"),
            // What has the flag has the category.
            Group::PubSub => None,
            Group::Server | Group::Cluster | Group::Sort => None,
            Group::Scripting => Some("scripting"),
            Group::Transactions => Some("transaction"),
        }
    }
}

/// Which arguments are keys, counted from the command's name at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlaces {
    /// From `first` in steps to `last`, which counts from the end if negative (-1 is the last argument).
    Range {
        /// The first key.
        first: usize,
        /// The last key.
        last: isize,
        /// From key to key.
        step: usize,
    },
    /// As many as the argument at `at` says, from the next one on.
    Counted {
        /// Where the number of keys stands.
        at: usize,
    },
    /// Behind the first argument, from `start` on, that is this word: none if there is no such argument.
    Word {
        /// The word, in capitals.
        word: &'static str,
        /// Where it may stand first.
        start: usize,
        /// The first half of all that follows (XREAD), or one key.
        half: bool,
    },
    /// What the patterns of SORT name, which shows only while it runs: none that the words tell.
    Patterns,
    /// Behind the last STORE among the options of SORT.
    SortStore,
}

/// Some keys of a command, and what it does with them (Redis's key specification flags; the first is RO, RW,
/// OW, RM, or not_key).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Where.
    pub places: KeyPlaces,
    /// What for.
    pub flags: &'static [&'static str],
}

impl KeySpec {
    /// Whether the command writes these keys. What is no key, and only placed like one (a shard channel),
    /// nobody writes.
    pub fn writes(&self) -> bool {
        !matches!(self.flags.first(), Some(&("RO" | "not_key")))
    }
}

/// How a data command runs.
#[derive(Clone, Copy)]
pub enum Data {
    /// By a function that starts it inside a transaction.
    Whole(fn(Tx, Arguments) -> ProcedureFuture),
    /// By a function of one record, for each key: the command has one [`KeySpec`].
    PerKey(PerKey),
}

/// How a command runs.
#[derive(Clone, Copy)]
pub enum Run {
    /// In a transaction, from the arguments after the name.
    Data(Data),
    /// The reply depends on nothing but the arguments after the name.
    Pure(fn(&[Blob]) -> Reply),
    /// By the script engine.
    Script(ScriptCommand),
    /// By the connection.
    Connection(ConnectionCommand),
    /// In a transaction that knows who acts.
    Acl(AclCommand),
    /// By one of its subcommands.
    Container(&'static [Command]),
    /// In a transaction that runs the command in its arguments, once: ORDO.IDEMPOTENT.
    Idempotent,
    /// At a moment of the past, the command in its arguments: ORDO.AT.
    Past,
}

/// An entry of the command table. Everything that the server does about a command derives from it.
#[derive(Clone, Copy)]
pub struct Command {
    /// The name in lower case; a subcommand's is `container|subcommand`.
    pub name: &'static str,
    /// The number of arguments, the name (and the subcommand's name) included; at least that many if
    /// negative.
    pub arity: i16,
    /// How it runs.
    pub run: Run,
    /// Its properties.
    pub flags: Flags,
    /// Its family.
    pub group: Group,
    /// ACL categories beyond what the flags and the group imply.
    pub categories: &'static [&'static str],
    /// Its keys.
    pub keys: &'static [KeySpec],
}

impl Command {
    /// Starts it inside a transaction, if it is a data command.
    pub fn start(&'static self, tx: Tx, args: Arguments) -> Option<ProcedureFuture> {
        match (&self.run, self.keys) {
            (Run::Data(Data::Whole(run)), _) => Some(run(tx, args)),
            (Run::Data(Data::PerKey(per_key)), [keys]) => Some(per_key.start(keys, tx, args)),
            _ => None,
        }
    }
    /// The command as fragments, if it is declared so.
    pub fn fragments(&self, args: &Args) -> Option<Fragments> {
        match (&self.run, self.keys) {
            (Run::Data(Data::PerKey(per_key)), [keys]) => per_key.fragments(keys, args),
            _ => None,
        }
    }
    /// The key and the operation of a call that does nothing but to read one record, whose words after the
    /// name are these.
    pub fn one_read<'a>(&self, args: &'a [Blob]) -> Option<(Key, Operation<'a>)> {
        let (Run::Data(Data::PerKey(per_key)), [keys]) = (&self.run, self.keys) else {
            return None;
        };
        let plan = per_key.dateless_plan(args).filter(|plan| plan.kind == FragmentKind::Read)?;
        Some((per_key.only_key(keys, args)?, per_key.operation(plan, args, 0)))
    }
    /// Whether its first word is the only key, and it reads that one's record: for most calls there is
    /// [`Command::one_read`].
    pub fn reads_first_word(&self) -> bool {
        let [KeySpec { places: KeyPlaces::Range { first: 1, last: 1, .. }, .. }] = self.keys else {
            return false;
        };
        self.is(Flags::READONLY) && matches!(self.run, Run::Data(Data::PerKey(_)))
    }
    /// What clients are told of it.
    pub fn documentation(&self) -> Documentation {
        documentation::of(self.name)
    }
    /// The last part of the name: what a client types after the container.
    pub fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }
    /// Whether the number of words `argc`, the name included, is right.
    pub fn arity_fits(&self, argc: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { argc >= wanted } else { argc == wanted }
    }
    /// The subcommands, if this is a container.
    pub fn subcommands(&self) -> &'static [Command] {
        match self.run {
            Run::Container(subcommands) => subcommands,
            _ => &[],
        }
    }
    /// Whether it has this flag.
    pub fn is(&self, flag: Flags) -> bool {
        self.flags.contains(flag)
    }
    /// The ACL categories, without the `@`.
    pub fn acl_categories(&self) -> Vec<&'static str> {
        let mut categories: Vec<&'static str> = Vec::new();
        let mut add = |holds: bool, name: &'static str| {
            if holds && !categories.contains(&name) {
                categories.push(name);
            }
        };
        if let Some(category) = self.group.category() {
            add(!matches!(self.run, Run::Container(_)), category);
        }
        add(self.is(Flags::WRITE), "write");
        add(self.is(Flags::READONLY) && self.group != Group::Scripting, "read");
        add(self.is(Flags::ADMIN), "admin");
        add(self.is(Flags::FAST), "fast");
        add(!self.is(Flags::FAST), "slow");
        add(self.is(Flags::PUBSUB), "pubsub");
        add(self.is(Flags::BLOCKING), "blocking");
        add(self.is(Flags::ADMIN), "dangerous");
        for category in self.categories {
            add(true, category);
        }
        categories.sort_by_key(|name| CATEGORIES.iter().position(|category| category == name));
        categories
    }
}
