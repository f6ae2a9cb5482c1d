//! What ORDO.CLUSTER STATUS replies in a hierarchy, as JSON, and what an operator must know of it.
//!
//! A node knows the tree, the links that it has, and what has become of the transactions of its own clients.
//! [`HierarchyStatus::add`] makes one status of those that several nodes have given.

use super::{Problem, Severity};
use serde::{Deserialize, Serialize};

/// The name of the protocol: the status of an ordered cluster has no such field.
pub const HIERARCHY: &str = "hierarchy";
/// A node was asked, and has not answered.
const NO_ANSWER: &str = "no-answer";
/// Advice is given once so many transactions were decided.
const ADVICE_DECIDED_MIN: u64 = 1_000;
/// And if at least this share of them was decided above the leaves, in percent.
const ADVICE_HIGH_PERCENT: u64 = 20;

/// The tree of validators, as one node or several nodes see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HierarchyStatus {
    /// [`HIERARCHY`].
    pub protocol: String,
    /// The cluster's name.
    pub cluster: String,
    /// How leaves validate: `locks` or `timestamps`.
    pub control: String,
    /// The node that has answered first.
    pub me: u16,
    /// The nodes.
    pub nodes: Vec<HierarchyNode>,
    /// The validators by their numbers: the leaves, the inner ones, and at last the root.
    pub validators: Vec<ValidatorStatus>,
}

/// A node of a hierarchy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HierarchyNode {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Its zone's name.
    pub zone: String,
    /// Where other nodes reach it.
    pub peer_address: String,
    /// Where clients reach it.
    pub client_address: String,
    /// Whether a node that has answered has a link to it.
    pub reachable: bool,
    /// What the node says of itself, if it was asked and has answered.
    pub report: Option<NodeReport>,
}

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Why it takes no transactions, if it takes none.
    pub silence: Option<String>,
    /// The numbers of the validators of which it lacks decided entries, as far as it knows.
    pub behind: Vec<u16>,
    /// What has become of its clients' transactions since it started.
    pub transactions: TransactionCounts,
}

/// What has become of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransactionCounts {
    /// Commands, blocks, scripts and open transactions that took effect or only read.
    pub committed: u64,
    /// The same, a second, over the last seconds.
    pub committed_per_s: f64,
    /// Attempts that had no effect, because a key had changed or was in use.
    pub aborted_at_keys: u64,
    /// Attempts that had no effect, because their snapshots were too old.
    pub aborted_of_old_snapshots: u64,
    /// Attempts that had no effect, because validators found no common timestamp.
    pub aborted_of_timestamps: u64,
    /// Requests that validators did not answer in time.
    pub given_up: u64,
    /// Transactions that clients hold open now.
    pub open: u64,
    /// Transactions that their clients had forgotten.
    pub forgotten: u64,
}

impl TransactionCounts {
    pub(super) fn add(&mut self, other: &TransactionCounts) {
        self.committed += other.committed;
        self.committed_per_s += other.committed_per_s;
        self.aborted_at_keys += other.aborted_at_keys;
        self.aborted_of_old_snapshots += other.aborted_of_old_snapshots;
        self.aborted_of_timestamps += other.aborted_of_timestamps;
        self.given_up += other.given_up;
        self.open += other.open;
        self.forgotten += other.forgotten;
    }
}

/// A validator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ValidatorStatus {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// The number of the validator above it. The root has none.
    pub parent: Option<u16>,
    /// Its height above the leaves.
    pub height: u64,
    /// The nodes that agree on what it decides.
    pub hosts: Vec<u16>,
    /// The node that leads them, if one that has answered knows it and has a link to it.
    pub leader: Option<u16>,
    /// Entries that its group has decided.
    pub entries: u64,
    /// Transactions that it has decided for the clients of the nodes that have answered.
    pub decided: u64,
    /// The same, a second, over the last seconds.
    pub decided_per_s: f64,
    /// Batches that it has sent to other validators.
    pub batches: u64,
    /// The transactions in those batches, added up.
    pub batched: u64,
    /// The bytes of its state, if these are too many for the journal to begin anew behind it.
    pub too_large_bytes: Option<u64>,
}

