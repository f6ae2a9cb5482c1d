//! A site of the model: its protocol, its thread, and its clients.

use super::load::{Generator, Places, Transaction};
use super::{Price, SitesOptions, TICK_NS};
use crate::draw::Draw;
use certify::pcsi::{Message, Pcsi, Record, SiteEffects, SiteMap, SiteOptions, Update, describe};
use certify::{Answer, Conflict, WriteSet, session_opened};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use txn::hash::{FixedMap, mix};
use txn::{Key, NodeId, PartitionId, Position, RequestId};

/// One of so many updates has its vectors measured.
const SAMPLED: u64 = 16;
/// Bounds that no run reaches: what a full site does is not the subject here.
const MANY: usize = 1 << 24;

/// A letter on its way. The receiver decodes its bytes, and goes on with the sender's values: so the model
/// keeps each value once.
pub(super) struct Letter {
    pub from: NodeId,
    pub to: NodeId,
    pub bytes: Vec<u8>,
    letter: certify::pcsi::Letter,
}

/// What a site's thread does in a step.
pub(super) enum Work {
    Tick,
    /// A client's next transaction.
    Call(u16),
    /// A client has heard what a key of a remote partition has.
    GoOn(u16),
    Letter(Box<Letter>),
}

/// A client's transaction.
struct Call {
    id: RequestId,
    issued_ns: u64,
    is_remote: bool,
    /// The keys of remote partitions that it has yet to look at.
    remote: Vec<Key>,
    /// The keys of this site that it reads, and what it writes, until it asks to commit.
    reads: Vec<Key>,
    writes: WriteSet,
    /// When other sites were asked for their votes.
    asked_ns: Option<u64>,
    keys: Vec<Key>,
}

/// What a client does next.
pub(super) enum Next {
    /// Its next transaction.
    Call,
    /// The same when its site may have room.
    Wait,
    /// The next step of its transaction.
    GoOn,
}

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Of committed transactions.
    pub responses_ns: Vec<u64>,
    pub committed_remote: u64,
    pub aborted: BTreeMap<&'static str, u64>,
    pub aborted_remote: u64,
    pub full: u64,
    pub votes: u64,
    pub votes_ns: u64,
    pub applied: u64,
    pub update_delays_ns: u64,
    pub busy_ns: BTreeMap<&'static str, u64>,
    pub letters: u64,
    pub bytes: u64,
    pub log_bytes: u64,
    pub sampled: u64,
    pub update_bytes: u64,
    pub vector_bytes: u64,
}

impl Counts {
    pub fn add(&mut self, mut other: Counts) {
        self.responses_ns.append(&mut other.responses_ns);
        other.aborted.into_iter().for_each(|(cause, count)| *self.aborted.entry(cause).or_default() += count);
        other.busy_ns.into_iter().for_each(|(step, ns)| *self.busy_ns.entry(step).or_default() += ns);
        self.committed_remote += other.committed_remote;
        self.aborted_remote += other.aborted_remote;
        self.full += other.full;
        self.votes += other.votes;
        self.votes_ns += other.votes_ns;
        self.applied += other.applied;
        self.update_delays_ns += other.update_delays_ns;
        self.letters += other.letters;
        self.bytes += other.bytes;
        self.log_bytes += other.log_bytes;
        self.sampled += other.sampled;
        self.update_bytes += other.update_bytes;
        self.vector_bytes += other.vector_bytes;
    }
}

/// What a step has made, until it ends.
#[derive(Default)]
struct Made {
    effects: SiteEffects,
    letters: Vec<Letter>,
    log_bytes: u64,
}

pub(super) struct Site {
    me: NodeId,
    site: Pcsi,
    map: Arc<SiteMap>,
    price: Price,
    generator: Generator,
    inbox: VecDeque<Work>,
    /// Clients without a transaction.
    free: Vec<u16>,
    /// The step under way.
    step: Option<Made>,
    /// By client.
    calls: Vec<Option<Call>>,
    sequence: u64,
    /// When updates arrived that are not applied yet, by origin and number.
    arrived_ns: FixedMap<(NodeId, u64), u64>,
    counts: Counts,
    committed: u64,
    /// The keys of committed transactions, of a judged run.
    pub written: Vec<Key>,
    keeps_keys: bool,
}

