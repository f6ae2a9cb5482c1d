//! Who must come before whom, and the cycles in it.

use super::versions::{Access, KeyVersions, Versions};
use super::{Anomaly, Kind, Operation, Order, Outcome};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;

/// A node below the number of operations is an operation. One that had no effect has edges in and none out,
/// so it is in no cycle. The others stand between many operations and many, so that the edges stay linear:
/// one for each list that has appends which nobody read, and one for each moment of completion.
pub(super) struct Graph {
    operations: usize,
    edges: Vec<Edge>,
    /// Where a node's edges begin in `edges`; one more entry than nodes.
    starts: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    from: usize,
    to: usize,
    relation: Relation,
    /// For ww, wr and rw: the key, and the version on either side of the edge, where there is one.
    key: u64,
    before: Option<u64>,
    after: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// The way on from a node that is no operation; it belongs to whatever edge led there.
    Link = 1,
    WriteWrite = 2,
    WriteRead = 4,
    ReadWrite = 8,
    Client = 16,
    RealTime = 32,
}

impl Relation {
    /// Up to [`DEPENDENCY`], cycles with few rw are preferred, for they say more, and then short ones.
    /// Beyond, short ones.
    fn cost(self, level: u8) -> u64 {
        const MANY: u64 = 1 << 32;
        match self {
            Relation::Link => 0,
            Relation::ReadWrite if level <= DEPENDENCY => 1 + MANY,
            _ if level <= DEPENDENCY => 1,
            Relation::WriteWrite | Relation::WriteRead => MANY,
            Relation::ReadWrite => 1 + MANY,
            Relation::Client | Relation::RealTime => 2 + MANY,
        }
    }
}

const WRITES: u8 = Relation::WriteWrite as u8 | Relation::Link as u8;
const INFORMATION: u8 = WRITES | Relation::WriteRead as u8;
const DEPENDENCY: u8 = INFORMATION | Relation::ReadWrite as u8;
const CLIENT: u8 = DEPENDENCY | Relation::Client as u8;
const ALL: u8 = CLIENT | Relation::RealTime as u8;

/// What cycles may consist of, worst first.
const LEVELS: [u8; 5] = [WRITES, INFORMATION, DEPENDENCY, CLIENT, ALL];

/// Who is to understand a cycle must be able to read it. A longer one gives way to a shorter one of a later
/// level.
const LEGIBLE_STEPS: usize = 8;

/// How many edges the search for a cheaper cycle may follow once it has one.
const SEARCH_EDGES_MAX: usize = 2_000_000;

impl Graph {
    pub(super) fn new(history: &[Operation], versions: &Versions<'_>, order: Order) -> Graph {
        let mut build = Build { nodes: history.len(), edges: Vec::new() };
        for key in &versions.keys {
            build.dependencies(key);
        }
        build.client_order(history);
        if order == Order::RealTime {
            build.real_time(history);
        }

        let mut edges = build.edges;
        edges.sort_by_key(|edge| edge.from);
        let mut starts = vec![0; build.nodes + 1];
        for edge in &edges {
            starts[edge.from + 1] += 1;
        }
        for node in 0..build.nodes {
            starts[node + 1] += starts[node];
        }
        Graph { operations: history.len(), edges, starts }
    }

    /// Finds a cycle, the worst that is short enough to be read.
    pub(super) fn judge(&self, history: &[Operation]) -> Result<(), Anomaly> {
        if self.components(ALL).is_empty() {
            return Ok(());
        }
        let mut shortest: Option<Vec<Edge>> = None;
        for level in LEVELS {
            let components = self.components(level);
            let smallest = components.iter().min_by_key(|component| component.len());
            let Some(component) = smallest else { continue };
            let steps = self.steps(self.cheapest_cycle(history, component, level));
            let length = steps.len();
            if shortest.as_ref().is_none_or(|shortest| length < shortest.len()) {
                shortest = Some(steps);
            }
            if length <= LEGIBLE_STEPS {
                break;
            }
        }
        let steps = shortest.unwrap_or_default();
        Err(anomaly(history, &steps))
    }

