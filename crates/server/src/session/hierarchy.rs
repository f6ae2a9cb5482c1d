//! INFO's section about a hierarchy: the tree of validators, and what they decide.

use super::ThreadContext;
use super::info::field;
use crate::runtime::{CertifiedStatus, TreePart};
use std::fmt::Write;
use txn::PartitionId;

/// Writes the section, if transactions are certified here.
pub(super) fn section(thread: &ThreadContext<'_>, out: &mut String) {
    let status = thread.shared.runtime.certified_status();
    if let Some((status, part)) = status.as_ref().and_then(|status| Some((status, status.tree_part()?))) {
        write(status, part, out);
    }
}

fn write(status: &CertifiedStatus, part: &TreePart, out: &mut String) {
    let counts = &status.counts;
    let TreePart { validators, groups, site } = part;
    let tree = &validators.tree;
    field(out, "control", format!("{:?}", validators.control).to_lowercase());
    field(out, "validators", tree.groups());
    for ((number, validator), group) in (0..).map(PartitionId).zip(&validators.list).zip(groups) {
        let parent = tree.parent(number).and_then(|parent| validators.list.get(usize::from(parent.0)));
        let hosts: Vec<String> = validator.nodes.iter().map(|node| node.0.to_string()).collect();
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "validator_{}:name={},parent={},height={},hosts={},leader={},decided_entries={},\
             decided_transactions={},batches={},batched_transactions={},too_large_bytes={}\r\n",
            number.0,
            validator.name,
            parent.map_or("", |parent| parent.name.as_str()),
            tree.height(number),
            hosts.join(" "),
            group.leader.map_or(0, |leader| leader.0),
            group.decided,
            counts.decided_by.get(usize::from(number.0)).unwrap_or(&0),
            group.batches.batches,
            group.batches.transactions,
            site.too_large.get(&number).unwrap_or(&0),
        );
    }
    let mut decided_at = vec![0; tree.height_of_root() + 1];
    for (number, decided) in (0..).map(PartitionId).zip(&counts.decided_by) {
        decided_at[tree.height(number)] += decided;
    }
    for (height, decided) in decided_at.iter().enumerate() {
        field(out, &format!("decided_at_height_{height}"), decided);
    }
    transactions(status, out);
}

/// What has become of the node's transactions.
pub(super) fn transactions(status: &CertifiedStatus, out: &mut String) {
    let counts = &status.counts;
    field(out, "committed_transactions", counts.committed);
    let [keys, snapshots, timestamps] = counts.conflicts;
    field(out, "conflicts_at_keys", keys);
    field(out, "conflicts_of_old_snapshots", snapshots);
    field(out, "conflicts_of_timestamps", timestamps);
    field(out, "requests_given_up", counts.given_up);
    field(out, "open_transactions", status.open_transactions);
    field(out, "forgotten_transactions", counts.forgotten);
}
