//! `ordo reproduce hierarchy`: what the paper on hierarchical validation computes of messages and steps
//! (section III-E), counted.
//!
//! One real site of [`certify::hierarchy`] has all clients and speaks for all validators. Nothing is
//! modelled: an entry that the site proposes is one message, and all entries that are under way arrive
//! together, which is one step of communication. So the counts depend on no time, and are the same on every
//! machine.

use super::figure::{Axis, Claim, Panel, Point, Sample, Series, Source};
use super::lab::add_point;
use super::study::{Found, Made, Options, Page, found};
use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use certify::hierarchy::{BatchLimits, Control, Hierarchy, HierarchyOptions, Messages, Tree};
use certify::{Answer, Certifier, Effects, ReadSet, WriteSet, session_opened};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use txn::hash::mix;
use txn::{Entry, Key, NodeId, PartitionId, Position, RequestId};

/// The network analysis, and the levels of the tree.
pub const FIGURES: [&str; 2] = ["network", "levels"];

/// The transactions of the paper's example (III-E): each has four data nodes, and one validator above them
/// decides it.
const EXAMPLE_TRANSACTIONS: u64 = 100;
const EXAMPLE_LEAVES: [u16; 4] = [0, 1, 2, 3];
/// Transactions of [`FIGURES`]' "levels", for each tree and seed.
const TRANSACTIONS: u64 = 2_000;
const TRANSACTIONS_QUICK: u64 = 400;
/// Leaves of the trees there.
const LEAVES: u16 = 64;
/// Leaves are close if one of these groups has them both.
const CLOSE: u16 = 4;

const UNBATCHED: BatchLimits = BatchLimits { transactions_max: 1, bytes_max: usize::MAX, wait_ticks_max: 1 };

/// Equation (2): steps of two-phase commit.
fn two_phase_steps(participants: u64) -> f64 {
    if participants == 1 { 2.0 } else { 4.0 }
}

/// Equation (3): messages of two-phase commit.
fn two_phase_messages(participants: u64) -> f64 {
    if participants == 1 { 2.0 } else { 4.0 * participants as f64 }
}

/// Equation (6): the steps of a transaction whose decider is `levels` above its participants.
fn steps(participants: u64, levels: u64, batch: f64) -> f64 {
    if participants == 1 { 2.0 } else { 2.0 + levels as f64 / batch }
}

/// Equation (7): messages.
fn messages(participants: u64, levels: u64, batch: f64) -> f64 {
    let (count, levels) = (participants as f64, levels as f64);
    if participants == 1 { 2.0 } else { count + (levels * count + count) / batch + 1.0 }
}

/// A tree in which each inner validator has `fan_out` children.
fn tree(leaves: u16, fan_out: u16) -> Result<Tree> {
    let mut parents = Vec::new();
    let (mut first, mut count) = (0, leaves);
    while count > 1 {
        let above = first + count;
        parents.extend((0..count).map(|child| above + child / fan_out));
        (first, count) = (above, count.div_ceil(fan_out));
    }
    Tree::new(leaves, &parents).map_err(|error| anyhow!("a tree of {leaves} leaves by {fan_out}: {error:?}"))
}

/// The tree of the paper's example: eight leaves below two inner validators, which are below the root.
fn example_tree() -> Result<Tree> {
    tree(8, 4)
}

/// A site, and what is under way.
struct Network {
    site: Hierarchy,
    tree: Tree,
    under_way: Vec<(PartitionId, Bytes)>,
    answers: Vec<(RequestId, Answer)>,
    /// Entries by the validator that was given them.
    given: BTreeMap<PartitionId, u64>,
    /// Keys that no transaction has used, by leaf.
    keys: Vec<VecDeque<Key>>,
    next_key: u64,
    transactions: u64,
}

impl Network {
    fn new(tree: &Tree, control: Control, batches: BatchLimits) -> Network {
        let me = NodeId(1);
        let options =
            HierarchyOptions { me, tree: tree.clone(), control, batches, ..HierarchyOptions::default() };
        let mut site = Hierarchy::new(options);
        (0..tree.groups()).for_each(|group| site.has_new_leader(PartitionId(group), me));
        Network {
            site,
            tree: tree.clone(),
            under_way: Vec::new(),
            answers: Vec::new(),
            given: BTreeMap::new(),
            keys: vec![VecDeque::new(); usize::from(tree.partitions())],
            next_key: 0,
            transactions: 0,
        }
    }

