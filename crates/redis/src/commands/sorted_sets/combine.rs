//! Unions, intersections and differences of sorted sets and of plain sets, whose members have the score 1.

use super::{collected, members_reply};
use crate::commands::collections::{source_intent, store};
use crate::commands::options;
use crate::commands::strings::found;
use crate::work;
use crate::{errors, parse};
use txn::hash::SecretMap;
use txn::value::{Scored, ScoredRef, SetValue, SortedSetValue};
use txn::{Blob, BlobRef, Key, Outcome, Reply, Stop, Tx, Value};

/// What is made of the sources.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
    /// The number of members of the intersection.
    IntersectionSize,
}

/// What becomes of the scores of a member that several sources have.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(word: &Blob) -> Option<Aggregate> {
        Some(match word {
            word if options::is(word, "SUM") => Aggregate::Sum,
            word if options::is(word, "MIN") => Aggregate::Min,
            word if options::is(word, "MAX") => Aggregate::Max,
            _ => return None,
        })
    }
    fn of_scores(self, one: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => number_or_zero(one + other),
            Aggregate::Min if other < one => other,
            Aggregate::Max if other > one => other,
            Aggregate::Min | Aggregate::Max => one,
        }
    }
}

/// Infinity less infinity, and infinity times nothing, are 0 here.
fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What a key has.
#[derive(Clone)]
enum Source {
    Absent,
    Set(SetValue),
    Sorted(SortedSetValue),
}