/// The validators of one height.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LevelStatus {
    /// Their height above the leaves.
    pub height: u64,
    /// How many they are.
    pub validators: u64,
    /// [`ValidatorStatus::decided`], added up.
    pub decided: u64,
    /// The share of all decided transactions, in percent.
    pub decided_percent: f64,
    /// [`ValidatorStatus::decided_per_s`], added up.
    pub decided_per_s: f64,
    /// Transactions in a batch, on average; 0 without a batch.
    pub batch_mean: f64,
}

impl HierarchyStatus {
    /// Puts in what another node has answered. It counts once, however often it is put in.
    pub fn add(&mut self, other: &HierarchyStatus) {
        let has_report = |node: &HierarchyNode| node.id == other.me && node.report.is_some();
        if self.nodes.iter().any(has_report) {
            return;
        }
        for (node, seen) in self.nodes.iter_mut().zip(&other.nodes) {
            node.reachable |= seen.reachable;
            if seen.id == other.me && node.id == seen.id {
                node.report.clone_from(&seen.report);
            }
        }
        for (validator, seen) in self.validators.iter_mut().zip(&other.validators) {
            // The leader itself knows best.
            if validator.leader.is_none() || seen.leader == Some(other.me) {
                validator.leader = seen.leader.or(validator.leader);
            }
            validator.entries = validator.entries.max(seen.entries);
            validator.decided += seen.decided;
            validator.decided_per_s += seen.decided_per_s;
            validator.batches += seen.batches;
            validator.batched += seen.batched;
            validator.too_large_bytes = validator.too_large_bytes.max(seen.too_large_bytes);
        }
    }

    /// What has become of the transactions of all nodes that have answered.
    pub fn transactions(&self) -> TransactionCounts {
        let mut all = TransactionCounts::default();
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        reports.for_each(|report| all.add(&report.transactions));
        all
    }

    /// The levels of the tree, the leaves first.
    pub fn levels(&self) -> Vec<LevelStatus> {
        let height_max = self.validators.iter().map(|validator| validator.height).max().unwrap_or(0);
        let all: u64 = self.validators.iter().map(|validator| validator.decided).sum();
        let level = |height| {
            let mut level = LevelStatus { height, ..LevelStatus::default() };
            let (mut batches, mut batched) = (0, 0);
            for validator in self.validators.iter().filter(|validator| validator.height == height) {
                level.validators += 1;
                level.decided += validator.decided;
                level.decided_per_s += validator.decided_per_s;
                batches += validator.batches;
                batched += validator.batched;
            }
            level.decided_percent = level.decided as f64 * 100.0 / all.max(1) as f64;
            level.batch_mean = batched as f64 / batches.max(1) as f64;
            level
        };
        (0..=height_max).map(level).filter(|level| level.validators > 0).collect()
    }

    /// The name of a node, or its number if there is none.
    pub fn name(&self, id: u16) -> String {
        let node = self.nodes.iter().find(|node| node.id == id);
        node.map_or_else(|| format!("node {id}"), |node| node.name.clone())
    }

    /// What an operator should know, the worst first.
    pub fn problems(&self) -> Vec<Problem> {
        let leaderless: Vec<&ValidatorStatus> =
            self.validators.iter().filter(|validator| validator.leader.is_none()).collect();
        let too_large: Vec<&ValidatorStatus> =
            self.validators.iter().filter(|validator| validator.too_large_bytes.is_some()).collect();
        let mut problems = Vec::new();
        if !leaderless.is_empty() {
            problems.push(problem(
                Severity::Critical,
                "no-leader",
                format!("Nobody is known to lead {}: transactions that need it wait.", named(&leaderless)),
                "Another leader is there within a second or so; if this stays, a majority of the nodes that \
                 host it is away.",
            ));
        }
        problems.extend(self.nodes.iter().filter_map(|node| self.problem_of(node)));
        if !too_large.is_empty() {
            let bytes = too_large.iter().filter_map(|validator| validator.too_large_bytes).max();
            problems.push(problem(
                Severity::Warning,
                "too-large",
                format!(
                    "The data of {} is too large for the journal to begin anew behind it (up to {} MiB, and \
                     at most 256 are possible): journals and memory go on growing.",
                    named(&too_large),
                    bytes.unwrap_or(0) >> 20
                ),
                "Delete or shorten what is not needed, or move to a cluster with more partitions \
                 (docs/hierarchy.md, Limits).",
            ));
        }
        problems.extend(self.advice());
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
        problems
    }

