//! What must be there after a round, given what clients were told in it and in all rounds before.

use super::load::{
    ACCOUNTS, COUNTERS, Raised, Seen, account_key, check_total, counter_key, exact_key, items, list_key,
    register_key,
};
use anyhow::Result;
use server::client::{Answer, Client, put_command};
use sim::history::{Operation, Outcome, Step};
use std::collections::{BTreeMap, BTreeSet};

/// Keys that are read in one pipeline.
const PIPELINE: usize = 200;

/// What keys have, as one node tells.
pub type State = BTreeMap<String, Answer>;

/// Reads keys from the node of a connection, one by one: no two belong together.
pub fn read(client: &mut Client, keys: &[String]) -> Result<State> {
    let mut state = State::new();
    for keys in keys.chunks(PIPELINE) {
        let mut bytes = Vec::new();
        for key in keys {
            put_command(&mut bytes, &["GET", key]);
        }
        client.send(&bytes)?;
        for key in keys {
            state.insert(key.clone(), client.answer()?);
        }
    }
    Ok(state)
}

/// What is known of a counter.
#[derive(Default)]
struct Counter {
    replies: BTreeSet<u64>,
    /// Replies of the last round that another increment had got.
    doubled: Vec<u64>,
    unknown: u64,
    /// What it had after the last round. It never falls.
    found: u64,
}

/// What is known of a register.
#[derive(Default)]
struct Register {
    /// Acknowledged values that may be the last one, with the moments of sending and acknowledgement.
    acknowledged: Vec<(u64, u64, u64)>,
    unknown: BTreeSet<u64>,
}

/// What is known of a list whose round is over.
#[derive(Default)]
struct Settled {
    values: Vec<u64>,
    /// What may still be appended to it.
    unknown: BTreeSet<u64>,
}

/// The knowledge of all clients.
#[derive(Default)]
pub struct Ledger {
    counters: BTreeMap<u64, Counter>,
    exact: BTreeMap<u64, Counter>,
    registers: BTreeMap<u64, Register>,
    lists: BTreeMap<u64, Settled>,
    /// The lists of the last round, which are not settled.
    open: BTreeMap<u64, BTreeSet<u64>>,
    problems: Vec<String>,
}

impl Ledger {
    /// Takes in what a client saw, its history excluded but for which lists there are.
    pub fn learn(&mut self, seen: &mut Seen) {
        for (counters, raised) in [(&mut self.counters, &seen.counters), (&mut self.exact, &seen.exact)] {
            for (&number, Raised { replies, unknown }) in raised {
                let counter = counters.entry(number).or_default();
                counter.unknown += unknown;
                for &reply in replies {
                    if !counter.replies.insert(reply) {
                        counter.doubled.push(reply);
                    }
                }
            }
        }
        for (&number, written) in &seen.registers {
            let register = self.registers.entry(number).or_default();
            register.acknowledged.extend(&written.acknowledged);
            register.unknown.extend(&written.unknown);
        }
        for operation in &seen.operations {
            for step in &operation.steps {
                let (Step::Append { key, .. } | Step::Read { key, .. }) = step;
                let unknown = self.open.entry(*key).or_default();
                if let (Step::Append { value, .. }, Outcome::Unknown) = (step, operation.outcome) {
                    unknown.insert(*value);
                }
            }
        }
        self.problems.append(&mut seen.violations);
    }

    /// All keys that there should be.
    pub fn keys(&self) -> Vec<String> {
        let counters = (0..COUNTERS).map(counter_key).chain((0..COUNTERS).map(exact_key));
        let registers = self.registers.keys().copied().map(register_key);
        let lists = self.lists.keys().chain(self.open.keys()).copied().map(list_key);
        counters.chain((0..ACCOUNTS).map(account_key)).chain(registers).chain(lists).collect()
    }

    /// Adds what a client reads that looks at every list of the round after its end.
    pub fn last_reads(
        &self,
        state: &State,
        client: u32,
        invoked_ns: u64,
        completed_ns: u64,
        history: &mut Vec<Operation>,
    ) {
        for &key in self.open.keys() {
            // What is no list is told by the judgement.
            let Ok(values) = items(found(state, &list_key(key))) else {
                continue;
            };
            history.push(Operation {
                client,
                invoked_ns,
                completed_ns: Some(completed_ns),
                outcome: Outcome::Committed,
                steps: vec![Step::Read { key, values }],
            });
        }
    }

