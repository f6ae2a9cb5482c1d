//! What the model compares, by name.

use certify::two_phase::Rule;
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

/// What the model compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// An engine, which executes an order.
    Engine {
        /// The engine.
        kind: EngineKind,
        /// How Sparkle's siblings confirm each other, and how epochs are arranged for it. Nothing to the
        /// others.
        variant: SparkleVariant,
    },
    /// Two-phase commit with a rule of concurrency control, which has no order and no engine.
    TwoPhase(Rule),
}

impl Contender {
    /// Sparkle as it is here.
    pub const SPARKLE: Contender = Contender::of(EngineKind::Sparkle);
    /// An engine as it is here.
    pub const fn of(kind: EngineKind) -> Contender {
        Contender::Engine { kind, variant: SparkleVariant::ScSchedule }
    }
    /// A variant of Sparkle.
    pub const fn sparkle(variant: SparkleVariant) -> Contender {
        Contender::Engine { kind: EngineKind::Sparkle, variant }
    }
    /// The engine that it is.
    ///
    /// # Errors
    /// It is a protocol without an engine.
    pub fn kind(self) -> Result<EngineKind, String> {
        match self {
            Contender::Engine { kind, .. } => Ok(kind),
            Contender::TwoPhase(_) => Err(format!("{self} has no engine")),
        }
    }
    fn is(self, wanted: EngineKind) -> bool {
        self.kind() == Ok(wanted)
    }
    /// An engine for a partition out of so many.
    ///
    /// # Errors
    /// It is a protocol without an engine.
    pub fn engine(self, partition: PartitionId, of: u16, workers: usize) -> Result<Arc<dyn Engine>, String> {
        let made_for = Assignment { partition, of, ..Assignment::alone(workers) };
        Ok(match self {
            Contender::Engine { kind: EngineKind::Sparkle, variant } => {
                Arc::new(Sparkle::new(SparkleOptions {
                    variant: variant.confirmation(),
                    capacity: CAPACITY,
                    ..SparkleOptions::of(made_for)
                }))
            }
            other => other.kind()?.make(made_for),
        })
    }
    /// How epochs are arranged for it.
    pub fn scheduling(self) -> Scheduling {
        match self {
            Contender::Engine { kind: EngineKind::Sparkle, variant } => variant.scheduling(),
            _ => Scheduling::Merged,
        }
    }
    /// What it needs.
    pub fn needs(self) -> Needs {
        match self {
            Contender::Engine { kind, .. } => kind.needs(),
            Contender::TwoPhase(_) => Needs {
                declared_keys: false,
                spans_partitions: true,
                one_worker: false,
                whole_transactions: false,
                correct: true,
            },
        }
    }
    /// How many of a node's workers it has use for.
    pub fn workers(self, of_node: usize) -> usize {
        if self.needs().one_worker { 1 } else { of_node }
    }
    /// Whether its worker 0 only schedules where there are several.
    pub fn has_scheduler(self) -> bool {
        self.is(EngineKind::Calvin)
    }
    /// Whether read-only transactions bypass the order, as its design says.
    pub fn reads_at_snapshots(self) -> bool {
        !self.needs().declared_keys
    }
}

impl FromStr for Contender {
    type Err = String;
    /// A contender by its name; of Sparkle the variant that Ordo has.
    fn from_str(text: &str) -> Result<Contender, String> {
        match Rule::ALL.into_iter().find(|rule| rule.name() == text) {
            Some(rule) => Ok(Contender::TwoPhase(rule)),
            None => text.parse().map(Contender::of).map_err(|wrong| {
                format!("{wrong}; the model has {}, too", Rule::ALL.map(Rule::name).join(", "))
            }),
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contender::Engine { kind: EngineKind::Sparkle, variant }
                if *variant != SparkleVariant::default() =>
            {
                write!(f, "sparkle {}", variant.name())
            }
            Contender::Engine { kind, .. } => write!(f, "{kind}"),
            Contender::TwoPhase(rule) => f.write_str(rule.name()),
        }
    }
}