    /// The same as one node sees it, which has not asked the others.
    pub fn own_problems(&self) -> Vec<Problem> {
        let mut problems = self.problems();
        problems.retain(|problem| problem.kind != NO_ANSWER);
        problems
    }

    fn problem_of(&self, node: &HierarchyNode) -> Option<Problem> {
        let name = &node.name;
        let of = |kind, cause: String, next: &str| {
            let found = problem(Severity::Warning, kind, cause, next);
            Some(Problem { nodes: vec![name.clone()], ..found })
        };
        match &node.report {
            Some(NodeReport { silence: Some(why), .. }) => of(
                "silent",
                format!("Node {name} takes no transactions: {why}."),
                "Its clients are refused, and it takes no part in its validators.",
            ),
            Some(NodeReport { behind, .. }) if !behind.is_empty() => {
                let is_meant = |validator: &&ValidatorStatus| behind.contains(&validator.id);
                let validators: Vec<&ValidatorStatus> = self.validators.iter().filter(is_meant).collect();
                of(
                    "behind",
                    format!("Node {name} lacks what {} has decided.", named(&validators)),
                    "It catches up by itself.",
                )
            }
            None if node.reachable => of(
                NO_ANSWER,
                format!(
                    "Node {name} does not answer at {}, where its clients reach it.",
                    node.client_address
                ),
                "Other nodes have a link to it: it may be starting, or the address may be out of reach from \
                 here.",
            ),
            None => of(
                "unreachable",
                format!("Node {name} is not heard of."),
                "Start it if it does not run, and read its log if it does.",
            ),
            Some(_) => None,
        }
    }

    /// Where many transactions are decided high in the tree, slots are too far apart.
    fn advice(&self) -> Option<Problem> {
        let levels = self.levels();
        let all: u64 = levels.iter().map(|level| level.decided).sum();
        let above: Vec<&LevelStatus> =
            levels.iter().filter(|level| level.height > 0 && level.decided > 0).collect();
        let high: u64 = above.iter().map(|level| level.decided).sum();
        if all < ADVICE_DECIDED_MIN || high * 100 < all * ADVICE_HIGH_PERCENT {
            return None;
        }
        let shares = above.iter().map(|level| {
            let levels =
                if level.height == 1 { "1 level".to_owned() } else { format!("{} levels", level.height) };
            format!("{:.0} % {levels} above the leaves", level.decided_percent)
        });
        Some(problem(
            Severity::Note,
            "decided-high",
            format!(
                "Of {all} transactions {:.0} % were not decided by a leaf: {}.",
                high as f64 * 100.0 / all as f64,
                shares.collect::<Vec<_>>().join(", ")
            ),
            "The higher a validator is, the more messages a transaction takes, and the longer. Bring slots \
             that are used together closer together: give their keys one {hash tag}, or put their partitions \
             below one inner validator (docs/hierarchy.md).",
        ))
    }
}

fn named(validators: &[&ValidatorStatus]) -> String {
    let names: Vec<&str> = validators.iter().map(|validator| validator.name.as_str()).collect();
    match names.len() {
        1 => format!("validator {}", names[0]),
        _ => format!("the validators {}", names.join(", ")),
    }
}