    /// Judges what is there, closes the round, and tells everything that is wrong.
    pub fn judge(&mut self, state: &State) -> Vec<String> {
        let mut problems = Vec::new();
        let balances = (0..ACCOUNTS).map(|account| found(state, &account_key(account)).clone()).collect();
        problems.extend(check_total(&Answer::List(balances)).err());
        for (counters, key) in
            [(&mut self.counters, counter_key as fn(u64) -> String), (&mut self.exact, exact_key)]
        {
            for (&number, counter) in counters {
                problems.extend(counter.judge(&key(number), found(state, &key(number))));
            }
        }
        for (&number, register) in &mut self.registers {
            let key = register_key(number);
            problems.extend(register.judge(&key, found(state, &key)));
        }
        for (&list, settled) in &mut self.lists {
            let key = list_key(list);
            problems.extend(settled.judge(&key, found(state, &key)));
        }
        for (list, unknown) in std::mem::take(&mut self.open) {
            let key = list_key(list);
            match items(found(state, &key)) {
                Ok(values) => {
                    let mut unknown = unknown;
                    unknown.retain(|value| !values.contains(value));
                    self.lists.insert(list, Settled { values, unknown });
                }
                Err(problem) => problems.push(format!("{key}: {problem}")),
            }
        }
        // What clients saw themselves comes last: many may have seen the same.
        problems.append(&mut self.problems);
        problems
    }
}

fn found<'a>(state: &'a State, key: &str) -> &'a Answer {
    state.get(key).unwrap_or(&Answer::Nil)
}

/// A key without a value counts as 0.
fn number(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Nil => Some(0),
        Answer::Text(text) => text.parse().ok(),
        _ => None,
    }
}

impl Counter {
    fn judge(&mut self, key: &str, answer: &Answer) -> Vec<String> {
        let Some(found) = number(answer) else {
            return vec![format!("{key} is {answer:?}")];
        };
        let acknowledged = self.replies.len() as u64;
        let mut problems = Vec::new();
        if let Some(first) = self.doubled.first() {
            problems.push(format!(
                "{} increments of {key} got what others had got, one of them {first}",
                self.doubled.len()
            ));
            self.doubled.clear();
        }
        if !(acknowledged..=acknowledged + self.unknown).contains(&found) {
            problems.push(format!(
                "{key} is {found}: {acknowledged} increments were acknowledged, the end of {} more is \
                 unknown",
                self.unknown
            ));
        }
        if self.replies.last().is_some_and(|&reply| reply > found) || found < self.found {
            problems.push(format!("{key} is {found} and was more before"));
        }
        self.found = found;
        problems
    }
}

impl Register {
    fn judge(&mut self, key: &str, answer: &Answer) -> Option<String> {
        // The order of a pipeline, and of what was acknowledged before something else was sent.
        let known = std::mem::take(&mut self.acknowledged);
        let newest = known.iter().map(|&(_, sent, _)| sent).max();
        for &(value, sent, acknowledged) in &known {
            let overtaken = newest.is_some_and(|newest| newest > acknowledged)
                || known.iter().any(|&(other, at, _)| at == sent && other > value);
            if !overtaken {
                self.acknowledged.push((value, sent, acknowledged));
            }
        }
        let possible = |value: u64| {
            self.unknown.contains(&value) || self.acknowledged.iter().any(|&(other, ..)| other == value)
        };
        let found = number(answer);
        // Nothing at all is right as long as nothing was acknowledged.
        let empty = *answer == Answer::Nil && self.acknowledged.is_empty();
        if empty || found.is_some_and(possible) {
            return None;
        }
        let last: Vec<u64> = self.acknowledged.iter().map(|&(value, ..)| value).collect();
        Some(format!(
            "{key} is {answer:?}: the last acknowledged is one of {last:?}, the end of {} more is unknown",
            self.unknown.len()
        ))
    }
}

