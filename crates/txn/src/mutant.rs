//! Deliberate defects, to test the tests: what no oracle notices, no oracle guards.
//!
//! Every hazard that a page of this code base warns of should have one here, at the place where the warning
//! is heeded. A test chooses one for its thread (`with`, which exists only with feature `mutants`), runs
//! worlds, and demands that an oracle complains. Without the feature [`is_active`] is a constant, and nothing
//! of this is left in a program.

/// A defect that a test can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    // The order and its log.
    /// A sync reaches the current segment only, not those that were rotated away before.
    SkipSyncOfRotated,
    /// A segment that was left while it was being synced counts as synced.
    ForgetSegmentLeftDuringSync,
    /// A sync leaves the directory out: the name of a new segment may vanish.
    SkipSyncOfNames,
    /// A sync that failed is tried again, and its success is believed.
    RetryFailedSync,
    /// A record claims that what was only written is on the disk.
    ClaimBeforeSync,
    /// The checksum and the digest of a record's payload are not looked at.
    AcceptTornRecord,
    /// What recovery reads counts as durable, although the disk may not have it.
    TrustWhatWasRead,

    // The node.
    /// A read bypasses the order although its connection has unfinished commands.
    ReadOvertakesWrite,
    /// A checkpoint leaves deletes out.
    CheckpointWithoutTombstones,
    /// A checkpoint leaves clears out.
    CheckpointWithoutClears,
    /// A checkpoint holds a later state than its header says.
    CheckpointLaterThanSaid,
    /// A checkpoint counts as durable before it is synced.
    SkipSyncOfCheckpoint,
    /// The log is truncated up to its last segment, whatever the checkpoints need.
    TruncateTooFar,

    // Execution.
    /// A snapshot reader uses its previous snapshot again.
    StaleSnapshot,
    /// A read at a snapshot decides by its own clock what has expired.
    DecideExpiryAlone,
    /// Procedures read the clock of the machine on which they run.
    LocalClock,
    /// Random numbers differ from run to run of a transaction.
    LocalChance,
    /// Calvin grants a lock to a writer as if it only read.
    ShareWriteLocks,
    /// Calvin releases a transaction's locks before its writes are there.
    ReleaseLocksEarly,
    /// Calvin, or S-SMR, runs what is not confirmed.
    RunUnconfirmed,
    /// Calvin tells siblings what a key holds before it has the lock.
    TellBeforeLocked,
    /// Calvin judges its own partition's keys only by what the request names.
    JudgeOwnKeysOnly,
    /// Q-Store publishes slices as they are planned.
    IgnorePriority,
    /// Q-Store takes no note of who writes a key.
    ForgetWriter,
    /// Q-Store begins a transaction without declared keys as soon as it comes to it.
    PassBarrier,
    /// Q-Store executes a fragment without the values of its inputs.
    LoseFragmentValue,
    /// Q-Store installs what fragments write while others of their transaction may still abort it.
    WriteUndecided,
    /// Q-Store lets those behind a fragment go on that has not written yet.
    PassKeptWrite,
    /// Q-Store ends a transaction by whichever of its aborts comes first, not by that of the lowest place.
    AnyAbortDecides,
    /// Q-Store does not execute again what has read the writes of a transaction that has aborted.
    AbortWithoutCascade,
    /// Q-Store makes the outcome of a transaction that may be executed again.
    AnswerUnsettled,
    /// Q-Store answers for a transaction whose siblings have not told what their fragments came to.
    AnswerWithoutSiblings,
    /// Q-Store leaves it at that if a transaction has touched other keys than it was planned with.
    KeepStrayed,
    /// Q-Store, or ParSpec, leaves what a retracted transaction has written.
    KeepRetracted,
    /// Q-Store, or ParSpec, final-commits what is not confirmed.
    CommitUnconfirmed,
    /// ParSpec takes no note of who has read a record.
    ForgetReader,
    /// ParSpec reads a record that an earlier transaction is going to write.
    PassWaitFlag,
    /// ParSpec has more active transactions than a readers-array tells apart.
    OutgrowReaders,
    /// ParSpec x-commits a transaction that was doomed after it had finished.
    XCommitDoomed,
    /// ParSpec's clears doom nobody.
    ClearInSilence,
    /// ParSpec does not wake who waits for an x-commit.
    LoseXCommitWake,
    /// A sub-transaction that waits for a sibling does not hear that the value has come.
    LoseSiblingWake,
    /// What is said of a group before it is delivered is dropped.
    DropEarlyMessages,
    /// A sibling that starts anew is told only of groups that are under way.
    TellOpenGroupsOnly,

    // Redis.
    /// EXEC does not look at the watched keys.
    SkipWatch,
    /// The removal of what the node found expired does not look whether it still is.
    ExpireUnasked,
    /// KEYS replies in the order of a map whose hash function differs from run to run.
    UnorderedReply,

    // The cluster.
    /// A replica does not keep its term and vote.
    ForgetVote,
    /// A replica promises what it has only written.
    PromiseBeforeSync,
    /// MiMoX: a replica promises a final-batch whose opt-batches it does not hold.
    PromiseBeforeHeld,
    /// MiMoX: what the library knows to be agreed is told before the entries are.
    AgreedBeforeTold,
    /// MiMoX: whatever batch the log gets is taken for the next one ahead of it.
    TakeAheadForLogged,
    /// A leader takes a request that its log has already.
    ProposeTwice,
    /// A leader serves reads without asking whether it still is one.
    ReadWithoutIndex,
    /// A batch that was replaced stays with the engines.
    IgnoreRetraction,
    /// A replica takes an index that is ahead of its own log for the end of that log.
    ReadAheadOfIndex,
    /// A new leader knows only the requests of its log that are confirmed.
    ForgetUnconfirmedStreams,
    /// A leader takes a request although one before it in its stream is missing.
    AcceptGap,
    /// A process takes the boot id that the order once gave to an earlier process of its node.
    TakeOldBoot,
    /// An epoch is confirmed when one group has agreed on its batch.
    ConfirmWhenOneAgrees,
    /// A retraction reaches the partition only whose batch was replaced.
    RetractOnePartition,
    /// An epoch's time is that of its last batch, and a leader stamps what its machine's clock shows if that
    /// is earlier.
    EpochTimeGoesBack,
    /// A leader stamps batches with what its machine's clock shows.
    StampWallClock,
    /// Under `everysec`, only promises are synced.
    SkipEverySecond,
    /// Who follows a group is not told that a batch was replaced.
    FeedWithoutRewind,
    /// Who follows a group takes what comes out of turn.
    FeedOutOfTurn,
    /// Who follows a group is told that more is agreed than it was sent.
    FeedAgreedAhead,
    /// Whoever is followed goes by its own map for what a follower executes.
    FeedByOwnMap,
    /// A node lets its logs begin behind its own checkpoint, whatever the replicas of other partitions have.
    CutLogsAlone,
    /// A founder whose disk was lost takes part again.
    ForgetLostDisk,
    /// A replica arranges an epoch by what it knows of a request itself.
    RankByFootprint,
    /// What local partitions say to each other is not told to other nodes that keep one of them.
    KeepFromTwins,
    /// A request that was routed by older slots is executed as if they were still in force.
    ExecuteMisrouted,
    /// A read at a replica's snapshot does not ask whose slots that snapshot has.
    ReadWithoutSlots,
    /// A node whose disk was full does not look whether it has room again.
    StayOut,

    // Siblings.
    /// A speculative confirmation does not say whom the transaction has aborted.
    ForgetRaised,
    /// Nor whom it has aborted by being undone.
    ForgetCascade,
    /// An anchor gives the number of the first of a group only (Sparkle, Algorithm 3, lines 17-20).
    AnchorOnlyFirst,
    /// An anchor is said while the transaction before has not final-committed.
    AnchorTooEarly,
    /// A sub-transaction final-commits without looking at what its siblings have confirmed.
    CommitUnsettled,
    /// One that starts over for a sibling raises its number (Sparkle, Algorithm 3, line 28).
    RaiseOnStartOver,
    /// One that starts over for a sibling leaves no dependencies of what it had told.
    VoidDependencies,
    /// A confirmation counts whichever execution it confirms.
    BelieveAnyExecution,
    /// Any number that was heard of counts as the last one.
    BelieveAnyNumber,
    /// A value that was used counts under whichever number it was told.
    BelieveAnyValue,
    /// What was told under an earlier number stays.
    KeepOldValues,
    /// What is told under a later number is dropped.
    DropLaterNumbers,
    /// What another process of a sibling tells counts like what the first one told.
    MixEras,

    // Certified protocols.
    /// A transaction commits whatever became of what it had read.
    CertifyNothing,
    /// An entry of a transaction that has committed takes effect again.
    CertifyTwice,
    /// An attempt is told that it has committed, where another attempt of the transaction has.
    MistakeAttempts,
    /// A site that begins with another one's state knows no session.
    ForgetSessions,
    /// A later attempt that writes nothing is not ordered, although an earlier one may yet write.
    EndUnordered,
    /// An entry of a session that may have been forgotten counts as one of a new session.
    TakeForgottenForNew,
    /// Deferred update replication does not look whether a listing is what it was.
    MissPhantoms,
    /// Deferred update replication takes a record that was deleted for one that nobody has overwritten.
    OverlookDeletes,
    /// Deferred update replication collects versions that an open snapshot needs.
    CollectOpenSnapshots,
    /// Hierarchical validation: a leaf's clock does not follow the timestamps of what is committed there.
    SkipClockPush,
    /// Hierarchical validation: a snapshot is read where the leaf's clock has not come to it.
    SkipReadBump,
    /// Hierarchical validation: a timestamp counts although a leaf has not let the transaction commit there.
    SkipSecondCheck,
    /// Hierarchical validation: a tentative version is read.
    ReadTentative,
    /// Hierarchical validation: a reader does not wait for the outcome of a tentative version.
    PassTentative,
    /// Hierarchical validation: a home lets a transaction commit while another attempt is tentative.
    VoteForTwoAttempts,
    /// Hierarchical validation: a leaf gives its clock's timestamp again.
    ReuseTimestamp,
    /// Hierarchical validation: a leaf lets a transaction read a key that has a tentative version.
    ReadBesideTentative,
    /// Hierarchical validation with timestamps: a writer does not come behind the tentative transactions that
    /// use its key.
    WriteBesideTentative,
    /// PCSI: a site gives its last sequence number again after a restart.
    ReuseSequence,
    /// PCSI: a site that has lost its disk gives the numbers again of which nobody has heard.
    ReuseLostNumbers,
    /// PCSI: a site takes messages of a fenced incarnation.
    HearFenced,
    /// PCSI: a site decides on a fence without the reports of the others.
    FenceAlone,
    /// PCSI: the sites that decide on a fence may be any part of all sites.
    FenceWithoutMajority,
    /// PCSI: a site that restarts opens before it has heard another one.
    OpenUnheard,
    /// PCSI: an update does not say what it depends on.
    DropDependencies,
    /// PCSI: an update is applied before those with lower numbers of its site.
    SkipNumberCheck,
    /// PCSI: an update is applied before what it depends on.
    SkipDependencyCheck,
    /// PCSI: of a transaction of another site, a view counts all, but only the writes in one partition are
    /// applied.
    ApplyOnePartition,
    /// PCSI: a resolver does not look at the newest version of an item.
    SkipConflictCheck,
    /// PCSI: a view counts an update that waits for others.
    AdvanceViewEarly,
    /// PCSI: a site that has restarted does not know which requests have committed.
    ForgetRequests,
    /// PCSI: a site forgets a session before an unknown attempt of it is refused.
    ForgetRequestsEarly,
    /// PCSI: no site asks another one for the updates of a third.
    WaitForOrigin,
    /// PCSI: a site that has restarted does not know what others have acknowledged.
    ForgetAcknowledgements,
    /// PCSI: a resolver does not look whether a transaction has seen the deletes of keys without versions.
    ForgetTombstones,
    /// PCSI: a site does not hold another one's update for sites that lack it.
    ReleaseEarly,
    /// PCSI: a site forgets an outcome when one of its resolvers has it.
    SettleEarly,
    /// PCSI: a site sends an update no more when one other site has it.
    DropAtFirstAcknowledgement,
    /// PCSI: a site removes a deleted key that an open snapshot has.
    BuryUnderSnapshots,
    /// PCSI: a client is told of its commit before as many sites have the update as it asks for.
    TellUnwitnessed,
    /// PCSI: a site that has one partition of an update counts as a witness of the others, too.
    CountOtherPartitions,
    /// PCSI: a fenced site still counts as a witness.
    CountFencedWitnesses,
    /// PCSI: a site that restarts does not know which of its updates too few sites have.
    ForgetUnwitnessed,
    /// Two-phase commit, hierarchical validation, PCSI: a participant unlocks when it has voted.
    UnlockAtVote,
    /// Two-phase commit, hierarchical validation, PCSI: a participant that recovers does not know its yes
    /// votes.
    ForgetPrepared,
    /// PCSI: the state of a remote partition need not have what the snapshot depends on.
    SkipFloor,
    /// PCSI: the state of a remote partition may depend on what the snapshot lacks.
    SkipCeilings,
    /// PCSI: a site forgets what its transactions have read and written in remote partitions.
    ForgetFollowed,
    /// PCSI: a site grants the number of a transaction that is under way to another one, too.
    ReuseGranted,
    /// PCSI: a granter fills a number before it knows what became of the transaction.
    NullEarly,
    /// PCSI: a granter leaves the numbers of transactions that never commit.
    KeepVoid,
    /// PCSI: a fence says nothing of the granted numbers that are lost.
    ForgetLostGrants,
    /// PCSI: a fence makes granted numbers void that updates have.
    VoidRemaining,
    /// PCSI: what a site writes elsewhere raises the floors of transactions that are open.
    MoveFloor,
    /// Two-phase commit, hierarchical validation: a site tells of a decision before it is agreed on.
    TellBeforeDecided,
    /// Two-phase commit, hierarchical validation: a participant that hears nothing aborts alone.
    AbortAlone,
    /// Two-phase commit, hierarchical validation, PCSI: a commit is not remembered until all have finished
    /// it.
    ForgetDecision,
    /// Two-phase commit: a partition takes no note of when a version was read.
    ForgetReadTimes,
    /// Two-phase commit: a reader does not look whether its version was written before its timestamp.
    ReadAboveTimestamp,
    /// Two-phase commit: a reader does not mind prepared writes.
    IgnorePreparedWrites,
    /// Two-phase commit: a decision keeps to the range of one vote only.
    IgnoreVoteRange,
    /// Two-phase commit: the home does not look when a session's last transaction committed.
    ForgetSessionOrder,
    /// Deferred update replication certifies the keys only that a transaction writes.
    CertifyOverwritesOnly,
    /// Deferred update replication does not ask its group how far it is, where a transaction only reads.
    ReadWithoutAsking,
    /// Deferred update replication reads what is newest, whatever the snapshot.
    ReadBeyondSnapshot,
}