impl Source {
    fn len(&self) -> usize {
        match self {
            Source::Absent => 0,
            Source::Set(set) => set.len(),
            Source::Sorted(set) => set.len(),
        }
    }
    fn score(&self, member: &[u8]) -> Option<f64> {
        work::element(member);
        match self {
            Source::Absent => None,
            Source::Set(set) => set.contains(member).then_some(1.0),
            Source::Sorted(set) => set.score(member),
        }
    }
    fn members(&self) -> Box<dyn Iterator<Item = (BlobRef<'_>, f64)> + Send + '_> {
        match self {
            Source::Absent => Box::new(std::iter::empty()),
            Source::Set(set) => Box::new(set.names().map(|name| (name, 1.0))),
            Source::Sorted(set) => Box::new(set.iter().map(|one| (one.member, one.score))),
        }
    }
}

struct Weighted {
    source: Source,
    weight: f64,
}

impl Weighted {
    fn score(&self, score: f64) -> f64 {
        number_or_zero(self.weight * score)
    }
}

/// The sources, and what the options say.
struct Combination {
    sources: Vec<Weighted>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Where counting stops.
    limit: usize,
}

impl Combination {
    /// Reads the sources and then the options behind them: a source of another type is told first, as in
    /// Redis.
    async fn read(
        tx: &mut Tx,
        args: &[Blob],
        operation: Operation,
        destination: Option<&Blob>,
        command: &'static str,
    ) -> Result<Result<Combination, Reply>, Stop> {
        let count = match options::integer(&args[0]) {
            Ok(count) => count,
            Err(error) => return Ok(Err(error)),
        };
        if count < 1 {
            return Ok(Err(errors::no_input_key(command)));
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let Some((keys, words)) = args[1..].split_at_checked(count) else {
            return Ok(Err(errors::SYNTAX));
        };
        let mut sources = Vec::with_capacity(keys.len());
        for name in keys {
            let intent = source_intent(name, destination);
            let entry = tx.read(&Key::from(name), intent).await?.entry;
            let source = match entry.map(|entry| entry.value) {
                None => Source::Absent,
                Some(Value::Set(set)) => Source::Set(set),
                Some(Value::SortedSet(set)) => Source::Sorted(set),
                Some(_) => return Ok(Err(errors::WRONG_TYPE)),
            };
            let weight = 1.0;
            sources.push(Weighted { source, weight });
        }
        let mut combination =
            Combination { sources, aggregate: Aggregate::Sum, with_scores: false, limit: usize::MAX };
        let options = combination.take_options(words, operation, destination.is_some());
        Ok(options.map(|()| combination))
    }

    fn take_options(
        &mut self,
        mut words: &[Blob],
        operation: Operation,
        is_stored: bool,
    ) -> Result<(), Reply> {
        let has_scores = matches!(operation, Operation::Union | Operation::Intersection);
        let counts = operation == Operation::IntersectionSize;
        while let [word, rest @ ..] = words {
            words = match rest {
                weights
                    if has_scores && weights.len() >= self.sources.len() && options::is(word, "WEIGHTS") =>
                {
                    let (weights, rest) = weights.split_at(self.sources.len());
                    for (source, weight) in self.sources.iter_mut().zip(weights) {
                        source.weight = parse::float(weight).ok_or(errors::WEIGHT_NOT_A_FLOAT)?;
                    }
                    rest
                }
                [how, rest @ ..] if has_scores && options::is(word, "AGGREGATE") => {
                    self.aggregate = Aggregate::of(how).ok_or(errors::SYNTAX)?;
                    rest
                }
                rest if !is_stored && !counts && options::is(word, "WITHSCORES") => {
                    self.with_scores = true;
                    rest
                }
                [limit, rest @ ..] if counts && options::is(word, "LIMIT") => {
                    let limit = options::count(limit, 0, errors::LIMIT_NEGATIVE)?;
                    self.limit = if limit == 0 { usize::MAX } else { limit };
                    rest
                }
                _ => return Err(errors::SYNTAX),
            };
        }
        Ok(())
    }

    /// Smaller sources first: the smallest is the one that an intersection goes over, and scores are added in
    /// this order.
    fn sort(&mut self) {
        self.sources.sort_by_key(|weighted| weighted.source.len());
    }

    fn union(&self) -> Vec<Scored> {
        let mut scores: SecretMap<BlobRef<'_>, f64> = SecretMap::default();
        for weighted in &self.sources {
            for (member, score) in weighted.source.members().take_while(|_| !work::is_spent()) {
                let score = weighted.score(score);
                work::element(&member);
                scores
                    .entry(member)
                    .and_modify(|sum| *sum = self.aggregate.of_scores(*sum, score))
                    .or_insert(score);
            }
        }
        let scored = scores.into_iter_in_any_order();
        let scored = scored.map(|(member, score)| Scored { score, member: member.to_blob() });
        in_order(scored.collect())
    }

    /// The members that all sources have, in the order of the smallest.
    fn intersection(&self) -> impl Iterator<Item = Scored> {
        let (first, others) = match &self.sources[..] {
            [first, others @ ..] => (Some(first), others),
            [] => (None, &[][..]),
        };
        let members = first.into_iter().flat_map(|first| {
            let members = first.source.members();
            members.map(|(member, score)| (member, first.score(score)))
        });
        let members = members.take_while(|_| !work::is_spent());
        members.filter_map(move |(member, first)| {
            let mut sum = first;
            for weighted in others {
                // What is NaN here is one in the sum, too, and 0 there.
                let score = weighted.weight * weighted.source.score(&member)?;
                sum = self.aggregate.of_scores(sum, score);
            }
            let member = member.to_blob();
            Some(Scored { score: sum, member })
        })
    }

    /// The members that only the first source has.
    fn difference(&self) -> SortedSetValue {
        let [first, others @ ..] = &self.sources[..] else {
            return SortedSetValue::new();
        };
        let others_len: usize = others.iter().map(|other| other.source.len()).sum();
        let questions = first.source.len().saturating_mul(others.len());
        // Removing from a clone costs by what is removed; asking the others costs by the size of the first.
        if let Source::Sorted(set) = &first.source
            && others_len < questions
        {
            let mut left = SortedSetValue::clone(set);
            for other in others {
                for (member, _) in other.source.members().take_while(|_| !work::is_spent()) {
                    work::element(&member);
                    work::scored(usize::from(left.remove(&member).is_some()));
                }
            }
            return left;
        }
        let is_elsewhere = |member: &[u8]| {
            let mut others = others.iter();
            others.any(|other| other.source.score(member).is_some())
        };
        let members = first.source.members().take_while(|_| !work::is_spent());
        let left = members.filter(|(member, _)| !is_elsewhere(member));
        collected(left.map(|(member, score)| (member.to_blob(), score)))
    }
}

fn in_order(mut members: Vec<Scored>) -> Vec<Scored> {
    work::sorted(members.len());
    members.sort_unstable_by(|one, other| one.cmp(other.score, &other.member));
    members
}

async fn combine(
    tx: &mut Tx,
    args: &[Blob],
    operation: Operation,
    destination: Option<&Blob>,
    command: &'static str,
) -> Outcome {
    let read = Combination::read(tx, args, operation, destination, command);
    let mut combination = found!(read);
    if operation != Operation::Difference {
        combination.sort();
    }
    let members = match operation {
        Operation::Union => combination.union(),
        Operation::Intersection => in_order(combination.intersection().collect()),
        Operation::IntersectionSize => {
            let size = combination.intersection().take(combination.limit).count();
            return Ok(Reply::Integer(size as i64));
        }
        Operation::Difference => {
            let left = combination.difference();
            return match destination {
                Some(destination) => store(tx, destination, left).await,
                None => Ok(members_reply(left.iter(), combination.with_scores)),
            };
        }
    };
    match destination {
        None => Ok(members_reply(members.iter().map(ScoredRef::from), combination.with_scores)),
        Some(destination) => {
            let pairs = members.into_iter().map(|one| (one.member, one.score));
            store(tx, destination, collected(pairs)).await
        }
    }
}

/// ZUNION numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub async fn zunion(tx: &mut Tx, args: &[Blob]) -> Outcome {
    combine(tx, args, Operation::Union, None, "zunion").await
}

/// ZINTER numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub async fn zinter(tx: &mut Tx, args: &[Blob]) -> Outcome {
    combine(tx, args, Operation::Intersection, None, "zinter").await
}

/// ZDIFF numkeys key [key ...] [WITHSCORES]
pub async fn zdiff(tx: &mut Tx, args: &[Blob]) -> Outcome {
    combine(tx, args, Operation::Difference, None, "zdiff").await
}

/// ZINTERCARD numkeys key [key ...] [LIMIT limit]
pub async fn zintercard(tx: &mut Tx, args: &[Blob]) -> Outcome {
    combine(tx, args, Operation::IntersectionSize, None, "zintercard").await
}

/// ZUNIONSTORE destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX]
pub async fn zunionstore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let destination = Some(&args[0]);
    combine(tx, &args[1..], Operation::Union, destination, "zunionstore").await
}

/// ZINTERSTORE destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX]
pub async fn zinterstore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let destination = Some(&args[0]);
    let operation = Operation::Intersection;
    combine(tx, &args[1..], operation, destination, "zinterstore").await
}

/// ZDIFFSTORE destination numkeys key [key ...]
pub async fn zdiffstore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let destination = Some(&args[0]);
    let operation = Operation::Difference;
    combine(tx, &args[1..], operation, destination, "zdiffstore").await
}