    fn key(&mut self, leaf: u16) -> Key {
        loop {
            if let Some(key) = self.keys[usize::from(leaf)].pop_front() {
                return key;
            }
            let key = Key::new(format!("k{}", self.next_key).as_bytes());
            self.next_key += 1;
            self.keys[usize::from(self.site.group_of(&key).0)].push_back(key);
        }
    }

    fn take(&mut self, effects: Effects) {
        self.under_way.extend(effects.proposals);
        self.answers.extend(effects.answers);
    }

    /// A transaction that writes one key at each of these leaves, and whose session is at home in the first.
    fn write(&mut self, leaves: &[u16]) -> Result<RequestId> {
        let Some(&home) = leaves.first() else { bail!("a transaction of no leaf") };
        self.transactions += 1;
        let session = session_opened(Position(self.transactions), home);
        let id = RequestId { session, sequence: 1, attempt: 0 };
        let records = leaves.iter().map(|&leaf| (self.key(leaf), Some(Entry::new("value")))).collect();
        let writes = WriteSet { records, ..WriteSet::default() };
        let mut effects = Effects::default();
        self.site.begin(id, false, &mut effects);
        let begun = effects.answers.pop();
        if begun != Some((id, Answer::Begun)) {
            bail!("a transaction begins by {begun:?}");
        }
        self.site.commit(id, ReadSet::default(), writes, &mut effects);
        self.take(effects);
        Ok(id)
    }

    /// All that is under way arrives.
    fn step(&mut self) -> Result<()> {
        for (group, entry) in std::mem::take(&mut self.under_way) {
            *self.given.entry(group).or_default() += 1;
            let mut effects = Effects::default();
            let decided = self.site.decided(group, &entry, &mut effects);
            decided.map_err(|error| anyhow!("an entry of {group}: {error:?}"))?;
            self.take(effects);
        }
        Ok(())
    }

    /// Runs until nothing is under way. Gives the steps until the first answer, which is a step itself.
    fn run(&mut self) -> Result<u64> {
        let (mut steps, mut until_answered) = (0, None);
        while !self.under_way.is_empty() {
            self.step()?;
            steps += 1;
            if until_answered.is_none() && !self.answers.is_empty() {
                until_answered = Some(steps + 1);
            }
        }
        let aborted = self.answers.iter().find(|(_, answer)| *answer != Answer::Committed);
        if let Some((id, answer)) = aborted {
            bail!("{id:?} is answered {answer:?}");
        }
        if self.answers.len() as u64 != self.transactions {
            bail!("{} of {} transactions were answered", self.answers.len(), self.transactions);
        }
        until_answered.ok_or_else(|| anyhow!("no transaction was answered"))
    }

    /// The entries that the root was given.
    fn given_to_root(&self) -> u64 {
        self.given.get(&PartitionId(self.tree.groups() - 1)).copied().unwrap_or(0)
    }
}

/// What one transaction, or several that run together, cost each.
struct Counted {
    steps: u64,
    messages: Messages,
    transactions: u64,
}

impl Counted {
    fn per_transaction(&self) -> f64 {
        self.messages.total() as f64 / self.transactions as f64
    }
}

/// Counts the messages and steps of transactions of these leaves that run together.
fn count(tree: &Tree, control: Control, batch: usize, leaves: &[u16], transactions: u64) -> Result<Counted> {
    let batches = match batch {
        1 => UNBATCHED,
        _ => BatchLimits { transactions_max: batch, bytes_max: usize::MAX, wait_ticks_max: 5 },
    };
    let mut network = Network::new(tree, control, batches);
    for _ in 0..transactions {
        network.write(leaves)?;
    }
    let steps = network.run()?;
    Ok(Counted { steps, messages: network.site.messages(), transactions })
}

