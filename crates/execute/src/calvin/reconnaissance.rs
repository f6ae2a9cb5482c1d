//! Finding a transaction's keys by a dry run.

use crate::engine::Engine;
use crate::running;
use std::any::Any;
use std::sync::Arc;
use std::task::Poll;
use store::{Snapshot, View};
use txn::hash::FixedMap;
use txn::tx::Read;
use txn::{
    Access, Entry, Footprint, Intent, Key, KeySets, Position, Request, ScanPage, ScanRange, Stop,
    TxContext,
};

/// Runs a request at the newest final snapshot, throws away what it writes, and names the keys that it touched, in the order
/// in which it did. A request that scanned, counted or cleared gets no key sets: it needs the whole partition.
///
/// What is found may be outdated when the transaction's turn comes; the engine notices.
pub fn reconnoitre(engine: &Arc<dyn Engine>, request: &Arc<Request>, now_ms: u64) -> Footprint {
    let view = engine.view();
    let snapshot = view.open();
    // As if it stood right behind the snapshot.
    let context = TxContext::of(
        request,
        snapshot.position.next(),
        now_ms.max(snapshot.time_ms),
    );
    let mut footprint = request.footprint.clone();
    footprint.keys = None;
    let Ok(mut future) = running::start(request, context) else {
        view.close(snapshot);
        return footprint;
    };
    let scout = Scout {
        engine: engine.clone(),
        snapshot: Some(snapshot),
        touched: Vec::new(),
        places: FixedMap::default(),
        writes: FixedMap::default(),
        everything: false,
    };
    let (mut scout, _) = running::poll(Box::new(scout), &mut future);
    if let Some(snapshot) = scout.snapshot.take() {
        view.close(snapshot);
    }
    if !scout.everything {
        let mut sets = KeySets::default();
        for (key, written) in scout.touched {
            if written {
                sets.writes.push(key)
            } else {
                sets.reads.push(key)
            }
        }
        footprint.keys = Some(Arc::new(sets));
    }
    footprint
}

struct Scout {
    engine: Arc<dyn Engine>,
    /// Open until the run has ended.
    snapshot: Option<Snapshot>,
    /// Keys in the order of their first use, with whether they are written.
    touched: Vec<(Key, bool)>,
    places: FixedMap<Key, usize>,
    writes: FixedMap<Key, Option<Entry>>,
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
    fn at<R>(&self, look: impl FnOnce(&dyn View, &Snapshot) -> R) -> Result<R, Stop> {
        self.snapshot
            .as_ref()
            .map(|snapshot| look(self.engine.view(), snapshot))
            .ok_or(Stop::Restart)
    }
    /// The keys don't matter any more.
    fn give_up<T>(&mut self) -> Poll<Result<T, Stop>> {
        self.everything = true;
        Poll::Ready(Err(Stop::Restart))
    }
}

impl Access for Scout {
    fn read(&mut self, key: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
        self.touch(key, false);
        if let Some(entry) = self.writes.get(key) {
            return Poll::Ready(Ok(Read {
                entry: entry.clone(),
                version: Position::NONE,
            }));
        }
        Poll::Ready(self.at(|view, snapshot| view.read_at(snapshot, key)))
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
