//! One anomaly each, planted in a valid history.

use ordo_sim::draw::Draw;
use ordo_sim::history::{Kind, Operation, Outcome, Step};
use std::collections::BTreeSet;

/// What a faulty store or client library would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// A read shows an aborted append.
    DirtyRead,
    /// A read shows a transaction's append and not its next.
    IntermediateRead,
    /// An acknowledged append is in no read.
    LostAppend,
    /// Only the last read of all shows that an acknowledged append is gone.
    LostAtTheEnd,
    /// An append is read, acknowledged, and gone from the middle of a later read.
    LostAfterRead,
    /// An acknowledged append took effect twice.
    ExecutedTwice,
    /// So did one whose end nobody learned.
    UnknownTwice,
    /// A read misses the newest append, though that was acknowledged.
    StaleRead,
    /// So does the next read of whoever appended.
    OwnWriteOvertaken,
    /// Two lists have two transactions in different orders.
    WriteCycle,
    /// Transactions read each other's appends in a circle.
    CircularInformation,
    /// A read shows one of a transaction's two lists.
    ReadSkew,
    /// Two transactions append to what both read.
    LostUpdate,
    /// A transaction appends to another version than it read.
    LostBlindUpdate,
    /// Transactions read in a circle what another is about to change.
    WriteSkew,
    /// Two readers see two appends in different orders.
    LongFork,
    /// A read goes back behind what another client has read before it.
    GoesBack,
    /// A client's read overtakes the append that it sent just before, without waiting for the reply.
    PipelineOvertaken,
    /// Two reads contradict each other in the order of appends.
    Incompatible,
    /// A read shows a transaction's appends in another order than it made them.
    Reversed,
    /// A transaction's later append is there, and its earlier one is not.
    HalfLost,
    /// A transaction does not read its own append.
    OwnAppendUnread,
    /// A transaction reads one list twice and differently.
    Unrepeatable,
    /// A transaction reads what it is going to append.
    FutureRead,
    /// A read shows what nobody appended.
    Impossible,
    /// The history asks for the same append twice.
    AskedTwice,
}

impl Defect {
    pub const ALL: [Defect; 26] = {
        use Defect::*;
        [
            DirtyRead,
            IntermediateRead,
            LostAppend,
            LostAtTheEnd,
            LostAfterRead,
            ExecutedTwice,
            UnknownTwice,
            StaleRead,
            OwnWriteOvertaken,
            WriteCycle,
            CircularInformation,
            ReadSkew,
            LostUpdate,
            LostBlindUpdate,
            WriteSkew,
            LongFork,
            GoesBack,
            PipelineOvertaken,
            Incompatible,
            Reversed,
            HalfLost,
            OwnAppendUnread,
            Unrepeatable,
            FutureRead,
            Impossible,
            AskedTwice,
        ]
    };

    /// Plants the defect in a valid history, if it has a place for it. Returns the kinds that fit.
    pub fn plant(self, draw: &mut Draw, history: &mut Vec<Operation>) -> Option<Vec<Kind>> {
        let kind = match self {
            Defect::DirtyRead => dirty_read(draw, history)?,
            Defect::IntermediateRead => intermediate_read(draw, history)?,
            Defect::LostAppend => lost_append(draw, history, |_, _| true)?,
            Defect::LostAtTheEnd => lost_append(draw, history, |history, shown| {
                shown.iter().all(|&reader| reader + 1 == history.len())
            })?,
            Defect::LostAfterRead => lost_after_read(draw, history)?,
            Defect::ExecutedTwice => twice(draw, history, Outcome::Committed)?,
            Defect::UnknownTwice => twice(draw, history, Outcome::Unknown)?,
            Defect::StaleRead => return stale_read(draw, history, false),
            Defect::OwnWriteOvertaken => return stale_read(draw, history, true),
            apart => apart.add(draw, history),
        };
        Some(vec![kind])
    }

