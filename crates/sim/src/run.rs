//! Runs of a world: one, many, and the smallest one that still fails.

use crate::draw::Draw;
use crate::options::{Options, SystemKind};
use crate::tally::Tally;
use crate::trace::Trace;
use crate::traffic::Population;
use crate::world::{Account, Limits, Setting, Violation};
use certify::dur::Dur;
use certify::hierarchy::Hierarchy;
use certify::register::Register;
use certify::two_phase::TwoPhase;
use execute::sparkle::Mutant;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use txn::hash::mix;

/// What a run was like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// The world's account.
    pub account: Account,
    /// What happened to transactions.
    pub tally: Tally,
}

/// How a run ended.
pub struct Outcome {
    /// What it was like, as far as it came.
    pub report: Report,
    /// What was found, if anything.
    pub violation: Option<Violation>,
    /// What happened, if that was asked for.
    pub trace: Option<Trace>,
}

/// Virtual time after the last fault in which everything must finish.
const SETTLE_MS: u64 = 120_000;
/// Events of a run, at most.
const EVENTS_MAX: u64 = 50_000_000;

/// Runs a world. A panic of anything in it is a finding like any other.
pub fn run(options: &Options, trace: Option<Trace>) -> Outcome {
    run_defective(options, None, trace)
}

/// Runs a world whose engines have a deliberate defect, if they are Sparkle's.
pub fn run_defective(options: &Options, mutant: Option<Mutant>, trace: Option<Trace>) -> Outcome {
    let ran = catch_unwind(AssertUnwindSafe(|| match options.system {
        SystemKind::Ordo | SystemKind::Cluster => crate::cluster::run(options, mutant, trace),
        SystemKind::Register => crate::certified::run::<Register>(options, trace),
        SystemKind::Dur => crate::certified::run::<Dur>(options, trace),
        SystemKind::NoWait | SystemKind::Timestamp | SystemKind::Mvcc | SystemKind::Maat => {
            crate::certified::run::<TwoPhase>(options, trace)
        }
        SystemKind::HierarchyLocks | SystemKind::HierarchyTimestamps => {
            crate::certified::run::<Hierarchy>(options, trace)
        }
        SystemKind::Pcsi => crate::pcsi::run(options, trace),
    }));
    ran.unwrap_or_else(|panic| Outcome {
        report: Report::default(),
        violation: Some(Violation::new("panic", panic_text(&*panic))),
        trace: None,
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    execute::snapshot::panic_text(panic).to_owned()
}

/// The world's share of the options.
pub(crate) fn setting(options: &Options) -> Setting {
    Setting {
        hosts: options.nodes,
        clients: options.clients,
        zones: options.zones,
        latency: options.latency,
        faults: options.faults.clone(),
        limits: Limits { settle_ms: SETTLE_MS, events: EVENTS_MAX },
    }
}

pub(crate) fn population(options: &Options, draw: &mut Draw) -> Population {
    let sharing = match options.across {
        true => options.partitions,
        false => 1,
    };
    Population::new(options.workload, options.clients, options.warehouses, sharing, draw.bits())
}

/// What a run draws beside its options, from the same seed.
pub fn describe(options: &Options) -> String {
    let mut draw = Draw::new(mix(options.seed));
    match options.system {
        SystemKind::Ordo | SystemKind::Cluster => population(options, &mut draw).describe().to_owned(),
        SystemKind::Pcsi => crate::pcsi::describe(options),
        _ => crate::certified::describe(options),
    }
}