impl Mutant {
    /// Those of the confirmation protocol.
    pub const OF_SIBLINGS: [Mutant; 13] = [
        Mutant::ForgetRaised,
        Mutant::ForgetCascade,
        Mutant::AnchorOnlyFirst,
        Mutant::AnchorTooEarly,
        Mutant::CommitUnsettled,
        Mutant::RaiseOnStartOver,
        Mutant::VoidDependencies,
        Mutant::BelieveAnyExecution,
        Mutant::BelieveAnyNumber,
        Mutant::BelieveAnyValue,
        Mutant::KeepOldValues,
        Mutant::DropLaterNumbers,
        Mutant::MixEras,
    ];
    /// Those that only a cluster can have.
    pub const OF_CLUSTERS: [Mutant; 25] = [
        Mutant::ForgetVote,
        Mutant::PromiseBeforeSync,
        Mutant::ProposeTwice,
        Mutant::ReadWithoutIndex,
        Mutant::IgnoreRetraction,
        Mutant::ReadAheadOfIndex,
        Mutant::ForgetUnconfirmedStreams,
        Mutant::AcceptGap,
        Mutant::TakeOldBoot,
        Mutant::ConfirmWhenOneAgrees,
        Mutant::RetractOnePartition,
        Mutant::EpochTimeGoesBack,
        Mutant::StampWallClock,
        Mutant::SkipEverySecond,
        Mutant::FeedWithoutRewind,
        Mutant::FeedOutOfTurn,
        Mutant::FeedAgreedAhead,
        Mutant::FeedByOwnMap,
        Mutant::CutLogsAlone,
        Mutant::ForgetLostDisk,
        Mutant::RankByFootprint,
        Mutant::KeepFromTwins,
        Mutant::ExecuteMisrouted,
        Mutant::ReadWithoutSlots,
        Mutant::StayOut,
    ];
    /// Those of MiMoX.
    pub const OF_MIMOX: [Mutant; 3] =
        [Mutant::PromiseBeforeHeld, Mutant::AgreedBeforeTold, Mutant::TakeAheadForLogged];
    /// Those that a site can have whatever its certified protocol.
    pub const OF_SITES: [Mutant; 3] =
        [Mutant::ForgetVote, Mutant::PromiseBeforeSync, Mutant::ReadWithoutIndex];
    /// Those that any certified protocol can have.
    pub const OF_CERTIFIERS: [Mutant; 6] = [
        Mutant::CertifyNothing,
        Mutant::CertifyTwice,
        Mutant::MistakeAttempts,
        Mutant::ForgetSessions,
        Mutant::EndUnordered,
        Mutant::TakeForgottenForNew,
    ];
    /// Those of deferred update replication alone.
    pub const OF_DUR: [Mutant; 6] = [
        Mutant::CertifyOverwritesOnly,
        Mutant::ReadWithoutAsking,
        Mutant::ReadBeyondSnapshot,
        Mutant::MissPhantoms,
        Mutant::OverlookDeletes,
        Mutant::CollectOpenSnapshots,
    ];
    /// Those of two-phase commit and of hierarchical validation.
    pub const OF_TWO_PHASE: [Mutant; 5] = [
        Mutant::UnlockAtVote,
        Mutant::ForgetPrepared,
        Mutant::TellBeforeDecided,
        Mutant::AbortAlone,
        Mutant::ForgetDecision,
    ];
    /// Those of hierarchical validation alone.
    pub const OF_HIERARCHY: [Mutant; 9] = [
        Mutant::ReuseTimestamp,
        Mutant::ReadBesideTentative,
        Mutant::WriteBesideTentative,
        Mutant::SkipClockPush,
        Mutant::SkipReadBump,
        Mutant::SkipSecondCheck,
        Mutant::ReadTentative,
        Mutant::PassTentative,
        Mutant::VoteForTwoAttempts,
    ];
    /// Those of PCSI that whole worlds find. Tests of their own find `SkipNumberCheck`, `SettleEarly`,
    /// `AdvanceViewEarly`, `BuryUnderSnapshots`, `ForgetDecision`, `CountFencedWitnesses` and
    /// `ForgetUnwitnessed`, which worlds meet too rarely.
    pub const OF_PCSI: [Mutant; 19] = [
        Mutant::TellUnwitnessed,
        Mutant::CountOtherPartitions,
        Mutant::ReuseLostNumbers,
        Mutant::HearFenced,
        Mutant::FenceAlone,
        Mutant::ForgetRequests,
        Mutant::ForgetRequestsEarly,
        Mutant::WaitForOrigin,
        Mutant::ReleaseEarly,
        Mutant::DropAtFirstAcknowledgement,
        Mutant::ForgetAcknowledgements,
        Mutant::ForgetTombstones,
        Mutant::ReuseSequence,
        Mutant::DropDependencies,
        Mutant::SkipDependencyCheck,
        Mutant::ApplyOnePartition,
        Mutant::SkipConflictCheck,
        Mutant::UnlockAtVote,
        Mutant::ForgetPrepared,
    ];
    /// Those of PCSI where transactions use partitions of other sites.
    pub const OF_REMOTE_PCSI: [Mutant; 6] = [
        Mutant::ReuseGranted,
        Mutant::NullEarly,
        Mutant::KeepVoid,
        Mutant::SkipFloor,
        Mutant::SkipCeilings,
        Mutant::ForgetFollowed,
    ];
    /// Those of two-phase commit where transactions have timestamps.
    pub const OF_TIMESTAMPS: [Mutant; 5] = [
        Mutant::ForgetReadTimes,
        Mutant::ReadAboveTimestamp,
        Mutant::IgnorePreparedWrites,
        Mutant::IgnoreVoteRange,
        Mutant::ForgetSessionOrder,
    ];
    /// Those of a node on its own.
    pub const ALL: [Mutant; 23] = [
        Mutant::SkipSyncOfRotated,
        Mutant::ForgetSegmentLeftDuringSync,
        Mutant::SkipSyncOfNames,
        Mutant::RetryFailedSync,
        Mutant::ClaimBeforeSync,
        Mutant::AcceptTornRecord,
        Mutant::TrustWhatWasRead,
        Mutant::ReadOvertakesWrite,
        Mutant::CheckpointWithoutTombstones,
        Mutant::CheckpointWithoutClears,
        Mutant::CheckpointLaterThanSaid,
        Mutant::SkipSyncOfCheckpoint,
        Mutant::TruncateTooFar,
        Mutant::StaleSnapshot,
        Mutant::DecideExpiryAlone,
        Mutant::LocalClock,
        Mutant::LocalChance,
        Mutant::ShareWriteLocks,
        Mutant::ReleaseLocksEarly,
        Mutant::RunUnconfirmed,
        Mutant::SkipWatch,
        Mutant::ExpireUnasked,
        Mutant::UnorderedReply,
    ];
}

