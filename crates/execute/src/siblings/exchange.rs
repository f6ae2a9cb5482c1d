//! The book of one sub-transaction.

use super::values::Values;
use smallvec::SmallVec;
use std::hash::Hash;
use txn::PartitionId;
use txn::mutant::{Mutant, is_active};

/// How often a sub-transaction was aborted by transactions of its own partition after it had told its
/// siblings something (Sparkle's `local_abort_number`), in one era of its replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbortNumber {
    /// Which process of which replica, and which of its attempts at the order. No two have the same, and that
    /// one is greater says nothing.
    pub era: u64,
    /// Counts from 0 in each era.
    pub count: u32,
}

impl AbortNumber {
    /// Of a sub-transaction that has final-committed: values under it are final whoever says them.
    pub const FINAL: AbortNumber = AbortNumber { era: u64::MAX, count: u32::MAX };

    /// The first of an era.
    pub fn first(era: u64) -> AbortNumber {
        AbortNumber { era, count: 0 }
    }
}

/// What an execution was based on: its own number, and the numbers under which it had its siblings' values,
/// where it used any.
pub type Basis = SmallVec<[(PartitionId, AbortNumber); 3]>;

/// What follows from a message.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Heard {
    /// A value came that the procedure may be waiting for.
    pub wake: bool,
    /// A value that it used was wrong: it must start over.
    pub restart: bool,
    /// The execution that is speculatively committed is now based on this: say so.
    pub confirm: Option<Basis>,
}

/// What is known of a sibling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sibling<K, V> {
    partition: PartitionId,
    /// The greatest number that was heard of; `None` before anything was.
    number: Option<AbortNumber>,
    /// The number that an anchor named: the last one of its era.
    anchored: Option<AbortNumber>,
    /// What it told under `number`.
    values: Values<K, V>,
    /// What this sub-transaction used.
    used: Values<K, V>,
    /// What its executions were based on, as far as they were said.
    confirmed: Vec<Basis>,
    /// `number` is its last one. Set at final commit.
    settled: bool,
    /// What other eras of it told: of no account until their numbers are anchored.
    others: SmallVec<[Other<K, V>; 1]>,
}

/// What a sibling told in another era than the first one that was heard of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Other<K, V> {
    number: AbortNumber,
    anchored: bool,
    values: Values<K, V>,
}

impl<K: Clone + Eq + Hash, V: PartialEq> Sibling<K, V> {
    /// The number under which it told all that was used.
    fn basis(&self) -> Option<AbortNumber> {
        let told = |(key, value): &(K, V)| self.values.get(key) == Some(value);
        self.number.filter(|_| self.used.iter().all(told))
    }

    /// Whether this is of another era than what was heard first.
    fn is_other(&self, number: AbortNumber) -> bool {
        let is_other = |known: AbortNumber| known == AbortNumber::FINAL || known.era != number.era;
        number != AbortNumber::FINAL && self.number.is_some_and(is_other) && !is_active(Mutant::MixEras)
    }

    /// Takes note of what was told in another era. Returns what is final of that now, if it is.
    fn hear_other(&mut self, number: AbortNumber, anchored: bool, values: &[(K, V)]) -> Option<Vec<(K, V)>>
    where
        K: Clone,
        V: Clone,
    {
        let begin = || Other { number, anchored: false, values: Values::default() };
        // Each for itself: what an ended process has left on its way must not push out what the one in its
        // place says.
        let mut others = self.others.iter();
        let place = match others.position(|other| other.number.era == number.era) {
            Some(place) => place,
            None => {
                self.others.push(begin());
                self.others.len() - 1
            }
        };
        let other = &mut self.others[place];
        if other.number < number {
            *other = begin();
        }
        if other.number != number {
            return None;
        }
        other.anchored |= anchored;
        // It may be told again what it knows.
        for (key, value) in values {
            if other.values.get(key).is_none() {
                other.values.push(key.clone(), value.clone());
            }
        }
        other.anchored.then(|| other.values.take())
    }

    /// Takes note of a number; whether what is said under it counts.
    fn hear(&mut self, number: AbortNumber) -> bool {
        match self.number {
            Some(known) if number < known => false,
            Some(known) if number == known => true,
            Some(_) if is_active(Mutant::DropLaterNumbers) => false,
            known => {
                self.number = Some(number);
                if is_active(Mutant::KeepOldValues) {
                    return true;
                }
                let mut values = std::mem::take(&mut self.values);
                if let Some(known) = known.filter(|_| number == AbortNumber::FINAL) {
                    // Another era's number is anchored. That may be a process that has ended, which says
                    // nothing more: what this one tells still counts, once its own is.
                    let anchored = self.anchored == Some(known);
                    if anchored {
                        self.values = std::mem::take(&mut values);
                    }
                    self.others.push(Other { number: known, anchored, values });
                }
                true
            }
        }
    }
}

