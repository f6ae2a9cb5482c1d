//! The metrics of a node of a hierarchy. Other servers list them without values, but
//! `ordo_hierarchy_enabled`.

use super::Writer;
use crate::runtime::{CertifiedStatus, GroupStatus, TreePart};
use prometheus_client::registry::Unit;
use std::fmt;
use txn::PartitionId;

/// A node's status, and its part in the tree.
type Status<'a> = (&'a CertifiedStatus, &'a TreePart);

/// A number of a node, as [`Writer::gauges`] and [`Writer::counters`] take it.
fn single(
    status: Option<Status<'_>>,
    value: fn(Status<'_>) -> u64,
) -> impl Iterator<Item = ([(&'static str, &'static str); 0], u64)> {
    status.into_iter().map(move |status| ([], value(status)))
}

type OfNode = (&'static str, &'static str, fn(Status<'_>) -> u64);

const GAUGES: [OfNode; 6] = [
    ("ordo_hierarchy_validators_led", "Validators that this node leads.", |(status, part)| {
        part.hosted_and_led(status.described.me).1 as u64
    }),
    (
        "ordo_hierarchy_validators_without_leader",
        "Validators of which this node knows no leader, or has no link to it.",
        |(_, part)| part.site.without_leader.len() as u64,
    ),
    (
        "ordo_hierarchy_validators_behind",
        "Validators of which this node lacks decided entries, as far as it knows.",
        |(_, part)| part.site.lagging.len() as u64,
    ),
    (
        "ordo_hierarchy_validators_too_large",
        "Validators whose data is too large for the journal to begin anew behind it.",
        |(_, part)| part.site.too_large.len() as u64,
    ),
    ("ordo_hierarchy_nodes_unlinked", "Nodes to which this node has no link.", |(_, part)| {
        part.site.unlinked.len() as u64
    }),
    ("ordo_hierarchy_open_transactions", "Transactions that clients hold open.", |(status, _)| {
        status.open_transactions as u64
    }),
];

const COUNTERS: [OfNode; 3] = [
    (
        "ordo_hierarchy_committed",
        "Transactions of this node's clients that took effect or only read.",
        |(status, _)| status.counts.committed,
    ),
    ("ordo_hierarchy_given_up", "Requests that validators did not answer in time.", |(status, _)| {
        status.counts.given_up
    }),
    ("ordo_hierarchy_forgotten", "Open transactions that their clients had forgotten.", |(status, _)| {
        status.counts.forgotten
    }),
];

type OfValidator = (&'static str, &'static str, fn(Status<'_>, PartitionId, &GroupStatus) -> u64);

const VALIDATOR_COUNTERS: [OfValidator; 3] = [
    (
        "ordo_hierarchy_decided",
        "Transactions of this node's clients, by the validator that has decided them and its height above \
         the leaves.",
        |(status, _), id, _| status.counts.decided_by.get(usize::from(id.0)).copied().unwrap_or(0),
    ),
    ("ordo_hierarchy_batches", "Batches that this node has sent for a validator.", |_, _, group| {
        group.batches.batches
    }),
    (
        "ordo_hierarchy_batched_transactions",
        "Transactions in the batches that this node has sent for a validator.",
        |_, _, group| group.batches.transactions,
    ),
];

pub fn encode(status: Option<&CertifiedStatus>, out: &mut Writer<'_>) -> fmt::Result {
    let status = status.and_then(|status| Some((status, status.tree_part()?)));
    out.gauge(
        "ordo_hierarchy_enabled",
        "1 if validators certify the transactions of this node, else 0.",
        u32::from(status.is_some()),
    )?;
    for (name, help, value) in GAUGES {
        out.gauges(name, None, help, single(status, value))?;
    }
    for (name, help, value) in COUNTERS {
        out.counters(name, None, help, single(status, value))?;
    }
    let conflicts = status.into_iter().flat_map(|(status, _)| {
        ["key", "old_snapshot", "timestamp"].into_iter().zip(status.counts.conflicts)
    });
    out.counters(
        "ordo_hierarchy_conflicts",
        None,
        "Attempts of transactions that had no effect, by cause.",
        conflicts.map(|(cause, count)| ([("cause", cause)], count)),
    )?;
    let too_large = status.into_iter().flat_map(|(_, part)| {
        part.site.too_large.iter().map(|(&id, &bytes)| ([("validator", name_of(part, id))], bytes))
    });
    out.gauges(
        "ordo_hierarchy_too_large",
        Some(Unit::Bytes),
        "The data of a validator, where it is too large for the journal to begin anew behind it.",
        too_large,
    )?;
    for (name, help, value) in VALIDATOR_COUNTERS {
        let values = status.into_iter().flat_map(|status| {
            let part = status.1;
            (0..).map(PartitionId).zip(&part.groups).map(move |(id, group)| {
                let height = part.validators.tree.height(id).to_string();
                let labels = [("validator", name_of(part, id)), ("height", height)];
                (labels, value(status, id, group))
            })
        });
        out.counters(name, None, help, values)?;
    }
    Ok(())
}

fn name_of(part: &TreePart, id: PartitionId) -> String {
    let validator = part.validators.list.get(usize::from(id.0));
    validator.map_or_else(|| id.0.to_string(), |validator| validator.name.clone())
}
