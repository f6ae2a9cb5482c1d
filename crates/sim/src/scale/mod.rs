//! The scale model: how fast a cluster would be that this machine has no cores for (Sparkle, section 5).
//!
//! Every node of the model has one partition with a *real* engine, which virtual workers step one single-key
//! operation at a time in virtual time. What the engines do is what they do: conflicts, restarts, waiting for
//! siblings, confirmations. What the model supplies is time, and its figures are as good as these
//! assumptions:
//!
//! - **A step** of an engine (one single-key operation, or what else [`Budget::ONE`](execute::Budget::ONE)
//!   allows) takes [`Costs::step_ns`], always: one figure for each engine and workload, measured with one
//!   real worker. So caches, memory bandwidth and latches between cores cost nothing, and what a real machine
//!   loses there the model does not show. What a step does is visible at its beginning.
//! - **Reads** that bypass the order run at final snapshots, whole, on the next worker that is free, before
//!   it steps its engine again; they take [`Costs::read_ns`] for each record. So does the reconnaissance of
//!   engines that want to be told all keys; what it asks of other nodes costs no message and no time (which
//!   is to the good of such engines). Calvin's scheduler does neither while its engine has work for it.
//! - **Clients** are a closed loop: so many calls of a node are under way at any time. What is to be ordered
//!   waits for the next epoch. Making a call takes a worker [`Costs::call_ns`]: nothing where clients are
//!   other machines.
//! - **The measured time** is long enough that as many calls have ended in it as clients have under way, and
//!   so is the time before it: an engine that ends calls in bursts is not measured between two of them.
//! - **The order.** One zone, and every [`Times::epoch_ns`] an epoch of what has come to all nodes (or, with
//!   [`Times::epoch_calls`], an epoch whenever so many calls have come): one call of each node in turn, and
//!   so on (a merge batch by batch, which `order::merge` makes, would put all multi-partition transactions of
//!   one node behind each other, to the harm of contenders whose order stays as it is merged); then
//!   `order::arrange`. The paper's evaluation replaces replication by a delay of 200 ms before a batch is
//!   executed. A constant delay takes nothing from the throughput of clients that are many enough, so the
//!   model only adds it to latencies ([`Times::order_ns`]); an epoch is delivered when it is made, and
//!   confirmed [`Times::confirm_ns`] later.
//! - **Siblings' messages.** A node has a thread that sends and one that receives, beside its workers (the
//!   paper: three cores for network and clients). In each round of [`Times::round_ns`] (or of half as long
//!   again as its last one took) the sender takes one message for each destination. A message takes both
//!   threads [`Costs::message_ns`], and [`Costs::note_ns`] for each thing that it tells (a value that was
//!   read, an anchor, a confirmation); then the wire [`Costs::byte_ns`] for each byte, and
//!   [`Times::latency_ns`] with some jitter. Links keep the order.
//!
//! Where nodes are replicas of each other ([`Options::replication`]), a leader that is modelled orders
//! instead, and one replica stands for all: the head of `scale::replicated` tells how. The head of
//! `scale::two_phase` tells how nodes commit without an order. Sites that agree on none have a
//! model of their own, [`sites`].
//!
//! The same options give the same run, to the digest of all commits. A run can be judged
//! ([`Options::judged`]): it then goes on until nothing is under way, and the state of every partition must
//! be that of the serial execution of the order.

mod contender;
mod judge;
mod network;
mod node;
mod replicated;
mod run;
pub mod sites;
mod timeline;
mod two_phase;

pub use contender::{Contender, SparkleVariant};
pub use replicated::{Delivery, Feed, OrderReport, Replication, order_alone};
pub use run::run;

use serde::Serialize;
use std::sync::Arc;
use workloads::Workload;

/// How much longer than asked for the model warms up and measures, at most.
pub const LONGER_MAX: u64 = 6;

/// What takes how long, apart from computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Times {
    /// From one epoch to the next.
    pub epoch_ns: u64,
    /// An epoch has so many calls of all nodes instead, and is made within [`Times::round_ns`] when so many
    /// have come.
    pub epoch_calls: Option<usize>,
    /// From an epoch's making to its delivery, as far as latencies are concerned.
    pub order_ns: u64,
    /// From an epoch's delivery to its confirmation.
    pub confirm_ns: u64,
    /// From one node to another, one way.
    pub latency_ns: u64,
    /// A message takes at most so much longer.
    pub jitter_ns: u64,
    /// A node says what it has to say no more often.
    pub round_ns: u64,
    /// What happens before is not counted. The model takes more time, up to [`LONGER_MAX`] times as much,
    /// where fewer calls have ended than clients have under way.
    pub warm_up_ns: u64,
    /// What happens in this time is counted. The model takes more time by the same rule.
    pub measured_ns: u64,
}

