//! From reads to version orders: what each key's list was, and which version each transaction read. Whatever
//! is wrong without looking at cycles is found here.

use super::{Anomaly, Kind, List, Operation, Order, Outcome, Step};
use std::collections::BTreeMap;
use txn::hash::FixedMap;

/// The version orders of a history that passed the checks of this module.
pub(super) struct Versions<'a> {
    /// In the order of their first mention.
    pub(super) keys: Vec<KeyVersions<'a>>,
}

/// One list.
pub(super) struct KeyVersions<'a> {
    pub(super) key: u64,
    /// The values of the longest read, and what its last transaction appended after them.
    pub(super) order: Vec<u64>,
    /// The operation that appended each value of `order`.
    pub(super) writers: Vec<usize>,
    /// What the operations did to this list, aborted ones left out, in the order of the history.
    pub(super) accesses: Vec<Access<'a>>,
}

/// What one operation did to one list.
pub(super) struct Access<'a> {
    pub(super) operation: usize,
    /// The length of the list before its own appends, if it read it and committed.
    pub(super) base: Option<usize>,
    /// The longest list it read, `base` and then its own; empty if it read none.
    read: &'a [u64],
    pub(super) appends: Vec<u64>,
    /// Whether all `appends` are in the version order.
    pub(super) observed: bool,
}

/// Who asked for an append.
#[derive(Clone, Copy)]
struct Writer {
    operation: usize,
    /// The transaction's next append to this list.
    next: Option<u64>,
    /// The one before.
    previous: Option<u64>,
}

type Writers = FixedMap<(u64, u64), Writer>;

