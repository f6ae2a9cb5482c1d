//! Histories of a simulated store: what random clients see of lists that one transaction after the other
//! changes.

use ordo_sim::draw::Draw;
use ordo_sim::history::{Operation, Outcome, Step};
use std::collections::BTreeMap;

/// What a plan looks like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub operations: u64,
    pub clients: u64,
    pub keys: u64,
    pub steps_max: u64,
    /// The longest time between invocation, effect and completion.
    pub delay_ns: u64,
    /// The longest time between a client's operations.
    pub pause_ns: u64,
    /// Clients may send the next operation before the reply to the last.
    pub pipelined: bool,
    pub aborted_percent: u32,
    pub unknown_percent: u32,
    /// A client that reads every list at the end.
    pub final_reads: bool,
}

impl Shape {
    /// Short times make many equal ones.
    pub fn draw(draw: &mut Draw, operations: u64) -> Shape {
        Shape {
            operations,
            clients: draw.between(1, 8),
            keys: draw.between(1, 6),
            steps_max: draw.between(1, 5),
            delay_ns: draw.pick(&[0, 2, 10, 1000]),
            pause_ns: draw.pick(&[0, 2, 1000]),
            pipelined: draw.percent(30),
            aborted_percent: draw.pick(&[0, 10, 30]),
            unknown_percent: draw.pick(&[0, 10, 30]),
            final_reads: draw.percent(70),
        }
    }
}

/// An operation before it has read anything.
#[derive(Clone, Debug)]
pub struct Plan {
    pub operation: Operation,
    /// When it takes effect, if it does.
    pub effect_ns: Option<u64>,
    /// How many effects its reads lag behind: 0 in a store that does its job.
    pub lag: usize,
}

#[derive(Clone, Copy, Default)]
struct Client {
    free_ns: u64,
    invoked_ns: u64,
    effect_ns: u64,
}

/// Draws operations whose effects lie between invocation and completion, and in each client's order.
pub fn plan(draw: &mut Draw, shape: &Shape) -> Vec<Plan> {
    let mut clients = vec![Client::default(); shape.clients as usize];
    let mut plans = Vec::new();
    let mut value = 0;
    for _ in 0..shape.operations {
        let number = draw.below(shape.clients) as usize;
        let client = &mut clients[number];
        let from_ns = match shape.pipelined && draw.percent(50) {
            true => client.invoked_ns,
            false => client.free_ns,
        };
        let invoked_ns = from_ns + draw.between(0, shape.pause_ns);
        let outcome = match draw.below(100) as u32 {
            roll if roll < shape.aborted_percent => Outcome::Aborted,
            roll if roll < shape.aborted_percent + shape.unknown_percent => Outcome::Unknown,
            _ => Outcome::Committed,
        };
        let effect_ns = client.effect_ns.max(invoked_ns + draw.between(0, shape.delay_ns));
        let ended_ns = effect_ns + draw.between(0, shape.delay_ns);
        client.invoked_ns = invoked_ns;
        client.free_ns = client.free_ns.max(ended_ns);
        let (effect_ns, completed_ns) = match outcome {
            Outcome::Committed => {
                client.effect_ns = effect_ns;
                (Some(effect_ns), draw.percent(97).then_some(ended_ns))
            }
            Outcome::Aborted => (None, Some(ended_ns)),
            // The client gave up; what it sent may arrive much later.
            Outcome::Unknown => (
                draw.percent(50).then_some(effect_ns + draw.below(20 * shape.delay_ns + 1)),
                draw.percent(50).then_some(ended_ns),
            ),
        };
        let steps = (0..draw.between(1, shape.steps_max))
            .map(|_| {
                let key = draw.below(shape.keys);
                if draw.percent(50) {
                    let values = Vec::new();
                    return Step::Read { key, values };
                }
                value += 1;
                Step::Append { key, value }
            })
            .collect();
        let operation = Operation { client: number as u32, invoked_ns, completed_ns, outcome, steps };
        plans.push(Plan { operation, effect_ns, lag: 0 });
    }
    if shape.final_reads {
        let ended_ns = clients.iter().map(|client| client.free_ns).max();
        let invoked_ns = ended_ns.unwrap_or(0) + 1;
        let read = |key| Step::Read { key, values: Vec::new() };
        let operation = Operation {
            client: shape.clients as u32,
            invoked_ns,
            completed_ns: Some(invoked_ns),
            outcome: Outcome::Committed,
            steps: (0..shape.keys).map(read).collect(),
        };
        plans.push(Plan { operation, effect_ns: Some(invoked_ns), lag: 0 });
    }
    plans
}

/// Runs a plan: the history that its clients see.
pub fn run(draw: &mut Draw, plans: Vec<Plan>) -> Vec<Operation> {
    let mut order: Vec<usize> = (0..plans.len()).filter(|&index| plans[index].effect_ns.is_some()).collect();
    order.sort_by_key(|&index| plans[index].effect_ns);
    let lags: Vec<usize> = plans.iter().map(|plan| plan.lag).collect();
    let mut history: Vec<Operation> = plans.into_iter().map(|plan| plan.operation).collect();
    // Nothing may depend on what these say.
    for operation in &mut history {
        for step in &mut operation.steps {
            if let Step::Read { values, .. } = step
                && draw.percent(50)
            {
                values.push(draw.below(20));
            }
        }
    }
    let mut lists: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    // How long each list was after each effect.
    let mut lengths: Vec<BTreeMap<u64, usize>> = vec![BTreeMap::new()];
    for index in order {
        let mut own: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let snapshot = &lengths[lengths.len().saturating_sub(1 + lags[index])];
        for step in &mut history[index].steps {
            match step {
                Step::Append { key, value } => own.entry(*key).or_default().push(*value),
                Step::Read { key, values } => {
                    let length = snapshot.get(key).copied().unwrap_or(0);
                    values.clear();
                    values.extend(lists.get(key).into_iter().flatten().take(length));
                    values.extend(own.get(key).into_iter().flatten());
                }
            }
        }
        for (key, values) in own {
            lists.entry(key).or_default().extend(values);
        }
        let length = |(key, list): (&u64, &Vec<u64>)| (*key, list.len());
        lengths.push(lists.iter().map(length).collect());
    }
    history
}

/// A valid history of about `operations`.
pub fn valid(draw: &mut Draw, operations: u64) -> Vec<Operation> {
    let shape = Shape::draw(draw, operations);
    let plans = plan(draw, &shape);
    run(draw, plans)
}
