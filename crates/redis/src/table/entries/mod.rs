//! The entries of the command table, by family.

mod acl;
mod bits;
mod cluster;
mod connection;
mod generic;
mod geo;
mod hashes;
mod hyperloglog;
mod lists;
mod observe;
mod ordo;
mod pubsub;
mod scripting;
mod server;
mod sets;
mod sorted_sets;
mod streams;
mod strings;

use super::command::{Command, Flags, Group, KeyPlaces, KeySpec, Run};
use super::kinds::{ConnectionCommand, LatencyCommand, MemoryCommand, PubSubCommand, SlowLogCommand};
use super::per_key::Plan;
use txn::fragments::Done;
use txn::{Blob, FragmentKind, Reply};

/// All commands.
pub const COMMANDS: &[Command] = &concat::<COUNT>(FAMILIES);

const FAMILIES: &[&[Command]] = &[
    strings::COMMANDS,
    hashes::COMMANDS,
    lists::COMMANDS,
    sets::COMMANDS,
    streams::COMMANDS,
    sorted_sets::COMMANDS,
    geo::COMMANDS,
    bits::COMMANDS,
    hyperloglog::COMMANDS,
    generic::COMMANDS,
    connection::COMMANDS,
    cluster::COMMANDS,
    server::COMMANDS,
    observe::COMMANDS,
    scripting::COMMANDS,
    pubsub::COMMANDS,
    ordo::COMMANDS,
];

const COUNT: usize = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

const fn concat<const N: usize>(families: &[&[Command]]) -> [Command; N] {
    let mut all = [families[0][0]; N];
    let (mut at, mut family) = (0, 0);
    while family < families.len() {
        let mut place = 0;
        while place < families[family].len() {
            all[at] = families[family][place];
            (at, place) = (at + 1, place + 1);
        }
        family += 1;
    }
    all
}

/// A command in a transaction: an async function over `&mut Tx` and the arguments.
macro_rules! data {
    ($function:path) => {
        $crate::table::Run::Data($crate::table::Data::Whole(|mut tx, args| {
            Box::pin(async move { $function(&mut tx, &args).await })
        }))
    };
}
use data;

/// A command that does something to each of its keys by itself: its plan, a function of one record, and for
/// several keys the reply.
macro_rules! per_key {
    ($plan:expr, $function:path) => {
        per_key!(@ $plan, $function, None)
    };
    ($plan:expr, $function:path, $reply:path) => {
        per_key!(@ $plan, $function, Some(|args, mut values| {
            $crate::table::per_key::error_among(&mut values).unwrap_or_else(|| $reply(args, values))
        }))
    };
    (@ $plan:expr, $function:path, $reply:expr) => {
        $crate::table::Run::Data($crate::table::Data::PerKey($crate::table::per_key::PerKey {
            plan: $plan,
            code: txn::FragmentCode {
                execute: |args, context| Ok($function(args, &context).unwrap_or_else(Done::read)),
                reply: $reply,
            },
        }))
    };
}
use per_key;

/// A container's HELP.
macro_rules! help {
    ($container:literal) => {
        $crate::table::Run::Pure(|_| $crate::table::help($container))
    };
}
use help;

/// The plan of commands that read each record.
const READ: fn(&[Blob]) -> Result<Plan, Reply> = |_| Ok(Plan::of(FragmentKind::Read));
/// The plan of commands that read each record and may write it.
const UPDATE: fn(&[Blob]) -> Result<Plan, Reply> = |_| Ok(Plan::of(FragmentKind::Update));
/// Updates of a collection, in place where nobody else sees it.
const CHANGE: fn(&[Blob]) -> Result<Plan, Reply> = |_| Ok(Plan::of_change());

/// The plan of commands that write each record and read none.
const PUT: fn(&[Blob]) -> Result<Plan, Reply> = |_| Ok(Plan::of(FragmentKind::Put));

/// How an entry is written: a name, an arity and a function, then what differs from the usual.
impl Command {
    const fn new(name: &'static str, arity: i16, group: Group, run: Run) -> Command {
        Command { name, arity, run, flags: Flags::NONE, group, categories: &[], keys: &[] }
    }
    const fn flags(mut self, flags: Flags) -> Command {
        self.flags = self.flags.with(flags);
        self
    }
    const fn readonly(self) -> Command {
        self.flags(Flags::READONLY)
    }
    const fn write(self) -> Command {
        self.flags(Flags::WRITE)
    }
    /// Writes, and is refused when memory is short: `write denyoom`.
    const fn stores(self) -> Command {
        self.flags(Flags::WRITE.with(Flags::DENYOOM))
    }
    const fn fast(self) -> Command {
        self.flags(Flags::FAST)
    }
    const fn blocking(self) -> Command {
        self.flags(Flags::BLOCKING)
    }
    const fn admin(self) -> Command {
        self.flags(Flags::ADMIN)
    }
    const fn noscript(self) -> Command {
        self.flags(Flags::NOSCRIPT)
    }
    const fn movable(self) -> Command {
        self.flags(Flags::MOVABLEKEYS)
    }
    /// Answered at any time: `loading stale`.
    const fn always(self) -> Command {
        self.flags(Flags::LOADING.with(Flags::STALE))
    }
    const fn categories(mut self, categories: &'static [&'static str]) -> Command {
        self.categories = categories;
        self
    }
    const fn dangerous(self) -> Command {
        self.categories(&["dangerous"])
    }
    const fn keys(mut self, keys: &'static [KeySpec]) -> Command {
        self.keys = keys;
        self
    }
}

const fn range(first: usize, last: isize, step: usize, flags: &'static [&'static str]) -> KeySpec {
    KeySpec { places: KeyPlaces::Range { first, last, step }, flags }
}

/// As many keys as the argument at `at` says, behind it.
const fn counted(at: usize, flags: &'static [&'static str]) -> KeySpec {
    KeySpec { places: KeyPlaces::Counted { at }, flags }
}

/// Keys before a timeout.
const ALL_BUT_LAST: &[KeySpec] = &[range(1, -2, 1, &["RW", "access", "delete"])];
const RO: &[KeySpec] = &[range(1, 1, 1, &["RO"])];
const RO_ACCESS: &[KeySpec] = &[range(1, 1, 1, &["RO", "access"])];
const RO_ALL: &[KeySpec] = &[range(1, -1, 1, &["RO"])];
const RO_ACCESS_ALL: &[KeySpec] = &[range(1, -1, 1, &["RO", "access"])];
const RO_SECOND: &[KeySpec] = &[range(2, 2, 1, &["RO"])];
const RW_ACCESS_UPDATE: &[KeySpec] = &[range(1, 1, 1, &["RW", "access", "update"])];
const RW_ACCESS_DELETE: &[KeySpec] = &[range(1, 1, 1, &["RW", "access", "delete"])];
const RW_UPDATE: &[KeySpec] = &[range(1, 1, 1, &["RW", "update"])];
const RW_INSERT: &[KeySpec] = &[range(1, 1, 1, &["RW", "insert"])];
const RW_DELETE: &[KeySpec] = &[range(1, 1, 1, &["RW", "delete"])];
const OW_UPDATE: &[KeySpec] = &[range(1, 1, 1, &["OW", "update"])];
const OW_INSERT: &[KeySpec] = &[range(1, 1, 1, &["OW", "insert"])];
/// From the first key to the second.
const MOVE: &[KeySpec] = &[range(1, 1, 1, &["RW", "access", "delete"]), range(2, 2, 1, &["RW", "insert"])];
