//! What the `adya` crate thinks of a history.

use adya::history::{Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::{History, Opts, Valid, Workload};
use ordo_sim::history::{Operation, Outcome, Step};

/// The anomalies that it finds against strict serializability. Each operation is its own process, because it
/// allows none to have two at a time; so it does not know the clients' orders.
pub fn anomalies(history: &[Operation]) -> Vec<String> {
    let mut interner = Interner::default();
    // Invocations before completions, for equal times order nothing.
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (index, operation) in history.iter().enumerate() {
        let known = operation.outcome != Outcome::Unknown;
        let completed_ns = operation.completed_ns.filter(|_| known);
        events.push((operation.invoked_ns, false, index));
        events.push((completed_ns.unwrap_or(u64::MAX), true, index));
    }
    events.sort_unstable();
    let ops = events
        .into_iter()
        .map(|(time, completes, index)| {
            let operation = &history[index];
            let kind = match operation.outcome {
                _ if !completes => OpType::Invoke,
                Outcome::Committed => OpType::Ok,
                Outcome::Aborted => OpType::Fail,
                Outcome::Unknown => OpType::Info,
            };
            let mut intern = |number: u64| interner.intern(Scalar::Int(number as i64));
            let step = |step: &Step| match step {
                Step::Append { key, value } => Mop::Append { key: intern(*key), value: intern(*value) },
                Step::Read { key, values } => Mop::Read {
                    key: intern(*key),
                    value: match kind {
                        OpType::Ok => ReadValue::List(values.iter().map(|&v| intern(v)).collect()),
                        _ => ReadValue::Nil,
                    },
                },
            };
            Op {
                index: index as u64,
                kind,
                process: Some(index as i64),
                value: operation.steps.iter().map(step).collect(),
                time: Some(time as i64),
            }
        })
        .collect();
    let history = History::from_ops(ops, interner);
    let report = adya::check(&history, Workload::ListAppend, &Opts::default());
    match report.valid {
        Valid::False => report.anomaly_types,
        Valid::True | Valid::Unknown => Vec::new(),
    }
}
