//! Drives one site of deferred update replication: threads that execute calls at snapshots and have them
//! certified.
//!
//! The site is alone in its group. A thread begins a transaction and executes it at the site's snapshot,
//! without a lock; it proposes what the transaction has read and written, and goes on with others. The group
//! decides a proposal after the run's lag, in the order of the proposals; without a lag at once. Who is about
//! to wait decides what is due, for all threads: certification is one after the other, as the order is.
//!
//! A conflict is the access's to repeat ([`certify::call`]), after its back-off in ticks of [`TICK`]; a call
//! whose attempts are used up begins anew. Each attempt that was thrown away counts as a restart.
//!
//! Invariant: a session has one transaction at a time, so each place for a transaction is a session.

use super::driver::{self, COLLECTED_AT_ONCE, Driven, Feeding, LOADED_AT_MS, LOOKS, REST, SAMPLED, Slice};
use crate::report::Latencies;
use anyhow::{Result, bail};
use bytes::Bytes;
use certify::call::ATTEMPTS;
use certify::dur::{Dur, GROUP, Horizons};
use certify::{Answer, CallEnd, CertifiedCall, Certifier, Effects, LocalSnapshot, OPEN_MAX, Wish};
use crossbeam_utils::Backoff;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Partition, View};
use txn::{Request, RequestId, SessionId};
use workloads::{Client, Generator, Tally, Workload};

/// A call's unit of waiting between two attempts.
const TICK: Duration = Duration::from_micros(50);
/// The protocol's unit of time: it proposes again what is not decided after twenty.
const SITE_TICK: Duration = Duration::from_millis(100);
/// Places of a worker, at most.
const PLACES_MAX: usize = 1 << 16;

/// A site with its callers.
pub(super) struct CertifiedDriver {
    core: Core,
    workers: Vec<Worker>,
}

/// What the workers share.
struct Core {
    view: Arc<Partition<()>>,
    site: Mutex<Site>,
    /// Answers for each worker.
    mail: Vec<Mutex<Vec<(RequestId, Answer)>>>,
    lag: Duration,
    started: Instant,
}

/// The site, and the group that it is alone in.
struct Site {
    dur: Dur,
    effects: Effects,
    /// Proposals, and when each is decided.
    undecided: VecDeque<(Instant, Bytes)>,
    next_tick: Instant,
}

/// A place for a transaction.
struct Place {
    call: Option<CertifiedCall>,
    /// When the call was drawn, if its latency is to be taken.
    drawn: Option<Instant>,
}

struct Worker {
    index: usize,
    generator: Box<dyn Generator>,
    places: Vec<Place>,
    /// Places without a call.
    free: Vec<usize>,
    /// Places whose call begins again, and when.
    again: BTreeSet<(Instant, usize)>,
    sequence: u64,
    /// Since the start.
    tally: Tally,
    restarts: u64,
    /// Calls that ended as none can here.
    strays: u64,
    /// Since the slice began.
    latencies: Latencies,
}

fn session(worker: usize, place: usize) -> SessionId {
    SessionId(((worker + 1) * PLACES_MAX + place) as u64)
}

fn worker_of(session: SessionId) -> usize {
    session.0 as usize / PLACES_MAX - 1
}

fn place_of(session: SessionId) -> usize {
    session.0 as usize % PLACES_MAX
}

impl CertifiedDriver {
    /// Creates the site and loads the workload's records.
    pub(super) fn load(
        workers: usize,
        workload: &dyn Workload,
        seed: u64,
        feeding: Feeding,
    ) -> Result<CertifiedDriver> {
        if feeding.rate.is_some() {
            bail!("--rate: dur begins a transaction when another one has ended, so leave the rate out");
        }
        if !feeding.reads_at_snapshots {
            bail!("--reads order: dur orders no read-only transactions; give --reads design or snapshot");
        }
        if feeding.run_ahead.div_ceil(workers).min(PLACES_MAX) * workers > OPEN_MAX {
            bail!(
                "--run-ahead {}: a site of dur has at most {OPEN_MAX} transactions open",
                feeding.run_ahead
            );
        }
        let view: Arc<Partition<()>> = Arc::new(Partition::new());
        driver::load(&*view, workload, seed);
        let places = feeding.run_ahead.div_ceil(workers).min(PLACES_MAX);
        let worker = |index| Worker {
            index,
            generator: workload.generator(seed, Client { index, count: workers }),
            places: (0..places).map(|_| Place { call: None, drawn: None }).collect(),
            free: (0..places).rev().collect(),
            again: BTreeSet::new(),
            sequence: 0,
            tally: Tally::default(),
            restarts: 0,
            strays: 0,
            latencies: Latencies::default(),
        };
        let started = Instant::now();
        let core = Core {
            site: Mutex::new(Site {
                // The places are the sessions, and as many as they are: none needs to be forgotten.
                dur: Dur::over(view.clone(), Horizons { session: u64::MAX, ..Horizons::default() }),
                effects: Effects::default(),
                undecided: VecDeque::new(),
                next_tick: started,
            }),
            view,
            mail: (0..workers).map(|_| Mutex::default()).collect(),
            lag: feeding.decisions.lag,
            started,
        };
        Ok(CertifiedDriver { core, workers: (0..workers).map(worker).collect() })
    }

