//! Whole systems of sites, judged by what their clients saw; and each deliberate defect is found.

mod client;
mod codec;
mod directed;
mod judge;
mod world;

use super::{
    CommitStamp, Incarnation, Letter, Message, Pcsi, Record, SiteEffects, SiteMap, SiteOptions,
    TransactionName, Update, VectorClock,
};
use judge::judge;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use txn::mutant::{Mutant, with};
use txn::{BootId, NodeId, PartitionId};
use world::World;

/// Each defect is found within so many seeds.
const SEEDS_PER_MUTANT: u64 = 4_000;

/// What is wrong with a seed's run. A panic is a finding like any other.
fn finding(seed: u64) -> Option<String> {
    finding_of(|| World::run(seed))
}

fn finding_of(run: impl FnOnce() -> Result<World, String>) -> Option<String> {
    let ran = catch_unwind(AssertUnwindSafe(|| run().and_then(|world| judge(&world))));
    let text = |panic: Box<dyn std::any::Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or("a panic".into(), |text| text.to_string()),
    };
    ran.unwrap_or_else(|panic| Err(text(panic))).err()
}

/// `ORDO_PCSI_SEEDS` is a number of seeds, or a range `A..B`.
fn seeds(end_by_default: u64) -> std::ops::Range<u64> {
    let text = std::env::var("ORDO_PCSI_SEEDS").unwrap_or_default();
    let (first, end) = text.split_once("..").unwrap_or(("0", &text));
    first.parse().unwrap_or(0)..end.parse().unwrap_or(end_by_default)
}

#[test]
fn every_seed_keeps_the_promises() {
    let failures: Vec<String> =
        seeds(200).filter_map(|seed| finding(seed).map(|found| format!("seed {seed}: {found}"))).collect();
    assert!(failures.is_empty(), "{} seeds fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_seed_with_many_fences_keeps_the_promises() {
    let finding = |seed| finding_of(|| World::run_with_many_fences(seed));
    let failures: Vec<String> =
        seeds(60).filter_map(|seed| finding(seed).map(|found| format!("seed {seed}: {found}"))).collect();
    assert!(failures.is_empty(), "{} seeds fail:\n{}", failures.len(), failures.join("\n"));
}

/// A site without a log has got its partitions of a site that loses its disk before the first site's log has
/// them. So the updates in them are in no log, and remain.
#[test]
fn updates_that_are_in_flight_to_a_site_without_a_log_remain() {
    assert_eq!(finding_of(|| World::run_with_many_fences(385)), None);
}

#[test]
fn transactions_commit_in_spite_of_the_faults() {
    let acknowledged = |seed| {
        let world = World::run(seed).expect("it settles");
        world.attempts.iter().filter(|attempt| attempt.is_acknowledged() && attempt.writes).count()
    };
    let all: usize = (0..20).map(acknowledged).sum();
    assert!(all >= 200, "of 20 seeds, only {all} transactions with writes were acknowledged");
}

/// Disks are lost, with updates that nobody has, and with updates that another site has; sites begin without
/// a log, and go on.
#[test]
fn worlds_lose_disks_and_fence_sites() {
    let (mut logs, mut lost, mut fetched) = (0, 0, 0);
    for seed in 0..60 {
        let world = World::run(seed).expect("it settles");
        logs += world.hosts.iter().map(|host| host.old_logs.len()).sum::<usize>();
        lost += world.lost.len();
        fetched += world.hosts.iter().map(|host| host.fetched.len()).sum::<usize>();
    }
    println!("{logs} logs with {lost} updates were lost, {fetched} updates were fetched");
    assert!(logs >= 20 && lost >= 5 && fetched >= 200, "{logs} logs, {lost} lost, {fetched} fetched");
}

/// What the world says of a defect.
fn symptom(mutant: Mutant) -> &'static str {
    match mutant {
        Mutant::ReuseSequence => "two transactions have",
        // The numbers are not those of the new incarnation, so no other site reads the updates.
        Mutant::ReuseLostNumbers => "a site has sent it",
        Mutant::ForgetRequestsEarly => "two attempts of a transaction have committed",
        Mutant::ForgetRequests => "its client heard that it has not",
        Mutant::DropAtFirstAcknowledgement | Mutant::HearFenced | Mutant::FenceAlone => "lacks numbers of",
        Mutant::WaitForOrigin | Mutant::ReleaseEarly => "sites wait for the updates of one that is away",
        Mutant::ForgetAcknowledgements => "a site retains more than its bound",
        Mutant::DropDependencies | Mutant::SkipDependencyCheck | Mutant::ApplyOnePartition => {
            ", but follows "
        }
        _ => "both overwrote",
    }
}

#[test]
fn every_defect_is_found() {
    for mutant in Mutant::OF_PCSI {
        let mut others = Vec::new();
        let mut is_found = |seed: &u64| {
            let found = finding(*seed).unwrap_or_default();
            let is_expected = found.contains(symptom(mutant));
            if !is_expected && !found.is_empty() && others.len() < 3 {
                others.push(found);
            }
            is_expected
        };
        let found = with(mutant, || (0..SEEDS_PER_MUTANT).find(&mut is_found));
        println!("{mutant:?}: {found:?}");
        let Some(seed) = found else {
            panic!("{mutant:?} passes {SEEDS_PER_MUTANT} seeds, but for {others:?}");
        };
        assert_eq!(finding(seed), None, "seed {seed} does not pass without {mutant:?}");
    }
}

/// How many updates of site 0 does site 1 count that has got two, the first of which waits for site 2?
fn counted_behind_a_waiting_update() -> u64 {
    let partition = PartitionId(0);
    let sites = SiteMap::new(vec![vec![NodeId(0), NodeId(1), NodeId(2)]]).expect("three sites");
    let options = SiteOptions {
        me: NodeId(1),
        sites: Arc::new(sites),
        propagation_ticks: 1,
        vote_ticks_max: 10,
        open_ticks_max: 10,
        open_max: 1,
        window: 2,
        retained_max: 2,
        silent_ticks_max: 10,
        session_horizon: 10,
    };
    let update = |number, depends: &[CommitStamp]| {
        let mut clock = VectorClock::default();
        depends.iter().for_each(|&stamp| clock.count(stamp));
        let stamp = CommitStamp { site: NodeId(0), sequence: number };
        Arc::new(Update {
            name: TransactionName { origin: NodeId(0), incarnation: Incarnation(0), boot: BootId(1), number },
            number,
            stamps: BTreeMap::from([(partition, stamp)]),
            depends: BTreeMap::from([(partition, clock)]),
            writes: BTreeMap::new(),
        })
    };
    let updates = vec![update(1, &[CommitStamp { site: NodeId(2), sequence: 1 }]), update(2, &[])];
    let mut effects = SiteEffects::default();
    let mut site = Pcsi::start(options, &[Record::Founded], 1, &mut effects);
    let message = Message::Updates { after: 0, through: 2, last: 2, retained: Vec::new(), updates };
    let letter = Letter { from: Incarnation(0), to: Some(Incarnation(0)), message };
    site.receive(NodeId(0), letter, &mut effects);
    site.view(partition).map_or(0, |view| view.at(NodeId(0)))
}

/// Worlds meet this too rarely: the first of the two transactions has seen what the second has not.
#[test]
fn a_site_applies_the_numbers_of_another_one_in_order() {
    assert_eq!(counted_behind_a_waiting_update(), 0);
    assert_eq!(with(Mutant::SkipNumberCheck, counted_behind_a_waiting_update), 2);
    assert_eq!(with(Mutant::AdvanceViewEarly, counted_behind_a_waiting_update), 2);
}
