//! What clients have seen of a run, as a history of lists ([`crate::history`]).
//!
//! A list of a run is a list of the history. A *pair* is more: an operation may replace its list without
//! having read it, which no list of the history allows. So a pair's list counts as another list of the
//! history each time that it begins anew, and the value that it begins with names it. Whoever takes the list
//! away appends a value to it that nobody can read. What orders two such lists of one pair are the reads of
//! those who have seen both, and real time.

use super::{Operation, OperationRead, Pair, PairStep};
use crate::history::{self, Outcome, Step};
use crate::world::Violation;
use std::collections::{BTreeMap, BTreeSet};

/// How an operation ended.
pub(super) enum End {
    /// It has committed, and this is what it read.
    Read(OperationRead),
    /// It has committed, and read nobody knows what.
    CommittedBefore,
    /// It has committed or not, and has no effect from then on.
    Over,
    /// It has committed, may yet commit, or never does.
    Open,
}

/// An operation that a client has seen the end of.
pub(super) struct Seen {
    pub operation: Operation,
    /// The opening of its session.
    pub client: u32,
    pub invoked_ns: u64,
    pub completed_ns: u64,
    pub end: End,
}

impl Seen {
    /// A pair is looked at when all is over.
    pub fn at_end(number: u64, pair: Vec<u64>, now_ns: u64) -> Seen {
        let look = Pair { step: PairStep::Look, number, value: 0 };
        let operation = Operation {
            member: None,
            pair: Some(look),
            steps: Vec::new(),
            only_if_even: false,
            is_declared: false,
        };
        let read = OperationRead { pair, ..OperationRead::default() };
        // No session has this number.
        let client = u32::MAX - number as u32;
        Seen { operation, client, invoked_ns: now_ns, completed_ns: now_ns, end: End::Read(read) }
    }

    /// Whether its transaction is validated at all leaves that it uses, also if it writes nothing: one that
    /// is declared read-only reads in the past.
    pub fn is_validated(&self) -> bool {
        !self.operation.is_declared
    }

    fn read(&self) -> Option<&OperationRead> {
        match &self.end {
            End::Read(read) => Some(read),
            End::CommittedBefore | End::Over | End::Open => None,
        }
    }

    /// Lists and values that it has appended for certain.
    pub fn acknowledged(&self) -> Vec<(u64, u64)> {
        let appends = match &self.end {
            End::Read(read) => self.operation.appends_behind(read.lists.first().map_or(0, Vec::len)),
            End::CommittedBefore => !self.operation.only_if_even,
            End::Over | End::Open => false,
        };
        if appends { self.operation.appends().collect() } else { Vec::new() }
    }

    fn is_known(&self) -> bool {
        match self.end {
            End::Read(_) => true,
            End::CommittedBefore => !self.operation.only_if_even,
            End::Over | End::Open => false,
        }
    }

    fn steps(&self, begins: &Begins) -> Vec<Step> {
        let read = self.read();
        let length = read.and_then(|read| read.lists.first()).map_or(0, Vec::len);
        let mut lists = read.into_iter().flat_map(|read| read.lists.iter().cloned());
        let mut steps = Vec::new();
        for &(key, value) in &self.operation.steps {
            steps.extend(lists.next().map(|values| Step::Read { key, values }));
            let value = value.filter(|_| read.is_none() || self.operation.appends_behind(length));
            steps.extend(value.map(|value| Step::Append { key, value }));
        }
        if let Some(Pair { step, value, .. }) = self.operation.pair {
            let before = read.map(|read| read.pair.clone());
            let first = before.as_ref().and_then(|values| values.first().copied());
            let begun = match (step, &before) {
                (PairStep::Delete | PairStep::Look, _) => None,
                (PairStep::Take, _) => first,
                (PairStep::Write, _) => Some(value),
                (PairStep::Append, Some(_)) => Some(first.unwrap_or(value)),
                (PairStep::Append, None) => begins.get(&value).copied(),
            };
            if let (Some(key), Some(values)) = (first, before) {
                steps.push(Step::Read { key, values });
            }
            steps.extend(begun.map(|key| Step::Append { key, value }));
        }
        steps
    }
}