    fn tally(&self) -> Tally {
        let mut total = Tally::default();
        self.workers.iter().for_each(|worker| total.merge(&worker.tally));
        total
    }

    fn restarts(&self) -> u64 {
        self.workers.iter().map(|worker| worker.restarts).sum()
    }
}

impl Driven for CertifiedDriver {
    fn slice(&mut self, duration: Duration) -> Slice {
        let (tally_before, restarts_before) = (self.tally(), self.restarts());
        self.workers.iter_mut().for_each(|worker| worker.latencies.reset());
        let started = Instant::now();
        let waited = driver::on_threads(&mut self.workers, |worker| {
            worker.run(&self.core, started + duration);
        });
        let elapsed = started.elapsed();
        let tally = self.tally();
        let mut slice = Slice {
            elapsed,
            waited,
            committed: tally.committed - tally_before.committed,
            aborted_by_logic: tally.aborted_by_logic - tally_before.aborted_by_logic,
            restarts: self.restarts() - restarts_before,
            latencies: Latencies::default(),
        };
        self.workers.iter().for_each(|worker| slice.latencies.merge(&worker.latencies));
        slice
    }

    fn check(&self, workload: &dyn Workload) -> Result<(), String> {
        match self.workers.iter().map(|worker| worker.strays).sum() {
            0_u64 => driver::check(&*self.core.view, workload, &self.tally()),
            strays => Err(format!("{strays} calls were told of another attempt's commit or of a full site")),
        }
    }

    fn census(&self) -> store::Census {
        self.core.view.census()
    }

    fn early_percent(&self) -> Option<f64> {
        None
    }
}

impl Site {
    /// Does what the protocol wants, for a group that decides after a while.
    fn carry_out(&mut self, lag: Duration) {
        loop {
            let questions = std::mem::take(&mut self.effects.questions);
            let proposals = std::mem::take(&mut self.effects.proposals);
            if questions.is_empty() && proposals.is_empty() {
                return;
            }
            for (_, id) in questions {
                // All that the group has agreed on was decided here.
                self.dur.reached(id, &mut self.effects);
            }
            for (_, entry) in proposals {
                match lag.is_zero() {
                    true => self.decide(&entry),
                    false => self.undecided.push_back((Instant::now() + lag, entry)),
                }
            }
        }
    }

    fn decide(&mut self, entry: &[u8]) {
        self.dur.decided(GROUP, entry, &mut self.effects).expect("the site knows its own entry");
    }
}

impl Core {
    /// Has the site do something; gives the answers that are for this worker.
    fn with_site<R>(
        &self,
        worker: usize,
        act: impl FnOnce(&mut Dur, &mut Effects) -> R,
    ) -> (R, Vec<(RequestId, Answer)>) {
        let mut site = self.site.lock();
        let Site { dur, effects, .. } = &mut *site;
        let result = act(dur, effects);
        site.carry_out(self.lag);
        let answers = std::mem::take(&mut site.effects.answers);
        drop(site);
        (result, self.deliver(worker, answers))
    }

    /// Puts answers where they belong; gives those of this worker.
    fn deliver(&self, worker: usize, answers: Vec<(RequestId, Answer)>) -> Vec<(RequestId, Answer)> {
        let (own, others): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|(id, _)| worker_of(id.session) == worker);
        for (id, answer) in others {
            self.mail[worker_of(id.session)].lock().push((id, answer));
        }
        own
    }

    /// Decides what is due, unless another worker is at it; gives the answers that are for this worker.
    fn decide(&self, worker: usize) -> Vec<(RequestId, Answer)> {
        let mut own = std::mem::take(&mut *self.mail[worker].lock());
        let Some(mut site) = self.site.try_lock() else {
            return own;
        };
        let now = Instant::now();
        while let Some((_, entry)) = site.undecided.pop_front_if(|(due, _)| *due <= now) {
            site.decide(&entry);
        }
        if now >= site.next_tick {
            site.next_tick = now + SITE_TICK;
            let Site { dur, effects, .. } = &mut *site;
            dur.tick(effects);
        }
        site.carry_out(self.lag);
        let answers = std::mem::take(&mut site.effects.answers);
        drop(site);
        own.extend(self.deliver(worker, answers));
        own
    }
}