/// The book that a sub-transaction keeps of its siblings. `K` and `V` are keys and what is read there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exchange<K, V> {
    me: PartitionId,
    number: AbortNumber,
    /// What was told under `number`, in order.
    told: Values<K, V>,
    /// Something was said under `number`.
    said: bool,
    /// It is speculatively committed.
    executed: bool,
    /// What the last confirmation named.
    confirmed: Option<Basis>,
    siblings: Vec<Sibling<K, V>>,
}

impl<K: Clone + Eq + Hash, V: Clone + PartialEq> Exchange<K, V> {
    /// The book of a transaction's part at `me`, which begins in `era`.
    pub fn new(me: PartitionId, partitions: &[PartitionId], era: u64) -> Exchange<K, V> {
        let siblings = partitions.iter().filter(|&&partition| partition != me);
        let siblings = siblings.map(|&partition| Sibling {
            partition,
            number: None,
            anchored: None,
            values: Values::default(),
            used: Values::default(),
            confirmed: Vec::new(),
            settled: false,
            others: SmallVec::new(),
        });
        Exchange {
            me,
            number: AbortNumber::first(era),
            told: Values::default(),
            said: false,
            executed: false,
            confirmed: None,
            siblings: siblings.collect(),
        }
    }

    fn sibling(&mut self, partition: PartitionId) -> Option<&mut Sibling<K, V>> {
        let mut siblings = self.siblings.iter_mut();
        siblings.find(|sibling| sibling.partition == partition)
    }

    /// Its own number.
    pub fn number(&self) -> AbortNumber {
        self.number
    }
    /// What it told under its number, in the order in which it was read.
    pub fn told(&self) -> &[(K, V)] {
        self.told.as_slice()
    }
    /// What its last confirmation named, if that stands.
    pub fn confirmed(&self) -> Option<&Basis> {
        self.confirmed.as_ref()
    }
    /// The greatest number of a sibling that was heard of.
    pub fn number_of(&self, partition: PartitionId) -> Option<AbortNumber> {
        let mut siblings = self.siblings.iter();
        siblings.find(|sibling| sibling.partition == partition)?.number
    }
    /// The siblings' partitions.
    pub fn siblings(&self) -> impl Iterator<Item = PartitionId> {
        self.siblings.iter().map(|sibling| sibling.partition)
    }

    /// What a sibling told of a key, if it did.
    pub fn value(&self, partition: PartitionId, key: &K) -> Option<&V> {
        let mut siblings = self.siblings.iter();
        let sibling = siblings.find(|sibling| sibling.partition == partition)?;
        sibling.values.get(key)
    }

    // What happens here.

    /// It has read a key of its own partition; whether the siblings are to be told.
    pub fn read(&mut self, key: K, value: V) -> bool {
        if self.told.get(&key).is_some() {
            return false;
        }
        self.told.push(key, value);
        self.said = true;
        true
    }

    /// It reads a key of a sibling's partition: the value, if that was told.
    pub fn take(&mut self, partition: PartitionId, key: &K) -> Option<V> {
        let sibling = self.sibling(partition)?;
        // What it has used it goes on using, until another value comes.
        if let Some(used) = sibling.used.get(key) {
            return Some(used.clone());
        }
        let value = sibling.values.get(key)?.clone();
        sibling.used.push(key.clone(), value.clone());
        Some(value)
    }

    /// An earlier transaction of its partition aborted it. Returns its new number if that has changed: the
    /// aborter names it in its own confirmation.
    pub fn abort(&mut self) -> Option<AbortNumber> {
        let raised = self.said;
        if raised {
            self.number.count += 1;
            self.told.clear();
            self.said = false;
        }
        self.start_over();
        raised.then_some(self.number)
    }

    /// A sibling's value was wrong: it runs again, under the same number.
    pub fn start_over(&mut self) {
        self.executed = false;
        self.confirmed = None;
        for sibling in &mut self.siblings {
            sibling.used.clear();
        }
    }

    /// It is speculatively committed. Returns what to confirm, if everything that it used still stands.
    pub fn execute(&mut self) -> Option<Basis> {
        self.executed = true;
        self.confirm()
    }

    fn confirm(&mut self) -> Option<Basis> {
        if !self.executed {
            return None;
        }
        let mut basis = Basis::from_slice(&[(self.me, self.number)]);
        for sibling in &self.siblings {
            if !sibling.used.is_empty() {
                basis.push((sibling.partition, sibling.basis()?));
            }
        }
        if self.confirmed.as_ref() == Some(&basis) {
            return None;
        }
        self.confirmed = Some(basis.clone());
        self.said = true;
        Some(basis)
    }

    // What siblings say.

