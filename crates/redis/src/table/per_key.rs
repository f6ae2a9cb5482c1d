//! Commands that do something to each of their keys by itself.
//!
//! Such a command is a function of its words and of one record ([`PerKey`]). An engine that plans executes
//! the function where the record's turn comes ([`txn::fragments`]), also for a block of such commands. In
//! every other place (under another engine, in a script) the function is executed for one key after the
//! other.

use super::command::{KeyPlaces, KeySpec};
use crate::arguments::Arguments;
use crate::work;
use std::iter::StepBy;
use std::ops::Range;
use txn::fragments::{Done, FragmentValues, Operation, run_in_order};
use txn::{
    Args, Blob, Fragment, FragmentCode, FragmentContext, FragmentKind, FragmentValue, Fragments, Key,
    ProcedureFuture, Reply, Stop, Tx,
};

/// A command that does something to each of its keys by itself.
#[derive(Clone, Copy, Debug)]
pub struct PerKey {
    /// How the command treats its records, by its words. An error is the reply, and the command looks at no
    /// record.
    pub plan: fn(&[Blob]) -> Result<Plan, Reply>,
    /// What the command does to one record, and what it replies.
    pub code: FragmentCode,
}

/// How a command treats the records of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it does to each.
    pub kind: FragmentKind,
    /// Whether its words have a date: then the only input is the clock's offset ([`date_offset_ms`]).
    pub takes_date: bool,
    /// Whether it takes what an earlier command of its transaction has made, to change it in place
    /// ([`FragmentContext::own`]).
    pub takes_own: bool,
}

impl Plan {
    /// The plan of a command that takes no date.
    pub const fn of(kind: FragmentKind) -> Plan {
        Plan { kind, takes_date: false, takes_own: false }
    }
    /// The plan of a command that takes a date.
    pub const fn of_date(kind: FragmentKind) -> Plan {
        Plan { kind, takes_date: true, takes_own: false }
    }
    /// The plan of a command that changes a collection, in place if it may.
    pub const fn of_change() -> Plan {
        Plan { kind: FragmentKind::Update, takes_date: false, takes_own: true }
    }
}

/// What a command does to one record. An error is a reply, and the record stays as it is.
pub type PerKeyResult = Result<Done, Reply>;

/// The input of commands that take a date: the clock's offset.
pub(crate) async fn date_input(tx: &mut Tx, takes_date: bool) -> Result<Option<FragmentValue>, Stop> {
    match takes_date {
        true => Ok(Some(Reply::Integer(tx.clock_offset_ms().await?).into())),
        false => Ok(None),
    }
}

/// How far epoch time is ahead of the time of day, for commands with a [`Plan::of_date`].
pub fn date_offset_ms(context: &FragmentContext<'_>) -> i64 {
    match context.inputs.first() {
        Some(FragmentValue::Reply(Reply::Integer(offset_ms))) => *offset_ms,
        _ => 0,
    }
}

impl PerKey {
    /// Runs the command for one key after the other.
    pub(super) fn start(
        &'static self,
        keys: &'static KeySpec,
        mut tx: Tx,
        args: Arguments,
    ) -> ProcedureFuture {
        Box::pin(async move {
            let Plan { kind, takes_date, .. } = match (self.plan)(&args) {
                Ok(plan) => plan,
                Err(error) => return Ok(error),
            };
            let offset_ms = date_input(&mut tx, takes_date).await?;
            let keys = tx.expecting(places(keys, &args).map(|place| Key::from(&args[place - 1])));
            // A caller whose steps are spent takes any reply.
            let keys = keys.take_while(|_| !work::is_spent());
            run_in_order(&mut tx, &args, self.code, kind, keys, offset_ms.as_slice()).await
        })
    }

    /// The command as fragments, if it has a [`PerKey::dateless_plan`].
    pub(super) fn fragments(&self, keys: &KeySpec, args: &Args) -> Option<Fragments> {
        let Plan { kind, .. } = self.dateless_plan(args)?;
        let list = self.keys(keys, args).map(|key| Fragment::independent(key, kind));
        Fragments::new(list.collect(), self.code)
    }

    /// How each of its fragments treats its record. `None` if the words are wrong, or have a date: the
    /// clock's offset is a record, too.
    pub(crate) fn dateless_plan(&self, args: &[Blob]) -> Option<Plan> {
        (self.plan)(args).ok().filter(|plan| !plan.takes_date)
    }

    /// What it does to the record of its key at a place, among others' operations.
    pub(crate) fn operation<'a>(&self, plan: Plan, args: &'a [Blob], place: usize) -> Operation<'a> {
        Operation { code: self.code, args, kind: plan.kind, place, takes_own: plan.takes_own }
    }

    /// Its key, if its words name exactly one.
    pub(crate) fn only_key(&self, keys: &KeySpec, args: &[Blob]) -> Option<Key> {
        if let KeyPlaces::Range { first: 1, last: 1, .. } = keys.places {
            return args.first().map(Key::from);
        }
        let mut places = places(keys, args);
        match (places.next(), places.next()) {
            (Some(place), None) => Some(Key::from(&args[place - 1])),
            _ => None,
        }
    }

    /// Its keys, in their order.
    pub(crate) fn keys(&self, keys: &KeySpec, args: &[Blob]) -> impl Iterator<Item = Key> {
        places(keys, args).map(|place| Key::from(&args[place - 1]))
    }
}

/// The places of the keys among the words, the command's name at 0.
fn places(keys: &KeySpec, args: &[Blob]) -> StepBy<Range<usize>> {
    keys.places_in(args.len() + 1, |_| None).unwrap_or((0..0).step_by(1))
}

/// The first error among the values of several keys: of a function that panicked.
pub fn error_among(values: &mut FragmentValues) -> Option<Reply> {
    let place = values.iter().position(FragmentValue::is_error)?;
    Some(values.swap_remove(place).into_reply())
}

#[cfg(test)]
mod tests {
    use crate::table::{COMMANDS, Data, Run};
    use txn::{Args, Blob, clock};

    /// The clock's offset is an input of commands that take a date: a key set without it would not do.
    #[test]
    fn commands_that_take_a_date_declare_the_clocks_offset() {
        let mut taking_a_date = 0;
        for command in COMMANDS {
            let Run::Data(Data::PerKey(per_key)) = command.run else {
                continue;
            };
            for words in ["k 5", "k v EXAT 5", "k v PXAT 5", "k EXAT 5", "k PXAT 5", "k 5 NX", "k", "k v"] {
                let args: Args = words.split(' ').map(Blob::from).collect();
                if !command.arity_fits(args.len() + 1) {
                    continue;
                }
                if (per_key.plan)(&args).is_ok_and(|plan| plan.takes_date) {
                    taking_a_date += 1;
                    let keys = command.footprint(&args).keys.expect("such a command declares its keys");
                    assert!(keys.reads.contains(&clock::offset_key()), "{} {words}", command.name);
                    assert!(command.fragments(&args).is_none(), "{} {words}", command.name);
                }
            }
        }
        assert!(taking_a_date > 5, "{taking_a_date}");
    }
}