impl Default for Times {
    fn default() -> Times {
        Times {
            epoch_ns: 5_000_000,
            epoch_calls: None,
            order_ns: 200_000_000,
            confirm_ns: 0,
            latency_ns: 50_000,
            jitter_ns: 10_000,
            round_ns: 20_000,
            warm_up_ns: 30_000_000,
            measured_ns: 60_000_000,
        }
    }
}

/// What computing costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// A step of the engine.
    pub step_ns: u64,
    /// A record that a read at a snapshot looks at.
    pub read_ns: u64,
    /// A message, for its sender and again for its receiver.
    pub message_ns: u64,
    /// A thing that a message tells, for both.
    pub note_ns: u64,
    /// A byte on the sender's wire.
    pub byte_ns: f64,
    /// Making a call, where workers make their own; 0 where clients are other machines.
    pub call_ns: u64,
}

impl Default for Costs {
    /// Rounded figures of one core of 2026, and a wire of 10 Gbit/s.
    fn default() -> Costs {
        Costs { step_ns: 140, read_ns: 120, message_ns: 2_000, note_ns: 60, byte_ns: 0.8, call_ns: 0 }
    }
}

/// A run of the model.
#[derive(Clone)]
pub struct Options {
    /// Nodes, with one partition each: as many as the workload is spread over.
    pub nodes: u16,
    /// Workers of each node.
    pub workers: usize,
    /// The engine, or the protocol.
    pub contender: Contender,
    /// What clients call.
    pub workload: Arc<dyn Workload>,
    /// Calls of each node that are under way.
    pub clients: usize,
    /// What takes how long.
    pub times: Times,
    /// What costs how much.
    pub costs: Costs,
    /// Of the records, the calls and the network.
    pub seed: u64,
    /// Compares the final state with the serial execution's. For small runs.
    pub judged: bool,
    /// Every node has all records, and they agree on the order. Then the model has one node
    /// with an engine, which stands for all, and `clients` are those of all. Nothing: partitions without
    /// replicas.
    pub replication: Option<Replication>,
}

/// What a run of the model found. Counts are those of the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The measured time.
    pub measured_ns: u64,
    /// Calls that took effect; each counts once, at its client's node.
    pub committed: u64,
    /// Calls that rolled back by their own logic.
    pub rolled_back: u64,
    /// Calls that touched several partitions.
    pub multi_partition: u64,
    /// Incarnations that were thrown away, and calls that were given back because of undeclared keys.
    pub restarts: u64,
    /// Steps of all workers.
    pub steps: u64,
    /// Records that were looked at beside the order.
    pub looks: u64,
    /// Calls that ran at snapshots, beside the order.
    pub snapshot_reads: u64,
    /// The share of the time for which workers were busy.
    pub busy: f64,
    /// Messages between nodes.
    pub messages: u64,
    /// The things that they told.
    pub notes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Rounds in which a node said something.
    pub rounds: u64,
    /// The most messages of one round to one destination.
    pub messages_of_round_max: u64,
    /// The speculation windows of the engines at the end, on average.
    pub window: f64,
    /// Transactions that were parked in the engines at the end, on average.
    pub parked: f64,
    /// Transactions in a group, on average.
    pub group_members: f64,
    /// For how long workers had nothing to do while their engine said that there was work.
    pub idle_with_work_ns: u64,
    /// From call to reply, the delay of the order included: half of the calls took at most this.
    pub latency_p50_ns: u64,
    /// 99 of 100 took at most this.
    pub latency_p99_ns: u64,
    /// The hash of all commits, and when they were.
    pub digest: u64,
    /// What was found of the order, where nodes are replicas.
    pub order: Option<OrderReport>,
}

impl Report {
    /// Calls that took effect in a second.
    pub fn throughput_per_s(&self) -> f64 {
        self.committed as f64 * 1e9 / self.measured_ns.max(1) as f64
    }
    /// Calls that went through the order to their end.
    pub fn ordered(&self) -> u64 {
        (self.committed + self.rolled_back).saturating_sub(self.snapshot_reads)
    }
    /// The share of all executions that were thrown away.
    pub fn abort_rate(&self) -> f64 {
        self.restarts as f64 / (self.committed + self.restarts).max(1) as f64
    }
}