    /// Adds transactions on lists and connections of their own, among the others.
    fn add(self, draw: &mut Draw, history: &mut Vec<Operation>) -> Kind {
        const KEY: u64 = 1 << 32;
        let (x, y) = (KEY, KEY + 1);
        let append = |key, value| Step::Append { key, value };
        let read = |key, values: &[u64]| Step::Read { key, values: values.to_vec() };
        let circle = draw.between(2, 6);
        let in_circle = |step: &dyn Fn(u64, u64) -> Vec<Step>| {
            let next = |place: u64| (place + 1) % circle;
            (0..circle).map(|place| step(KEY + place, KEY + next(place))).collect::<Vec<_>>()
        };
        let (kind, transactions): (Kind, Vec<Vec<Step>>) = match self {
            Defect::WriteCycle => (
                Kind::G0,
                vec![
                    vec![append(x, 1), append(y, 1)],
                    vec![append(x, 2), append(y, 2)],
                    vec![read(x, &[1, 2]), read(y, &[2, 1])],
                ],
            ),
            Defect::CircularInformation => {
                (Kind::G1c, in_circle(&|own, next| vec![append(own, own), read(next, &[next])]))
            }
            Defect::ReadSkew => {
                (Kind::GSingle, vec![vec![append(x, 1), append(y, 2)], vec![read(x, &[]), read(y, &[2])]])
            }
            Defect::LostUpdate => (
                Kind::LostUpdate,
                vec![
                    vec![append(x, 1)],
                    vec![read(x, &[1]), append(x, 2)],
                    vec![read(x, &[1]), append(x, 3)],
                ],
            ),
            Defect::LostBlindUpdate => (
                Kind::LostUpdate,
                vec![vec![append(x, 2)], vec![read(x, &[]), append(x, 3)], vec![read(x, &[2, 3])]],
            ),
            Defect::WriteSkew => (Kind::G2, in_circle(&|own, next| vec![read(next, &[]), append(own, own)])),
            Defect::LongFork => (
                Kind::GNonadjacent,
                vec![
                    vec![append(x, 1)],
                    vec![append(y, 2)],
                    vec![read(x, &[1]), read(y, &[])],
                    vec![read(x, &[]), read(y, &[2])],
                ],
            ),
            Defect::GoesBack => {
                (Kind::RealTime, vec![vec![append(x, 1)], vec![read(x, &[1])], vec![read(x, &[])]])
            }
            Defect::PipelineOvertaken => {
                (Kind::ClientOrder, vec![vec![append(x, 1)], vec![read(x, &[])], vec![read(x, &[1])]])
            }
            Defect::Incompatible => (
                Kind::IncompatibleOrder,
                vec![vec![append(x, 1)], vec![append(x, 2)], vec![read(x, &[1, 2])], vec![read(x, &[2])]],
            ),
            Defect::Reversed => (
                Kind::IncompatibleOrder,
                vec![vec![append(x, 1), append(x, 2)], vec![append(x, 3)], vec![read(x, &[2, 1, 3])]],
            ),
            Defect::HalfLost => {
                (Kind::LostAppend, vec![vec![append(x, 1), append(x, 2)], vec![read(x, &[2])]])
            }
            Defect::OwnAppendUnread => (Kind::Internal, vec![vec![append(x, 1), read(x, &[])]]),
            Defect::Unrepeatable => {
                (Kind::Internal, vec![vec![append(x, 1)], vec![read(x, &[]), read(x, &[1])]])
            }
            Defect::FutureRead => (Kind::Internal, vec![vec![read(x, &[1]), append(x, 1)]]),
            Defect::Impossible => (Kind::ImpossibleRead, vec![vec![append(x, 1)], vec![read(x, &[1, 7])]]),
            Defect::AskedTwice => (Kind::Malformed, vec![vec![append(x, 1)], vec![append(x, 1)]]),
            other => unreachable!("{other:?} is planted among the others"),
        };
        let span_ns = history.iter().map(|operation| operation.invoked_ns).max();
        let start_ns = draw.below(span_ns.unwrap_or(0) + 1);
        let client = 1000;
        for (steps, number) in transactions.into_iter().zip(0..) {
            let mut operation = Operation {
                client: client + number,
                invoked_ns: start_ns + draw.below(50),
                completed_ns: Some(start_ns + draw.between(50, 100)),
                outcome: Outcome::Committed,
                steps,
            };
            match self {
                Defect::GoesBack if number == 2 => {
                    operation.invoked_ns = start_ns + 101;
                    operation.completed_ns = Some(start_ns + draw.between(101, 200));
                }
                Defect::GoesBack if number == 0 => operation.completed_ns = Some(start_ns + 150),
                Defect::PipelineOvertaken if number < 2 => {
                    operation.client = client;
                    operation.invoked_ns = start_ns + u64::from(number) * draw.below(50);
                    if number == 0 {
                        operation.invoked_ns = start_ns;
                    }
                }
                _ => {}
            }
            let place = match self {
                Defect::PipelineOvertaken => history.len(),
                _ => draw.below(history.len() as u64 + 1) as usize,
            };
            history.insert(place, operation);
        }
        kind
    }
}