    /// A cycle between operations, whatever nodes it passes in between.
    fn steps(&self, cycle: Vec<Edge>) -> Vec<Edge> {
        let mut steps: Vec<Edge> = Vec::new();
        for edge in cycle {
            match steps.last_mut() {
                Some(step) if edge.relation == Relation::Link => {
                    step.to = edge.to;
                    step.after = edge.after;
                }
                _ => steps.push(edge),
            }
        }
        steps
    }

    fn edges_of(&self, node: usize) -> std::ops::Range<usize> {
        self.starts[node]..self.starts[node + 1]
    }

    /// The strongly connected components of more than one node in the graph of a level's edges, nodes sorted.
    /// Tarjan's algorithm, with its own stack: a history is as deep as it is long.
    fn components(&self, level: u8) -> Vec<Vec<usize>> {
        const NEW: usize = usize::MAX;
        let nodes = self.starts.len() - 1;
        let (mut number, mut low) = (vec![NEW; nodes], vec![0; nodes]);
        let mut next_edge = self.starts.clone();
        let mut open = vec![false; nodes];
        let (mut path, mut stack, mut components) = (Vec::new(), Vec::new(), Vec::new());
        let mut count = 0;
        for root in 0..nodes {
            if number[root] != NEW {
                continue;
            }
            path.push(root);
            while let Some(&node) = path.last() {
                if number[node] == NEW {
                    (number[node], low[node]) = (count, count);
                    count += 1;
                    open[node] = true;
                    stack.push(node);
                }
                let mut child = None;
                while next_edge[node] < self.starts[node + 1] && child.is_none() {
                    let edge = &self.edges[next_edge[node]];
                    next_edge[node] += 1;
                    if edge.relation as u8 & level == 0 {
                        continue;
                    }
                    if number[edge.to] == NEW {
                        child = Some(edge.to);
                    } else if open[edge.to] {
                        low[node] = low[node].min(number[edge.to]);
                    }
                }
                if let Some(child) = child {
                    path.push(child);
                    continue;
                }
                path.pop();
                if let Some(&parent) = path.last() {
                    low[parent] = low[parent].min(low[node]);
                }
                if low[node] == number[node] {
                    let first = stack.iter().rposition(|&member| member == node);
                    let mut component = stack.split_off(first.unwrap_or(0));
                    for &member in &component {
                        open[member] = false;
                    }
                    if component.len() > 1 {
                        component.sort_unstable();
                        components.push(component);
                    }
                }
            }
        }
        components
    }

