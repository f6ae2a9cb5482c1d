//! A host's process: a site, its log in a journal, and what waits for syncs.

use super::ledger::number;
use super::{Ask, DECIDED_LATE_TICKS_MAX, Frame, PcsiWorld, Tell, Timer};
use crate::keeper::Keeper;
use crate::world::{Address, Core, Input, Start, Violation};
use bytes::Bytes;
use certify::Answer;
use certify::pcsi::{FenceAnswer, Fencing, Letter, Message, Pcsi, Record, SiteEffects, SiteOptions};
use log::{Entry, EntryKind, Kept};
use node::host::{HostEvent, Recorded};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use txn::{NodeId, PartitionId, RequestId, SessionId};

/// Making a segment's file takes so many syncs' time.
const PREPARE_SYNCS: u64 = 3;
/// The operator forces fences that have had no majority for longer.
const STUCK_TICKS_MIN: u64 = 300;
/// The journal's only group.
const GROUP: PartitionId = PartitionId(0);

/// What leaves when the journal's records before it are durable.
enum Leaving {
    Letter(NodeId, Letter),
    Tell(u32, RequestId, Tell),
}

/// A running process.
pub(super) struct Process {
    site: Pcsi,
    keeper: Keeper,
    ticks: u64,
    /// For how long it has had fences to decide on, and no majority.
    stuck_ticks: u64,
    /// The records of the site's log.
    records: u64,
    /// The last record of the journal that is written, and the last one that is durable.
    written: u64,
    synced: u64,
    /// For each record of the journal that is not durable, the records of the site's log up to it.
    unsynced: VecDeque<(u64, u64)>,
    leaving: VecDeque<(u64, Leaving)>,
    /// Letters that are kept back, by the numbers of their timers.
    late: BTreeMap<u64, (NodeId, Bytes)>,
    /// The clients' numbers of sessions.
    sessions: BTreeMap<SessionId, u32>,
    /// It ends after this turn.
    has_failed: bool,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.site.waits_for() {
            Some(reason) => write!(f, "{reason}"),
            None => write!(f, "idle, {} effects wait for a sync", self.leaving.len()),
        }
    }
}

impl Process {
    pub fn start(
        system: &mut PcsiWorld,
        host: u16,
        core: &mut Core<PcsiWorld>,
    ) -> Result<Start<Process>, Violation> {
        let plan = &system.plan;
        let (mut keeper, images) = match Keeper::open(core, host, plan.segment_bytes) {
            Ok(opened) => opened,
            Err(_) if core.host(host).process_disk().is_dead() => return Ok(Start::Died),
            Err(error) => return Ok(Start::Refused(error.to_string())),
        };
        let entries = images.get(&GROUP).map(|image| &image.entries[..]).unwrap_or_default();
        let decode = |entry: &Entry| Record::decode(&entry.data, &plan.options.sites);
        let Some(mut records) = entries.iter().map(decode).collect::<Option<Vec<Record>>>() else {
            return Ok(Start::Refused("a record of the log is none".to_owned()));
        };
        system.ledger.recovered(host, &records)?;
        if records.is_empty() && !system.ledger.is_founded(host) {
            records.push(Record::Founded);
            // A write that fails, or during which the process dies, may be done nevertheless.
            system.ledger.written(host, &records);
            let kept = kept(0, &records);
            let is_founded = matches!(keeper.append(&[kept], 0), Recorded::Written { .. })
                && keeper.records.journal.sync().is_ok();
            if !is_founded {
                return Ok(match core.host(host).process_disk().is_dead() {
                    true => Start::Died,
                    false => Start::Refused("the first record cannot be written".to_owned()),
                });
            }
            keeper.records.count_from_here();
            system.ledger.synced(host, 1)?;
        }
        system.processes += 1;
        let options = SiteOptions { me: NodeId(host), ..plan.options.clone() };
        let mut effects = SiteEffects::default();
        let site = Pcsi::start(options, &records, system.processes, &mut effects);
        let first_tick_ns = 1 + core.draw.below(plan.tick_ns);
        core.set_timer(Address::Host(host), first_tick_ns, Timer::Tick);
        let mut process = Process {
            site,
            keeper,
            ticks: 0,
            stuck_ticks: 0,
            records: records.len() as u64,
            written: 0,
            synced: 0,
            unsynced: VecDeque::new(),
            leaving: VecDeque::new(),
            late: BTreeMap::new(),
            sessions: BTreeMap::new(),
            has_failed: false,
        };
        let mut turn = Turn { system, process: &mut process, core, host };
        turn.prepare_soon();
        turn.perform(effects)?;
        Ok(Start::Running(process))
    }

    pub fn site(&self) -> &Pcsi {
        &self.site
    }

    pub fn is_fenced(&self) -> bool {
        self.site.is_fenced()
    }

    /// Whether nothing waits, and all is durable.
    pub fn is_idle(&self) -> bool {
        self.site.is_idle() && self.leaving.is_empty() && self.synced == self.written
    }
}

