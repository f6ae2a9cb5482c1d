//! The one list of the engines: their names, what each needs, and how one is made.
//!
//! The server, the simulator, the model and the bench choose an engine here and nowhere else, and ask
//! [`EngineKind::needs`] where an engine must be treated in its own way. A new engine is a new
//! variant, and the compiler names the rest.

use crate::engine::{Assignment, Engine};
use crate::{Calvin, NoCc, ParSpec, QStore, Serial, Sparkle, Ssmr, parspec, qstore, sparkle};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// An engine, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum EngineKind {
    /// One confirmed transaction at a time: the specification ([`crate::serial`]).
    Serial,
    /// No concurrency control: the bound, wrong under conflicts ([`crate::nocc`]).
    NoCc,
    /// One scheduler locks declared keys in the order ([`crate::calvin`]).
    Calvin,
    /// Plans declared keys into execution queues ([`crate::qstore`]).
    QStore,
    /// Speculation in parallel that commits in the order of delivery ([`crate::parspec`]).
    ParSpec,
    /// One confirmed transaction at a time, which waits for its siblings ([`crate::ssmr`]).
    Ssmr,
    /// Speculation in parallel ([`crate::sparkle`]).
    #[default]
    Sparkle,
}

/// What an engine needs from the code that runs it, and what that code may expect of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Requests carry the keys that they touch, where anybody can tell them ([`txn::Footprint::keys`]), and
    /// the same ones at every replica. The engine treats a request without keys as one that touches all.
    pub declared_keys: bool,
    /// The engine executes transactions over several partitions ([`crate::siblings`]).
    pub spans_partitions: bool,
    /// The engine's steps exclude each other: a second worker is of no use to it.
    pub one_worker: bool,
    /// A step executes whole transactions, also where its budget is one operation.
    pub whole_transactions: bool,
    /// The engine gives what the serial execution of the order gives. Without that it can only be measured.
    pub correct: bool,
}

/// Why a text names no engine that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// No engine has this name.
    Unknown(String),
    /// The engine is not [`Needs::correct`], and one that is must be named.
    Incorrect(EngineKind),
    /// The engine does not [span partitions](Needs::spans_partitions), and the cluster has this many.
    OnePartition(EngineKind, u16),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |has: fn(Needs) -> bool| {
            let names = EngineKind::ALL.into_iter().filter(|kind| has(kind.needs())).map(EngineKind::name);
            names.collect::<Vec<_>>().join(", ")
        };
        match self {
            EngineError::Unknown(text) => {
                write!(f, "'{text}' is no engine: choose from {}", names(|_| true))
            }
            EngineError::Incorrect(kind) => write!(
                f,
                "'{kind}' has no concurrency control: transactions that conflict would lose updates, so it \
                 can only be measured (ordo bench engine). Choose from {}",
                names(|needs| needs.correct)
            ),
            EngineError::OnePartition(kind, partitions) => write!(
                f,
                "'{kind}' executes one partition, and there are {partitions}, with transactions over \
                 several of them. Choose from {}",
                names(|needs| needs.correct && needs.spans_partitions)
            ),
        }
    }
}

impl std::error::Error for EngineError {}

impl EngineKind {
    /// All engines, from the plainest on.
    pub const ALL: [EngineKind; 7] = [
        EngineKind::Serial,
        EngineKind::NoCc,
        EngineKind::Calvin,
        EngineKind::QStore,
        EngineKind::ParSpec,
        EngineKind::Ssmr,
        EngineKind::Sparkle,
    ];

