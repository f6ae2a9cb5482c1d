//! Keys of any type.

use super::*;
use crate::commands::{dump, expiry, keys, listing, sort};

const fn generic(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Generic, run)
}
const fn sorting(name: &'static str, run: Run) -> Command {
    Command::new(name, -2, Group::Sort, run).movable().categories(SORTED)
}

const RM_ALL: &[KeySpec] = &[range(1, -1, 1, &["RM", "delete"])];

/// The categories of what SORT sorts.
const SORTED: &[&str] = &["list", "set", "sortedset", "dangerous"];
/// What SORT's patterns of BY and GET name.
const PATTERNS: KeySpec = KeySpec { places: KeyPlaces::Patterns, flags: &["RO", "access"] };
const SORT_STORE: KeySpec = KeySpec { places: KeyPlaces::SortStore, flags: &["OW", "update"] };

const OBJECT: &[Command] = &[
    generic("object|encoding", 3, data!(keys::object_encoding)).readonly().keys(RO_SECOND),
    generic("object|freq", 3, data!(keys::object_freq)).readonly().keys(RO_SECOND),
    generic("object|help", 2, help!("OBJECT")).always(),
    generic("object|idletime", 3, data!(keys::object_idletime)).readonly().keys(RO_SECOND),
    generic("object|refcount", 3, data!(keys::object_refcount)).readonly().keys(RO_SECOND),
];

const RENAME_KEYS: &[KeySpec] =
    &[range(1, 1, 1, &["RW", "access", "delete"]), range(2, 2, 1, &["OW", "update"])];
const RENAMENX_KEYS: &[KeySpec] =
    &[range(1, 1, 1, &["RW", "access", "delete"]), range(2, 2, 1, &["OW", "insert"])];
const COPY_KEYS: &[KeySpec] = &[range(1, 1, 1, &["RO", "access"]), range(2, 2, 1, &["OW", "update"])];
const SORT_KEYS: &[KeySpec] = &[range(1, 1, 1, &["RO", "access"]), PATTERNS, SORT_STORE];
const SORT_RO_KEYS: &[KeySpec] = &[range(1, 1, 1, &["RO", "access"]), PATTERNS];

/// The plans of commands that take or show a date.
const READ_DATE: fn(&[Blob]) -> Result<Plan, Reply> = |_| Ok(Plan::of_date(FragmentKind::Read));
const UPDATE_DATE: fn(&[Blob]) -> Result<Plan, Reply> = |_| Ok(Plan::of_date(FragmentKind::Update));

pub(super) const COMMANDS: &[Command] = &[
    generic("del", -2, per_key!(UPDATE, keys::del, keys::count_reply)).write().keys(RM_ALL),
    generic("unlink", -2, per_key!(UPDATE, keys::del, keys::count_reply)).write().fast().keys(RM_ALL),
    generic("exists", -2, per_key!(READ, keys::exists, keys::count_reply)).readonly().fast().keys(RO_ALL),
    generic("touch", -2, per_key!(READ, keys::exists, keys::count_reply)).readonly().fast().keys(RO_ALL),
    generic("type", 2, per_key!(READ, keys::type_of)).readonly().fast().keys(RO),
    generic("keys", 2, data!(listing::keys)).readonly().flags(Flags::HEAVY).dangerous(),
    generic("scan", -2, data!(listing::scan)).readonly(),
    generic("randomkey", 1, data!(listing::randomkey)).readonly().flags(Flags::ORDERED),
    generic("rename", 3, data!(keys::rename)).write().keys(RENAME_KEYS),
    generic("renamenx", 3, data!(keys::renamenx)).write().fast().keys(RENAMENX_KEYS),
    generic("copy", -3, data!(keys::copy)).stores().keys(COPY_KEYS),
    generic("expire", -3, per_key!(UPDATE, expiry::expire)).write().fast().keys(RW_UPDATE),
    generic("pexpire", -3, per_key!(UPDATE, expiry::pexpire)).write().fast().keys(RW_UPDATE),
    generic("expireat", -3, per_key!(UPDATE_DATE, expiry::expireat)).write().fast().keys(RW_UPDATE),
    generic("pexpireat", -3, per_key!(UPDATE_DATE, expiry::pexpireat)).write().fast().keys(RW_UPDATE),
    generic("ttl", 2, per_key!(READ, expiry::ttl)).readonly().fast().flags(Flags::ORDERED).keys(RO_ACCESS),
    generic("pttl", 2, per_key!(READ, expiry::pttl)).readonly().fast().flags(Flags::ORDERED).keys(RO_ACCESS),
    generic("expiretime", 2, per_key!(READ_DATE, expiry::expiretime)).readonly().fast().keys(RO_ACCESS),
    generic("pexpiretime", 2, per_key!(READ_DATE, expiry::pexpiretime)).readonly().fast().keys(RO_ACCESS),
    generic("persist", 2, per_key!(UPDATE, expiry::persist)).write().fast().keys(RW_UPDATE),
    generic("dump", 2, data!(dump::dump)).readonly().keys(RO_ACCESS),
    generic("restore", -4, data!(dump::restore)).stores().dangerous().keys(OW_UPDATE),
    sorting("sort", data!(sort::sort)).stores().keys(SORT_KEYS),
    sorting("sort_ro", data!(sort::sort_ro)).readonly().keys(SORT_RO_KEYS),
    generic("object", -2, Run::Container(OBJECT)),
];