impl Site {
    pub fn new(options: &SitesOptions, me: NodeId, map: Arc<SiteMap>, places: Arc<Places>) -> Site {
        let propagation_ticks = options.period_ns.div_ceil(TICK_NS);
        let protocol = SiteOptions {
            me,
            sites: Arc::clone(&map),
            propagation_ticks,
            vote_ticks_max: 20 * propagation_ticks,
            open_ticks_max: 20 * propagation_ticks,
            open_max: 2 * usize::from(options.clients),
            window: MANY as u64,
            retained_max: MANY,
            retained_bytes_max: usize::MAX,
            silent_ticks_max: 40 * propagation_ticks,
            session_horizon: u64::MAX >> 1,
            sites_to_write_min: 1,
            regions_to_write_min: 1,
            sites_ticks_max: 20 * propagation_ticks,
        };
        let mut effects = SiteEffects::default();
        let site = Pcsi::start(protocol, [Record::Founded], u64::from(me.0), &mut effects);
        let draw = Draw::new(mix(options.seed ^ u64::from(me.0) << 32));
        Site {
            me,
            site,
            map,
            price: options.price,
            generator: Generator::new(places, options.load, me, draw),
            inbox: VecDeque::new(),
            free: Vec::new(),
            step: None,
            calls: (0..options.clients).map(|_| None).collect(),
            sequence: 0,
            arrived_ns: FixedMap::default(),
            counts: Counts::default(),
            committed: 0,
            written: Vec::new(),
            keeps_keys: options.judged,
        }
    }

    pub fn site(&self) -> &Pcsi {
        &self.site
    }

    pub fn partition_of(&self, key: &Key) -> PartitionId {
        self.map.partition_of(key)
    }

    /// The updates that have arrived and are not applied.
    pub fn waiting(&self) -> usize {
        self.arrived_ns.len()
    }

    pub fn is_idle(&self) -> bool {
        self.site.is_idle() && self.step.is_none() && self.inbox.is_empty()
    }

    /// Lets ticks pass before the run begins.
    pub fn skip_ticks(&mut self, ticks: u64) {
        let mut effects = SiteEffects::default();
        (0..ticks).for_each(|_| self.site.tick(&mut effects));
    }

    /// No client begins another transaction.
    pub fn stop_clients(&mut self) {
        self.free.clear();
    }

    /// The measured time begins.
    pub fn begin_to_count(&mut self) {
        self.counts = Counts::default();
    }

    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// The thread will do this behind all that waits, and is at the end of a step now.
    pub fn put(&mut self, work: Work) {
        self.inbox.push_back(work);
    }

    /// The thread has something more to do. Returns when its step ends, if it begins one.
    pub fn give(&mut self, work: Work, now_ns: u64) -> Option<u64> {
        match work {
            Work::Call(client) => self.free.push(client),
            work => self.inbox.push_back(work),
        }
        if self.step.is_some() { None } else { self.go_on(now_ns) }
    }

    /// The thread does the next thing. Returns when that ends.
    pub fn go_on(&mut self, now_ns: u64) -> Option<u64> {
        let work = self.inbox.pop_front().or_else(|| self.free.pop().map(Work::Call))?;
        let (kind, took_ns) = match work {
            Work::Tick => ("tick", self.charged(|site, effects| site.tick(effects))),
            Work::Call(client) => ("transaction", self.call(client, now_ns)),
            Work::GoOn(client) => ("transaction", self.go_on_with(client, false, now_ns)),
            Work::Letter(letter) => {
                let kind = describe(&letter.bytes).unwrap_or("?");
                (kind, self.receive(*letter, now_ns))
            }
        };
        *self.counts.busy_ns.entry(kind).or_default() += took_ns;
        Some(now_ns + took_ns)
    }

    /// Does a step, and encodes what it makes. Returns how long that takes.
    fn charged(&mut self, step: impl FnOnce(&mut Pcsi, &mut SiteEffects)) -> u64 {
        let mut made = Made::default();
        let begun_ns = match self.price {
            Price::Measured { clock, .. } => clock(),
            Price::Assumed(_) => 0,
        };
        step(&mut self.site, &mut made.effects);
        made.log_bytes = made.effects.records.iter().map(|record| record.encode().len() as u64).sum();
        let letters = std::mem::take(&mut made.effects.messages).into_iter();
        let from = self.me;
        made.letters =
            letters.map(|(to, letter)| Letter { from, to, bytes: letter.encode(), letter }).collect();
        let took_ns = match self.price {
            Price::Measured { clock, factor } => (clock().saturating_sub(begun_ns) as f64 * factor) as u64,
            Price::Assumed(each_ns) => {
                let SiteEffects { records, answers, .. } = &made.effects;
                each_ns * (1 + records.len() + made.letters.len() + answers.len()) as u64
            }
        };
        self.step = Some(made);
        took_ns.max(1)
    }

    /// A client's transaction begins.
    fn call(&mut self, client: u16, now_ns: u64) -> u64 {
        let Transaction { reads, writes, remote } = self.generator.next();
        self.sequence += 1;
        let session = session_opened(Position::NONE, client);
        let keys = match self.keeps_keys {
            true => writes.records.keys().cloned().collect(),
            false => Vec::new(),
        };
        self.calls[usize::from(client)] = Some(Call {
            id: RequestId { session, sequence: self.sequence, attempt: 0 },
            issued_ns: now_ns,
            is_remote: !remote.is_empty(),
            remote,
            reads,
            writes,
            asked_ns: None,
            keys,
        });
        self.go_on_with(client, true, now_ns)
    }

