//! Over which keys transactions conflict, and which transactions these are: a sample.
//!
//! The sample has the transactions at one of [`ONE_IN`] positions; the others pay one comparison where they
//! wait or start over. The earlier transaction knows the key when it dooms the later one, and notes it. The
//! later one knows its own procedure when it starts over, and counts the note then. No transaction waits for
//! the sample: what finds it busy is not noted.
//!
//! Counts are kept for [`KEPT_MAX`] conflicts, those that are met most (the space-saving algorithm: Metwally,
//! Agrawal, El Abbadi, ICDT 2005), and are halved from time to time, so that they tell of now.

use std::collections::BTreeMap;
use store::sync::Mutex;
use txn::{Key, Position};

/// One position in so many is looked at.
pub const ONE_IN: u64 = 8;
/// Conflicts that are counted at a time.
const KEPT_MAX: usize = 64;
/// After so many, all counts are halved.
const HALVED_AFTER: u64 = 4_096;
/// Dooms whose victim has not started over yet. Beyond it the oldest are forgotten: an incarnation may end
/// before it notices.
const NOTED_MAX: usize = 256;

/// What one transaction did to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A later one waited for an earlier one, which holds the key.
    Waited,
    /// A later one had read what an earlier one then wrote.
    Overwritten,
    /// A later one had read what an earlier one then took back.
    Withdrawn,
    /// A later one had the key before an earlier one wanted it.
    Preempted,
    /// An earlier one cleared the database.
    Cleared,
    /// Something at another partition, which tells no more.
    Elsewhere,
    /// The sample does not know.
    Unknown,
}

impl Cause {
    /// All.
    pub const ALL: [Cause; 7] = [
        Cause::Waited,
        Cause::Overwritten,
        Cause::Withdrawn,
        Cause::Preempted,
        Cause::Cleared,
        Cause::Elsewhere,
        Cause::Unknown,
    ];

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Waited => "waited",
            Cause::Overwritten => "overwritten",
            Cause::Withdrawn => "withdrawn",
            Cause::Preempted => "preempted",
            Cause::Cleared => "cleared",
            Cause::Elsewhere => "elsewhere",
            Cause::Unknown => "unknown",
        }
    }
}

/// A kind of conflict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// Over which key, if it is known.
    pub key: Option<Key>,
    /// What happened.
    pub cause: Cause,
    /// The earlier transaction's procedure, if it is known.
    pub by: Option<Box<str>>,
    /// The procedure of the one that waited or started over.
    pub of: Box<str>,
}

/// What an engine has noted. Cheap to be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// How often each has happened lately, about, most frequent first.
    pub lately: Vec<(Conflict, u64)>,
    /// How often each cause has been met since the engine was made, about.
    pub causes: [u64; Cause::ALL.len()],
}

impl Conflicts {
    /// Those of several engines.
    pub fn merged(all: impl IntoIterator<Item = Conflicts>) -> Conflicts {
        let mut causes = [0; Cause::ALL.len()];
        let mut counts = BTreeMap::new();
        for one in all {
            for (conflict, count) in one.lately {
                *counts.entry(conflict).or_default() += count;
            }
            for (sum, more) in causes.iter_mut().zip(one.causes) {
                *sum += more;
            }
        }
        Conflicts { lately: most_frequent_first(counts), causes }
    }
}

fn most_frequent_first(counts: BTreeMap<Conflict, u64>) -> Vec<(Conflict, u64)> {
    let mut all: Vec<_> = counts.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all
}

/// A doom that was noted.
struct Noted {
    incarnation: u16,
    key: Option<Key>,
    cause: Cause,
    by: Option<Box<str>>,
}

#[derive(Default)]
struct Kept {
    noted: BTreeMap<Position, Noted>,
    counts: BTreeMap<Conflict, u64>,
    /// The sum of all additions since the last halving.
    added: u64,
    causes: [u64; Cause::ALL.len()],
}

/// Where an engine notes conflicts.
#[derive(Default)]
pub(crate) struct Sample {
    kept: Mutex<Kept>,
}

impl Sample {
    /// Whether the transaction at a position is looked at.
    #[inline]
    pub fn has(&self, position: Position) -> bool {
        // Spread, because the same command may come at each eighth position.
        position.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ONE_IN.ilog2()) == 0
    }

    /// An incarnation of the transaction at `victim` is to start over. The first note of it counts.
    #[cold]
    pub fn doomed(&self, victim: (Position, u16), key: Option<&Key>, cause: Cause, by: Option<&str>) {
        let (position, incarnation) = victim;
        let Some(mut kept) = self.kept.try_lock() else { return };
        if kept.noted.get(&position).is_some_and(|noted| noted.incarnation >= incarnation) {
            return;
        }
        let noted = Noted { incarnation, key: key.cloned(), cause, by: by.map(Into::into) };
        kept.noted.insert(position, noted);
        if kept.noted.len() > NOTED_MAX {
            kept.noted.pop_first();
        }
    }

    /// That incarnation starts over; its procedure, and whether it has siblings at other partitions.
    #[cold]
    pub fn restarted(&self, victim: (Position, u16), of: &str, has_siblings: bool) {
        let (position, incarnation) = victim;
        let Some(mut kept) = self.kept.try_lock() else { return };
        let noted = kept.noted.remove(&position).filter(|noted| noted.incarnation == incarnation);
        let (key, cause, by) = match noted {
            Some(Noted { key, cause, by, .. }) => (key, cause, by),
            None if has_siblings => (None, Cause::Elsewhere, None),
            None => (None, Cause::Unknown, None),
        };
        kept.add(Conflict { key, cause, by, of: of.into() });
    }

    /// A transaction waits for a key.
    #[cold]
    pub fn waits(&self, key: &Key, of: &str) {
        let conflict = Conflict { key: Some(key.clone()), cause: Cause::Waited, by: None, of: of.into() };
        if let Some(mut kept) = self.kept.try_lock() {
            kept.add(conflict);
        }
    }

    /// The transactions from `from` on are void: others will have their positions.
    pub fn retract(&self, from: Position) {
        self.kept.lock().noted.split_off(&from);
    }

    pub fn report(&self) -> Conflicts {
        let kept = self.kept.lock();
        let (counts, causes) = (kept.counts.clone(), kept.causes);
        drop(kept);
        let mut lately = most_frequent_first(counts);
        lately.iter_mut().for_each(|(_, count)| *count *= ONE_IN);
        Conflicts { lately, causes: causes.map(|count| count * ONE_IN) }
    }
}

