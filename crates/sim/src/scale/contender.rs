//! The engines that the model compares, by name.

use execute::sparkle::{Options as SparkleOptions, Sparkle, Variant};
use execute::{Assignment, Engine, EngineKind, Needs};
use order::arrange::Scheduling;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use txn::PartitionId;

/// Transactions that a node's engine has under way: several milliseconds of work.
const CAPACITY: usize = 1 << 14;

/// What Sparkle's Fig. 9 compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SparkleVariant {
    /// Nothing is told that may be wrong.
    Cons,
    /// What is told is confirmed when all before it is final.
    Cc,
    /// It is confirmed speculatively, in the order as it was merged.
    Sc,
    /// It is, in an order that is made for that: what Ordo does.
    #[default]
    ScSchedule,
}

impl SparkleVariant {
    /// All, from the plainest on.
    pub const ALL: [SparkleVariant; 4] =
        [SparkleVariant::Cons, SparkleVariant::Cc, SparkleVariant::Sc, SparkleVariant::ScSchedule];
    /// The name, as `--sparkle-variant` takes it.
    pub fn name(self) -> &'static str {
        match self {
            SparkleVariant::Cons => "cons",
            SparkleVariant::Cc => "cc",
            SparkleVariant::Sc => "sc",
            SparkleVariant::ScSchedule => "sc-schedule",
        }
    }
    /// How the engine's siblings confirm each other.
    pub fn confirmation(self) -> Variant {
        match self {
            SparkleVariant::Cons => Variant::Conservative,
            SparkleVariant::Cc => Variant::ConservativeConfirmation,
            SparkleVariant::Sc | SparkleVariant::ScSchedule => Variant::SpeculativeConfirmation,
        }
    }
    /// How epochs are arranged.
    pub fn scheduling(self) -> Scheduling {
        match self {
            SparkleVariant::ScSchedule => Scheduling::Grouped,
            _ => Scheduling::Merged,
        }
    }
}

impl FromStr for SparkleVariant {
    type Err = String;
    fn from_str(text: &str) -> Result<SparkleVariant, String> {
        let mut all = SparkleVariant::ALL.into_iter();
        all.find(|variant| variant.name() == text)
            .ok_or_else(|| format!("'{text}' is none of cons, cc, sc, sc-schedule"))
    }
}

/// An engine of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// The engine.
    pub kind: EngineKind,
    /// How Sparkle's siblings confirm each other, and how epochs are arranged for it. Nothing to the others.
    pub variant: SparkleVariant,
}

impl Contender {
    /// Sparkle as it is here.
    pub const SPARKLE: Contender = Contender::of(EngineKind::Sparkle);
    /// An engine as it is here.
    pub const fn of(kind: EngineKind) -> Contender {
        Contender { kind, variant: SparkleVariant::ScSchedule }
    }
    /// A variant of Sparkle.
    pub const fn sparkle(variant: SparkleVariant) -> Contender {
        Contender { kind: EngineKind::Sparkle, variant }
    }
    /// An engine for a partition out of so many.
    pub fn engine(self, partition: PartitionId, of: u16, workers: usize) -> Arc<dyn Engine> {
        let made_for = Assignment { partition, of, ..Assignment::alone(workers) };
        match self.kind {
            EngineKind::Sparkle => Arc::new(Sparkle::new(SparkleOptions {
                variant: self.variant.confirmation(),
                capacity: CAPACITY,
                ..SparkleOptions::of(made_for)
            })),
            kind => kind.make(made_for),
        }
    }
    /// How epochs are arranged for it.
    pub fn scheduling(self) -> Scheduling {
        match self.kind {
            EngineKind::Sparkle => self.variant.scheduling(),
            _ => Scheduling::Merged,
        }
    }
    /// What its engine needs.
    pub fn needs(self) -> Needs {
        self.kind.needs()
    }
    /// How many of a node's workers it has use for.
    pub fn workers(self, of_node: usize) -> usize {
        if self.needs().one_worker { 1 } else { of_node }
    }
    /// Whether its worker 0 only schedules where there are several.
    pub fn has_scheduler(self) -> bool {
        self.kind == EngineKind::Calvin
    }
    /// Whether read-only transactions bypass the order, as its design says.
    pub fn reads_at_snapshots(self) -> bool {
        !self.needs().declared_keys
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.variant) {
            (EngineKind::Sparkle, SparkleVariant::ScSchedule) => f.write_str("sparkle"),
            (EngineKind::Sparkle, variant) => write!(f, "sparkle {}", variant.name()),
            (kind, _) => write!(f, "{kind}"),
        }
    }
}
