//! A cluster's status for people: the verdict, tables, problems.

use comfy_table::{CellAlignment, Table, presets};
use server::cluster::{
    ClusterStatus, NodeStatus, PartitionStatus, Problem, ReplicaStatus, Severity, Verdict, problems, verdict,
};

/// The name of a node, or its number if it has left.
pub fn name(status: &ClusterStatus, id: u16) -> String {
    let node = status.nodes.iter().find(|node| node.id == id);
    node.map_or_else(|| format!("node {id}"), |node| node.name.clone())
}

/// Of more nodes, or more partitions, only those are shown that are not well.
const ROWS_MAX: usize = 12;

/// The whole status; if not everything is asked for, only what fits on a page.
pub fn status(status: &ClusterStatus, all: bool) -> String {
    let problems = problems(status);
    let mut text = format!(
        "{}\nCluster {}, as {} sees it: map version {}, behaviour {}, executed up to epoch {}\n",
        headline(status, &problems),
        status.cluster,
        name(status, status.me),
        status.map_version,
        status.level,
        status.epoch,
    );
    for problem in &problems {
        text.push_str(&format!("\n{} {}", problem.cause, problem.next));
    }
    if !problems.is_empty() {
        text.push('\n');
    }
    let has_problem = |node: &NodeStatus| problems.iter().any(|problem| problem.nodes.contains(&node.name));
    text.push_str(&nodes(status, &|node| all || has_problem(node)));
    text.push_str(&partitions(status, &|found| all || !is_well(found)));
    text
}

/// The verdict in a line.
fn headline(status: &ClusterStatus, problems: &[Problem]) -> String {
    let count = |severity| problems.iter().filter(|problem| problem.severity == severity).count();
    let several = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    };
    let warnings = several(count(Severity::Warning), "problem");
    match verdict(problems) {
        Verdict::Ok => format!(
            "OK: {} and {}, all of them well",
            several(status.nodes.len(), "node"),
            several(status.partitions.len(), "partition")
        ),
        Verdict::Degraded => format!("DEGRADED: clients are served, with {warnings}"),
        Verdict::Unavailable => {
            let without = status.partitions.iter().filter(|found| found.leader.is_none()).count();
            format!(
                "UNAVAILABLE: {without} of {} without a leader",
                several(status.partitions.len(), "partition")
            )
        }
    }
}

/// It has a leader, and nobody that joins, leaves or lags.
fn is_well(found: &PartitionStatus) -> bool {
    let is_well = |replica: &ReplicaStatus| {
        ["leader", "follower"].contains(&replica.role.as_str()) && replica.lag.unwrap_or(0) < LAG_SHOWN
    };
    found.leader.is_some() && found.replicas.iter().all(is_well)
}

/// A follower that lacks so many entries is not well: it catches up, or is about to be given a checkpoint.
const LAG_SHOWN: u64 = 1_000;

/// A table, with these columns at the right.
pub fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>, right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for &index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table of those that are to be shown, and how many there are besides.
fn shown<T>(
    header: &[&str],
    what: &str,
    all: &[T],
    is_shown: &dyn Fn(&T) -> bool,
    row: impl Fn(&T) -> Vec<String>,
    right: &[usize],
) -> String {
    let rows: Vec<&T> = all.iter().filter(|one| all.len() <= ROWS_MAX || is_shown(one)).collect();
    let mut text = String::new();
    if !rows.is_empty() {
        text = format!("\n{}\n", table(header, rows.iter().map(|&one| row(one)), right));
    }
    match all.len() - rows.len() {
        0 => text,
        hidden => format!("{text}\n{hidden} {what} more are well: --all shows them.\n"),
    }
}

fn nodes(status: &ClusterStatus, is_shown: &dyn Fn(&NodeStatus) -> bool) -> String {
    let row = |node: &NodeStatus| {
        let partitions = status.partitions.iter();
        let leads = partitions.clone().filter(|found| found.leader == Some(node.id));
        let keeps = partitions.filter(|found| {
            let mut replicas = found.replicas.iter();
            replicas.any(|replica| replica.node == node.id)
        });
        vec![
            node.id.to_string(),
            node.name.clone(),
            node.zone.clone(),
            node.client_address.clone(),
            node.peer_address.clone(),
            match node.boot {
                0 if node.waiting => "waits".to_owned(),
                0 => "never started".to_owned(),
                boot => boot.to_string(),
            },
            node.level.to_string(),
            match node.reachable || node.waiting {
                true if node.out.is_some() => "OUT",
                true => "yes",
                false => "NO",
            }
            .to_owned(),
            leads.count().to_string(),
            keeps.count().to_string(),
        ]
    };
    let header =
        ["id", "node", "zone", "clients", "peers", "boot", "behaviour", "reachable", "leads", "replicas"];
    shown(&header, "nodes", &status.nodes, is_shown, row, &[0, 5, 6, 8, 9])
}

fn partitions(status: &ClusterStatus, is_shown: &dyn Fn(&PartitionStatus) -> bool) -> String {
    // In a word, so that many partitions are many lines, and not more.
    let replica = |replica: &ReplicaStatus| {
        let name = name(status, replica.node);
        match (replica.role.as_str(), replica.lag) {
            ("leader", _) | ("follower", Some(0)) => name,
            ("follower", Some(entries)) => format!("{name} ({entries} behind)"),
            ("follower", None) => format!("{name} (lag not known)"),
            (role, Some(entries @ 1..)) => format!("{name} ({role}, {entries} behind)"),
            (role, _) => format!("{name} ({role})"),
        }
    };
    let row = |found: &PartitionStatus| {
        let slots: Vec<String> = found.slots.iter().map(|(first, last)| format!("{first}-{last}")).collect();
        let replicas: Vec<String> = found.replicas.iter().map(replica).collect();
        vec![
            found.id.to_string(),
            slots.join(" "),
            found.leader.map_or_else(|| "NOT KNOWN".to_owned(), |leader| name(status, leader)),
            match found.term {
                0 => "-".to_owned(),
                term => term.to_string(),
            },
            replicas.join(", "),
        ]
    };
    let header = ["partition", "slots", "leader", "term", "replicas"];
    shown(&header, "partitions", &status.partitions, is_shown, row, &[0, 3])
}
