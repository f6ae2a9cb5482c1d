//! Nothing is left behind: no version that nobody can see, no lock, no read dependency, no parked
//! transaction.

use crate::judge::images;
use crate::oracle::Oracle;
use execute::{Budget, Committed, Engine, Progress, WorkerId};
use std::collections::BTreeSet;
use std::sync::Arc;
use txn::{
    Args, Batch, Call, Epoch, Footprint, Key, Position, Procedure, ProcedureFuture, Reply, Request,
    RequestId, SessionId, Space, Tx,
};

/// Checks an engine that has final-committed everything up to `end`, and that nobody uses, for the last time:
/// its order goes on by transactions that do nothing, up to `delivered`, the last position that the engine
/// ever had. What was retracted may have left read dependencies until its positions are final, but no longer.
pub fn check(engine: &dyn Engine, oracle: &Oracle, end: Position, delivered: Position) -> Result<(), String> {
    check_versions(engine, oracle, end)?;
    if delivered > end {
        pass(engine, end, delivered)?;
        collect_all(engine);
    }
    let (census, status, waiting) = (engine.view().census(), engine.status(), engine.waiting());
    // A record without a version is there because somebody holds it.
    if status.parked != 0
        || status.ready != 0
        || census.held != 0
        || census.records != census.versions
        || waiting != Default::default()
    {
        return Err(format!(
            "something is left behind after the last commit: {census:?}, {status:?}, {waiting:?}"
        ));
    }
    Ok(())
}

/// Checks that an engine has the versions that are needed at `end`, the last position, and no others. What
/// was retracted may have left read dependencies, which go when their positions are final.
pub fn check_versions(engine: &dyn Engine, oracle: &Oracle, end: Position) -> Result<(), String> {
    let view = engine.view();
    collect_all(engine);
    let census = view.census();
    let live = oracle.list_at(Space::User, end).len() as u64;
    let needed: BTreeSet<&Key> = oracle.keys().filter(|key| oracle.is_remembered(key, end)).collect();
    let kept = needed.len() as u64;
    if (census.live, census.versions) != (live, kept) {
        let snapshot = view.open();
        let images = images(view, &snapshot, usize::MAX);
        view.close(snapshot);
        let there: BTreeSet<&Key> = images.iter().map(|image| &image.key).collect();
        let told = |key: &&Key| format!("{key:?} {:?}", oracle.read_at(key, end));
        let missing: Vec<String> = needed.difference(&there).map(told).collect();
        let needless: Vec<String> = there.difference(&needed).map(told).collect();
        return Err(format!(
            "{live} entries are live and {kept} versions are needed, but the store has {census:?}; a \
             checkpoint would lack {missing:?} and have {needless:?} in vain"
        ));
    }
    Ok(())
}

/// A collection may leave to the next what it unlinked; it ends when nothing changes any more.
fn collect_all(engine: &dyn Engine) {
    let view = engine.view();
    let mut before = None;
    while before != Some(view.census()) {
        before = Some(view.census());
        view.collect(usize::MAX);
    }
}

/// Does nothing.
struct Nothing;

impl Procedure for Nothing {
    fn name(&self) -> &str {
        "sim.nothing"
    }
    fn footprint(&self, _: &Args) -> Footprint {
        Footprint::of_keys(Vec::new(), Vec::new())
    }
    fn run(&self, _: Tx, _: Call) -> ProcedureFuture {
        Box::pin(async { Ok(Reply::Nil) })
    }
}

/// Steps until nobody finds anything to do, at most so many times for each transaction.
const STEPS_MAX: u64 = 10_000;

/// Final-commits transactions that do nothing, at the positions behind `end` up to `delivered`.
fn pass(engine: &dyn Engine, end: Position, delivered: Position) -> Result<(), String> {
    let procedure: Arc<dyn Procedure> = Arc::new(Nothing);
    let requests: Vec<Arc<Request>> = (end.0 + 1..=delivered.0)
        .map(|sequence| {
            let id = RequestId { session: SessionId::INTERNAL, sequence, attempt: 0 };
            Arc::new(Request::new(id, procedure.clone(), Args::new()))
        })
        .collect();
    let steps_max = STEPS_MAX * requests.len() as u64;
    engine.deliver(Batch {
        epoch: Epoch(u64::MAX),
        time_ms: engine.view().final_time_ms(),
        first: end.next(),
        requests,
        groups: Vec::new(),
        digest: 0,
    });
    engine.confirm(delivered);
    settle(engine, &mut Vec::new(), steps_max);
    let status = engine.status();
    if status.final_committed != delivered {
        return Err(format!(
            "transactions that do nothing, from {end:?} to {delivered:?}, do not come to their end: \
             {status:?}"
        ));
    }
    Ok(())
}

/// Steps all workers of an engine that nobody else uses until none of them finds anything to do, or up to
/// `steps_max` times.
pub fn settle(engine: &dyn Engine, committed: &mut Vec<Committed>, steps_max: u64) {
    let mut steps = 0..steps_max;
    let mut worked = true;
    while std::mem::take(&mut worked) {
        for worker in (0..engine.workers()).map(WorkerId) {
            while steps.next().is_some() && engine.step(worker, Budget::ONE, committed) == Progress::Worked {
                worked = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use execute::Sparkle;
    use execute::sparkle::Options;
    use txn::FnProcedure;

    /// An engine whose only transaction has read and written, and was retracted.
    fn retracted(options: Options) -> Sparkle {
        let engine = Sparkle::new(options);
        let procedure = FnProcedure::new("read-and-write", |mut tx, _| async move {
            tx.get(&Key::from("read")).await?;
            tx.put(&Key::from("written"), "v").await?;
            Ok(Reply::Nil)
        });
        let id = RequestId { session: SessionId(1), sequence: 1, attempt: 0 };
        let nothing = Request::new(id, Arc::new(Nothing), Args::new());
        let request = Request::new(id, Arc::new(procedure), Args::new());
        engine.deliver(Batch {
            epoch: Epoch(1),
            time_ms: 1,
            first: Position::FIRST,
            // The head needs no read dependency.
            requests: vec![Arc::new(nothing), Arc::new(request)],
            groups: Vec::new(),
            digest: 0,
        });
        let mut committed: Vec<Committed> = Vec::new();
        let mut settle = || {
            while engine.step(WorkerId(0), Budget::ONE, &mut committed) == Progress::Worked {}
        };
        settle();
        engine.retract(Position::FIRST);
        settle();
        engine
    }

    #[test]
    fn read_dependencies_of_what_was_retracted_go_when_their_positions_are_final() {
        let (oracle, end, delivered) = (Oracle::new(), Position::NONE, Position(2));
        let engine = retracted(Options::new(1));
        check_versions(&engine, &oracle, end).unwrap();
        assert_eq!(engine.view().census().held, 1, "not yet");
        check(&engine, &oracle, end, delivered).unwrap();
        let engine = retracted(Options::new(1));
        assert!(check(&engine, &oracle, end, Position(1)).is_err());
    }

    #[test]
    fn versions_of_what_was_retracted_are_found() {
        let engine = retracted(Options {
            mutant: Some(execute::sparkle::Mutant::RetractKeepsVersions),
            ..Options::new(1)
        });
        let checked = check(&engine, &Oracle::new(), Position::NONE, Position(2));
        assert!(checked.is_err());
    }
}