/// Makes the wanted figures, and writes the page.
pub fn run(options: &Options) -> Result<Made> {
    let page = Page {
        title: "Hierarchical validation, its network analysis reproduced",
        head: head(),
        figures: &FIGURES,
        only: &options.only,
    };
    page.make(options, |id| match id {
        "network" => network(),
        _ => levels(options),
    })
}

fn head() -> Vec<String> {
    vec![
        "J. Amaro, A Distributed and Hierarchical Architecture for Deferred Validation of Transactions in \
         Key-Value Stores: section III-E, counted with Ordo's validators, and the levels that the paper \
         leaves to future work. What a validator's group needs to agree on an entry is not counted: the \
         paper's validators are single processes."
            .to_owned(),
        "Every number here is a count of messages or steps, without a model of time. The paper's figures 2 \
         to 6, which are throughputs and latencies of Riak with and without validation, are missing: the \
         scale model has no tree of validators yet."
            .to_owned(),
    ]
}

fn sample(y: f64, counted: &Counted) -> Sample {
    let Messages { requests, partials, verdicts, answers } = counted.messages;
    let run = serde_json::json!({
        "transactions": counted.transactions,
        "steps": counted.steps,
        "requests": requests,
        "partials": partials,
        "verdicts": verdicts,
        "answers": answers,
    });
    Sample { seed: 0, y, run }
}

/// A point that nothing is drawn for: the same with each seed.
fn exact(x: f64, name: &str, sample: Sample) -> Point {
    Point::of(x, name, vec![sample])
}

/// The transactions of the analysis: the tree's fan-out, the participants, and how many levels above them
/// their decider is. No two of them are below one validator that is below the decider: then the equations,
/// which are for the worst case, are exact.
const CASES: [(u16, u16, &[u16], u64); 9] = [
    (8, 4, &[3], 0),
    (8, 4, &[0, 1], 1),
    (8, 4, &[4, 5, 6], 1),
    (8, 4, &EXAMPLE_LEAVES, 1),
    (8, 8, &[0, 1, 2, 3, 4, 5, 6, 7], 1),
    (8, 4, &[2, 7], 2),
    (8, 2, &[0, 2], 2),
    (8, 2, &[0, 7], 3),
    (64, 4, &[0, 20, 40, 60], 3),
];

