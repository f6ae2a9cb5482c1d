//! PCSI: its promises, whatever goes wrong, and each deliberate defect found.

use certify::pcsi::RemoteAccess;
use ordo_sim::draw::{one_seed, seeds, tracing};
use ordo_sim::minimize::minimize;
use ordo_sim::options::{Options, SystemKind, Wishes};
use ordo_sim::pcsi::{Losses, run_with};
use ordo_sim::run::run;
use ordo_sim::trace::Trace;
use ordo_sim::world::{Fault, TimedFault, Violation};
use txn::mutant::{Mutant, with};

/// Each defect is found within so many seeds.
const SEEDS_PER_MUTANT: u64 = 3_000;

/// The worlds with each way to use partitions of other sites.
const SEEDS_WITH_REMOTE_ACCESS: u64 = 30;

fn options(seed: u64) -> Options {
    Options::draw(seed, &Wishes { system: Some(SystemKind::Pcsi), ..Wishes::default() })
}

/// Runs a world of each seed. Returns what all of them lost.
///
/// # Panics
/// A world breaks a promise. A panic within a world ends the test, so each seed is printed before its world
/// runs.
fn run_all(
    seeds: impl Iterator<Item = u64>,
    remote_access: RemoteAccess,
    options: impl Fn(u64) -> Options,
) -> Losses {
    let (mut failed, mut all) = (Vec::new(), Losses::default());
    for seed in seeds {
        println!("seed {seed}");
        let options = options(seed);
        let (outcome, losses) = run_with(&options, remote_access, tracing().then(|| Trace::new(5_000)));
        if let Some(trace) = &outcome.trace {
            println!("{}", trace.text());
        }
        if let Some(violation) = outcome.violation {
            println!("{options}\n{violation}");
            failed.push(seed);
        }
        all.logs += losses.logs;
        all.updates += losses.updates;
        all.fetched += losses.fetched;
        all.acknowledged += losses.acknowledged;
        all.remote_reads += losses.remote_reads;
        all.remote_updates += losses.remote_updates;
        all.nulls += losses.nulls;
    }
    assert!(failed.is_empty(), "seeds {failed:?} fail");
    println!("{all:?}");
    all
}

#[test]
fn every_seed_keeps_the_promises() {
    let all = run_all(seeds(120), RemoteAccess::Refused, options);
    // Disks are lost, with updates that nobody has, and with updates that another site has.
    let has_met = all.logs >= 30 && all.updates >= 3 && all.fetched >= 300 && all.acknowledged >= 2_000;
    assert!(one_seed() || has_met, "{all:?}");
}

/// The options of a seed, with a dozen fences and lost disks beside the faults that the seed draws.
fn options_with_fences(seed: u64) -> Options {
    let mut options = options(seed);
    let stage_ms = options.think_us * options.operations / options.pipeline.min(4) / 2_000;
    for place in 0..12 {
        let host = ((seed + place * 5) % u64::from(options.nodes)) as u16;
        let fault = match (seed / 2 + place) % 3 {
            0 => Fault::Crash {
                host,
                power: true,
                at_disk_operation: 0,
                flip_bit: false,
                lose_disk: true,
                down_ms: 1 + stage_ms / 20,
            },
            _ => Fault::Replace { host },
        };
        options.faults.push(TimedFault { at_ms: 1 + stage_ms * (place + 1) / 13, fault });
    }
    options.faults.sort_by_key(|timed| timed.at_ms);
    options
}

#[test]
fn sites_that_are_fenced_often_keep_the_promises() {
    let all = run_all(seeds(60), RemoteAccess::Refused, options_with_fences);
    // Fences without a majority are refused until the world has healed.
    assert!(one_seed() || (all.logs >= 180 && all.fetched >= 1_000), "{all:?}");
}

#[test]
fn sites_that_use_partitions_of_others_keep_the_promises() {
    for access in [RemoteAccess::Ghosts, RemoteAccess::Grants] {
        let all = run_all(seeds(SEEDS_WITH_REMOTE_ACCESS), access, options);
        let has_met = all.remote_reads >= 300 && all.remote_updates >= 300 && all.logs >= 5;
        assert!(one_seed() || has_met, "{access:?}: {all:?}");
    }
}