    /// The name, as `--engine` and the settings take it.
    pub const fn name(self) -> &'static str {
        match self {
            EngineKind::Serial => "serial",
            EngineKind::NoCc => "nocc",
            EngineKind::Calvin => "calvin",
            EngineKind::QStore => "qstore",
            EngineKind::ParSpec => "parspec",
            EngineKind::Ssmr => "ssmr",
            EngineKind::Sparkle => "sparkle",
        }
    }

    /// The engine's needs.
    pub const fn needs(self) -> Needs {
        let parallel = Needs {
            declared_keys: false,
            spans_partitions: true,
            one_worker: false,
            whole_transactions: false,
            correct: true,
        };
        match self {
            EngineKind::Serial => {
                Needs { spans_partitions: false, one_worker: true, whole_transactions: true, ..parallel }
            }
            EngineKind::NoCc => {
                Needs { spans_partitions: false, whole_transactions: true, correct: false, ..parallel }
            }
            EngineKind::Calvin | EngineKind::QStore => Needs { declared_keys: true, ..parallel },
            EngineKind::ParSpec => Needs { spans_partitions: false, ..parallel },
            EngineKind::Ssmr => Needs { one_worker: true, ..parallel },
            EngineKind::Sparkle => parallel,
        }
    }

    /// The engines that give what the serial execution gives: those that may serve clients.
    pub fn all_correct() -> impl Iterator<Item = EngineKind> {
        EngineKind::ALL.into_iter().filter(|kind| kind.needs().correct)
    }

    /// Reads the name of an engine that is [`Needs::correct`].
    ///
    /// # Errors
    /// No engine has the name, or one that has no concurrency control.
    pub fn correct_of(text: &str) -> Result<EngineKind, EngineError> {
        let kind: EngineKind = text.parse()?;
        kind.check(1).map(|()| kind)
    }

    /// Whether the engine may serve this many partitions, which transactions span.
    ///
    /// # Errors
    /// The engine has no concurrency control, or executes one partition.
    pub fn check(self, partitions: u16) -> Result<(), EngineError> {
        let needs = self.needs();
        match () {
            () if !needs.correct => Err(EngineError::Incorrect(self)),
            () if partitions > 1 && !needs.spans_partitions => {
                Err(EngineError::OnePartition(self, partitions))
            }
            () => Ok(()),
        }
    }

    /// The engine over an empty store, with its default options.
    ///
    /// # Panics
    /// If there is no worker.
    pub fn make(self, made_for: Assignment) -> Arc<dyn Engine> {
        assert!(made_for.workers > 0, "an engine needs a worker");
        match self {
            EngineKind::Serial => Arc::new(Serial::new()),
            EngineKind::NoCc => Arc::new(NoCc::new(made_for.workers)),
            EngineKind::Calvin => Arc::new(Calvin::of(made_for)),
            EngineKind::QStore => Arc::new(QStore::new(qstore::Options::of(made_for))),
            EngineKind::ParSpec => Arc::new(ParSpec::new(parspec::Options::of(made_for))),
            EngineKind::Ssmr => Arc::new(Ssmr::of(made_for.partition)),
            EngineKind::Sparkle => Arc::new(Sparkle::new(sparkle::Options::of(made_for))),
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for EngineKind {
    type Err = EngineError;
    fn from_str(text: &str) -> Result<EngineKind, EngineError> {
        let found = EngineKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| EngineError::Unknown(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_told_the_names() {
        for kind in EngineKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for wrong in ["", "Sparkle", "sparkl", " serial"] {
            let error = wrong.parse::<EngineKind>().unwrap_err().to_string();
            let want = format!(
                "'{wrong}' is no engine: choose from serial, nocc, calvin, qstore, parspec, ssmr, sparkle"
            );
            assert_eq!(error, want);
        }
        assert_eq!(EngineKind::correct_of("ssmr"), Ok(EngineKind::Ssmr));
        let error = EngineKind::correct_of("nocc").unwrap_err();
        assert_eq!(error, EngineError::Incorrect(EngineKind::NoCc));
        assert!(
            error.to_string().ends_with("Choose from serial, calvin, qstore, parspec, ssmr, sparkle"),
            "{error}"
        );
        assert_eq!((EngineKind::Serial.check(1), EngineKind::Calvin.check(3)), (Ok(()), Ok(())));
        let error = EngineKind::Serial.check(3).unwrap_err();
        assert_eq!(error, EngineError::OnePartition(EngineKind::Serial, 3));
        assert!(error.to_string().ends_with("Choose from calvin, qstore, ssmr, sparkle"), "{error}");
        assert_eq!(EngineKind::NoCc.check(3), Err(EngineError::Incorrect(EngineKind::NoCc)));
    }

    #[test]
    fn what_is_made_is_what_was_asked_for() {
        let made_for = Assignment { workers: 3, ..Assignment::alone(2) };
        for kind in EngineKind::ALL {
            let engine = kind.make(made_for);
            assert_eq!(engine.kind(), kind);
            assert_eq!(engine.name(), kind.name());
            assert_eq!(engine.siblings().is_some(), kind.needs().spans_partitions);
            let workers = if kind.needs().one_worker { 1 } else { made_for.workers };
            assert_eq!(engine.workers(), workers, "{kind}");
        }
    }

    #[test]
    fn needs_are_those_that_the_engines_say_of_themselves() {
        let those_with = |has: fn(Needs) -> bool| -> Vec<&str> {
            EngineKind::ALL.into_iter().filter(|kind| has(kind.needs())).map(EngineKind::name).collect()
        };
        assert_eq!(those_with(|needs| needs.declared_keys), ["calvin", "qstore"]);
        assert_eq!(those_with(|needs| needs.spans_partitions), ["calvin", "qstore", "ssmr", "sparkle"]);
        assert_eq!(those_with(|needs| needs.one_worker), ["serial", "ssmr"]);
        assert_eq!(those_with(|needs| needs.whole_transactions), ["serial", "nocc"]);
        assert_eq!(
            those_with(|needs| needs.correct),
            ["serial", "calvin", "qstore", "parspec", "ssmr", "sparkle"]
        );
    }
}