/// Whether the code that runs now is to have this defect.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is_active(_: Mutant) -> bool {
    false
}
/// What the clock of the machine shows on which this thread's procedures run, as far as a test told it.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn local_clock_ms() -> Option<u64> {
    None
}
/// Tells this thread what [`local_clock_ms`] is.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn set_local_clock_ms(_: u64) {}
/// A number that differs from call to call, as the order of a map with a random hash function does.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn whim() -> usize {
    0
}

#[cfg(feature = "mutants")]
pub use switch::{is_active, local_clock_ms, set_local_clock_ms, whim, with};

#[cfg(feature = "mutants")]
mod switch {
    use super::Mutant;
    use std::cell::Cell;

    thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
        static LOCAL_CLOCK_MS: Cell<Option<u64>> = const { Cell::new(None) };
        static WHIMS: Cell<usize> = const { Cell::new(0) };
    }

    /// Puts back what was active before, also when a panic passes.
    struct Restore(Option<Mutant>);

    impl Drop for Restore {
        fn drop(&mut self) {
            ACTIVE.set(self.0);
        }
    }

    /// Runs `work` with a defect, on this thread only.
    pub fn with<R>(mutant: Mutant, work: impl FnOnce() -> R) -> R {
        let _restore = Restore(ACTIVE.replace(Some(mutant)));
        WHIMS.set(0);
        LOCAL_CLOCK_MS.set(None);
        work()
    }

    /// Whether the code that runs now is to have this defect.
    #[inline]
    pub fn is_active(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }

    /// What the clock of the machine shows on which this thread's procedures run, as far as a test told it.
    pub fn local_clock_ms() -> Option<u64> {
        LOCAL_CLOCK_MS.get()
    }

    /// Tells this thread what [`local_clock_ms`] is.
    pub fn set_local_clock_ms(now_ms: u64) {
        LOCAL_CLOCK_MS.set(Some(now_ms));
    }

    /// A number that differs from call to call, as the order of a map with a random hash function does.
    pub fn whim() -> usize {
        WHIMS.set(WHIMS.get() + 1);
        WHIMS.get()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_defect_ends_with_its_test_even_if_that_panics() {
            let skips = || is_active(Mutant::SkipWatch);
            assert!(!skips());
            with(Mutant::SkipWatch, || {
                assert!(skips() && !is_active(Mutant::LocalClock));
                with(Mutant::LocalClock, || assert!(!skips()));
                assert!(skips());
            });
            let panicked = std::panic::catch_unwind(|| with(Mutant::SkipWatch, || panic!("found")));
            assert!(panicked.is_err() && !skips());
        }
    }
}
