//! What the nodes of a cluster count, from their INFO.

use super::ClusterFigures;
use crate::redis::load::Target;
use anyhow::{Context, Result, bail};
use server::client::Client;
use std::time::Duration;

/// Counters of all nodes of a cluster, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub nodes: u64,
    pub partitions: u64,
    /// Replicas of partitions that the nodes keep.
    pub replicas: u64,
    pub epochs: u64,
    pub retracted: u64,
    pub transactions: u64,
    pub speculated: u64,
    pub restarts: u64,
    pub sibling_rounds: u64,
    pub sibling_messages: u64,
    pub sibling_notes: u64,
    pub messages: u64,
    pub message_bytes: u64,
}

impl Counters {
    /// Asks every node. `None` if they are not of a cluster.
    pub fn of_all(targets: &[Target]) -> Result<Option<Counters>> {
        let mut all = None::<Counters>;
        for target in targets {
            let mut client = Client::connect(&target.host, target.port, target.password.as_deref())?;
            let info = client.call(&["INFO", "ordo_cluster"])?.text("INFO")?;
            if info.trim().is_empty() {
                continue;
            }
            let found =
                Counters::parse(&info).with_context(|| format!("INFO of {}:{}", target.host, target.port))?;
            all.get_or_insert_default().add(&found);
        }
        if let Some(found) = all
            && found.nodes != targets.len() as u64
        {
            bail!(
                "{} of {} servers are nodes of a cluster: name only those of one",
                found.nodes,
                targets.len()
            );
        }
        Ok(all)
    }

    /// Reads a node's INFO.
    pub fn parse(info: &str) -> Result<Counters> {
        let field = |name: &str| {
            let mut lines = info.lines().filter_map(|line| line.trim().split_once(':'));
            let (_, value) = lines
                .find(|(found, _)| *found == name)
                .with_context(|| format!("it has no {name}: is it another version of Ordo?"))?;
            let number = value.parse::<u64>();
            number.with_context(|| format!("its {name} is no number: {value}"))
        };
        Ok(Counters {
            nodes: 1,
            partitions: field("partitions")?,
            replicas: field("partitions_kept")?,
            epochs: field("epochs_confirmed")?,
            retracted: field("epochs_retracted")?,
            transactions: field("transactions")?,
            speculated: field("speculated_before_confirmation")?,
            restarts: field("restarts")?,
            sibling_rounds: field("sibling_rounds")?,
            sibling_messages: field("sibling_messages")?,
            sibling_notes: field("sibling_notes")?,
            messages: field("messages_sent")?,
            message_bytes: field("message_bytes_sent")?,
        })
    }

    /// Adds what was counted, by other nodes or in another slice.
    pub fn add(&mut self, other: &Counters) {
        self.nodes += other.nodes;
        // The same everywhere.
        self.partitions = other.partitions;
        self.replicas += other.replicas;
        self.epochs += other.epochs;
        self.retracted += other.retracted;
        self.transactions += other.transactions;
        self.speculated += other.speculated;
        self.restarts += other.restarts;
        self.sibling_rounds += other.sibling_rounds;
        self.sibling_messages += other.sibling_messages;
        self.sibling_notes += other.sibling_notes;
        self.messages += other.messages;
        self.message_bytes += other.message_bytes;
    }

    /// What was counted since.
    pub fn since(&self, before: &Counters) -> Result<Counters> {
        let since = |now: u64, before: u64| {
            now.checked_sub(before).context("a node counts less than before: it has started anew meanwhile")
        };
        Ok(Counters {
            nodes: self.nodes,
            partitions: self.partitions,
            replicas: self.replicas,
            epochs: since(self.epochs, before.epochs)?,
            retracted: since(self.retracted, before.retracted)?,
            transactions: since(self.transactions, before.transactions)?,
            speculated: since(self.speculated, before.speculated)?,
            restarts: since(self.restarts, before.restarts)?,
            sibling_rounds: since(self.sibling_rounds, before.sibling_rounds)?,
            sibling_messages: since(self.sibling_messages, before.sibling_messages)?,
            sibling_notes: since(self.sibling_notes, before.sibling_notes)?,
            messages: since(self.messages, before.messages)?,
            message_bytes: since(self.message_bytes, before.message_bytes)?,
        })
    }

    /// What this says of slices of a cluster of `nodes` nodes in which so much time passed, while clients got
    /// so many answers in a second.
    pub fn figures(&self, nodes: usize, elapsed: Duration, answered_per_s: f64) -> ClusterFigures {
        let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let seconds = elapsed.as_secs_f64();
        let answered = answered_per_s * seconds;
        // Every node confirms every epoch, and every replica of a partition executes its transactions. Nodes
        // and replicas are counted once a slice.
        let slices = self.nodes as f64 / nodes as f64;
        let epochs = self.epochs as f64 / nodes as f64;
        let copies = ratio(self.replicas as f64 / slices, self.partitions as f64);
        ClusterFigures {
            nodes,
            partitions: self.partitions,
            messages_per_transaction: ratio(self.messages as f64, answered),
            message_bytes_per_transaction: ratio(self.message_bytes as f64, answered),
            epochs_per_s: ratio(epochs, seconds),
            transactions_per_epoch: ratio(ratio(self.transactions as f64, copies), epochs),
            speculated_share: ratio(self.speculated as f64, self.transactions as f64),
            epochs_retracted: self.retracted,
            messages_per_round: ratio(self.sibling_messages as f64, self.sibling_rounds as f64),
            notes_per_message: ratio(self.sibling_notes as f64, self.sibling_messages as f64),
        }
    }
}
