//! Compares what an engine did with what the specification says.

use crate::leak;
use crate::oracle::Oracle;
use crate::scenario::Scenario;
use execute::{Committed, Engine, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Image, Snapshot, View};
use txn::{Key, Position, ScanRange, Space};

/// What went wrong, in words.
pub type Fault = String;

/// Which transactions have final-committed, and whether each did so once, in time, and with the right
/// outcome.
#[derive(Debug, Default)]
pub struct Judge {
    committed: BTreeSet<Position>,
}

impl Judge {
    /// How many transactions have final-committed.
    pub fn committed(&self) -> usize {
        self.committed.len()
    }

    /// Judges a final commit.
    pub fn judge(&mut self, scenario: &Scenario, committed: &Committed) -> Result<(), Fault> {
        let position = committed.position;
        let Some(request) = scenario.final_request(position) else {
            return Err(format!(
                "{position:?} final-committed before it was confirmed: {:?}",
                committed.outcome
            ));
        };
        if !Arc::ptr_eq(request, &committed.request) {
            return Err(format!(
                "{position:?} final-committed {:?}, but the order has {request:?} there",
                committed.request
            ));
        }
        if !self.committed.insert(position) {
            return Err(format!("{position:?} final-committed twice"));
        }
        match scenario.oracle.expected(position) {
            Some(expected) if expected.admits(&committed.outcome) => Ok(()),
            expected => Err(format!(
                "{position:?} ended otherwise than in the serial execution\n  expected: \
                 {expected:?}\n  actual:   {:?}",
                committed.outcome
            )),
        }
    }
}

/// `final_committed <= confirmed <= delivered`, and the last two are what the order says.
pub fn check_status(status: Status, scenario: &Scenario) -> Result<(), Fault> {
    let right = status.final_committed <= status.confirmed
        && status.confirmed == scenario.confirmed()
        && status.delivered == scenario.delivered();
    if right {
        return Ok(());
    }
    Err(format!(
        "the engine's status is wrong: delivered is {:?}, confirmed {:?}, and it says {status:?}",
        scenario.delivered(),
        scenario.confirmed()
    ))
}

/// Compares a snapshot with the oracle's state at its position: each key, each listing, the count and the
/// time.
pub fn check_snapshot(view: &dyn View, snapshot: &Snapshot, oracle: &Oracle) -> Result<(), Fault> {
    let position = snapshot.position;
    if oracle.time_ms(position).is_some_and(|time_ms| time_ms > snapshot.time_ms) {
        return Err(format!(
            "a snapshot at {position:?} has time {}, before its position's",
            snapshot.time_ms
        ));
    }
    for key in oracle.keys().chain([&Key::from("never written"), &Key::system(b"never written")]) {
        let (expected, actual) = (oracle.read_at(key, position), view.read_at(snapshot, key));
        if expected != actual {
            return Err(format!(
                "at a snapshot of {position:?}, {key:?} is {actual:?} and must be {expected:?}"
            ));
        }
    }
    for space in [Space::User, Space::System] {
        let expected = oracle.list_at(space, position);
        let limit = 1 + position.0 as usize % 7;
        let mut listed = Vec::new();
        let mut range = ScanRange::of(space, 0, limit);
        loop {
            let page = view.scan_at(snapshot, range);
            listed.extend(page.entries);
            match page.next_hash {
                Some(next) if next > range.from_hash || range.from_hash == 0 => range.from_hash = next,
                Some(next) => {
                    return Err(format!(
                        "a scan at {position:?} goes from {:x} to {next:x}",
                        range.from_hash
                    ));
                }
                None => break,
            }
        }
        if expected != listed {
            return Err(format!(
                "at a snapshot of {position:?}, {space:?} lists {listed:?} and must list {expected:?}"
            ));
        }
        if space == Space::User && view.count_at(snapshot) != expected.len() as u64 {
            let actual = view.count_at(snapshot);
            return Err(format!(
                "at a snapshot of {position:?}, {actual} entries are counted and {} exist",
                expected.len()
            ));
        }
    }
    Ok(())
}

/// Copies a snapshot as a checkpoint does.
pub fn images(view: &dyn View, snapshot: &Snapshot, limit: usize) -> Vec<Image> {
    let mut images = Vec::new();
    let mut shard = Some(0);
    while let Some(from) = shard {
        // Chunks, as a checkpoint writer takes them.
        let mut chunk = Vec::new();
        shard = view.images_at(snapshot, from, limit, &mut chunk);
        images.append(&mut chunk);
    }
    images
}

/// Compares the images of a snapshot with the oracle's state there.
pub fn check_images(images: &[Image], position: Position, oracle: &Oracle) -> Result<(), Fault> {
    let mut seen = BTreeMap::new();
    for image in images {
        if seen.insert(&image.key, image).is_some() {
            return Err(format!("the checkpoint at {position:?} has {:?} twice", image.key));
        }
        let expected = oracle.read_at(&image.key, position);
        if (&expected.entry, expected.version) != (&image.entry, image.version) {
            return Err(format!("the checkpoint at {position:?} has {image:?}, and it must be {expected:?}"));
        }
    }
    for key in oracle.keys() {
        if oracle.read_at(key, position).entry.is_some() && !seen.contains_key(key) {
            return Err(format!("the checkpoint at {position:?} lacks {key:?}"));
        }
    }
    Ok(())
}

/// Everything that must hold once all is confirmed and committed: the state, that it survives a checkpoint,
/// and that nothing is left behind.
pub fn check_end(
    engine: &dyn Engine,
    fresh: &dyn Engine,
    scenario: &Scenario,
    judge: &Judge,
) -> Result<(), Fault> {
    let (view, oracle, end) = (engine.view(), &scenario.oracle, scenario.end());
    let status = engine.status();
    if judge.committed() as u64 != scenario.options.transactions || status.final_committed != end {
        return Err(format!(
            "{} of {} transactions are committed; {status:?}",
            judge.committed(),
            scenario.options.transactions
        ));
    }
    let snapshot = view.open();
    if snapshot.position != end {
        return Err(format!(
            "a snapshot opens at {:?} after all up to {end:?} is committed",
            snapshot.position
        ));
    }
    check_snapshot(view, &snapshot, oracle)?;
    let (digest, want) = (view.digests().note_at(end).digest(), oracle.digest_behind(scenario.options.start));
    if digest != Some(want) {
        return Err(format!("the state digest is {digest:x?} and must be {want:x}"));
    }

    let images = images(view, &snapshot, 1 + end.0 as usize % 50);
    check_images(&images, end, oracle)?;
    for image in images {
        fresh.view().load(image);
    }
    fresh.view().loaded(end, snapshot.time_ms, &view.clears_at(&snapshot));
    let reloaded = fresh.view().open();
    check_snapshot(fresh.view(), &reloaded, oracle).map_err(|fault| format!("after a reload: {fault}"))?;
    fresh.view().close(reloaded);
    view.close(snapshot);
    leak::check(engine, oracle, end, end)
}