    /// The cheapest cycle through an operation of a component, as edges; among many operations, of those that
    /// could be tried. Dijkstra's algorithm from one operation after the other.
    fn cheapest_cycle(&self, history: &[Operation], component: &[usize], level: u8) -> Vec<Edge> {
        let nodes = self.starts.len() - 1;
        let mut inside = vec![false; nodes];
        for &node in component {
            inside[node] = true;
        }
        // A dependency straight against real time makes a cycle of two. In a large component the others may
        // not get their turn.
        let backwards = |&node: &usize| {
            let invoked_ns = history[node].invoked_ns;
            let mut targets = self.edges_of(node).flat_map(|edge| {
                let to = self.edges[edge].to;
                let links = if to < self.operations { 0..0 } else { self.edges_of(to) };
                links.map(|link| self.edges[link].to).chain([to])
            });
            targets.any(|to| {
                history.get(to).is_some_and(|other| {
                    other.outcome == Outcome::Committed
                        && other.completed_ns.is_some_and(|ns| ns < invoked_ns)
                })
            })
        };
        let mut tries: Vec<usize> =
            component.iter().copied().filter(|&node| node < self.operations).collect();
        if level == ALL
            && let Some(place) = tries.iter().position(backwards)
        {
            tries.swap(0, place);
        }

        let mut best: (u64, Vec<Edge>) = (u64::MAX, Vec::new());
        let mut followed = 0;
        // The cost of the way to a node, and its last edge, in the try that `seen` names.
        let mut seen = vec![usize::MAX; nodes];
        let mut reached = vec![(u64::MAX, usize::MAX); nodes];
        for start in tries {
            if followed > SEARCH_EDGES_MAX && !best.1.is_empty() {
                break;
            }
            let mut closing = None;
            let mut heap = BinaryHeap::from([Reverse((0, start))]);
            while let Some(Reverse((cost, node))) = heap.pop() {
                if cost >= best.0 {
                    break;
                }
                if node != start && cost > reached[node].0 {
                    continue;
                }
                for index in self.edges_of(node) {
                    followed += 1;
                    let edge = &self.edges[index];
                    if edge.relation as u8 & level == 0 || !inside[edge.to] {
                        continue;
                    }
                    let cost = cost + edge.relation.cost(level);
                    if edge.to == start {
                        if cost < best.0 {
                            best.0 = cost;
                            closing = Some(index);
                        }
                    } else if seen[edge.to] != start || cost < reached[edge.to].0 {
                        seen[edge.to] = start;
                        reached[edge.to] = (cost, index);
                        heap.push(Reverse((cost, edge.to)));
                    }
                }
            }
            if let Some(closing) = closing {
                let mut cycle = vec![self.edges[closing]];
                let mut node = self.edges[closing].from;
                while node != start {
                    let edge = self.edges[reached[node].1];
                    cycle.push(edge);
                    node = edge.from;
                }
                cycle.reverse();
                best.1 = cycle;
            }
        }
        best.1
    }
}

/// Names a cycle and tells it.
fn anomaly(history: &[Operation], steps: &[Edge]) -> Anomaly {
    let mut why = String::new();
    for step in steps {
        let Edge { from, to, key, .. } = step;
        let _ = write!(why, "#{from} comes before #{to}: ");
        let after = step.after.unwrap_or_default();
        let _ = match (step.relation, step.before) {
            (Relation::WriteWrite, Some(before)) => {
                writeln!(why, "it appended {before} to key {key}, and {after} came later (ww)")
            }
            (Relation::WriteRead, Some(before)) => {
                writeln!(why, "it appended {before} to key {key}, which was read (wr)")
            }
            (Relation::ReadWrite, Some(before)) => {
                writeln!(why, "it read key {key} up to {before}, and {after} came later (rw)")
            }
            (Relation::ReadWrite, None) => {
                writeln!(why, "it read key {key} empty, and {after} came later (rw)")
            }
            (Relation::Client, _) => {
                writeln!(why, "client {} sent it first", history[*from].client)
            }
            _ => {
                let completed_ns = history[*from].completed_ns.unwrap_or_default();
                let invoked_ns = history[*to].invoked_ns;
                writeln!(
                    why,
                    "it completed at {completed_ns} ns, and the other was invoked at {invoked_ns} ns"
                )
            }
        };
    }
    let operations = steps.iter().map(|step| step.from).collect();
    Anomaly::new(name(history, steps), history, operations, &why)
}

fn name(history: &[Operation], steps: &[Edge]) -> Kind {
    let count = |relation| {
        let of_relation = steps.iter().filter(|step| step.relation == relation);
        of_relation.count()
    };
    let between_clients = |step: &Edge| {
        step.relation == Relation::RealTime && history[step.from].client != history[step.to].client
    };
    if steps.iter().any(between_clients) {
        return Kind::RealTime;
    }
    if count(Relation::Client) + count(Relation::RealTime) > 0 {
        return Kind::ClientOrder;
    }
    let is_anti = |step: &Edge| step.relation == Relation::ReadWrite;
    let next = |place: usize| &steps[(place + 1) % steps.len()];
    match count(Relation::ReadWrite) {
        0 if count(Relation::WriteRead) == 0 => Kind::G0,
        0 => Kind::G1c,
        // It appended to another version than it had read.
        1 if steps.len() == 2 && count(Relation::WriteWrite) == 1 && steps[0].key == steps[1].key => {
            Kind::LostUpdate
        }
        1 => Kind::GSingle,
        _ if (0..steps.len()).any(|place| is_anti(&steps[place]) && is_anti(next(place))) => Kind::G2,
        _ => Kind::GNonadjacent,
    }
}