/// An append in a history: by whom, to what, and whether it is the transaction's only one to that list.
#[derive(Clone, Copy)]
struct Append {
    writer: usize,
    key: u64,
    value: u64,
    only: bool,
}

fn appends(history: &[Operation]) -> Vec<Append> {
    let mut appends = Vec::new();
    for (writer, operation) in history.iter().enumerate() {
        for step in &operation.steps {
            if let Step::Append { key, value } = *step {
                let to_key = |step: &&Step| matches!(step, Step::Append { key: k, .. } if *k == key);
                appends.push(Append {
                    writer,
                    key,
                    value,
                    only: operation.steps.iter().filter(to_key).count() == 1,
                });
            }
        }
    }
    appends
}

/// Who committed and read a list without appending to it, and what.
fn readers(history: &[Operation], key: u64) -> Vec<(usize, Vec<u64>)> {
    let mut readers = Vec::new();
    for (reader, operation) in history.iter().enumerate() {
        let appends = |step: &Step| matches!(step, Step::Append { key: k, .. } if *k == key);
        if operation.outcome != Outcome::Committed || operation.steps.iter().any(appends) {
            continue;
        }
        let read = operation.steps.iter().find_map(|step| match step {
            Step::Read { key: k, values } if *k == key => Some(values.clone()),
            _ => None,
        });
        readers.extend(read.map(|values| (reader, values)));
    }
    readers
}

/// Every committed read of a list, own appends included.
fn reads(history: &mut [Operation], key: u64) -> impl Iterator<Item = (usize, &mut Vec<u64>)> {
    history.iter_mut().enumerate().filter(|(_, operation)| operation.outcome == Outcome::Committed).flat_map(
        move |(index, operation)| {
            operation.steps.iter_mut().filter_map(move |step| match step {
                Step::Read { key: k, values } if *k == key => Some((index, values)),
                _ => None,
            })
        },
    )
}

fn choose<T>(draw: &mut Draw, mut choices: Vec<T>) -> Option<T> {
    let place = draw.below(choices.len() as u64) as usize;
    (!choices.is_empty()).then(|| choices.swap_remove(place))
}

fn dirty_read(draw: &mut Draw, history: &mut [Operation]) -> Option<Kind> {
    let is_aborted = |append: &Append| history[append.writer].outcome == Outcome::Aborted;
    let aborted = appends(history).into_iter().filter(is_aborted).collect();
    let append = choose(draw, aborted)?;
    let (reader, _) = choose(draw, readers(history, append.key))?;
    for (index, values) in reads(history, append.key) {
        if index == reader {
            values.push(append.value);
        }
    }
    Some(Kind::G1a)
}

fn intermediate_read(draw: &mut Draw, history: &mut [Operation]) -> Option<Kind> {
    let mut places = Vec::new();
    for append in appends(history).iter().filter(|append| !append.only) {
        for (reader, values) in readers(history, append.key) {
            if values.last() == Some(&append.value) {
                places.push((reader, append.key));
            }
        }
    }
    let (reader, key) = choose(draw, places)?;
    for (index, values) in reads(history, key) {
        if index == reader {
            values.pop();
        }
    }
    Some(Kind::G1b)
}