impl Worker {
    fn run(&mut self, core: &Core, until: Instant) {
        let mut looks = 0;
        let backoff = Backoff::new();
        loop {
            let now = Instant::now();
            let mut has_worked = false;
            for (id, answer) in core.decide(self.index) {
                has_worked = true;
                self.answered(core, id, answer);
            }
            while let Some(&(at, place)) = self.again.first()
                && at <= now
            {
                has_worked = true;
                self.again.pop_first();
                self.begin(core, place);
            }
            if now < until {
                if let Some(place) = self.free.pop() {
                    has_worked = true;
                    self.draw(core, place);
                }
            } else if self.free.len() == self.places.len() {
                return;
            }
            if has_worked {
                looks = 0;
                backoff.reset();
                continue;
            }
            looks += 1;
            if looks < LOOKS {
                backoff.snooze();
            } else {
                core.view.collect(COLLECTED_AT_ONCE);
                std::thread::park_timeout(REST);
            }
        }
    }

    /// Begins another call.
    fn draw(&mut self, core: &Core, place: usize) {
        self.sequence += 1;
        let id = RequestId { session: session(self.index, place), sequence: self.sequence, attempt: 0 };
        let request = Arc::new(self.generator.next().into_request(id, false));
        let drawn = self.sequence.is_multiple_of(SAMPLED).then(Instant::now);
        let call = CertifiedCall::new(request, LOADED_AT_MS + core.started.elapsed().as_millis() as u64);
        self.places[place] = Place { call: Some(call), drawn };
        self.begin(core, place);
    }

    fn begin(&mut self, core: &Core, place: usize) {
        let Some(call) = &self.places[place].call else { return };
        let (id, is_read_only) = (call.id(), call.is_read_only());
        let (snapshot, answers) = core.with_site(self.index, |dur, effects| {
            dur.begin(id, is_read_only, effects);
            // The group answers before the call goes on.
            for (_, id) in std::mem::take(&mut effects.questions) {
                dur.reached(id, effects);
            }
            dur.snapshot_of(id)
        });
        for (id, answer) in answers {
            match answer {
                Answer::Begun => self.begun(core, place, snapshot.clone()),
                answer => self.answered(core, id, answer),
            }
        }
    }

    fn begun(&mut self, core: &Core, place: usize, snapshot: Option<Arc<dyn LocalSnapshot>>) {
        let Some(call) = &mut self.places[place].call else { return };
        let wish = call.begun(snapshot);
        self.grant(core, place, wish);
    }

    fn answered(&mut self, core: &Core, id: RequestId, answer: Answer) {
        let place = place_of(id.session);
        let Some(call) = self.places[place].call.as_mut().filter(|call| call.id() == id) else { return };
        self.restarts += u64::from(matches!(answer, Answer::Conflict(_)));
        let wish = call.answered(answer);
        self.grant(core, place, wish);
    }

    /// Does what a call wishes for.
    fn grant(&mut self, core: &Core, place: usize, wish: Wish) {
        let Some(call) = &self.places[place].call else { return };
        let id = call.id();
        let answers = match wish {
            Wish::Begin => return self.begin_after(place, 0),
            Wish::Wait { ticks } => return self.begin_after(place, ticks),
            Wish::Look(look) => core.with_site(self.index, |dur, effects| dur.look(id, &look, effects)).1,
            Wish::Commit(reads, writes) => {
                core.with_site(self.index, |dur, effects| dur.commit(id, reads, writes, effects)).1
            }
            Wish::End(end) => return self.ended(place, end),
        };
        for (id, answer) in answers {
            self.answered(core, id, answer);
        }
    }

    fn begin_after(&mut self, place: usize, ticks: u64) {
        self.again.insert((Instant::now() + TICK * ticks as u32, place));
    }

    fn ended(&mut self, place: usize, end: CallEnd) {
        let Place { call, drawn } = &mut self.places[place];
        let Some(ended) = call.take() else { return };
        match end {
            CallEnd::Done { outcome, .. } => self.tally.add(&outcome),
            CallEnd::Conflict(_) => {
                let mut request: Request = (**ended.request()).clone();
                request.id.attempt += ATTEMPTS;
                *call = Some(CertifiedCall::new(Arc::new(request), ended.now_ms()));
                return self.begin_after(place, 0);
            }
            CallEnd::CommittedBefore | CallEnd::Unknown | CallEnd::Unavailable => self.strays += 1,
        }
        if let Some(drawn) = drawn.take() {
            self.latencies.record(drawn.elapsed(), 1);
        }
        self.free.push(place);
    }
}