struct Build {
    nodes: usize,
    edges: Vec<Edge>,
}

impl Build {
    fn node(&mut self) -> usize {
        self.nodes += 1;
        self.nodes - 1
    }

    fn edge(&mut self, from: usize, to: usize, relation: Relation) -> &mut Edge {
        self.edges.push(Edge { from, to, relation, key: 0, before: None, after: None });
        let last = self.edges.len() - 1;
        &mut self.edges[last]
    }

    /// An edge between versions of a list.
    fn depend(
        &mut self,
        key: u64,
        relation: Relation,
        (from, before): (usize, Option<u64>),
        (to, after): (usize, Option<u64>),
    ) {
        let edge = self.edge(from, to, relation);
        (edge.key, edge.before, edge.after) = (key, before, after);
    }

    fn dependencies(&mut self, versions: &KeyVersions<'_>) {
        use Relation::{Link, ReadWrite, WriteRead, WriteWrite};
        let KeyVersions { key, order, writers, accesses } = versions;
        let (key, newest) = (*key, order.last().copied());
        for place in 1..order.len() {
            let (from, to) = (writers[place - 1], writers[place]);
            if from != to {
                let (before, after) = (Some(order[place - 1]), Some(order[place]));
                self.depend(key, WriteWrite, (from, before), (to, after));
            }
        }
        for access in accesses {
            let Some(base) = access.base else { continue };
            let reader = access.operation;
            let read = base.checked_sub(1).map(|last| order[last]);
            if base > 0 {
                let writer = writers[base - 1];
                self.depend(key, WriteRead, (writer, read), (reader, None));
            }
            if base < order.len() && writers[base] != reader {
                let next = (writers[base], Some(order[base]));
                self.depend(key, ReadWrite, (reader, read), next);
            }
        }

        // What nobody read comes after the newest version that was, and after its readers. Among the writers
        // of such appends at most one has read the newest version itself: it comes before the others.
        let hidden: Vec<&Access<'_>> = accesses.iter().filter(|access| !access.observed).collect();
        if hidden.is_empty() {
            return;
        }
        let newest_readers = accesses.iter().filter(|access| access.base == Some(order.len()));
        let first = hidden.iter().find(|access| access.base == Some(order.len()));
        let middle = self.node();
        let mut before: Vec<(usize, Relation)> =
            newest_readers.map(|access| (access.operation, ReadWrite)).collect();
        before.extend(writers.last().map(|&writer| (writer, WriteWrite)));
        for (from, relation) in before {
            self.depend(key, relation, (from, newest), (middle, None));
            if let Some(first) = first
                && first.operation != from
            {
                let append = first.appends.first().copied();
                self.depend(key, relation, (from, newest), (first.operation, append));
            }
        }
        for access in &hidden {
            if first.is_none_or(|first| first.operation != access.operation) {
                let append = access.appends.last().copied();
                self.depend(key, Link, (middle, None), (access.operation, append));
            }
        }
    }