fn problem(severity: Severity, kind: &'static str, cause: String, next: &str) -> Problem {
    Problem { severity, kind, nodes: Vec::new(), partitions: Vec::new(), cause, next: next.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, verdict};
    use super::*;

    /// Two leaves below a root. Each of two nodes leads a leaf, and the second one the root, too.
    fn status(me: u16, decided: [u64; 3]) -> HierarchyStatus {
        let node = |id: u16| HierarchyNode {
            id,
            name: format!("n{id}"),
            zone: format!("z{id}"),
            peer_address: format!("n{id}.example:17001"),
            client_address: format!("n{id}.example:7001"),
            reachable: true,
            report: (id == me).then(|| NodeReport {
                transactions: TransactionCounts {
                    committed: decided.iter().sum(),
                    aborted_at_keys: 3,
                    ..TransactionCounts::default()
                },
                ..NodeReport::default()
            }),
        };
        let validator = |(id, (name, leader)): (u16, (&str, u16))| ValidatorStatus {
            id,
            name: name.to_owned(),
            parent: (id < 2).then_some(2),
            height: u64::from(id == 2),
            hosts: vec![leader],
            leader: Some(leader),
            entries: 10 * u64::from(me),
            decided: decided[usize::from(id)],
            batches: 2,
            batched: 10,
            ..ValidatorStatus::default()
        };
        HierarchyStatus {
            protocol: HIERARCHY.to_owned(),
            cluster: "shop".to_owned(),
            control: "locks".to_owned(),
            me,
            nodes: vec![node(1), node(2)],
            validators: (0..).zip([("left", 1), ("right", 2), ("root", 2)]).map(validator).collect(),
        }
    }

    fn kinds(status: &HierarchyStatus) -> Vec<&'static str> {
        status.problems().iter().map(|problem| problem.kind).collect()
    }

    #[test]
    fn a_status_of_all_nodes_adds_up_what_each_one_counts() {
        let mut all = status(1, [500, 300, 100]);
        let other = status(2, [500, 500, 50]);
        all.add(&other);
        all.add(&other);
        let levels = all.levels();
        assert_eq!(levels.iter().map(|level| level.decided).collect::<Vec<_>>(), [1_800, 150]);
        assert_eq!((levels[0].validators, levels[1].batch_mean), (2, 5.0));
        let transactions = all.transactions();
        assert_eq!((transactions.committed, transactions.aborted_at_keys), (1_950, 6));
        assert_eq!(all.validators[0].entries, 20);
        assert_eq!(kinds(&all), Vec::<&str>::new(), "8 % are decided by the root");
        assert_eq!(verdict(&all.problems()), Verdict::Ok);
    }

    #[test]
    fn the_leader_that_answers_is_believed() {
        let mut all = status(1, [0; 3]);
        all.validators[1].leader = Some(1);
        all.validators[2].leader = None;
        all.add(&status(2, [0; 3]));
        assert_eq!(all.validators.iter().map(|found| found.leader).collect::<Vec<_>>(), [1, 2, 2].map(Some));
    }

    #[test]
    fn problems_and_advice_are_told() {
        let whole = || {
            let mut all = status(1, [700, 700, 600]);
            all.add(&status(2, [0; 3]));
            all
        };
        let all = whole();
        assert_eq!((kinds(&all), verdict(&all.problems())), (vec!["decided-high"], Verdict::Ok));
        let advice = all.problems().remove(0);
        let cause = "Of 2000 transactions 30 % were not decided by a leaf: 30 % 1 level above the leaves.";
        assert_eq!(advice.cause, cause);
        let mut few = status(1, [100, 100, 600]);
        few.add(&status(2, [0; 3]));
        assert_eq!(kinds(&few), Vec::<&str>::new(), "too few transactions tell nothing");

        let check = |change: &dyn Fn(&mut HierarchyStatus), kind: &str, found: Verdict, names: &str| {
            let mut all = whole();
            change(&mut all);
            let first = all.problems().remove(0);
            assert_eq!((first.kind, verdict(&all.problems())), (kind, found), "{first:?}");
            assert!(first.cause.contains(names), "{first:?}");
        };
        check(&|all| all.validators[1].leader = None, "no-leader", Verdict::Unavailable, "validator right");
        check(
            &|all| all.validators[0].too_large_bytes = Some(300 << 20),
            "too-large",
            Verdict::Degraded,
            "up to 300 MiB",
        );
        check(&|all| all.nodes[1].report = None, "no-answer", Verdict::Degraded, "n2.example:7001");
        let away = |all: &mut HierarchyStatus| (all.nodes[1].report, all.nodes[1].reachable) = (None, false);
        check(&away, "unreachable", Verdict::Degraded, "n2");
        let behind = NodeReport { behind: vec![2], ..NodeReport::default() };
        check(&|all| all.nodes[0].report = Some(behind.clone()), "behind", Verdict::Degraded, "root");
        let silence = NodeReport { silence: Some("no room".to_owned()), ..NodeReport::default() };
        check(&|all| all.nodes[0].report = Some(silence.clone()), "silent", Verdict::Degraded, "no room");
    }
}
