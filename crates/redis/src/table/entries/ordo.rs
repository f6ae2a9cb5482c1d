//! Commands that Redis does not have.

use super::*;

pub(super) const COMMANDS: &[Command] = &[
    // The record is written and takes memory, whatever the command inside does.
    Command::new("ordo.idempotent", -3, Group::Transactions, Run::Idempotent)
        .stores()
        .noscript()
        .flags(Flags::NO_MANDATORY_KEYS.with(Flags::MOVABLEKEYS)),
];
