//! Commands that Redis does not have.

use super::*;

pub(super) const COMMANDS: &[Command] = &[
    // The record is written and takes memory, whatever the command inside does.
    Command::new("ordo.idempotent", -3, Group::Transactions, Run::Idempotent)
        .write()
        .denyoom()
        .noscript()
        .flags(Flags::NO_MANDATORY_KEYS.with(Flags::MOVABLEKEYS))
        .about(
            "0.1.0",
            "That of the command.",
            "Runs a command once, however often it is sent with the same id within an hour.",
        ),
];