impl<'a> Versions<'a> {
    pub(super) fn infer(history: &'a [Operation], order: Order) -> Result<Versions<'a>, Anomaly> {
        let mut writers = Writers::default();
        let mut numbers: FixedMap<u64, usize> = FixedMap::default();
        let mut keys: Vec<KeyVersions<'a>> = Vec::new();
        for (index, operation) in history.iter().enumerate() {
            let ended = operation.outcome != Outcome::Unknown;
            if ended && operation.completed_ns.is_some_and(|ns| ns < operation.invoked_ns) {
                let why = format!("#{index} completed before it was invoked\n");
                return Err(Anomaly::new(Kind::Malformed, history, vec![index], &why));
            }
            for (key, access) in accesses(history, index, &mut writers)? {
                if operation.outcome == Outcome::Aborted {
                    continue;
                }
                let number = *numbers.entry(key).or_insert(keys.len());
                if number == keys.len() {
                    keys.push(KeyVersions {
                        key,
                        order: Vec::new(),
                        writers: Vec::new(),
                        accesses: Vec::new(),
                    });
                }
                keys[number].accesses.push(access);
            }
        }
        for versions in &mut keys {
            versions.order(history, &writers)?;
        }
        for versions in &keys {
            versions.check_updates(history)?;
        }
        if order == Order::RealTime {
            keys.iter().try_for_each(|versions| versions.check_acknowledged(history))?;
        }
        Ok(Versions { keys })
    }
}

/// What one operation did, by key. Enters its appends into `writers`.
fn accesses<'a>(
    history: &'a [Operation],
    index: usize,
    writers: &mut Writers,
) -> Result<Vec<(u64, Access<'a>)>, Anomaly> {
    let operation = &history[index];
    let mut accesses: Vec<(u64, Access<'a>)> = Vec::new();
    for step in &operation.steps {
        let (Step::Append { key, .. } | Step::Read { key, .. }) = step;
        let found = accesses.iter().position(|(known, _)| known == key);
        let place = found.unwrap_or_else(|| {
            let access =
                Access { operation: index, base: None, read: &[], appends: Vec::new(), observed: true };
            accesses.push((*key, access));
            accesses.len() - 1
        });
        let access = &mut accesses[place].1;
        match step {
            Step::Append { value, .. } => {
                let previous = access.appends.last().copied();
                let writer = Writer { operation: index, next: None, previous };
                if let Some(first) = writers.insert((*key, *value), writer) {
                    let why = format!("the history asks to append {value} to key {key} more than once\n");
                    let both = vec![first.operation, index];
                    return Err(Anomaly::new(Kind::Malformed, history, both, &why));
                }
                if let Some(writer) = previous.and_then(|value| writers.get_mut(&(*key, value))) {
                    writer.next = Some(*value);
                }
                access.appends.push(*value);
            }
            Step::Read { values, .. } if operation.outcome == Outcome::Committed => {
                let base = values
                    .strip_suffix(access.appends.as_slice())
                    .filter(|base| access.base.is_none_or(|length| access.read[..length] == **base));
                let Some(base) = base else {
                    let before = access.base.map(|length| &access.read[..length]);
                    let why = format!(
                        "#{index} read key {key} as {}, after it had appended {} {}\n",
                        List(values),
                        List(&access.appends),
                        before.map_or(String::from("to it"), |list| format!("to {}", List(list)))
                    );
                    return Err(Anomaly::new(Kind::Internal, history, vec![index], &why));
                };
                access.base = Some(base.len());
                access.read = values;
            }
            Step::Read { .. } => {}
        }
    }
    for (key, access) in &accesses {
        let base = access.base.map_or(&[][..], |length| &access.read[..length]);
        if let Some(value) = access.appends.iter().find(|value| base.contains(value)) {
            let why = format!("#{index} read {value} in key {key} before it appended it\n");
            return Err(Anomaly::new(Kind::Internal, history, vec![index], &why));
        }
    }
    Ok(accesses)
}

impl<'a> KeyVersions<'a> {
    /// Finds the version order, or two reads that have none in common.
    fn order(&mut self, history: &[Operation], writers: &Writers) -> Result<(), Anomaly> {
        let mut longest: Option<&Access<'a>> = None;
        for access in self.accesses.iter().filter(|access| access.base.is_some()) {
            if longest.is_none_or(|longest| access.read.len() > longest.read.len()) {
                longest = Some(access);
            }
        }
        let Some(longest) = longest else {
            for access in &mut self.accesses {
                access.observed = access.appends.is_empty();
            }
            return Ok(());
        };
        let key = self.key;
        let positions = self.check_values(history, writers, longest)?;
        for access in &self.accesses {
            let Some(base) = access.base else { continue };
            let fits = longest.read.starts_with(access.read);
            if !fits {
                self.check_values(history, writers, access)?;
            }
            let last = base.checked_sub(1).map(|last| access.read[last]);
            if let Some((last, writer)) = last.map(|last| (last, writers[&(key, last)]))
                && let Some(next) = writer.next
            {
                let (reader, writer) = (access.operation, writer.operation);
                let why = format!(
                    "#{reader} read key {key} after #{writer} appended {last} and before it appended {next}\n"
                );
                let both = vec![writer, reader];
                return Err(Anomaly::new(Kind::G1b, history, both, &why));
            }
            if !fits {
                let why = format!(
                    "key {key} was read as {} and as {}: neither begins with the other\n",
                    List(access.read),
                    List(longest.read)
                );
                let both = vec![access.operation, longest.operation];
                return Err(Anomaly::new(Kind::IncompatibleOrder, history, both, &why));
            }
        }
        for (&value, position) in longest.read.iter().zip(0..) {
            let writer = writers[&(key, value)];
            let Some(previous) = writer.previous else {
                continue;
            };
            let (kind, what) = match positions.get(&previous) {
                Some(&before) if before < position => continue,
                Some(_) => (Kind::IncompatibleOrder, "after it"),
                None => (Kind::LostAppend, "nowhere"),
            };
            let asker = writer.operation;
            let why = format!(
                "#{asker} appended {previous} to key {key} and then {value}, but {previous} is {what} in \
                 {}\n",
                List(longest.read)
            );
            let both = vec![asker, longest.operation];
            return Err(Anomaly::new(kind, history, both, &why));
        }
        // Who reads its own append and appends again has the list for itself until it ends.
        let mut order = longest.read.to_vec();
        let mut last = order.last().copied();
        while let Some(next) = last.and_then(|last| writers[&(key, last)].next) {
            order.push(next);
            last = Some(next);
        }
        self.writers = order.iter().map(|&value| writers[&(key, value)].operation).collect();
        let extended = order.len() > longest.read.len();
        let last = self.writers.last().copied();
        for access in &mut self.accesses {
            access.observed = access.appends.iter().all(|value| positions.contains_key(value))
                || (extended && Some(access.operation) == last);
        }
        self.order = order;
        Ok(())
    }

    /// Checks a read's values one by one. Returns where each is.
    fn check_values(
        &self,
        history: &[Operation],
        writers: &Writers,
        access: &Access<'a>,
    ) -> Result<FixedMap<u64, usize>, Anomaly> {
        let (key, reader) = (self.key, access.operation);
        let mut positions = FixedMap::default();
        for (&value, position) in access.read.iter().zip(0..) {
            let Some(writer) = writers.get(&(key, value)) else {
                let why = format!("#{reader} read {value} in key {key}, which nobody asked to append\n");
                let reader = vec![reader];
                return Err(Anomaly::new(Kind::ImpossibleRead, history, reader, &why));
            };
            let both = vec![writer.operation, reader];
            let writer = writer.operation;
            if history[writer].outcome == Outcome::Aborted {
                let why = format!("#{reader} read {value} in key {key}, but #{writer} aborted\n");
                return Err(Anomaly::new(Kind::G1a, history, both, &why));
            }
            if positions.insert(value, position).is_some() {
                let why =
                    format!("#{reader} read {value} twice in key {key}, and #{writer} appended it once\n");
                return Err(Anomaly::new(Kind::DuplicateValue, history, both, &why));
            }
        }
        Ok(positions)
    }

    /// No two transactions may have read the same version and appended to it.
    fn check_updates(&self, history: &[Operation]) -> Result<(), Anomaly> {
        let mut updates = BTreeMap::new();
        for access in &self.accesses {
            let Some(base) = access.base.filter(|_| !access.appends.is_empty()) else {
                continue;
            };
            if let Some(first) = updates.insert(base, access.operation) {
                let why = format!(
                    "#{first} and #{} both read key {} as {} and appended to it\n",
                    access.operation,
                    self.key,
                    List(&self.order[..base])
                );
                let both = vec![first, access.operation];
                return Err(Anomaly::new(Kind::LostUpdate, history, both, &why));
            }
        }
        Ok(())
    }

    /// Whoever reads after an append was acknowledged must see it. That follows from the graph as well; here
    /// it gets its name.
    fn check_acknowledged(&self, history: &[Operation]) -> Result<(), Anomaly> {
        let readers = self.accesses.iter().filter(|access| access.base.is_some());
        let latest = readers.max_by_key(|access| history[access.operation].invoked_ns);
        let Some(latest) = latest else { return Ok(()) };
        let read_ns = history[latest.operation].invoked_ns;
        for access in self.accesses.iter().filter(|access| !access.observed) {
            let writer = &history[access.operation];
            if writer.outcome == Outcome::Committed
                && let Some(completed_ns) = writer.completed_ns
                && completed_ns < read_ns
            {
                let why = format!(
                    "#{} was acknowledged at {completed_ns} ns, but #{}, invoked at {read_ns} ns, read key \
                     {} as {}, and no read has all of {}\n",
                    access.operation,
                    latest.operation,
                    self.key,
                    List(latest.read),
                    List(&access.appends)
                );
                let both = vec![access.operation, latest.operation];
                return Err(Anomaly::new(Kind::LostAppend, history, both, &why));
            }
        }
        Ok(())
    }
}