/// What the journal keeps of records of a site's log, which has some already.
fn kept(before: u64, records: &[Record]) -> Kept {
    let entry = |(index, record): (u64, &Record)| {
        let data = Bytes::from(record.encode());
        Entry { index, term: 1, kind: EntryKind::Data, data }
    };
    let entries = (before + 1..).zip(records).map(entry).collect();
    Kept { entries, ..Kept::nothing(GROUP) }
}

/// Something reaches a process.
pub(super) struct Turn<'a> {
    pub system: &'a mut PcsiWorld,
    pub process: &'a mut Process,
    pub core: &'a mut Core<PcsiWorld>,
    pub host: u16,
}

impl Turn<'_> {
    pub fn take(mut self, input: Input<Frame, Timer>) -> Result<(), Violation> {
        if self.process.has_failed {
            return Ok(());
        }
        let mut effects = SiteEffects::default();
        match input {
            Input::Frame { frame: Frame::Peer { from, bytes }, .. } => {
                let Some(letter) = Letter::decode(&bytes, &self.system.plan.options.sites) else {
                    let text = format!("host {} cannot read a letter that {from} has sent", self.host);
                    return Err(Violation::new("letters", text));
                };
                self.process.site.receive(from, letter, &mut effects);
            }
            Input::Frame { frame: Frame::Ask { session, id, ask }, .. } => {
                self.ask(session, id, ask, &mut effects);
            }
            Input::Timer(Timer::Tick) => {
                self.process.ticks += 1;
                let tick_ns = self.system.plan.tick_ns;
                self.core.set_timer(Address::Host(self.host), tick_ns, Timer::Tick);
                self.process.site.tick(&mut effects);
                self.force_fences(&mut effects);
            }
            Input::Timer(Timer::Synced) => {
                let synced = self.process.keeper.end_sync(self.process.ticks);
                synced.into_iter().try_for_each(|event| self.heard(event))?;
            }
            Input::Timer(Timer::Prepared) => drop(self.process.keeper.prepared()),
            Input::Timer(Timer::Late(number)) => {
                if let Some((to, bytes)) = self.process.late.remove(&number) {
                    self.send(to, bytes);
                }
            }
            Input::Timer(Timer::Fence(site)) if self.may_fence(site) => {
                self.core.note(Address::Host(self.host), || format!("the operator has it fence {site}"));
                if self.process.site.fence(site, false, &mut effects) == FenceAnswer::Begun {
                    self.system.ledger.fence(site.0);
                }
            }
            Input::Timer(_) | Input::Frame { .. } => {}
        }
        self.perform(effects)?;
        self.system.ledger.follow(self.host, &self.process.site);
        if self.process.is_fenced() && !self.process.has_failed {
            self.core.note(Address::Host(self.host), || "its site is fenced".to_owned());
            self.fail();
        }
        Ok(())
    }

    /// An operator fences no site when the world has healed. The others could not go on without another site
    /// that is away by then.
    fn may_fence(&self, site: NodeId) -> bool {
        let has_healed = self.core.healed_ns().is_some();
        !has_healed && self.process.site.is_open() && self.system.ledger.may_lose(site.0)
    }

    /// When the world has healed, the operator knows which sites are gone, and has one site decide on the
    /// fences for which there has been no majority for long.
    fn force_fences(&mut self, effects: &mut SiteEffects) {
        let process = &mut *self.process;
        let status = process.site.fence_status();
        let is_stuck = status.lacks_majority && !status.targets.contains(&NodeId(self.host));
        process.stuck_ticks = if is_stuck { process.stuck_ticks + 1 } else { 0 };
        let is_due = process.stuck_ticks > STUCK_TICKS_MIN && self.core.healed_ns().is_some();
        let is_the_one = self.system.forcing.is_none_or(|host| host == self.host);
        if let (Some(&target), true) = (status.targets.first(), is_due && is_the_one) {
            self.core.note(Address::Host(self.host), || "the operator forces its fences".to_owned());
            self.system.forcing = Some(self.host);
            process.site.fence(target, true, effects);
        }
    }

    /// A client asks.
    fn ask(&mut self, session: u32, id: RequestId, ask: Ask, effects: &mut SiteEffects) {
        let Process { site, sessions, .. } = &mut *self.process;
        sessions.insert(id.session, session);
        match ask {
            Ask::Begin => site.begin(id, effects),
            Ask::Commit(writes) => site.commit(id, writes, effects),
            Ask::Look(key)
                if self.system.plan.options.sites.has_remote_access()
                    && !self.system.ledger.has_key(self.host, key) =>
            {
                site.look_remote(id, self.system.ledger.keys[key].clone(), effects);
            }
            Ask::Look(key) => {
                let tell = match site.look(id, &self.system.ledger.keys[key]) {
                    Ok(read) => Tell::Value { key, number: number(read.entry.as_ref()) },
                    Err(answer) => Tell::Answer(answer),
                };
                self.process.leaving.push_back((self.process.written, Leaving::Tell(session, id, tell)));
            }
        }
    }

    /// Writes what a turn has recorded, and keeps its other effects until that is durable.
    fn perform(&mut self, effects: SiteEffects) -> Result<(), Violation> {
        let process = &mut *self.process;
        process.site.check_invariants();
        let sites_min = self.system.plan.options.sites_to_write_min;
        if effects.records.iter().any(|record| matches!(record, Record::Decided { .. })) {
            self.system.ledger.note_decided(self.host, sites_min);
        }
        if !effects.records.is_empty() {
            let kept = kept(process.records, &effects.records);
            // A write that fails, or during which the process dies, may be done nevertheless.
            self.system.ledger.written(self.host, &effects.records);
            match process.keeper.append(&[kept], process.ticks) {
                Recorded::Written { record, rotated } => {
                    process.written = record;
                    process.records += effects.records.len() as u64;
                    process.unsynced.push_back((record, process.records));
                    if rotated {
                        self.prepare_soon();
                    }
                }
                // Its state is ahead of its log.
                Recorded::Unwritten(_) | Recorded::Failed(_) => {
                    self.fail();
                    return Ok(());
                }
            }
        }
        for (id, answer) in &effects.answers {
            self.system.ledger.check_told(self.host, *id, answer, sites_min)?;
        }
        let process = &mut *self.process;
        let written = process.written;
        let letters = effects.messages.into_iter().map(|(to, letter)| Leaving::Letter(to, letter));
        let tells = effects.answers.into_iter().filter_map(|(id, answer): (RequestId, Answer)| {
            let session = *process.sessions.get(&id.session)?;
            Some(Leaving::Tell(session, id, Tell::Answer(answer)))
        });
        process.leaving.extend(letters.chain(tells).map(|leaving| (written, leaving)));
        self.leave();
        self.sync()
    }

    /// The process ends, because the disk fails or its site is fenced. Nothing leaves any more.
    fn fail(&mut self) {
        self.process.has_failed = true;
        self.core.exit(self.host);
    }

    /// What came of a sync.
    fn heard(&mut self, event: HostEvent) -> Result<(), Violation> {
        let process = &mut *self.process;
        match event {
            HostEvent::Synced(record) => {
                process.synced = process.synced.max(record);
                while let Some((_, records)) = process.unsynced.pop_front_if(|(of, _)| *of <= process.synced)
                {
                    self.system.ledger.synced(self.host, records as usize)?;
                }
            }
            _ => self.fail(),
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Violation> {
        let process = &mut *self.process;
        if process.has_failed || process.keeper.is_syncing() || process.synced == process.written {
            return Ok(());
        }
        let draw = &mut self.core.draw;
        if let Some(event) = process.keeper.begin_sync(|| draw.percent(50)) {
            self.heard(event)?;
            self.leave();
            return Ok(());
        }
        let late_ns = self.core.draw.pick(&[0, 0, 1, 4]) * self.core.draw.below(self.system.plan.tick_ns);
        self.after_syncs(1, late_ns, Timer::Synced);
        Ok(())
    }

    fn after_syncs(&mut self, syncs: u64, late_ns: u64, timer: Timer) {
        let sync_ns = self.system.plan.sync_ns * syncs * self.core.disk_factor(self.host);
        self.core.set_timer(Address::Host(self.host), sync_ns + late_ns, timer);
    }

    fn prepare_soon(&mut self) {
        if self.process.keeper.begin_to_prepare() {
            self.after_syncs(PREPARE_SYNCS, 0, Timer::Prepared);
        }
    }

    fn send(&mut self, to: NodeId, bytes: Bytes) {
        let frame = Frame::Peer { from: NodeId(self.host), bytes };
        self.core.send(Address::Host(self.host), Address::Host(to.0), frame);
    }

    /// What waited for records that are durable leaves.
    fn leave(&mut self) {
        let me = Address::Host(self.host);
        let (last, synced) = (self.process.site.last_commit(), self.process.synced);
        while let Some((_, leaving)) = self.process.leaving.pop_front_if(|(of, _)| *of <= synced) {
            if self.process.has_failed {
                return;
            }
            match leaving {
                Leaving::Letter(to, letter) => {
                    self.system.ledger.note_given(self.host, &letter);
                    let is_decision = matches!(letter.message, Message::Fencing(Fencing::Decided { .. }));
                    let bytes = Bytes::from(letter.encode());
                    let plan = &self.system.plan;
                    if is_decision && self.core.draw.percent(plan.decided_late_percent) {
                        let ticks = self.core.draw.below(DECIDED_LATE_TICKS_MAX);
                        let number = self.process.late.last_key_value().map_or(0, |(number, _)| number + 1);
                        self.core.set_timer(me, 1 + ticks * plan.tick_ns, Timer::Late(number));
                        self.process.late.insert(number, (to, bytes));
                    } else {
                        self.send(to, bytes);
                    }
                }
                Leaving::Tell(session, id, tell) => {
                    let frame = Frame::Tell { session, id, tell, last };
                    self.core.send(me, super::client::address(session), frame);
                }
            }
        }
    }
}