    /// A sibling has read something, under this number.
    pub fn learn(&mut self, from: PartitionId, number: AbortNumber, values: &[(K, V)]) -> Heard {
        let Some(sibling) = self.sibling(from) else {
            return Heard::default();
        };
        if sibling.settled {
            return Heard::default();
        }
        if sibling.is_other(number) {
            let values = sibling.hear_other(number, false, values);
            return values.map_or_else(Heard::default, |values| self.learn_final(from, &values));
        }
        if !sibling.hear(number) {
            return Heard::default();
        }
        let mut heard = Heard::default();
        for (key, value) in values {
            if sibling.values.get(key).is_some() {
                continue;
            }
            sibling.values.push(key.clone(), value.clone());
            match sibling.used.get(key) {
                Some(used) if used != value => heard.restart = true,
                Some(_) => {}
                None => heard.wake = true,
            }
        }
        if !heard.restart {
            heard.confirm = self.confirm();
        }
        heard
    }

    /// A sibling has final-committed, and this is all that it read.
    pub fn learn_final(&mut self, from: PartitionId, values: &[(K, V)]) -> Heard {
        self.learn(from, AbortNumber::FINAL, values)
    }

    /// A sibling's number is at least this one.
    pub fn learn_number(&mut self, from: PartitionId, number: AbortNumber) {
        if let Some(sibling) = self.sibling(from)
            && !sibling.settled
            && !sibling.is_other(number)
        {
            sibling.hear(number);
        }
    }

    /// Everything before the sibling has final-committed: this number is its last one.
    pub fn learn_anchor(&mut self, from: PartitionId, number: AbortNumber) -> Heard {
        let Some(sibling) = self.sibling(from) else {
            return Heard::default();
        };
        if sibling.settled {
            return Heard::default();
        }
        if sibling.is_other(number) {
            let values = sibling.hear_other(number, true, &[]);
            return values.map_or_else(Heard::default, |values| self.learn_final(from, &values));
        }
        sibling.hear(number);
        sibling.anchored = sibling.anchored.max(Some(number));
        Heard::default()
    }

    /// A sibling is speculatively committed, on this basis.
    pub fn learn_confirmation(&mut self, from: PartitionId, basis: &Basis) {
        let number = basis.iter().find(|(partition, _)| *partition == from);
        if let Some(&(_, number)) = number {
            self.learn_number(from, number);
        }
        if let Some(sibling) = self.sibling(from)
            && !sibling.confirmed.contains(basis)
        {
            sibling.confirmed.push(basis.clone());
        }
    }

    // What follows.

    /// Whether a basis is made of last numbers only; to be asked when those are known.
    fn is_last(&self, basis: &Basis) -> bool {
        if is_active(Mutant::BelieveAnyExecution) {
            return true;
        }
        basis.iter().all(|(partition, number)| {
            *number == AbortNumber::FINAL
                || if *partition == self.me {
                    *number == self.number
                } else {
                    let mut siblings = self.siblings.iter();
                    siblings.any(|sibling| sibling.partition == *partition && sibling.number == Some(*number))
                }
        })
    }

    /// Whether all siblings' numbers are their last ones, and everything that was used was told under them.
    ///
    /// `previous` is the transaction before this one in the same group, if there is one; it must have
    /// final-committed here.
    pub fn is_settled(&self, previous: Option<&Exchange<K, V>>) -> bool {
        self.siblings.iter().enumerate().all(|(place, sibling)| {
            let Some(number) = sibling.number else {
                return false;
            };
            let is_last = number == AbortNumber::FINAL
                || is_active(Mutant::BelieveAnyNumber)
                || sibling.anchored == Some(number)
                || previous.is_some_and(|previous| {
                    let before = &previous.siblings[place];
                    let same_era = before.number.is_some_and(|last| last.era == number.era);
                    let mut executions = before.confirmed.iter();
                    before.settled && same_era && executions.any(|basis| previous.is_last(basis))
                });
            is_last && (sibling.basis().is_some() || is_active(Mutant::BelieveAnyValue))
        })
    }

    /// Whether it has final-committed.
    pub fn has_settled(&self) -> bool {
        self.siblings.iter().all(|sibling| sibling.settled)
    }

    /// It final-commits. From here on only what later transactions of its group want to know of it changes.
    pub fn settle(&mut self) {
        for sibling in &mut self.siblings {
            sibling.settled = true;
            sibling.values = Values::default();
            sibling.used = Values::default();
            sibling.others = SmallVec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::Partitions;

    #[test]
    fn what_one_process_tells_outlives_the_late_anchor_of_another() {
        let (me, other) = (PartitionId(0), PartitionId(1));
        let both: Partitions = [me, other].into_iter().collect();
        let (ended, running) = (AbortNumber::first(7), AbortNumber::first(3));
        for is_anchored in [true, false] {
            let mut book: Exchange<u8, u8> = Exchange::new(me, &both, 1);
            book.learn(other, running, &[(1, 5)]);
            if is_anchored {
                book.learn_anchor(other, running);
            }
            book.learn_anchor(other, ended);
            book.learn(other, running, &[(2, 6)]);
            book.learn_anchor(other, running);
            for (key, value) in [(1, 5), (2, 6)] {
                assert_eq!(book.take(other, &key), Some(value), "{is_anchored}");
            }
            assert!(book.is_settled(None));
        }
    }
}