fn network() -> Result<Found> {
    let (mut steps_of, mut messages_of) = (Vec::new(), Vec::new());
    let (mut step_ratios, mut message_ratios) = (Vec::new(), Vec::new());
    for (place, (all, fan_out, leaves, levels)) in CASES.into_iter().enumerate() {
        let participants = leaves.len() as u64;
        let name = format!("{participants} of {all}, decided {levels} above");
        let (x, tree) = (place as f64, tree(all, fan_out)?);
        for (control, word) in [(Control::Locks, "locks"), (Control::Timestamps, "timestamps")] {
            let counted = count(&tree, control, 1, leaves, 1)?;
            let wanted = (steps(participants, levels, 1.0), messages(participants, levels, 1.0));
            step_ratios.push(counted.steps as f64 / wanted.0);
            message_ratios.push(counted.per_transaction() / wanted.1);
            let add = |all: &mut Vec<Series>, y: f64| {
                add_point(all, word, Source::Measured, exact(x, &name, sample(y, &counted)));
            };
            add(&mut steps_of, counted.steps as f64);
            add(&mut messages_of, counted.per_transaction());
            if control == Control::Locks {
                let computed = [
                    (&mut steps_of, wanted.0, two_phase_steps(participants)),
                    (&mut messages_of, wanted.1, two_phase_messages(participants)),
                ];
                for (all, of_tree, of_two_phase) in computed {
                    for (word, y) in
                        [("equations (6), (7)", of_tree), ("2PC, equations (2), (3)", of_two_phase)]
                    {
                        let point = exact(x, &name, Sample { seed: 0, y, run: serde_json::Value::Null });
                        add_point(all, word, Source::Modelled, point);
                    }
                }
            }
        }
    }
    let mut batched = Vec::new();
    let mut claims = vec![
        Claim::new("steps without batches, counted / equation (6)", &step_ratios)
            .paper("equation (6)", 1.0..=1.0)
            .bar(1.0, Some(1.0)),
        Claim::new("messages without batches, counted / equation (7)", &message_ratios)
            .paper("equation (7)", 1.0..=1.0)
            .bar(1.0, Some(1.0)),
    ];
    let participants = EXAMPLE_LEAVES.len() as u64;
    let base = two_phase_messages(participants);
    let tree = example_tree()?;
    for batch in [1, 2, 5, 10, 25, 50, 100] {
        for (control, word) in [(Control::Locks, "locks"), (Control::Timestamps, "timestamps")] {
            let counted = count(&tree, control, batch, &EXAMPLE_LEAVES, EXAMPLE_TRANSACTIONS)?;
            let per_transaction = counted.per_transaction();
            let point = exact(batch as f64, &batch.to_string(), sample(per_transaction, &counted));
            add_point(&mut batched, word, Source::Measured, point);
            let saved = 1.0 - per_transaction / base;
            let claim =
                Claim::new(format!("messages saved against 2PC, {word}, batches of {batch}"), &[saved]);
            match batch {
                1 => claims.push(claim.paper("reduces the total number of messages by 18 %", 0.18..=0.19)),
                50 => {
                    claims.push(claim.paper("with batching, by 67 %", 0.67..=0.69).bar(0.67, None).because(
                        "A batch leaves at once where none is under way, so the first has one of 100.",
                    ))
                }
                _ => {}
            }
        }
        let y = messages(participants, 1, batch as f64);
        let point =
            exact(batch as f64, &batch.to_string(), Sample { seed: 0, y, run: serde_json::Value::Null });
        add_point(&mut batched, "equation (7)", Source::Modelled, point);
    }
    let panels = vec![
        Panel::new("steps of communication", ("transaction", "steps"), Axis::Names, steps_of),
        Panel::new("messages of a transaction", ("transaction", "messages"), Axis::Names, messages_of),
        Panel::new(
            "the paper's example: 100 transactions of 4 data nodes, decided 1 level above",
            ("transactions in a batch", "messages of a transaction"),
            Axis::Numbers,
            batched,
        ),
    ];
    let differences = vec![
        "Equation (7) is for the worst case. An inner validator that hears several children says one thing \
         for all of them: where that happens, fewer messages are counted, and such transactions are left out \
         here."
            .to_owned(),
        "The paper saves \"turn around messages\" by batches, too. Here a batch makes no transaction's steps \
         fewer: each waits for the message that carries its own part."
            .to_owned(),
    ];
    Ok(found("messages and steps (III-E)", panels, claims, differences))
}

/// Two leaves, which are close in `close_percent` of 100 cases.
fn pair(seed: u64, number: u64, close_percent: u64) -> [u16; 2] {
    let draw = |what: u64, below: u16| (mix(mix(seed ^ (what << 56)) ^ number) % u64::from(below)) as u16;
    let first = draw(1, LEAVES);
    let group = first - first % CLOSE;
    let is_close = u64::from(draw(2, 100)) < close_percent;
    let second = match is_close {
        true => group + (first - group + 1 + draw(3, CLOSE - 1)) % CLOSE,
        false => (group + CLOSE + draw(4, LEAVES - CLOSE)) % LEAVES,
    };
    [first, second]
}