/// Removes an acknowledged append from all reads. `wanted` sees who had it.
fn lost_append(
    draw: &mut Draw,
    history: &mut [Operation],
    wanted: fn(&[Operation], &[usize]) -> bool,
) -> Option<Kind> {
    let mut places = Vec::new();
    for append in appends(history).into_iter().filter(|append| append.only) {
        let writer = &history[append.writer];
        let reads_it = |step: &Step| matches!(step, Step::Read { key, .. } if *key == append.key);
        let (Outcome::Committed, Some(completed_ns)) = (writer.outcome, writer.completed_ns) else {
            continue;
        };
        let mut later = false;
        let mut shown = Vec::new();
        let invoked: Vec<u64> = history.iter().map(|operation| operation.invoked_ns).collect();
        for (reader, values) in reads(history, append.key) {
            later |= invoked[reader] > completed_ns;
            if values.contains(&append.value) {
                shown.push(reader);
            }
        }
        if later && !history[append.writer].steps.iter().any(reads_it) && wanted(history, &shown) {
            places.push(append);
        }
    }
    let append = choose(draw, places)?;
    for (_, values) in reads(history, append.key) {
        values.retain(|&value| value != append.value);
    }
    Some(Kind::LostAppend)
}

fn lost_after_read(draw: &mut Draw, history: &mut [Operation]) -> Option<Kind> {
    let mut places = Vec::new();
    for append in appends(history).iter().filter(|append| append.only) {
        let readers = readers(history, append.key);
        let shown = |values: &[u64]| values.contains(&append.value);
        for (reader, values) in &readers {
            let others = readers.iter().any(|(other, list)| other != reader && shown(list));
            if shown(values) && values.last() != Some(&append.value) && others {
                places.push((*reader, *append));
            }
        }
    }
    let (reader, append) = choose(draw, places)?;
    for (index, values) in reads(history, append.key) {
        if index == reader {
            values.retain(|&value| value != append.value);
        }
    }
    Some(Kind::IncompatibleOrder)
}

fn twice(draw: &mut Draw, history: &mut [Operation], outcome: Outcome) -> Option<Kind> {
    let mut places = Vec::new();
    for append in appends(history).into_iter().filter(|append| append.only) {
        if history[append.writer].outcome != outcome {
            continue;
        }
        for (_, values) in readers(history, append.key) {
            if let Some(first) = values.iter().position(|&value| value == append.value) {
                places.extend((first + 1..=values.len()).map(|second| (append, second)));
            }
        }
    }
    let (append, second) = choose(draw, places)?;
    let readers: BTreeSet<usize> =
        readers(history, append.key).into_iter().map(|(reader, _)| reader).collect();
    for (reader, values) in reads(history, append.key) {
        // Whoever appends as well keeps its own at the end, so it is left with what it read.
        if readers.contains(&reader) && values.len() >= second {
            values.insert(second, append.value);
        }
    }
    Some(Kind::DuplicateValue)
}

fn stale_read(draw: &mut Draw, history: &mut [Operation], own: bool) -> Option<Vec<Kind>> {
    let mut places = Vec::new();
    for append in appends(history).into_iter().filter(|append| append.only) {
        let writer = &history[append.writer];
        let (Outcome::Committed, Some(completed_ns)) = (writer.outcome, writer.completed_ns) else {
            continue;
        };
        for (reader, values) in readers(history, append.key) {
            let operation = &history[reader];
            if operation.steps.len() == 1
                && values.last() == Some(&append.value)
                && completed_ns < operation.invoked_ns
                && own == (operation.client == writer.client)
            {
                places.push((reader, append));
            }
        }
    }
    let (reader, append) = choose(draw, places)?;
    let mut shown = false;
    for (index, values) in reads(history, append.key) {
        if index == reader {
            values.pop();
        }
        shown |= values.contains(&append.value);
    }
    Some(match (shown, own) {
        // Nobody else saw it, so it may as well be lost.
        (false, _) => vec![Kind::LostAppend],
        (true, true) => vec![Kind::ClientOrder],
        // The reader's client may have been told earlier by what it read or wrote.
        (true, false) => vec![Kind::RealTime, Kind::ClientOrder],
    })
}
