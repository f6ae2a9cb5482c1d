//! ORDO.AT: a command that reads what was there at a moment of the past.
//!
//! `ORDO.AT <time> <command ...>` runs a data command that only reads, as if it had come at that time: it
//! finds what had been written when the time was over, and entries whose time to live was over then are gone.
//! The time is one of the order, in milliseconds since 1970; a negative number is a number of milliseconds
//! before now.
//!
//! It is a read beside the order ([`Procedure::moment`]): the node runs it at a snapshot of the past, if it
//! keeps the versions of that time. It is in no block, no script and not in ORDO.IDEMPOTENT: these run in the
//! present.

use crate::errors;
use crate::execute::{Caller, Terms, execute};
use crate::table::{self, Flags, Run};
use txn::{Args, Blob, Call, Footprint, Procedure, ProcedureFuture, Reply, Tx, Weight};

const NO_TIME: Reply = Reply::error(
    "ERR the time of ORDO.AT is a number of milliseconds since 1970, or, if it is negative, the number of \
     milliseconds before now",
);
/// The reply of a call that has reached the order.
const ORDERED: Reply =
    Reply::error("ERR ORDO.AT reads beside the order, and this node orders it: send it again by itself");

/// A call, found and checked.
struct Past<'a> {
    moment: i64,
    /// The command's words, its name first.
    argv: &'a [Blob],
}

impl<'a> Past<'a> {
    /// Reads the words after `ORDO.AT`. The error is the reply.
    fn parse(args: &'a [Blob]) -> Result<Past<'a>, Reply> {
        let [time, argv @ ..] = args else {
            return Err(errors::wrong_arity_of("ordo.at"));
        };
        let moment = std::str::from_utf8(time).ok().and_then(|text| text.parse().ok()).ok_or(NO_TIME)?;
        let command = table::resolve(argv).map_err(|error| error.reply(argv, Caller::Block))?.command;
        match command.run {
            Run::Data(_) if command.is(Flags::READONLY) && !command.is(Flags::BLOCKING) => {
                Ok(Past { moment, argv })
            }
            _ => Err(Reply::error_owned(format!(
                "ERR ORDO.AT takes a data command that only reads, and no script: not '{}'",
                command.name
            ))),
        }
    }
}

/// The command inside, from the words after `ORDO.AT`: its words, its name first. The error is the reply.
pub(crate) fn inner(args: &[Blob]) -> Result<&[Blob], Reply> {
    Past::parse(args).map(|past| past.argv)
}

/// The footprint of a call. The error is the reply.
pub(crate) fn footprint(args: &[Blob]) -> Result<Footprint, Reply> {
    // A reader's thread runs it: old versions may be many.
    Past::parse(args).map(|_| Footprint { weight: Weight::Heavy, ..Footprint::read_only() })
}

/// The procedure `redis.at`: its arguments are the words after `ORDO.AT`.
pub struct PastProcedure;

impl Procedure for PastProcedure {
    fn name(&self) -> &str {
        "redis.at"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        // A refused call reads nothing.
        footprint(args).unwrap_or_else(|_| Footprint::of_keys(Vec::new(), Vec::new()))
    }
    fn moment(&self, args: &[Blob]) -> Option<i64> {
        Past::parse(args).ok().map(|past| past.moment)
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        // Only what is in the order has a name there.
        let reply = match Past::parse(&call) {
            _ if tx.name().is_some() => ORDERED,
            Err(error) => error,
            Ok(past) => {
                return execute(tx, past.argv.iter().cloned().collect(), Caller::Block, Terms::default());
            }
        };
        Box::pin(std::future::ready(Ok(reply)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(i64, String), String> {
        let words: Vec<Blob> = line.split(' ').map(Blob::from).collect();
        match Past::parse(&words) {
            Ok(past) => Ok((past.moment, String::from_utf8_lossy(&past.argv[0]).into_owned())),
            Err(Reply::Error(text)) => Err(text.into_owned()),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_takes_a_time_and_a_command_that_only_reads() {
        assert_eq!(parsed("1795822801118 get a"), Ok((1_795_822_801_118, "get".to_owned())));
        assert_eq!(parsed("-5000 HGETALL a"), Ok((-5_000, "HGETALL".to_owned())));
        for (line, text) in [
            ("yesterday get a", "milliseconds since 1970"),
            ("1.5 get a", "milliseconds since 1970"),
            ("5 set a 1", "only reads, and no script: not 'set'"),
            ("5 getdel a", "not 'getdel'"),
            ("5 eval_ro script 0", "not 'eval_ro'"),
            ("5 xread block 0 streams a 1", "not 'xread'"),
            ("5 ordo.at 5 get a", "not 'ordo.at'"),
            ("5 ordo.idempotent id get a", "not 'ordo.idempotent'"),
            ("5 multi", "not 'multi'"),
            ("5 get", "wrong number of arguments for 'get'"),
            ("5 nothing", "unknown command 'nothing'"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(text), "{line}: {error}");
        }
    }
}
