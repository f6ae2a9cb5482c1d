//! Commands that Redis does not have.

use super::ConnectionCommand as C;
use super::*;
use crate::commands::{sites, transactions};
use crate::table::OrdoBackupCommand as B;

/// A command about the transaction that its connection holds open.
const fn transaction(name: &'static str, arity: i16) -> Command {
    Command::new(name, arity, Group::Transactions, data!(transactions::without_certification))
        .fast()
        .noscript()
        .flags(Flags::NO_MULTI)
}

/// A command about the sites that have, or must have, what its connection has seen or written. It waits for
/// them, which is not slow.
const fn of_sites(name: &'static str, arity: i16) -> Command {
    Command::new(name, arity, Group::Connection, data!(sites::without_sites))
        .noscript()
        .flags(Flags::NO_MULTI.with(Flags::SKIP_SLOWLOG))
}

const fn backup(name: &'static str, arity: i16, command: B) -> Command {
    Command::new(name, arity, Group::Server, Run::Connection(C::OrdoBackup(command)))
        .admin()
        .noscript()
        .flags(Flags::STALE)
}

const ORDO_BACKUP: &[Command] = &[
    // Files take their time: no block waits for them.
    backup("ordo.backup|file", 5, B::File).flags(Flags::NO_MULTI),
    Command::new("ordo.backup|help", 2, Group::Server, help!("ORDO.BACKUP")).always(),
    // It waits for more where there is none, which is not slow.
    backup("ordo.backup|log", -4, B::Log).flags(Flags::NO_MULTI).flags(Flags::SKIP_SLOWLOG),
    backup("ordo.backup|where", 2, B::Where),
];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("ordo.at", -3, Group::Generic, Run::Past)
        .readonly()
        .noscript()
        .flags(Flags::NO_MULTI.with(Flags::NO_MANDATORY_KEYS).with(Flags::MOVABLEKEYS)),
    Command::new("ordo.backup", -2, Group::Server, Run::Container(ORDO_BACKUP)),
    Command::new("ordo.changes", 1, Group::Server, Run::Connection(C::OrdoChanges))
        .admin()
        .noscript()
        .flags(Flags::STALE),
    // The record is written and takes memory, whatever the command inside does.
    Command::new("ordo.idempotent", -3, Group::Transactions, Run::Idempotent)
        .stores()
        .noscript()
        .flags(Flags::NO_MANDATORY_KEYS.with(Flags::MOVABLEKEYS)),
    transaction("ordo.begin", -1),
    transaction("ordo.commit", 1),
    transaction("ordo.rollback", 1),
    of_sites("ordo.session", -1),
    of_sites("ordo.wait", -4),
];
