//! `ordo admin status` in a hierarchy: each node is asked, because each one counts what its own clients do.

use super::certified::{self, CertifiedStatus};
use super::show::table;
use anyhow::Result;
use server::client::Access;
use server::cluster::hierarchy::{HierarchyNode, HierarchyStatus, TransactionCounts, ValidatorStatus};
use server::cluster::{Problem, Verdict, verdict};
use std::io::Write;

/// Completes a node's status by what the others answer.
pub fn completed(mut status: HierarchyStatus, access: &Access) -> HierarchyStatus {
    let others = status.nodes.iter().filter(|node| node.id != status.me);
    let addresses: Vec<String> = others.map(|node| node.client_address.clone()).collect();
    for answer in certified::ask(&addresses, access) {
        if let CertifiedStatus::Hierarchy(other) = answer
            && other.cluster == status.cluster
        {
            status.add(&other);
        }
    }
    status
}

/// Shows the status, and gives the verdict.
pub fn show(status: &HierarchyStatus, json: bool, out: &mut dyn Write) -> Result<Verdict> {
    let problems = status.problems();
    let verdict = verdict(&problems);
    if json {
        let mut whole = serde_json::to_value(status)?;
        whole["transactions"] = serde_json::to_value(status.transactions())?;
        whole["levels"] = serde_json::to_value(status.levels())?;
        whole["verdict"] = serde_json::to_value(verdict)?;
        whole["problems"] = serde_json::to_value(&problems)?;
        writeln!(out, "{whole}")?;
    } else {
        write!(out, "{}", text(status, &problems))?;
    }
    Ok(verdict)
}

fn text(status: &HierarchyStatus, problems: &[Problem]) -> String {
    let all = status.transactions();
    let mut text = format!(
        "{}\nHierarchy {}, control by {}: {} transactions committed, {:.0} a second; without effect {} \
         attempts at keys, {} of old snapshots, {} of timestamps; {} requests given up\n",
        headline(status, problems),
        status.cluster,
        status.control,
        all.committed,
        all.committed_per_s,
        all.aborted_at_keys,
        all.aborted_of_old_snapshots,
        all.aborted_of_timestamps,
        all.given_up,
    );
    for problem in problems {
        text.push_str(&format!("\n{} {}", problem.cause, problem.next));
    }
    if !problems.is_empty() {
        text.push('\n');
    }
    text.push_str(&levels(status));
    text.push_str(&validators(status));
    text.push_str(&nodes(status));
    text
}

fn headline(status: &HierarchyStatus, problems: &[Problem]) -> String {
    let (nodes, validators) = (status.nodes.len(), status.validators.len());
    match verdict(problems) {
        Verdict::Ok => format!("OK: {nodes} nodes and {validators} validators, all of them well"),
        Verdict::Degraded => "DEGRADED: clients are served, with problems".to_owned(),
        Verdict::Unavailable => {
            let without = status.validators.iter().filter(|validator| validator.leader.is_none()).count();
            format!("UNAVAILABLE: {without} of {validators} validators without a leader")
        }
    }
}

fn levels(status: &HierarchyStatus) -> String {
    let rows = status.levels().into_iter().rev().map(|level| {
        vec![
            level.height.to_string(),
            level.validators.to_string(),
            format!("{:.0}", level.decided_per_s),
            level.decided.to_string(),
            format!("{:.1} %", level.decided_percent),
            format!("{:.1}", level.batch_mean),
        ]
    });
    let header = ["level", "validators", "decided a second", "decided", "share", "transactions in a batch"];
    format!("\n{}\n", table(&header, rows, &[0, 1, 2, 3, 4, 5]))
}

/// The validators, each behind the one above it, and the further to the right the further it is from the
/// root.
fn validators(status: &HierarchyStatus) -> String {
    let mut ordered = Vec::new();
    let mut to_show: Vec<(&ValidatorStatus, usize)> =
        status.validators.iter().filter(|found| found.parent.is_none()).map(|root| (root, 0)).collect();
    // A reply with a circle of parents ends here, too.
    while let Some((found, depth)) = to_show.pop().filter(|_| ordered.len() < status.validators.len()) {
        ordered.push((found, depth));
        let children = status.validators.iter().rev().filter(|child| child.parent == Some(found.id));
        to_show.extend(children.map(|child| (child, depth + 1)));
    }
    let rows = ordered.into_iter().map(|(found, depth)| {
        let hosts: Vec<String> = found.hosts.iter().map(|&host| status.name(host)).collect();
        vec![
            format!("{}{}", "- ".repeat(depth), found.name),
            found.leader.map_or_else(|| "NOT KNOWN".to_owned(), |leader| status.name(leader)),
            hosts.join(", "),
            format!("{:.0}", found.decided_per_s),
            found.decided.to_string(),
            match found.batches {
                0 => "-".to_owned(),
                batches => format!("{:.1}", found.batched as f64 / batches as f64),
            },
            found.entries.to_string(),
        ]
    });
    let header =
        ["validator", "leader", "hosts", "decided a second", "decided", "transactions in a batch", "entries"];
    format!("\n{}\n", table(&header, rows, &[3, 4, 5, 6]))
}

fn nodes(status: &HierarchyStatus) -> String {
    let row = |node: &HierarchyNode| {
        let state = match (&node.report, node.reachable) {
            (Some(report), _) if report.silence.is_some() => "SILENT",
            (Some(report), _) if !report.behind.is_empty() => "behind",
            (Some(_), _) => "yes",
            (None, true) => "linked",
            (None, false) => "NO",
        };
        let report = node.report.clone().unwrap_or_default();
        let TransactionCounts { committed, committed_per_s, given_up, open, forgotten, .. } =
            report.transactions;
        let TransactionCounts { aborted_at_keys, aborted_of_old_snapshots, aborted_of_timestamps, .. } =
            report.transactions;
        let counts =
            [aborted_at_keys, aborted_of_old_snapshots, aborted_of_timestamps, given_up, open, forgotten];
        let words = [&node.name, &node.zone, &node.client_address].map(String::clone);
        let numbers = [format!("{committed_per_s:.0}"), committed.to_string()];
        let mut row = [&words[..], &[state.to_owned()], &numbers].concat();
        row.extend(counts.map(|count| count.to_string()));
        row
    };
    let header = [
        "node",
        "zone",
        "clients",
        "answers",
        "committed a second",
        "committed",
        "aborted at keys",
        "of old snapshots",
        "of timestamps",
        "given up",
        "open",
        "forgotten",
    ];
    format!("\n{}\n", table(&header, status.nodes.iter().map(row), &[4, 5, 6, 7, 8, 9, 10, 11]))
}
