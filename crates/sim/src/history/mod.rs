//! A black-box judge of what clients saw: is a history of list appends and reads strictly serializable?
//!
//! It knows what each client asked, what it was told, and when; nothing of the nodes, the order or the
//! engines. It accepts a history if and only if some serial order of the committed transactions, and of any
//! of those whose end nobody learned, gives every read its values and puts whoever completed before another
//! was invoked first.
//!
//! Lists make this cheap, as Kingsbury and Alvaro found (*Elle: Inferring Isolation Anomalies from
//! Experimental Observations*, VLDB 2020): values are appended once, so a read tells the whole order of the
//! appends before it. All reads of a key must be prefixes of one *version order*. From there it is Adya's
//! graph (*Weak Consistency*, MIT 1999), whose edges say who must come first:
//! - *ww* from a version's writer to the next version's, *wr* from a version's writer to its readers, *rw*
//!   from a version's readers to the next version's writer;
//! - an append that no read shows comes after every version that was read, and after the readers of the
//!   newest;
//! - *client order*: a client is one connection, and its operations take effect in the order it sent them,
//!   pipelined or not; nothing comes after an operation whose end is unknown, for it may take effect at any
//!   later time;
//! - *real time*, through one node for each moment of completion, so that its edges are linear in the
//!   history.
//!
//! A system that promises less than strict serializability is judged without real time ([`Order`]).
//!
//! A cycle is an anomaly. Without one, any topological order explains all reads: each key's versions are
//! ordered, each reader lies between its version and the next, and what nobody read comes last. So nothing is
//! missed and nothing is accused wrongly, for what lists can say. The tests hold it against exhaustive search
//! and against `adya`, an independent checker, which can't take this one's place: it passes over values that
//! nobody appended, knows either client order or real time but not both, allows a transaction's appends in
//! any order, and stops its search by the wall clock.
//!
//! The report is a short cycle, by a search that is bounded in steps; only the verdict is complete.
//!
//! Not checked: other types than lists, predicates (scans), what aborted transactions read, and liveness.
//! Moments that are equal order nobody but a client's own operations.

mod graph;
mod versions;

use std::fmt::{self, Write as _};

/// What a client asked for and got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The connection that sent it. A client's operations take effect in the order of `invoked_ns`; at equal
    /// times, of the history.
    pub client: u32,
    /// When it was sent.
    pub invoked_ns: u64,
    /// When the client learned how it ended; `None` if it never did. Ignored if the outcome is
    /// [`Outcome::Unknown`].
    pub completed_ns: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did, in order, as one transaction.
    pub steps: Vec<Step>,
}

/// How an operation ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect, once.
    Committed,
    /// It has had no effect and will have none.
    Aborted,
    /// It may have taken effect once, may do so later, or never.
    Unknown,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Appends a value to the list of a key. No value is appended to a key twice in a history.
    Append {
        /// Which list.
        key: u64,
        /// What.
        value: u64,
    },
    /// Reads the list of a key.
    Read {
        /// Which list.
        key: u64,
        /// The whole list as read, the transaction's own earlier appends included. Ignored unless it
        /// committed.
        values: Vec<u64>,
    },
}

/// What the serial order of a history has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order in which each client sent its operations.
    Clients,
    /// That, and real time: whoever completed before another was invoked comes first.
    RealTime,
}

/// What is wrong with a history, by Adya's names where he has one. One anomaly is reported, and they are
/// listed roughly in the order in which they are looked for: of the cycles that are short enough to be read,
/// those that need the least to contradict themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The history is not one: a value was asked to be appended twice, or an operation completed before its
    /// invocation.
    Malformed,
    /// A transaction's read contradicts its own earlier reads and appends.
    Internal,
    /// A read has a value that nobody asked to append.
    ImpossibleRead,
    /// G1a, aborted read: a read has a value of a transaction that aborted.
    G1a,
    /// A read has a value twice: one append took effect twice.
    DuplicateValue,
    /// G1b, intermediate read: a read ends between two appends of one transaction.
    G1b,
    /// Two reads of a key, or a read and a transaction's own order of appends, have no common version order.
    IncompatibleOrder,
    /// Two transactions read the same version and both replaced it, or one replaced another version than it
    /// read.
    LostUpdate,
    /// A committed append is missing from a read that was invoked after its acknowledgement, and no read has
    /// it; or a transaction's later append to the same list is there and the earlier one is not.
    LostAppend,
    /// G0, write cycle: the orders of the versions alone contradict each other.
    G0,
    /// G1c, circular information flow: a cycle of ww and wr with at least one wr.
    G1c,
    /// G-single: a cycle with one rw, as in a read of half a transaction.
    GSingle,
    /// G-nonadjacent: a cycle with several rw, no two in a row, as in a long fork.
    GNonadjacent,
    /// G2: any other cycle with rw, as in write skew.
    G2,
    /// A cycle that needs the order in which a client sent its operations, as in a read that misses its own
    /// write.
    ClientOrder,
    /// A cycle that needs real time, as in a stale read.
    RealTime,
}

/// Why a history is not strictly serializable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// What kind of thing it is.
    pub kind: Kind,
    /// The operations that contradict each other, as indices into the history; in the order of the cycle if
    /// it is one.
    pub operations: Vec<usize>,
    /// The same in words: the operations, and who must come before whom, and why.
    pub account: String,
}

