//! Whether the final state is that of the serial execution of the order.

use super::Options;
use super::node::{LOADED_AT_MS, Node};
use crate::oracle::Oracle;
use crate::siblings::serialized;
use order::arrange::Arranged;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::Snapshot;
use txn::key::partition_of_slot;
use txn::{Entry, Key, Position, Request, RequestId};
use workloads::{State, Tally};

/// What was ordered.
#[derive(Default)]
pub(super) struct Judge {
    oracle: Oracle,
    epochs: Vec<(Vec<Vec<Arc<Request>>>, u64)>,
}

impl Judge {
    /// Knows the records that all begins with.
    pub(super) fn new(options: &Options) -> Judge {
        let mut oracle = Oracle::new();
        for part in 0..options.workload.parts() {
            options.workload.load(options.seed, part, &mut |key, entry| {
                oracle.load(key, Position::FIRST, Some(entry));
            });
        }
        oracle.loaded(Position::FIRST, LOADED_AT_MS, &[]);
        Judge { oracle, epochs: Vec::new() }
    }

    /// An epoch was ordered.
    pub(super) fn ordered(&mut self, arranged: &[Arranged], time_ms: u64) {
        let parts = arranged.iter().map(|part| part.requests.clone());
        self.epochs.push((parts.collect(), time_ms));
    }

    /// Compares all that there is when nothing is under way.
    pub(super) fn compare(&mut self, options: &Options, nodes: &[Node], tally: &Tally) -> Result<(), String> {
        let given_back = nodes.iter().flat_map(|node| node.given_back.iter());
        let given_back: BTreeSet<RequestId> = given_back.copied().collect();
        for (parts, time_ms) in std::mem::take(&mut self.epochs) {
            let parts: Vec<_> = parts.iter().map(|part| &part[..]).collect();
            for request in serialized(&parts)? {
                if !given_back.contains(&request.id) {
                    self.oracle.run(&request, time_ms);
                }
            }
        }
        let oracle = &self.oracle;
        let mut state = Cluster::open(nodes);
        for key in oracle.keys() {
            let found = state.get(key);
            let wanted = oracle.read_at(key, oracle.last()).entry;
            if found != wanted {
                return Err(format!("{key:?} is {found:?} and should be {wanted:?}"));
            }
        }
        let verdict = options.workload.check(&mut state, tally);
        state.close();
        verdict
    }
}

/// The records of all partitions.
struct Cluster<'a> {
    nodes: &'a [Node],
    snapshots: Vec<Snapshot>,
}

impl Cluster<'_> {
    fn open(nodes: &[Node]) -> Cluster<'_> {
        let snapshots = nodes.iter().map(|node| node.engine.view().open());
        Cluster { nodes, snapshots: snapshots.collect() }
    }
    fn close(self) {
        for (node, snapshot) in self.nodes.iter().zip(self.snapshots) {
            node.engine.view().close(snapshot);
        }
    }
}

impl State for Cluster<'_> {
    fn get(&mut self, key: &Key) -> Option<Entry> {
        let of = self.nodes.len() as u16;
        let at = usize::from(partition_of_slot(key.slot(), of).0);
        let view = self.nodes[at].engine.view();
        view.read_at(&self.snapshots[at], key).entry
    }
    fn count(&mut self) -> u64 {
        let all = self.nodes.iter().zip(&self.snapshots);
        all.map(|(node, snapshot)| node.engine.view().count_at(snapshot)).sum()
    }
}