    /// A client's transaction goes on until it looks at a remote key, or asks to commit.
    fn go_on_with(&mut self, client: u16, begins: bool, now_ns: u64) -> u64 {
        let Some(call) = &mut self.calls[usize::from(client)] else { return 1 };
        let (id, remote) = (call.id, call.remote.pop());
        let (mut reads, mut writes) = (Vec::new(), WriteSet::default());
        if remote.is_none() {
            reads = std::mem::take(&mut call.reads);
            writes = std::mem::take(&mut call.writes);
        }
        let took_ns = self.charged(|site, effects| {
            if begins {
                site.begin(id, effects);
                let begun = effects.answers.pop();
                if !matches!(begun, Some((_, Answer::Begun))) {
                    return effects.answers.extend(begun);
                }
            }
            if let Some(key) = remote {
                return site.look_remote(id, key, effects);
            }
            for key in &reads {
                if let Err(answer) = site.look(id, key) {
                    return effects.answers.push((id, answer));
                }
            }
            site.commit(id, writes, effects);
        });
        let made = self.step.iter().flat_map(|made| &made.letters);
        let mut messages = made.map(|letter| &letter.letter.message);
        if messages.any(|message| matches!(message, Message::Prepare { .. }))
            && let Some(call) = &mut self.calls[usize::from(client)]
        {
            call.asked_ns = Some(now_ns + took_ns);
        }
        took_ns
    }

    fn receive(&mut self, letter: Letter, now_ns: u64) -> u64 {
        let Letter { from, bytes, letter, .. } = letter;
        if let Message::Updates { updates, .. } = &letter.message {
            for update in updates.iter().filter(|update| !self.site.has_applied(update)) {
                self.arrived_ns.entry((from, update.number)).or_insert(now_ns);
            }
        }
        let map = Arc::clone(&self.map);
        let took_ns = self.charged(|site, effects| {
            let decoded = certify::pcsi::Letter::decode(&bytes, &map);
            debug_assert!(decoded.as_ref() == Some(&letter), "a letter has other bytes");
            std::hint::black_box(&decoded);
            site.receive(from, letter, effects);
        });
        let records = self.step.iter().flat_map(|made| &made.effects.records);
        for record in records {
            let Record::Applied { update } = record else { continue };
            if let Some(arrived_ns) = self.arrived_ns.remove(&(update.name.origin, update.number)) {
                self.counts.applied += 1;
                self.counts.update_delays_ns += now_ns - arrived_ns;
            }
        }
        took_ns
    }

    /// The step ends. Returns what it sends, and what clients do next.
    pub fn take_done(&mut self, now_ns: u64) -> (Vec<Letter>, Vec<(u16, Next)>) {
        let Made { effects, letters, log_bytes } = self.step.take().unwrap_or_default();
        self.counts.log_bytes += log_bytes;
        self.counts.letters += letters.len() as u64;
        self.counts.bytes += letters.iter().map(|letter| letter.bytes.len() as u64).sum::<u64>();
        for record in &effects.records {
            if let Record::Committed { update, .. } = record {
                self.committed += 1;
                if self.committed.is_multiple_of(SAMPLED) {
                    self.sample(update);
                }
            }
        }
        let answered = effects.answers.into_iter().filter_map(|(id, answer)| {
            let client = id.session.0 as u16;
            if matches!(answer, Answer::Value(_)) {
                return Some((client, Next::GoOn));
            }
            let call = self.calls.get_mut(usize::from(client))?.take()?;
            Some((client, self.answered(call, &answer, now_ns)))
        });
        let answered: Vec<(u16, Next)> = answered.collect();
        (letters, answered)
    }

    /// A client's transaction ends.
    fn answered(&mut self, call: Call, answer: &Answer, now_ns: u64) -> Next {
        let cause = match answer {
            Answer::Committed => {
                self.counts.responses_ns.push(now_ns - call.issued_ns);
                self.counts.committed_remote += u64::from(call.is_remote);
                if let Some(asked_ns) = call.asked_ns {
                    self.counts.votes += 1;
                    self.counts.votes_ns += now_ns - asked_ns;
                }
                self.written.extend(call.keys);
                return Next::Call;
            }
            Answer::Unavailable => {
                self.counts.full += 1;
                return Next::Wait;
            }
            Answer::Conflict(Conflict::Key(_)) => "newer version",
            Answer::Conflict(Conflict::Locked { .. }) => "locked",
            Answer::Conflict(Conflict::Snapshot) => "no state fits the snapshot",
            _ => "other",
        };
        *self.counts.aborted.entry(cause).or_default() += 1;
        self.counts.aborted_remote += u64::from(call.is_remote);
        Next::Call
    }

    /// Counts the bytes of an update, and those of its vectors.
    fn sample(&mut self, update: &Arc<Update>) {
        let bytes = |update: Update| Record::Applied { update: Arc::new(update) }.encode().len() as u64;
        let whole = bytes((**update).clone());
        let (stamps, depends) = (BTreeMap::new(), BTreeMap::new());
        self.counts.sampled += 1;
        self.counts.update_bytes += whole;
        self.counts.vector_bytes += whole - bytes(Update { stamps, depends, ..(**update).clone() });
    }
}
