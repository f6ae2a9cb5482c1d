//! Giving scores to members: ZADD and ZINCRBY, and what GEOADD adds by.

use crate::commands::collections::{found_in, kept, stored, taken};
use crate::commands::options;
use crate::errors;
use crate::table::per_key::PerKeyResult;
use crate::work;
use txn::value::{Scored, SortedSetValue};
use txn::{Blob, FragmentContext, Note, Reply, told};

/// What ZADD's options say.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::commands) struct AddOptions {
    /// NX: members that are there keep their scores.
    pub only_absent: bool,
    /// XX: no new members.
    pub only_present: bool,
    /// GT: scores only grow.
    only_greater: bool,
    /// LT: scores only shrink.
    only_less: bool,
    /// CH: the reply counts what was changed, too.
    counts_changes: bool,
    /// INCR: the score is added to the old one.
    increment: bool,
}

/// What became of a member.
enum Effect {
    /// An option says that it stays as it is.
    Refused,
    /// It has the score that it had before.
    Kept(f64),
    Changed(f64),
    Added(f64),
}

impl AddOptions {
    /// Takes a word if it is an option.
    pub(in crate::commands) fn take(&mut self, word: &Blob) -> bool {
        let option = match word {
            word if options::is(word, "NX") => &mut self.only_absent,
            word if options::is(word, "XX") => &mut self.only_present,
            word if options::is(word, "GT") => &mut self.only_greater,
            word if options::is(word, "LT") => &mut self.only_less,
            word if options::is(word, "CH") => &mut self.counts_changes,
            word if options::is(word, "INCR") => &mut self.increment,
            _ => return false,
        };
        *option = true;
        true
    }

    /// Refuses options that exclude each other.
    fn check(self, members: usize) -> Result<(), Reply> {
        let one_way = self.only_greater || self.only_less;
        if self.only_absent && self.only_present {
            Err(errors::ZADD_NX_WITH_XX)
        } else if (self.only_absent && one_way) || (self.only_greater && self.only_less) {
            Err(errors::ZADD_GT_LT_NX)
        } else if self.increment && members > 1 {
            Err(errors::ZADD_INCR_OF_MANY)
        } else {
            Ok(())
        }
    }

    /// Gives one member its score.
    fn apply(self, set: &mut SortedSetValue, one: Scored) -> Result<Effect, Reply> {
        let Some(old) = set.score(&one.member) else {
            if self.only_present {
                return Ok(Effect::Refused);
            }
            set.insert(one.member, one.score);
            return Ok(Effect::Added(one.score));
        };
        if self.only_absent {
            return Ok(Effect::Refused);
        }
        let new = if self.increment { one.score + old } else { one.score };
        if new.is_nan() {
            return Err(errors::SCORE_NOT_A_NUMBER);
        }
        if (self.only_less && new >= old) || (self.only_greater && new <= old) {
            return Ok(Effect::Refused);
        }
        if new == old {
            return Ok(Effect::Kept(new));
        }
        set.insert(one.member, new);
        Ok(Effect::Changed(new))
    }
}

/// A score that a client gives.
pub(in crate::commands) fn score(argument: &Blob) -> Result<f64, Reply> {
    crate::parse::float(argument).ok_or(errors::NOT_A_FLOAT)
}

/// Gives members their scores, of which none is NaN. An increment has one member.
pub(in crate::commands) fn add(
    context: &FragmentContext<'_>,
    options: AddOptions,
    mut members: Vec<Scored>,
) -> PerKeyResult {
    let (mut set, expires_at_ms) = taken(found_in::<SortedSetValue>(context)?);
    let (mut added, mut changed, mut last) = (0, 0, Reply::Nil);
    if set.is_empty() && members.len() > 1 && !options.only_present {
        // All are new, if none comes twice.
        let all: SortedSetValue = members.iter().map(|one| (one.member.clone(), one.score)).collect();
        if all.len() == members.len() {
            added = all.len() as i64;
            (set, members) = (all, Vec::new());
        }
    }
    for one in members {
        let effect = match options.apply(&mut set, one) {
            Ok(effect) => effect,
            // Of an increment, which has one member.
            Err(error) => return Ok(kept(context, set, expires_at_ms, error)),
        };
        let score = match effect {
            Effect::Refused => continue,
            Effect::Kept(score) => score,
            Effect::Changed(score) => {
                changed += 1;
                score
            }
            Effect::Added(score) => {
                added += 1;
                score
            }
        };
        last = Reply::Double(score);
    }
    let reply = match options {
        _ if options.increment => last,
        _ if options.counts_changes => Reply::Integer(added + changed),
        _ => Reply::Integer(added),
    };
    if added + changed == 0 {
        return Ok(kept(context, set, expires_at_ms, reply));
    }
    work::scored((added + changed) as usize);
    if options.increment {
        told::note(|| Note::Named("zincr".into()));
    }
    Ok(stored(set, expires_at_ms, reply))
}

fn add_words(args: &[Blob], context: &FragmentContext<'_>, mut options: AddOptions) -> PerKeyResult {
    let words = args[1..].iter().take_while(|word| options.take(word));
    let first = 1 + words.count();
    let (pairs, []) = args[first..].as_chunks::<2>() else {
        return Err(errors::SYNTAX);
    };
    if pairs.is_empty() {
        return Err(errors::SYNTAX);
    }
    options.check(pairs.len())?;
    let mut members = Vec::with_capacity(pairs.len());
    for [given, member] in pairs {
        members.push(Scored { score: score(given)?, member: member.clone() });
    }
    add(context, options, members)
}

/// ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]
pub fn zadd(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    add_words(args, context, AddOptions::default())
}

/// ZINCRBY key increment member
pub fn zincrby(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    add_words(args, context, AddOptions { increment: true, ..AddOptions::default() })
}
