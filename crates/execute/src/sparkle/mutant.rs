//! Deliberate defects.

/// A defect that a test can ask for, to see that the oracles find it. Effective only with feature `mutants`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Reads leave no dependency.
    SkipReadDependency,
    /// Reads of absent keys leave no dependency.
    SkipAbsentReadDependency,
    /// Removing a version dooms nobody.
    SkipCascadeOnRemove,
    /// Installing a version dooms nobody.
    SkipDoomOnInstall,
    /// A doomed transaction speculatively commits all the same.
    IgnoreDoomAtCommit,
    /// What is speculatively committed can't be doomed any more.
    DoomMissesCommitted,
    /// Final commit does not wait for confirmation.
    IgnoreConfirmation,
    /// A delete removes nothing: it leaves the older version visible.
    ForgetTombstone,
    /// A restart keeps the versions of the previous incarnation.
    KeepVersionsOnUndo,
    /// Versions are collected although somebody can still see them.
    CollectTooEarly,
    /// A wake-up that meets a transaction which is about to park is lost.
    LoseWakeUp,
    /// The head's arrival at a transaction which is about to park for it is lost.
    LoseHeadWakeUp,
    /// The count of live entries forgets that a version may arrive below another.
    MiscountLive,
    /// A retraction leaves the versions of what it retracts.
    RetractKeepsVersions,
    /// A clear dooms nobody.
    SkipDoomOnClear,
    /// A transaction that has cleared takes a lock and leaves its holder alone.
    LockInSilence,
    /// An abort by the procedure's own logic keeps its writes.
    KeepWritesOfAborted,
    /// Some transactions' writes are not installed.
    LoseWrite,
    /// A scan does not wait for the transactions before it.
    ScanTooEarly,
    /// A worker that held the committer's latch in vain does not look at the head again. (Only one who sleeps
    /// notices.)
    LeaveCommittable,
}

impl Mutant {
    /// All that whoever steps again and again can notice.
    pub const ALL: [Mutant; 19] = [
        Mutant::SkipReadDependency,
        Mutant::SkipAbsentReadDependency,
        Mutant::SkipCascadeOnRemove,
        Mutant::SkipDoomOnInstall,
        Mutant::IgnoreDoomAtCommit,
        Mutant::DoomMissesCommitted,
        Mutant::IgnoreConfirmation,
        Mutant::ForgetTombstone,
        Mutant::KeepVersionsOnUndo,
        Mutant::CollectTooEarly,
        Mutant::LoseWakeUp,
        Mutant::LoseHeadWakeUp,
        Mutant::MiscountLive,
        Mutant::RetractKeepsVersions,
        Mutant::SkipDoomOnClear,
        Mutant::LockInSilence,
        Mutant::KeepWritesOfAborted,
        Mutant::LoseWrite,
        Mutant::ScanTooEarly,
    ];
}
