//! Commands that Redis does not have.

use super::*;
use crate::commands::transactions;

/// A command about the transaction that its connection holds open.
const fn transaction(name: &'static str, arity: i16) -> Command {
    Command::new(name, arity, Group::Transactions, data!(transactions::without_hierarchy))
        .fast()
        .noscript()
        .flags(Flags::NO_MULTI)
}

pub(super) const COMMANDS: &[Command] = &[
    // The record is written and takes memory, whatever the command inside does.
    Command::new("ordo.idempotent", -3, Group::Transactions, Run::Idempotent)
        .stores()
        .noscript()
        .flags(Flags::NO_MANDATORY_KEYS.with(Flags::MOVABLEKEYS)),
    transaction("ordo.begin", -1),
    transaction("ordo.commit", 1),
    transaction("ordo.rollback", 1),
];
