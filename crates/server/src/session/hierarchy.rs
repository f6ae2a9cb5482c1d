//! INFO's section about a hierarchy: the tree of validators, and what they decide.

use super::ThreadContext;
use super::info::field;
use crate::runtime::CertifiedStatus;
use std::fmt::Write;
use txn::PartitionId;

/// Writes the section, if transactions are certified here.
pub(super) fn section(thread: &ThreadContext<'_>, out: &mut String) {
    if let Some(status) = thread.shared.runtime.certified_status() {
        write(&status, out);
    }
}

fn write(status: &CertifiedStatus, out: &mut String) {
    let CertifiedStatus { validators, groups, counts, open_transactions, .. } = status;
    let tree = &validators.tree;
    field(out, "control", format!("{:?}", validators.control).to_lowercase());
    field(out, "validators", tree.groups());
    for ((number, validator), (leader, decided)) in (0..).map(PartitionId).zip(&validators.list).zip(groups) {
        let parent = tree.parent(number).and_then(|parent| validators.list.get(usize::from(parent.0)));
        let hosts: Vec<String> = validator.nodes.iter().map(|node| node.0.to_string()).collect();
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "validator_{}:name={},parent={},height={},hosts={},leader={},decided_entries={decided}\r\n",
            number.0,
            validator.name,
            parent.map_or("", |parent| parent.name.as_str()),
            tree.height(number),
            hosts.join(" "),
            leader.map_or(0, |leader| leader.0),
        );
    }
    field(out, "committed_transactions", counts.committed);
    let heights = counts.decided_at.iter().enumerate();
    for (height, decided) in heights.filter(|&(height, count)| height <= tree.height_of_root() || *count > 0)
    {
        field(out, &format!("decided_at_height_{height}"), decided);
    }
    let [keys, snapshots, timestamps] = counts.conflicts;
    field(out, "conflicts_at_keys", keys);
    field(out, "conflicts_of_old_snapshots", snapshots);
    field(out, "conflicts_of_timestamps", timestamps);
    field(out, "requests_given_up", counts.given_up);
    field(out, "open_transactions", open_transactions);
    field(out, "forgotten_transactions", counts.forgotten);
}