impl Settled {
    fn judge(&mut self, key: &str, answer: &Answer) -> Option<String> {
        let values = match items(answer) {
            Ok(values) => values,
            Err(problem) => return Some(format!("{key}: {problem}")),
        };
        let problem = match values.strip_prefix(self.values.as_slice()) {
            None => Some(format!("{key} was {:?} and is {values:?}", self.values)),
            Some(new) => {
                let wrong = new.iter().find(|value| !self.unknown.remove(value));
                wrong.map(|value| format!("{key} has got {value} after its round"))
            }
        };
        self.values = values;
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::{OPENING_BALANCE, Written};
    use super::*;

    fn text(value: impl ToString) -> Answer {
        Answer::Text(value.to_string())
    }
    fn state(entries: &[(String, Answer)]) -> State {
        let accounts = (0..ACCOUNTS).map(|account| (account_key(account), text(OPENING_BALANCE)));
        accounts.chain(entries.iter().cloned()).collect()
    }
    fn append(value: u64, outcome: Outcome) -> Operation {
        let steps = vec![Step::Append { key: 9, value }];
        Operation { client: 1, invoked_ns: value, completed_ns: Some(value), outcome, steps }
    }

    #[test]
    fn a_counter_has_what_was_acknowledged_and_at_most_what_was_sent() {
        let judge = |unknown, found: u64| {
            let mut ledger = Ledger::default();
            let raised = Raised { replies: vec![1, 2, 4], unknown };
            let mut seen = Seen { counters: BTreeMap::from([(0, raised)]), ..Seen::default() };
            ledger.learn(&mut seen);
            ledger.judge(&state(&[(counter_key(0), text(found))]))
        };
        assert_eq!(judge(1, 4), Vec::<String>::new());
        assert_eq!(judge(2, 5), Vec::<String>::new());
        assert_eq!(judge(1, 5).len(), 1);
        assert_eq!(judge(0, 4).len(), 1, "one more than was sent");
        assert_eq!(judge(1, 3), ["counter:0 is 3 and was more before"]);
        assert_eq!(judge(1, 2).len(), 2);
    }

    #[test]
    fn a_counter_never_falls_and_no_increment_gets_the_reply_of_another() {
        let mut ledger = Ledger::default();
        let learn = |ledger: &mut Ledger, replies: &[u64]| {
            let raised = Raised { replies: replies.to_vec(), unknown: 3 };
            ledger.learn(&mut Seen { exact: BTreeMap::from([(2, raised)]), ..Seen::default() });
        };
        learn(&mut ledger, &[1, 2]);
        assert_eq!(ledger.judge(&state(&[(exact_key(2), text(4))])).len(), 0);
        learn(&mut ledger, &[2]);
        assert_eq!(
            ledger.judge(&state(&[(exact_key(2), text(3))])),
            [
                "1 increments of exact:2 got what others had got, one of them 2",
                "exact:2 is 3 and was more before"
            ]
        );
    }

    #[test]
    fn a_register_has_a_last_value() {
        let judge = |found: Answer| {
            let mut ledger = Ledger::default();
            // One pipeline of two, another one at the same time, and one after all of these.
            let early =
                Written { acknowledged: vec![(1, 10, 20), (2, 10, 21), (3, 15, 30)], unknown: vec![7] };
            let late = Written { acknowledged: vec![(4, 25, 40), (5, 25, 41)], unknown: vec![] };
            for written in [early, late] {
                ledger.learn(&mut Seen { registers: BTreeMap::from([(3, written)]), ..Seen::default() });
            }
            ledger.judge(&state(&[(register_key(3), found)])).is_empty()
        };
        let right: Vec<u64> = (1..9).filter(|&value| judge(text(value))).collect();
        assert_eq!(right, [3, 5, 7]);
        assert!(!judge(Answer::Nil));
    }

    #[test]
    fn money_is_neither_made_nor_lost() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.judge(&state(&[])).len(), 0);
        assert_eq!(ledger.judge(&state(&[(account_key(1), text(OPENING_BALANCE - 1))])).len(), 1);
        assert_eq!(ledger.judge(&state(&[(account_key(1), Answer::Nil)])).len(), 1);
    }

    #[test]
    fn a_settled_list_grows_by_what_was_unknown_only() {
        let mut ledger = Ledger::default();
        let operations =
            vec![append(1, Outcome::Committed), append(2, Outcome::Unknown), append(3, Outcome::Unknown)];
        ledger.learn(&mut Seen { operations, ..Seen::default() });
        let mut judge = |text: &str| ledger.judge(&state(&[(list_key(9), Answer::Text(text.into()))]));
        assert_eq!(judge("1,3,").len(), 0);
        assert_eq!(judge("1,3,").len(), 0);
        assert_eq!(judge("1,3,2,").len(), 0);
        assert_eq!(judge("1,3,2,3,").len(), 1, "twice");
        assert_eq!(judge("1,3,").len(), 1, "lost");
        assert_eq!(judge("1,3").len(), 1, "cut");
        assert!(ledger.keys().contains(&list_key(9)));
    }
}
