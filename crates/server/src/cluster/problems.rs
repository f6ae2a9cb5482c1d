//! What an operator must know of a cluster's status: the problems in it, and the verdict that follows.

use super::{ClusterStatus, NodeStatus};
use serde::Serialize;

/// How a cluster is. The later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Everything works, and nothing is missing.
    Ok,
    /// Everything works, and somebody should look at something.
    Degraded,
    /// Some writes wait.
    Unavailable,
}

impl Verdict {
    /// What `ordo admin status` exits with. 1 says that there is no status, and 2 that the words are wrong.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Ok => 0,
            Verdict::Degraded => 3,
            Verdict::Unavailable => 4,
        }
    }
}

/// How bad a problem is. The later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A step of a change that is under way.
    Note,
    /// Something is missing that the cluster does without for now.
    Warning,
    /// Clients wait.
    Critical,
}

/// Something that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// For programs: stays the same when the texts change.
    pub kind: &'static str,
    /// The names of the nodes that have it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The numbers of the partitions that have it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<u16>,
    /// What is wrong.
    pub cause: String,
    /// What to do, or what happens by itself.
    pub next: String,
}

impl Problem {
    fn of_nodes(severity: Severity, kind: &'static str, nodes: &[&NodeStatus]) -> Problem {
        let nodes = nodes.iter().map(|node| node.name.clone()).collect();
        let (cause, next) = Default::default();
        Problem { severity, kind, nodes, partitions: Vec::new(), cause, next }
    }

    fn says(mut self, cause: String, next: String) -> Problem {
        (self.cause, self.next) = (cause, next);
        self
    }
}

/// The problems, the worst first.
pub fn problems(status: &ClusterStatus) -> Vec<Problem> {
    let mut problems: Vec<Problem> = leaderless(status).into_iter().collect();
    for node in &status.nodes {
        problems.extend(problem_of(status, node));
        if node.clock_ahead_ms != 0 {
            let word = if node.clock_ahead_ms < 0 { "behind" } else { "ahead of" };
            let seconds = node.clock_ahead_ms.unsigned_abs() as f64 / 1_000.0;
            problems.push(Problem::of_nodes(Severity::Warning, "clock", &[node]).says(
                format!(
                    "The clock of node {} is {seconds:.1} s {word} the cluster's time of day.",
                    node.name
                ),
                "Set it right. No time to live depends on it.".to_owned(),
            ));
        }
    }
    problems.extend(older(status));
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
    problems
}

/// How the cluster is that has these problems.
pub fn verdict(problems: &[Problem]) -> Verdict {
    match problems.iter().map(|problem| problem.severity).max() {
        None | Some(Severity::Note) => Verdict::Ok,
        Some(Severity::Warning) => Verdict::Degraded,
        Some(Severity::Critical) => Verdict::Unavailable,
    }
}

fn leaderless(status: &ClusterStatus) -> Option<Problem> {
    let leaderless = status.partitions.iter().filter(|found| found.leader.is_none());
    let partitions: Vec<u16> = leaderless.map(|found| found.id).collect();
    if partitions.is_empty() {
        return None;
    }
    let numbers: Vec<String> = partitions.iter().map(u16::to_string).collect();
    let problem = Problem { partitions, ..Problem::of_nodes(Severity::Critical, "no-leader", &[]) };
    Some(problem.says(
        format!("Nobody is known to lead partition {}: writes wait.", numbers.join(", ")),
        "Another leader is there within a second or so; if this stays, no majority of the replicas can talk \
         to each other."
            .to_owned(),
    ))
}

/// What keeps a node from its part.
fn problem_of(status: &ClusterStatus, node: &NodeStatus) -> Option<Problem> {
    let name = &node.name;
    let found = |severity, kind| Problem::of_nodes(severity, kind, &[node]);
    if node.leaving {
        return Some(found(Severity::Note, "leaving").says(
            format!("Node {name} is leaving."),
            "It is gone once nobody has it as a replica any more and its process has ended.".to_owned(),
        ));
    }
    if let Some(cause) = &node.out {
        return Some(found(Severity::Warning, "out").says(
            format!("Node {name} takes no part in the cluster: {cause}."),
            "Its own log tells whether it comes back by itself, must be restarted (look at its disk first), \
             or must be replaced."
                .to_owned(),
        ));
    }
    if node.reachable {
        return None;
    }
    if node.boot != 0 {
        return Some(found(Severity::Warning, "unreachable").says(
            format!("Node {name} is not heard of."),
            "Start it if it does not run, read its log if it does, or replace it (docs/cluster.md) if it is \
             gone for good."
                .to_owned(),
        ));
    }
    if !node.waiting {
        return Some(found(Severity::Warning, "never-started").says(
            format!("Node {name} has never started."),
            format!("Start it with `ordo serve --cluster cluster.toml --node {name}`."),
        ));
    }
    let mut replicas = status.partitions.iter().flat_map(|found| &found.replicas);
    if replicas.any(|replica| replica.node == node.id) {
        return Some(found(Severity::Note, "joining").says(
            format!("Node {name} runs, and is about to join."),
            "It has something to keep, and gets it.".to_owned(),
        ));
    }
    let others = status
        .nodes
        .iter()
        .filter(|other| other.zone == node.zone && other.id != node.id && other.boot != 0 && !other.leaving);
    let others: Vec<&str> = others.map(|other| other.name.as_str()).collect();
    Some(found(Severity::Note, "waiting").says(
        format!("Node {name} runs, and waits for something to keep."),
        format!(
            "`ordo admin rebalance` gives it its share of zone {}; `ordo admin remove-node` of another node \
             there ({}) gives it all that one keeps.",
            node.zone,
            others.join(", ")
        ),
    ))
}

/// Nodes that keep a newer behaviour from coming into force.
fn older(status: &ClusterStatus) -> Option<Problem> {
    let staying = status.nodes.iter().filter(|node| !node.leaving);
    let newest = staying.clone().map(|node| node.level).max().unwrap_or(0);
    let older: Vec<&NodeStatus> = staying.filter(|node| node.level < newest).collect();
    if newest <= status.level || older.is_empty() {
        return None;
    }
    let names: Vec<&str> = older.iter().map(|node| node.name.as_str()).collect();
    Some(Problem::of_nodes(Severity::Note, "older-version", &older).says(
        format!("Behaviour {newest} comes into force once all nodes know it."),
        format!("Restart {} with the newer version.", names.join(", ")),
    ))
}
