//! An order with its accidents: what is delivered, confirmed, retracted and delivered instead.

use crate::draw::Draw;
use crate::oracle::{Expected, Oracle};
use crate::program::{Programs, Shape, preloaded_entry};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::{Image, View};
use txn::{Batch, Epoch, Key, Position, Request};

/// Makes the requests of a scenario.
pub trait Source: Send {
    /// The next request. The same choices give the same request.
    fn request(&mut self, sequence: u64, draw: &mut Draw) -> Arc<Request>;
    /// A request that only reads.
    fn read_only(&mut self, sequence: u64, draw: &mut Draw) -> Arc<Request>;
    /// A request became final, and this is what it must answer: later requests may build on it.
    fn answered(&mut self, _request: &Request, _expected: &Expected) {}
    /// Keys that the requests touch: some of them are preloaded.
    fn keys(&self) -> Vec<Key>;
    /// What was drawn, for failure reports.
    fn describe(&self) -> String;
}

/// Random programs of one shape.
pub struct ProgramSource {
    shape: Shape,
    programs: Arc<Programs>,
}

impl ProgramSource {
    /// Programs of a drawn shape.
    pub fn draw(draw: &mut Draw) -> ProgramSource {
        ProgramSource::new(Shape::draw(draw))
    }
    /// Programs of this shape.
    pub fn new(shape: Shape) -> ProgramSource {
        ProgramSource { programs: Programs::new(shape.clone()), shape }
    }
}

impl Source for ProgramSource {
    fn request(&mut self, sequence: u64, draw: &mut Draw) -> Arc<Request> {
        self.programs.request(sequence, draw.bits())
    }
    fn read_only(&mut self, sequence: u64, draw: &mut Draw) -> Arc<Request> {
        self.programs.read_only_request(sequence, draw)
    }
    fn keys(&self) -> Vec<Key> {
        self.shape.keys()
    }
    fn describe(&self) -> String {
        format!("{:?}", self.shape)
    }
}

/// How an order behaves. Drawn per run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the order starts: the position that the store is loaded at.
    pub start: Position,
    /// How many transactions become final.
    pub transactions: u64,
    /// The largest batch.
    pub batch_max: u64,
    /// How many delivered transactions may be unconfirmed.
    pub unconfirmed_max: u64,
    /// How many events of the order are retractions.
    pub retract_percent: u32,
    /// How many confirmations and retractions fall inside a batch.
    pub inside_batch_percent: u32,
    /// How many batches are empty.
    pub empty_percent: u32,
    /// How much later each batch is than the one before, at most.
    pub time_step_ms_max: u64,
}

impl Options {
    /// Draws an order of `transactions` transactions.
    pub fn draw(draw: &mut Draw, transactions: u64) -> Options {
        Options {
            start: Position(draw.pick(&[0, 0, 0, 40, 65_500, 70_000])),
            transactions,
            batch_max: draw.pick(&[1, 3, 10, 40]),
            unconfirmed_max: draw.pick(&[1, 8, 30, 100]),
            retract_percent: draw.pick(&[0, 5, 20, 40]),
            inside_batch_percent: draw.pick(&[0, 20, 60]),
            empty_percent: draw.pick(&[0, 0, 5]),
            time_step_ms_max: draw.pick(&[0, 3, 30]),
        }
    }
}

/// The state of an order, with the oracle that follows its confirmed part.
///
/// `confirmed <= delivered`, and the oracle has run exactly what is confirmed.
pub struct Scenario {
    /// How it behaves.
    pub options: Options,
    /// The specification of what is confirmed.
    pub oracle: Oracle,
    source: Box<dyn Source>,
    draw: Draw,
    /// What is confirmed, by position.
    final_order: BTreeMap<Position, Arc<Request>>,
    /// Delivered and not confirmed, with the time of each request's epoch.
    pending: VecDeque<(u64, Arc<Request>)>,
    /// Ends of the delivered and unconfirmed batches, ascending.
    batch_ends: VecDeque<Position>,
    confirmed: Position,
    epoch: u64,
    sequence: u64,
}

impl Scenario {
    /// An order that nobody has seen anything of.
    pub fn new(options: Options, source: Box<dyn Source>, draw: Draw) -> Scenario {
        Scenario {
            oracle: Oracle::new(),
            source,
            draw,
            final_order: BTreeMap::new(),
            pending: VecDeque::new(),
            batch_ends: VecDeque::new(),
            confirmed: options.start,
            epoch: 0,
            sequence: 0,
            options,
        }
    }

    /// Loads the store, and the oracle, with what the transactions up to the start left: entries, tombstones
    /// (some of them beyond the horizon, or about to be) and perhaps a range tombstone. The state digest
    /// begins there.
    pub fn preload(&mut self, view: &dyn View) {
        let start = self.options.start;
        if start > Position::NONE {
            self.load(view, start);
        }
        view.digests().begin_at(start);
    }