/// What trees of 64 leaves leave to their roots.
fn levels(options: &Options) -> Result<Found> {
    let transactions = if options.quick { TRANSACTIONS_QUICK } else { TRANSACTIONS };
    let close: &[u64] = if options.quick { &[0, 95, 100] } else { &[0, 50, 80, 90, 95, 100] };
    let (mut at_root, mut all_messages) = (Vec::new(), Vec::new());
    for fan_out in [64, 16, 8, 4, 2] {
        let tree = tree(LEAVES, fan_out)?;
        let name = format!("{} levels, {fan_out} children", tree.height_of_root() + 1);
        for &close_percent in close {
            let (mut of_root, mut of_all) = (Vec::new(), Vec::new());
            for seed in (options.seed..).take(options.repeats) {
                let mut network = Network::new(&tree, Control::Locks, UNBATCHED);
                let mut at_top = BTreeSet::new();
                for number in 0..transactions {
                    let pair = pair(seed, number, close_percent);
                    let id = network.write(&pair)?;
                    let participants = pair.map(PartitionId).into();
                    if tree.decider(&participants) == Some(PartitionId(tree.groups() - 1)) {
                        at_top.insert(id);
                    }
                }
                let steps = network.run()?;
                let counted = Counted { steps, messages: network.site.messages(), transactions };
                let heard = network.given_to_root() as f64 * 100.0 / transactions as f64;
                let mut sample_of_root = sample(heard, &counted);
                sample_of_root.run["decided_by_root"] = at_top.len().into();
                of_root.push(Sample { seed, ..sample_of_root });
                of_all.push(Sample { seed, ..sample(counted.per_transaction(), &counted) });
            }
            let (x, label) = (close_percent as f64, close_percent.to_string());
            add_point(&mut at_root, &name, Source::Measured, Point::of(x, &label, of_root));
            add_point(&mut all_messages, &name, Source::Measured, Point::of(x, &label, of_all));
        }
    }
    let root = Panel::new(
        "messages that the root is given",
        ("% of transactions between close leaves", "messages for 100 transactions"),
        Axis::Numbers,
        at_root,
    );
    let of = |name: &str| root.samples_of(name, Source::Measured, 95.0);
    let shares = super::figure::ratios(&of("3 levels, 8 children"), &of("2 levels, 64 children"));
    let claims = vec![
        Claim::new("3 levels / 2 levels: what the root is given, 95 % between close leaves", &shares)
            .bar(0.0, Some(0.05)),
    ];
    let all = Panel::new(
        "messages of a transaction",
        ("% of transactions between close leaves", "messages"),
        Axis::Numbers,
        all_messages,
    );
    let differences = vec![format!(
        "The paper leaves levels and fan-outs to future work. {LEAVES} leaves, {transactions} transactions \
         of two leaves, without batches. Two leaves are close if they are in one group of {CLOSE}: a \
         validator of each tree but the one with two levels is above the group and below the root."
    )];
    Ok(found("levels, fan-outs, and what they leave to the root", vec![root, all], claims, differences))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn options(dir: &std::path::Path) -> Options {
        Options {
            dir: dir.to_owned(),
            quick: true,
            only: Vec::new(),
            seed: 1,
            repeats: 2,
            seconds: 1.0,
            command: "ordo reproduce hierarchy --quick".to_owned(),
            told: serde_json::Value::Null,
            times: sim::scale::Times::default(),
            costs: sim::scale::Costs::default(),
            calibrated: false,
        }
    }

    #[test]
    fn counts_are_those_of_the_equations_and_the_root_of_three_levels_hears_little() {
        let dir = tempfile::tempdir().expect("a directory");
        let (page, claims) = run(&options(dir.path())).expect("a page");
        let page = std::fs::read_to_string(page).expect("a page");
        assert!(page.contains("levels, fan-outs") && dir.path().join("figure-network.json").exists());
        let judged: BTreeMap<&str, Option<bool>> =
            claims.iter().map(|claim| (claim.about.as_str(), claim.met)).collect();
        assert_eq!(claims.len(), 7, "{judged:?}");
        let missed: Vec<&Claim> =
            claims.iter().filter(|claim| [claim.met, claim.agrees].contains(&Some(false))).collect();
        assert!(missed.is_empty(), "{missed:?}");
    }

    #[test]
    fn pairs_are_close_as_often_as_is_asked_for() {
        for percent in [0, 95, 100] {
            let pairs = (0..10_000).map(|number| pair(7, number, percent));
            let mut close = 0;
            for [first, second] in pairs {
                assert!(first != second && first < LEAVES && second < LEAVES);
                close += u64::from(first / CLOSE == second / CLOSE);
            }
            assert!(close.abs_diff(100 * percent) < 100, "{close} of 10,000 are close");
        }
    }

    #[test]
    fn trees_have_the_wanted_levels() {
        for (leaves, fan_out, levels) in
            [(8, 4, 3), (64, 64, 2), (64, 16, 3), (64, 8, 3), (64, 4, 4), (64, 2, 7)]
        {
            let tree = tree(leaves, fan_out).expect("a tree");
            assert_eq!((tree.partitions(), tree.height_of_root() + 1), (leaves, levels), "{fan_out}");
        }
    }
}