    fn client_order(&mut self, history: &[Operation]) {
        let mut clients: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, operation) in history.iter().enumerate() {
            clients.entry(operation.client).or_default().push(index);
        }
        for mut operations in clients.into_values() {
            operations.sort_by_key(|&index| history[index].invoked_ns);
            let mut last = None;
            for index in operations {
                if let Some(last) = last {
                    self.edge(last, index, Relation::Client);
                }
                if history[index].outcome == Outcome::Committed {
                    last = Some(index);
                }
            }
        }
    }

    /// A chain of moments, each before the next. Who completes then comes before the moment; who is invoked
    /// later comes after it.
    fn real_time(&mut self, history: &[Operation]) {
        let mut moments: BTreeMap<u64, usize> = BTreeMap::new();
        for operation in history {
            if operation.outcome == Outcome::Committed
                && let Some(completed_ns) = operation.completed_ns
            {
                moments.insert(completed_ns, 0);
            }
        }
        let mut earlier = None;
        for node in moments.values_mut() {
            *node = self.node();
            if let Some(earlier) = earlier {
                self.edge(earlier, *node, Relation::Link);
            }
            earlier = Some(*node);
        }
        for (index, operation) in history.iter().enumerate() {
            if let Some((_, &moment)) = moments.range(..operation.invoked_ns).next_back() {
                self.edge(moment, index, Relation::Link);
            }
            if operation.outcome == Outcome::Committed
                && let Some(completed_ns) = operation.completed_ns
            {
                self.edge(index, moments[&completed_ns], Relation::RealTime);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Operation, Outcome, Step};
    use super::*;
    use crate::draw::Draw;

    /// Appends, of which `readers_percent` also read the list or the next; a hundred at a time.
    fn crowd(count: u64, keys: u64, readers_percent: u32) -> Vec<Operation> {
        let mut draw = Draw::new(1);
        let mut lists = vec![Vec::new(); keys as usize];
        let mut history = Vec::new();
        for value in 0..count {
            let key = draw.below(keys);
            let mut steps = Vec::new();
            if draw.percent(readers_percent) {
                let key = draw.pick(&[key, (key + 1) % keys]);
                let values = lists[key as usize].clone();
                steps.push(Step::Read { key, values });
            }
            steps.push(Step::Append { key, value });
            lists[key as usize].push(value);
            history.push(Operation {
                client: value as u32 % 100,
                invoked_ns: value,
                completed_ns: Some(value + 100),
                outcome: Outcome::Committed,
                steps,
            });
        }
        history
    }

    #[test]
    fn the_graph_is_linear_in_the_history() {
        for (keys, readers_percent) in [(1, 0), (1, 50), (1, 100), (30, 50)] {
            let mut history = crowd(2000, keys, readers_percent);
            // Many who read the newest version before many append to it unread.
            for number in 0..2000 {
                let values = Vec::new();
                let step = match number % 2 {
                    0 => Step::Read { key: 99, values },
                    _ => Step::Append { key: 99, value: number },
                };
                history.push(Operation {
                    client: 1000 + number as u32,
                    invoked_ns: 0,
                    completed_ns: Some(1 << 40),
                    outcome: Outcome::Committed,
                    steps: vec![step],
                });
            }
            let versions = Versions::infer(&history, Order::RealTime).unwrap();
            let graph = Graph::new(&history, &versions, Order::RealTime);
            assert_eq!(graph.judge(&history), Ok(()));
            let (nodes, edges) = (graph.starts.len(), graph.edges.len());
            assert!(
                nodes <= 3 * history.len() && edges <= 7 * history.len(),
                "{keys} lists, {readers_percent}% read: {nodes} nodes and {edges} edges"
            );
        }
    }

    /// By dependencies alone the way from the append that was missed to what was read is as long as the
    /// history.
    #[test]
    fn a_stale_read_across_a_long_history_is_told_in_two_lines() {
        let mut history = crowd(4000, 50, 50);
        let read = |key, count| {
            let steps = history.iter().flat_map(|operation| &operation.steps);
            let appended = steps.filter_map(|step| match step {
                Step::Append { key: k, value } if *k == key => Some(*value),
                _ => None,
            });
            let values = appended.take(count).collect();
            Step::Read { key, values }
        };
        let whole = vec![read(7, usize::MAX)];
        let stale = vec![read(8, usize::MAX), read(7, 0)];
        for (client, steps) in [(1000, whole), (1001, stale)] {
            history.push(Operation {
                client,
                invoked_ns: 10_000,
                completed_ns: Some(10_001),
                outcome: Outcome::Committed,
                steps,
            });
        }
        let anomaly = super::super::check(&history).unwrap_err();
        assert_eq!(anomaly.kind, Kind::RealTime);
        assert_eq!(anomaly.operations.len(), 2, "{anomaly}");
        assert_eq!(anomaly, super::super::check(&history).unwrap_err());
    }
}