/// Of each value that was read in a pair, the value that its list began with.
type Begins = BTreeMap<u64, u64>;

fn begins_of(seen: &[Seen]) -> Result<Begins, Violation> {
    let mut begins = Begins::new();
    for read in seen.iter().filter_map(Seen::read) {
        let Some(&first) = read.pair.first() else { continue };
        for &value in &read.pair {
            let known = *begins.entry(value).or_insert(first);
            if known != first {
                let text =
                    format!("value {value:x} of a pair was read behind {known:x} and behind {first:x}");
                return Err(Violation::new("pairs", text));
            }
        }
    }
    Ok(begins)
}

/// The history of those operations that are judged. The others must not write.
///
/// # Errors
/// A value of a pair was in two lists: it was written twice.
pub(super) fn history(
    seen: &[Seen],
    is_judged: &dyn Fn(&Seen) -> bool,
) -> Result<Vec<history::Operation>, Violation> {
    let begins = begins_of(seen)?;
    let judged: Vec<&Seen> = seen.iter().filter(|seen| is_judged(seen)).collect();
    let operation = |seen: &&Seen| history::Operation {
        client: seen.client,
        invoked_ns: seen.invoked_ns,
        completed_ns: Some(seen.completed_ns),
        outcome: if seen.is_known() { Outcome::Committed } else { Outcome::Unknown },
        steps: seen.steps(&begins),
    };
    let mut history: Vec<history::Operation> = judged.iter().map(operation).collect();
    let reads = history.iter().flat_map(|operation| &operation.steps);
    let read: BTreeSet<u64> = reads
        .filter_map(|step| match step {
            Step::Read { values, .. } => Some(values),
            Step::Append { .. } => None,
        })
        .flatten()
        .copied()
        .collect();
    // What has no effect from its end on, and what committed before, and was read: it had its effect before
    // its end.
    for (operation, seen) in history.iter_mut().zip(judged) {
        let is_read = |step: &Step| matches!(step, Step::Append { value, .. } if read.contains(value));
        let had_ended = matches!(seen.end, End::Over | End::CommittedBefore);
        if had_ended && operation.outcome == Outcome::Unknown && operation.steps.iter().any(is_read) {
            operation.outcome = Outcome::Committed;
        }
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Kind, Order, check_order};

    fn seen(client: u32, (invoked_ns, completed_ns): (u64, u64), operation: Operation, end: End) -> Seen {
        Seen { operation, client, invoked_ns, completed_ns, end }
    }

    fn nothing() -> Operation {
        Operation { member: None, pair: None, steps: Vec::new(), only_if_even: false, is_declared: false }
    }

    /// Appends a value to list 0, or reads it.
    fn append(value: u64) -> Operation {
        Operation { steps: vec![(0, Some(value))], ..nothing() }
    }

    fn read(client: u32, at_ns: (u64, u64), list: &[u64]) -> Seen {
        let operation = Operation { steps: vec![(0, None)], ..nothing() };
        let read = OperationRead { lists: vec![list.to_vec()], ..OperationRead::default() };
        seen(client, at_ns, operation, End::Read(read))
    }

    fn pair(client: u32, at_ns: (u64, u64), step: PairStep, value: u64, read: &[u64]) -> Seen {
        let operation = Operation { pair: Some(Pair { step, number: 0, value }), ..nothing() };
        let read = OperationRead { pair: read.to_vec(), ..OperationRead::default() };
        seen(client, at_ns, operation, End::Read(read))
    }

    fn anomaly(seen: &[Seen]) -> Option<Kind> {
        let history = history(seen, &|_| true).expect("a history");
        check_order(&history, Order::RealTime).err().map(|anomaly| anomaly.kind)
    }

    #[test]
    fn what_is_over_has_no_effect_from_then_on() {
        let later = |end, first: &[u64]| {
            [seen(1, (0, 10), append(8), end), read(2, (20, 30), first), read(3, (40, 50), &[8])]
        };
        assert_eq!(anomaly(&later(End::Over, &[])), Some(Kind::RealTime));
        assert_eq!(anomaly(&later(End::Over, &[8])), None);
        assert_eq!(anomaly(&later(End::Open, &[])), None, "it may commit at any later time");
        assert_eq!(anomaly(&later(End::CommittedBefore, &[])), Some(Kind::RealTime));
        let never = [seen(1, (0, 10), append(8), End::Over), read(2, (20, 30), &[])];
        assert_eq!(anomaly(&never), None, "it may have had none");
    }

    /// A validated reader of list 1 begins when the writer of list 0 has been answered, and misses what an
    /// earlier reader of list 0 writes.
    #[test]
    fn a_validated_transaction_that_writes_nothing_keeps_real_time_too() {
        let judged = |is_declared| {
            let reads = OperationRead { lists: vec![Vec::new(); 2], ..OperationRead::default() };
            let first = Operation { steps: vec![(0, None), (1, Some(8))], ..nothing() };
            let first = seen(1, (0, 100), first, End::Read(reads));
            let none = || OperationRead { lists: vec![Vec::new()], ..OperationRead::default() };
            let writer = seen(2, (10, 20), append(16), End::Read(none()));
            let reader = Operation { steps: vec![(1, None)], is_declared, ..nothing() };
            let seen = [first, writer, seen(3, (30, 40), reader, End::Read(none()))];
            let history = history(&seen, &Seen::is_validated).expect("a history");
            check_order(&history, Order::RealTime).err().map(|anomaly| anomaly.kind)
        };
        assert_eq!(judged(false), Some(Kind::RealTime));
        assert_eq!(judged(true), None);
    }

    #[test]
    fn the_lists_of_a_pair_are_told_apart_by_what_they_begin_with() {
        use PairStep::{Append, Look, Take, Write};
        let written = || pair(1, (0, 10), Write, 8, &[]);
        let replaced = || pair(2, (20, 30), Write, 16, &[]);
        assert_eq!(anomaly(&[written(), replaced(), pair(3, (40, 50), Look, 0, &[16])]), None);
        let appended = || pair(2, (20, 30), Append, 16, &[8]);
        let looks = |read: &[u64]| pair(3, (40, 50), Look, 0, read);
        assert_eq!(anomaly(&[written(), appended(), looks(&[8, 16])]), None);
        assert_eq!(anomaly(&[written(), appended(), looks(&[8])]), Some(Kind::LostAppend));
        let taken = || pair(2, (20, 30), Take, 16, &[8]);
        assert_eq!(anomaly(&[written(), taken(), looks(&[])]), None);
        assert_eq!(anomaly(&[written(), taken(), looks(&[8])]), Some(Kind::LostAppend));
        assert_eq!(anomaly(&[written(), taken(), pair(4, (20, 30), Take, 24, &[8])]), Some(Kind::LostUpdate));
        let unknown = |read: &[u64], other: &[u64]| {
            let asks = Operation { pair: Some(Pair { step: Append, number: 0, value: 24 }), ..nothing() };
            let asks = seen(5, (0, 60), asks, End::CommittedBefore);
            let seen = [written(), replaced(), asks, looks(read), pair(4, (60, 70), Look, 0, other)];
            history(&seen, &|_| true).map(|history| check_order(&history, Order::RealTime).is_ok())
        };
        assert_eq!(unknown(&[16, 24], &[16, 24]).ok(), Some(true));
        assert!(unknown(&[16, 24], &[8, 24]).is_err(), "it was written twice");
    }
}