/// Checks that a history is strictly serializable; the module's head tells what that means and how it is
/// done.
///
/// The cost is linear in the size of the history, its reads included, but for sorting. The search for a short
/// cycle to report is bounded by a number of steps, and depends on nothing but the history.
pub fn check(history: &[Operation]) -> Result<(), Anomaly> {
    check_order(history, Order::RealTime)
}

/// Checks that a history is serializable in an order that keeps what `order` says; otherwise as [`check`].
pub fn check_order(history: &[Operation], order: Order) -> Result<(), Anomaly> {
    let versions = versions::Versions::infer(history, order)?;
    graph::Graph::new(history, &versions, order).judge(history)
}

impl Anomaly {
    /// `why` has a line for each reason.
    fn new(kind: Kind, history: &[Operation], operations: Vec<usize>, why: &str) -> Anomaly {
        let mut account = String::new();
        let mut shown = Vec::new();
        for &operation in &operations {
            if !shown.contains(&operation) {
                shown.push(operation);
                describe(&mut account, operation, &history[operation]);
            }
        }
        account.push_str(why.trim_end());
        Anomaly { kind, operations, account }
    }
}

fn describe(text: &mut String, index: usize, operation: &Operation) {
    let Operation { client, invoked_ns, .. } = operation;
    let _ = write!(text, "#{index}: client {client}, {invoked_ns}..");
    if let Some(completed_ns) = operation.completed_ns {
        let _ = write!(text, "{completed_ns}");
    }
    let _ = write!(text, " ns, {:?}:", operation.outcome);
    for step in &operation.steps {
        let _ = match step {
            Step::Append { key, value } => write!(text, " append {value} to key {key};"),
            Step::Read { key, .. } if operation.outcome != Outcome::Committed => {
                write!(text, " read key {key};")
            }
            Step::Read { key, values } => write!(text, " read key {key}: {};", List(values)),
        };
    }
    text.push('\n');
}

/// A list as read; of a long one, the end.
struct List<'a>(&'a [u64]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        match self.0.len().checked_sub(SHOWN) {
            None | Some(0) => write!(f, "{:?}", self.0),
            Some(hidden) => write!(f, "[{hidden} more, then {:?}]", &self.0[hidden..]),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Malformed => "malformed history",
            Kind::Internal => "a transaction contradicts itself",
            Kind::ImpossibleRead => "impossible read",
            Kind::G1a => "G1a (aborted read)",
            Kind::DuplicateValue => "duplicate value",
            Kind::G1b => "G1b (intermediate read)",
            Kind::IncompatibleOrder => "incompatible order",
            Kind::LostUpdate => "lost update",
            Kind::LostAppend => "lost append",
            Kind::G0 => "G0 (write cycle)",
            Kind::G1c => "G1c (circular information flow)",
            Kind::GSingle => "G-single (read skew)",
            Kind::GNonadjacent => "G-nonadjacent (long fork)",
            Kind::G2 => "G2 (write skew)",
            Kind::ClientOrder => "client order violated",
            Kind::RealTime => "real-time order violated",
        })
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not strictly serializable: {}\n{}", self.kind, self.account)
    }
}

impl std::error::Error for Anomaly {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anomaly_is_told_with_its_operations_and_reasons() {
        let operation = |client, step| Operation {
            client,
            invoked_ns: 100 * u64::from(client),
            completed_ns: Some(100 * u64::from(client) + 50),
            outcome: Outcome::Committed,
            steps: vec![step],
        };
        let read = |values: &[u64]| Step::Read { key: 4, values: values.to_vec() };
        let history = [
            operation(1, Step::Append { key: 4, value: 9 }),
            operation(2, read(&[])),
            operation(3, read(&[9])),
        ];
        assert_eq!(
            check(&history).unwrap_err().to_string(),
            "not strictly serializable: real-time order violated\n\
             #1: client 2, 200..250 ns, Committed: read key 4: [];\n\
             #0: client 1, 100..150 ns, Committed: append 9 to key 4;\n\
             #1 comes before #0: it read key 4 empty, and 9 came later (rw)\n\
             #0 comes before #1: it completed at 150 ns, and the other was invoked at 200 ns"
        );
        assert_eq!(check(&history[..1]), Ok(()));
        assert_eq!(check(&[]), Ok(()));
        let long: Vec<u64> = (0..20).collect();
        assert_eq!(List(&long).to_string(), "[12 more, then [12, 13, 14, 15, 16, 17, 18, 19]]");
    }

    #[test]
    fn equal_moments_order_only_a_clients_own_operations() {
        let operation = |client, step| Operation {
            client,
            invoked_ns: 5,
            completed_ns: Some(5),
            outcome: Outcome::Committed,
            steps: vec![step],
        };
        let values = Vec::new();
        let append = Step::Append { key: 1, value: 1 };
        let missed = Step::Read { key: 1, values };
        let others = [operation(1, append.clone()), operation(2, missed.clone())];
        assert_eq!(check(&others), Ok(()));
        let own = [operation(1, append), operation(1, missed)];
        assert_eq!(check(&own).unwrap_err().kind, Kind::ClientOrder);
    }
}