impl Kept {
    fn add(&mut self, conflict: Conflict) {
        self.causes[conflict.cause as usize] += 1;
        self.added += 1;
        if self.added > HALVED_AFTER {
            self.added /= 2;
            self.counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
        if let Some(count) = self.counts.get_mut(&conflict) {
            *count += 1;
            return;
        }
        // A new one has the place, and the count, of the one that is met least: so none that is met often is
        // missed, whatever comes between.
        let mut count = 1;
        if self.counts.len() >= KEPT_MAX
            && let Some((least, of_least)) = self.counts.iter().min_by_key(|(_, count)| **count)
        {
            count += of_least;
            let least = least.clone();
            self.counts.remove(&least);
        }
        self.counts.insert(conflict, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes())
    }

    #[test]
    fn a_doom_counts_once_its_victim_starts_over() {
        let sample = Sample::default();
        let victim = (Position(8), 3);
        sample.doomed(victim, Some(&key("k")), Cause::Overwritten, Some("redis.set"));
        sample.doomed(victim, Some(&key("other")), Cause::Preempted, Some("redis.del"));
        assert_eq!(sample.report(), Conflicts::default());
        sample.restarted(victim, "redis.eval", false);
        let conflict = Conflict {
            key: Some(key("k")),
            cause: Cause::Overwritten,
            by: Some("redis.set".into()),
            of: "redis.eval".into(),
        };
        assert_eq!(sample.report().lately, [(conflict, ONE_IN)]);
        // What was noted of an earlier incarnation says nothing of this one.
        sample.doomed((Position(16), 1), Some(&key("k")), Cause::Overwritten, None);
        sample.restarted((Position(16), 2), "redis.eval", false);
        assert_eq!(sample.report().causes, [0, ONE_IN, 0, 0, 0, 0, ONE_IN]);
        // Nor does what was noted of a transaction that had this position before.
        sample.doomed((Position(24), 1), Some(&key("k")), Cause::Overwritten, None);
        sample.retract(Position(24));
        sample.restarted((Position(24), 1), "redis.eval", true);
        assert_eq!(sample.report().causes, [0, ONE_IN, 0, 0, 0, ONE_IN, ONE_IN]);
        // A stale reader's note does not hide that of the incarnation which runs.
        sample.doomed((Position(32), 1), Some(&key("k")), Cause::Overwritten, None);
        sample.doomed((Position(32), 0), Some(&key("other")), Cause::Withdrawn, None);
        sample.restarted((Position(32), 1), "redis.eval", false);
        assert_eq!(sample.report().causes, [0, 2 * ONE_IN, 0, 0, 0, ONE_IN, ONE_IN]);
    }

    #[test]
    fn what_is_met_most_is_kept_among_many_and_what_is_no_longer_met_goes() {
        let sample = Sample::default();
        for number in 0..20_000_u64 {
            sample.waits(&key(&format!("rare {number}")), "redis.set");
            sample.waits(&key(if number < 10_000 { "before" } else { "now" }), "redis.incr");
        }
        let Conflicts { lately, causes } = sample.report();
        assert_eq!(lately[0].0.key, Some(key("now")));
        assert!(lately[0].1 > 4 * lately[1].1, "{lately:?}");
        assert!(
            lately.len() <= KEPT_MAX
                && lately.iter().all(|(conflict, _)| conflict.key != Some(key("before")))
        );
        assert_eq!(causes[Cause::Waited as usize], 40_000 * ONE_IN);
    }

    #[test]
    fn one_position_of_eight_is_looked_at_also_of_those_that_one_command_has() {
        let sample = Sample::default();
        for step in [1, 2, 4, 8, 16] {
            let looked_at = (0..10_000).filter(|number| sample.has(Position(number * step))).count();
            assert!((1_150..1_350).contains(&looked_at), "{looked_at} at each {step}th");
        }
    }

    #[test]
    fn equal_conflicts_of_several_partitions_are_one() {
        let one = || {
            let sample = Sample::default();
            sample.restarted((Position(8), 1), "redis.set", true);
            sample.report()
        };
        let merged = Conflicts::merged([one(), one()]);
        assert_eq!((merged.lately.len(), merged.lately[0].1), (1, 2 * ONE_IN));
        assert_eq!(merged.causes[Cause::Elsewhere as usize], 2 * ONE_IN);
    }

    #[test]
    fn what_is_noted_and_never_comes_is_bounded() {
        let sample = Sample::default();
        for number in 0..10_000 {
            sample.doomed((Position(number * ONE_IN), 1), None, Cause::Cleared, None);
        }
        assert!(sample.kept.lock().noted.len() <= NOTED_MAX);
        sample.restarted((Position(9_999 * ONE_IN), 1), "redis.set", false);
        assert_eq!(sample.report().lately[0].0.cause, Cause::Cleared);
    }
}
