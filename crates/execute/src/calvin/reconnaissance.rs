//! Finding a transaction's keys by a dry run.

use crate::engine::Engine;
use crate::running;
use std::any::Any;
use std::sync::Arc;
use std::task::Poll;
use store::{Snapshot, View};
use txn::hash::SecretMap;
use txn::tx::Read;
use txn::{
    Access, Entry, Footprint, Intent, Key, KeySets, PartitionId, Partitions, Position, Request, ScanPage,
    ScanRange, Slots, Space, Stop, Tx, TxContext,
};

/// What a dry run found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The request's footprint with the keys that it touched, in the order in which it did. Without key sets
    /// if it scanned, counted or cleared: then it needs the whole partition, and all of them.
    pub footprint: Footprint,
    /// The partitions of these keys; those that the request named if there are none.
    pub partitions: Partitions,
}

/// Runs a request at the newest final snapshots of all partitions (`engines`, by their numbers), throws away
/// what it writes, and names the keys that it touched.
///
/// The snapshots of different partitions are of no common moment. What is found may be outdated anyway when
/// the transaction's turn comes, or was never true; the engines notice.
pub fn reconnoitre(engines: &[Arc<dyn Engine>], request: &Arc<Request>, now_ms: u64) -> Found {
    let first = request.route.partitions.first().copied();
    let first = first.unwrap_or_default();
    let mut scout = Box::new(Scout {
        engines: engines.to_vec(),
        first,
        slots: match usize::from(request.route.of()) == engines.len() {
            true => request.route.slots.clone(),
            // It was not routed yet.
            false => Slots::even(engines.len() as u16),
        },
        snapshots: engines.iter().map(|_| None).collect(),
        touched: Vec::new(),
        places: SecretMap::default(),
        writes: SecretMap::default(),
        everything: false,
    });
    let at = scout.at(usize::from(first.0), |_, at| (at.position, at.time_ms));
    let (position, time_ms) = at.unwrap_or_default();
    // As if it stood right behind the first partition's snapshot.
    let context = TxContext::of(request, position.next(), now_ms.max(time_ms));
    // Where it will run is what this finds out.
    if let Ok(mut future) = running::start_as(Tx::new(context), request) {
        scout = running::poll(scout, &mut future).0;
    } else {
        scout.everything = true;
    }
    scout.end(request)
}

struct Scout {
    engines: Vec<Arc<dyn Engine>>,
    /// The first partition of the request.
    first: PartitionId,
    /// Whose the slots are.
    slots: Slots,
    /// Opened when a partition is first looked at, and until the run has ended.
    snapshots: Vec<Option<Snapshot>>,
    /// Keys in the order of their first use, with whether they are written.
    touched: Vec<(Key, bool)>,
    places: SecretMap<Key, usize>,
    writes: SecretMap<Key, Option<Entry>>,
    everything: bool,
}

impl Scout {
    fn touch(&mut self, key: &Key, written: bool) {
        let place = *self.places.entry(key.clone()).or_insert(self.touched.len());
        match self.touched.get_mut(place) {
            Some(touched) => touched.1 |= written,
            None => self.touched.push((key.clone(), written)),
        }
    }
    /// The partition that reads a key: of the system's space, which all have, the first one.
    fn partition_of(&self, key: &Key) -> PartitionId {
        match self.engines.len() {
            0 | 1 => PartitionId(0),
            _ if key.space() == Space::System => self.first,
            _ => self.slots.partition_of_key(key),
        }
    }
    fn at<R>(&mut self, partition: usize, look: impl FnOnce(&dyn View, &Snapshot) -> R) -> Result<R, Stop> {
        let (Some(engine), Some(snapshot)) = (self.engines.get(partition), self.snapshots.get_mut(partition))
        else {
            return Err(Stop::Restart);
        };
        let view = engine.view();
        Ok(look(view, snapshot.get_or_insert_with(|| view.open())))
    }
    /// The keys don't matter any more.
    fn give_up<T>(&mut self) -> Poll<Result<T, Stop>> {
        self.everything = true;
        Poll::Ready(Err(Stop::Restart))
    }

    fn end(self, request: &Request) -> Found {
        let mut footprint = request.footprint.clone();
        footprint.keys = None;
        let mut partitions = request.route.partitions.clone();
        if self.everything {
            partitions = (0..self.engines.len() as u16).map(PartitionId).collect();
        } else {
            let touched = self.touched.iter();
            let touched = touched.filter(|(key, _)| key.space() == Space::User);
            let mut found: Partitions = touched.map(|(key, _)| self.partition_of(key)).collect();
            found.sort_unstable();
            found.dedup();
            if !found.is_empty() {
                partitions = found;
            }
        }
        for (engine, snapshot) in self.engines.iter().zip(self.snapshots) {
            if let Some(snapshot) = snapshot {
                engine.view().close(snapshot);
            }
        }
        if !self.everything {
            let mut sets = KeySets::default();
            for (key, written) in self.touched {
                if written { sets.writes.push(key) } else { sets.reads.push(key) }
            }
            footprint.keys = Some(Arc::new(sets));
        }
        Found { footprint, partitions }
    }
}

impl Access for Scout {
    fn read(&mut self, key: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
        self.touch(key, false);
        if let Some(entry) = self.writes.get(key) {
            return Poll::Ready(Ok(Read { entry: entry.clone(), version: Position::NONE }));
        }
        let partition = usize::from(self.partition_of(key).0);
        Poll::Ready(self.at(partition, |view, snapshot| view.read_at(snapshot, key)))
    }
    fn admit_write(&mut self, _: &Key) -> Poll<Result<(), Stop>> {
        Poll::Ready(Ok(()))
    }
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        self.touch(key, true);
        self.writes.insert(key.clone(), entry);
        Ok(())
    }
    fn scan(&mut self, _: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        self.give_up()
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        self.give_up()
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        self.give_up()
    }
    fn doomed(&self) -> bool {
        self.everything
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
