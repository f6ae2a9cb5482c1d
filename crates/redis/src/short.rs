//! Scripts and functions that were admitted while their node was short of memory.
//!
//! A command that may take memory is refused at its node when that is above `maxmemory`: before the order, so
//! that no replica needs to agree. What a script will write shows only while it runs, and then every replica
//! must refuse the same commands, whatever memory it has itself. So the node decides when it admits the
//! script, and says so in the request: the procedure `redis.short-of-memory` runs the command that its
//! arguments are, with [`Memory::Short`]. Blocks say it in their header, and so does `redis.acting` of a
//! command ([`crate::acl::acting`]): who may not do everything while memory is short sends that.
//!
//! As in Redis, such a script may go on once it has written: it is refused at its first write or not at all.
//! One that declares flags is refused as a whole, unless `allow-oom` or `no-writes` is among them.

use crate::errors;
use crate::execute::{Caller, Memory, Terms, execute};
use crate::idempotent;
use crate::script;
use crate::table::{self, Resolved, Run};
use crate::telling::telling;
use txn::{Args, Blob, Call, Footprint, Procedure, ProcedureFuture, Tx};

/// The procedure `redis.short-of-memory`: its arguments are the words of a command, its name first.
pub struct ShortProcedure;

/// Whether a command shows only while it runs whether it takes memory: `argv` with its name first, as it was
/// resolved.
pub(crate) fn decides_late(resolved: &Resolved, argv: &[Blob]) -> bool {
    match resolved.command.run {
        Run::Script(command) => command.may_write_keys(),
        Run::Idempotent => idempotent::inner(&argv[1..])
            .is_ok_and(|inner| table::resolve(inner).is_ok_and(|resolved| decides_late(&resolved, inner))),
        _ => false,
    }
}

/// What a command of scripts, or one that may hold one, touches.
fn footprint(argv: &[Blob]) -> Footprint {
    let nothing = || Footprint::of_keys(Vec::new(), Vec::new());
    let Ok(resolved) = table::resolve(argv) else {
        // It replies an error.
        return nothing();
    };
    match resolved.command.run {
        Run::Script(command) => {
            let skipped = 1 + usize::from(resolved.subplace.is_some());
            script::footprint(command, argv.get(skipped..).unwrap_or_default(), true)
        }
        Run::Idempotent => idempotent::footprint(&argv[1..], true).unwrap_or_else(|_| nothing()),
        _ => resolved.command.footprint(&argv[1..]),
    }
}

impl Procedure for ShortProcedure {
    fn name(&self) -> &str {
        "redis.short-of-memory"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        footprint(args)
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        if call.is_empty() {
            return Box::pin(std::future::ready(Ok(errors::NO_PROCEDURE)));
        }
        let argv: Args = call.iter().cloned().collect();
        let terms = Terms { memory: Memory::Short, ..Terms::default() };
        telling("redis.short-of-memory", execute(tx, argv, Caller::Block, terms))
    }
}