#[test]
fn sites_that_are_fenced_often_and_use_partitions_of_others_keep_the_promises() {
    for access in [RemoteAccess::Ghosts, RemoteAccess::Grants] {
        let all = run_all(seeds(SEEDS_WITH_REMOTE_ACCESS), access, options_with_fences);
        let has_met = all.remote_reads >= 300 && all.remote_updates >= 150 && all.logs >= 60;
        assert!(one_seed() || has_met, "{access:?}: {all:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 1..=10 {
        let [one, other] = [(); 2].map(|()| run(&options(seed), None).report);
        assert_eq!(one.account, other.account, "seed {seed}");
    }
}

#[test]
fn a_failing_run_shrinks_and_its_scenario_fails_in_the_same_way() {
    with(Mutant::SkipConflictCheck, || {
        let options = options(1);
        let violation = run(&options, None).violation.expect("the defect shows");
        let minimized = minimize(&options, &violation, 40, &mut |_, _| {});
        assert!(minimized.options.faults.len() < options.faults.len() || options.faults.is_empty());
        let scenario = Options::from_toml(&minimized.options.to_toml()).expect("it reads back");
        let replayed = run(&scenario, Some(Trace::new(100_000)));
        assert_eq!(replayed.violation, Some(minimized.violation));
        let text = replayed.trace.expect("a trace is asked for").text();
        for label in ["Updates", "Applied", "commit "] {
            assert!(text.contains(label), "no {label} in the trace");
        }
    });
}

#[test]
fn no_scenario_flips_bits() {
    let text = "system = \"pcsi\"\n[[faults]]\nat_ms = 10\nfault = \"crash\"\nhost = 0\nflip_bit = true\n\
                down_ms = 30\n";
    assert!(Options::from_toml(text).unwrap_err().contains("flip_bit"));
}

/// The last site that has a partition keeps its disk, and is not fenced.
#[test]
fn what_only_one_site_has_is_spared() {
    for seed in 1..=5 {
        let timed = |at_ms, fault| TimedFault { at_ms, fault };
        let lost = Fault::Crash {
            host: 0,
            power: true,
            at_disk_operation: 0,
            flip_bit: false,
            lose_disk: true,
            down_ms: 1,
        };
        let wishes = Wishes { system: Some(SystemKind::Pcsi), nodes: Some(1), ..Wishes::default() };
        let drawn = Options::draw(seed, &wishes);
        let faults = vec![timed(20, lost), timed(40, Fault::Replace { host: 0 })];
        let (outcome, losses) = run_with(&Options { faults, ..drawn }, RemoteAccess::Refused, None);
        assert!(outcome.violation.is_none(), "seed {seed}: {:?}", outcome.violation);
        assert_eq!(losses.logs, 0);
    }
}

/// What the world says of a defect.
fn symptom(mutant: Mutant) -> &'static str {
    match mutant {
        Mutant::TellUnwitnessed | Mutant::CountOtherPartitions => "sites had it",
        Mutant::ReuseSequence => "two transactions have",
        // The numbers are not those of the new incarnation, so no other site reads the updates.
        Mutant::ReuseLostNumbers => "cannot read a letter",
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

/// The search for a defect begins at a seed that finds it today, because a search takes time.
fn first_seed(mutant: Mutant) -> u64 {
    match mutant {
        Mutant::SkipDependencyCheck => 451,
        Mutant::ForgetPrepared => 359,
        Mutant::DropDependencies => 304,
        Mutant::WaitForOrigin | Mutant::ReleaseEarly => 140,
        Mutant::ApplyOnePartition => 57,
        _ => 1,
    }
}

#[test]
fn every_defect_is_found() {
    let mut survivors = Vec::new();
    for mutant in Mutant::OF_PCSI {
        let mut others: Vec<String> = Vec::new();
        println!("{mutant:?}, from seed {}", first_seed(mutant));
        let mut is_found = |seed: &u64| {
            let found = with(mutant, || run(&options(*seed), None)).violation;
            let text = found.as_ref().map(Violation::to_string).unwrap_or_default();
            let is_expected = text.contains(symptom(mutant));
            if !is_expected && !text.is_empty() && others.len() < 3 {
                others.push(text);
            }
            is_expected
        };
        let first = first_seed(mutant);
        let found = (first..first + SEEDS_PER_MUTANT).find(&mut is_found);
        println!("{mutant:?}: {found:?}, beside {others:.150?}");
        match found {
            Some(seed) => {
                let violation = run(&options(seed), None).violation;
                assert_eq!(violation, None, "seed {seed} does not pass without {mutant:?}");
            }
            None => survivors.push((mutant, others)),
        }
    }
    assert!(survivors.is_empty(), "not found in {SEEDS_PER_MUTANT} seeds: {survivors:?}");
}
