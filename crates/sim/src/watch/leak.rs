//! Nothing is left behind: no version that nobody can see, no lock, no read dependency, no parked transaction.

use crate::judge::images;
use crate::oracle::Oracle;
use execute::Engine;
use std::collections::BTreeSet;
use txn::{Key, Position, Space};

/// Checks an engine that has final-committed everything up to `end`, and that nobody uses.
pub fn check(engine: &dyn Engine, oracle: &Oracle, end: Position) -> Result<(), String> {
    check_versions(engine, oracle, end)?;
    let (census, status, waiting) = (engine.view().census(), engine.status(), engine.waiting());
    // A record without a version is there because somebody holds it.
    if status.parked != 0
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

/// Checks that an engine has the versions that are needed at `end`, the last position, and no others. What was retracted
/// may have left read dependencies, which go when their positions are final.
pub fn check_versions(engine: &dyn Engine, oracle: &Oracle, end: Position) -> Result<(), String> {
    let view = engine.view();
    // A collection may leave to the next what it unlinked; it ends when nothing changes any more.
    let mut before = None;
    while before != Some(view.census()) {
        before = Some(view.census());
        view.collect(usize::MAX);
    }
    let census = view.census();
    let live = oracle.list_at(Space::User, end).len() as u64;
    let needed: BTreeSet<&Key> = oracle
        .keys()
        .filter(|key| oracle.is_remembered(key, end))
        .collect();
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
            "{live} entries are live and {kept} versions are needed, but the store has {census:?}; a checkpoint would lack \
             {missing:?} and have {needless:?} in vain"
        ));
    }
    Ok(())
}