    fn load(&mut self, view: &dyn View, start: Position) {
        let clear = Position(self.draw.below(start.0));
        let clears: Vec<Position> =
            if self.draw.percent(30) && clear > Position::NONE { vec![clear] } else { vec![] };
        let oldest = clears.first().map_or(1, |clear| clear.0);
        for (index, key) in self.source.keys().into_iter().enumerate() {
            if !self.draw.percent(60) {
                continue;
            }
            // Half of the versions are old enough that tombstones cross the horizon during the run.
            let newest = if self.draw.percent(50) { start.0 } else { (oldest + 60).min(start.0) };
            let version = Position(self.draw.between(oldest, newest));
            let entry = (!self.draw.percent(35)).then(|| preloaded_entry(index as u64, version));
            view.load(Image { key: key.clone(), version, entry: entry.clone() });
            self.oracle.load(key, version, entry);
        }
        let time_ms = 1_000;
        view.loaded(start, time_ms, &clears);
        self.oracle.loaded(start, time_ms, &clears);
    }

    /// The last delivered position.
    pub fn delivered(&self) -> Position {
        self.confirmed.advanced(self.pending.len() as u64)
    }
    /// The last confirmed position.
    pub fn confirmed(&self) -> Position {
        self.confirmed
    }
    /// The last position that the run is to reach.
    pub fn end(&self) -> Position {
        self.options.start.advanced(self.options.transactions)
    }
    /// Whether all is confirmed.
    pub fn is_complete(&self) -> bool {
        self.confirmed == self.end()
    }
    /// The request that is final at a position.
    pub fn final_request(&self, position: Position) -> Option<&Arc<Request>> {
        self.final_order.get(&position)
    }
    /// A request that only reads.
    pub fn read_only(&mut self) -> Arc<Request> {
        self.sequence += 1;
        self.source.read_only(self.sequence, &mut self.draw)
    }
    /// What was drawn.
    pub fn describe(&self) -> String {
        format!("{:?}, {}", self.options, self.source.describe())
    }

    /// The next batch, if the order may run further ahead.
    pub fn deliver(&mut self) -> Option<Batch> {
        let pending = self.pending.len() as u64;
        let room =
            self.options.unconfirmed_max.saturating_sub(pending).min(self.end().0 - self.delivered().0);
        if room == 0 {
            return None;
        }
        let count = if self.draw.percent(self.options.empty_percent) {
            0
        } else {
            self.draw.between(1, self.options.batch_max.min(room))
        };
        let previous_ms = self
            .pending
            .back()
            .map_or_else(|| self.oracle.time_ms(self.confirmed), |&(time_ms, _)| Some(time_ms));
        let time_ms = previous_ms.unwrap_or(1_000) + self.draw.below(self.options.time_step_ms_max + 1);
        let first = self.delivered().next();
        self.epoch += 1;
        let mut requests = Vec::new();
        for _ in 0..count {
            self.sequence += 1;
            let request = self.source.request(self.sequence, &mut self.draw);
            self.pending.push_back((time_ms, request.clone()));
            requests.push(request);
        }
        if count > 0 {
            self.batch_ends.push_back(self.delivered());
        }
        Some(Batch { epoch: Epoch(self.epoch), time_ms, first, requests, groups: Vec::new(), digest: 0 })
    }

    /// A position among the unconfirmed ones: mostly a batch's last, sometimes any.
    fn draw_position(&mut self) -> Option<Position> {
        if self.pending.is_empty() {
            return None;
        }
        if self.draw.percent(self.options.inside_batch_percent) {
            return Some(self.confirmed.advanced(self.draw.between(1, self.pending.len() as u64)));
        }
        let index = self.draw.below(self.batch_ends.len() as u64) as usize;
        Some(self.batch_ends[index])
    }

    /// Confirms some of what is delivered, and runs the oracle up to there.
    pub fn confirm(&mut self) -> Option<Position> {
        let upto = self.draw_position()?;
        self.confirm_upto(upto);
        Some(upto)
    }
    /// Confirms everything that is delivered.
    pub fn confirm_all(&mut self) -> Position {
        self.confirm_upto(self.delivered());
        self.confirmed
    }
    fn confirm_upto(&mut self, upto: Position) {
        while self.confirmed < upto {
            let Some((time_ms, request)) = self.pending.pop_front() else {
                break;
            };
            self.oracle.run(&request, time_ms);
            self.confirmed = self.confirmed.next();
            if let Some(expected) = self.oracle.expected(self.confirmed) {
                self.source.answered(&request, expected);
            }
            self.final_order.insert(self.confirmed, request);
        }
        while self.batch_ends.front().is_some_and(|&end| end <= self.confirmed) {
            self.batch_ends.pop_front();
        }
    }

    /// Retracts some of what is delivered and not confirmed: all from the returned position on is void.
    pub fn retract(&mut self) -> Option<Position> {
        // The end of a batch, and so the start of the next; or the first unconfirmed position.
        let last_kept = self.draw_position()?;
        let last_kept = if last_kept == self.delivered() { self.confirmed } else { last_kept };
        self.pending.truncate((last_kept.0 - self.confirmed.0) as usize);
        while self.batch_ends.back().is_some_and(|&end| end > last_kept) {
            self.batch_ends.pop_back();
        }
        if last_kept > self.confirmed && self.batch_ends.back() != Some(&last_kept) {
            self.batch_ends.push_back(last_kept);
        }
        Some(last_kept.next())
    }
}
