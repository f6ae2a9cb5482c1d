//! A client: some sessions side by side, each with one operation that it repeats until it is answered.

use super::seen::{End, Seen};
use super::{
    Certified, Frame, MEMBERS_MAX, Member, MemberStep, Operation, Pair, PairStep, Plan, Protocol, Timer, Told,
};
use crate::draw::Draw;
use crate::options::Options;
use crate::world::{Address, Core, Input, Violation};
use certify::session_opened;
use std::fmt;
use txn::{Position, SessionId};

/// An operation that is not answered.
struct Asked {
    operation: Operation,
    /// When it was first sent.
    invoked_ns: u64,
    /// How often it was sent.
    sent: u32,
    /// The last entry of its session's group that any site had been given before it was first sent. Its own
    /// entries come later.
    behind: Position,
}

/// Who has sent an operation so often waits no longer than others before it sends it again.
const BACK_OFF_SENT_MAX: u32 = 7;
/// Who has sent an operation so often waits no longer than others for the answer.
const PATIENCE_SENT_MAX: u32 = 4;

/// One operation after the other.
struct Session {
    /// Its number among all sessions of the run.
    number: u32,
    /// Operations that it has still to begin.
    left: u64,
    /// Operations that it has begun.
    sequence: u64,
    /// Counts how often it has sent the present operation: that an earlier attempt has committed is as good,
    /// but its conflict says nothing.
    attempt: u32,
    asked: Option<Asked>,
    /// The site that it uses.
    host: u16,
    /// Its name in its present opening.
    id: SessionId,
    /// Which of all openings of the run that is.
    opening: u32,
    /// Behind which entry that was.
    opened_behind: Position,
    /// The session's group has an entry of the session, or the opening, behind this entry.
    known_behind: Position,
    /// The last entry of which a site has told it.
    heard: Position,
}

impl Session {
    /// Takes another name: what has become of operations under the old one nobody needs to know.
    fn open(&mut self, partitions: u16, opened: &mut u32) {
        // What it has heard are entries of its home, so it stays there.
        let home = |opening: u32| opening as u16 % partitions;
        while self.heard != Position::NONE && home(*opened) != home(self.opening) {
            *opened += 1;
        }
        self.opening = *opened;
        self.opened_behind = self.heard;
        self.known_behind = self.heard;
        self.id = session_opened(self.heard, *opened as u16);
        *opened += 1;
    }

    /// Whether an attempt is the newest one of an operation that is not answered.
    fn waits_for(&self, sequence: u64, attempt: u32) -> bool {
        self.asked.is_some() && (self.sequence, self.attempt) == (sequence, attempt)
    }
}

/// A client.
pub(super) struct Client {
    sessions: Vec<Session>,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for session in &self.sessions {
            if let Some(asked) = &session.asked {
                let comma = if first { "" } else { ", " };
                first = false;
                write!(
                    f,
                    "{comma}session {} waits for {} of host {}, attempt {}, and has {} operations to send",
                    session.number, asked.operation, session.host, session.attempt, session.left
                )?;
            }
        }
        Ok(())
    }
}

impl Client {
    /// A client with so many sessions, which share its operations.
    pub(super) fn new(number: u16, plan: &Plan, options: &Options, opened: &mut u32) -> Client {
        let (hosts, operations, sessions) = (plan.sites.hosts, options.operations, options.pipeline);
        let sessions = sessions.min(operations).clamp(1, 1 << 16);
        let mut session = |slot: u64| {
            let mut session = Session {
                number: u32::from(number) << 16 | slot as u32,
                left: operations / sessions + u64::from(slot < operations % sessions),
                sequence: 0,
                attempt: 0,
                asked: None,
                host: (u64::from(number) + slot) as u16 % hosts,
                id: SessionId(0),
                opening: 0,
                opened_behind: Position::NONE,
                known_behind: Position::NONE,
                heard: Position::NONE,
            };
            session.open(plan.sites.partitions, opened);
            session
        };
        Client { sessions: (0..sessions).map(&mut session).collect() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.sessions.iter().all(|session| session.left == 0 && session.asked.is_none())
    }
}

/// The client of a session.
pub(super) fn address(session: u32) -> Address {
    Address::Client((session >> 16) as u16)
}

/// Something reaches a client.
pub(super) fn take<P: Protocol>(
    system: &mut Certified<P>,
    client: u16,
    input: Input<Frame, Timer>,
    core: &mut Core<Certified<P>>,
) -> Result<(), Violation> {
    let sessions = system.clients[usize::from(client)].sessions.len();
    match input {
        Input::Timer(Timer::Begin) => {
            for slot in 0..sessions {
                begin(system, client, slot, core);
            }
        }
        Input::Timer(Timer::Next(session)) => begin(system, client, slot_of(session), core),
        Input::Timer(Timer::Timeout { session, sequence, attempt }) => {
            let hosts = system.plan.sites.hosts;
            let session = system.session(client, slot_of(session));
            if session.waits_for(sequence, attempt) {
                session.host = (session.host + 1) % hosts;
                let number = session.number;
                system.tally.restarts += 1;
                core.note(Address::Client(client), || format!("session {number} tries another site"));
                send(system, client, slot_of(number), core);
            }
        }
        Input::Timer(Timer::Again { session, sequence, attempt }) => {
            let slot = slot_of(session);
            if system.session(client, slot).waits_for(sequence, attempt) {
                send(system, client, slot, core);
            }
        }
        Input::Frame { frame: Frame::Answer { session, sequence, attempt, position, told }, .. } => {
            let slot = slot_of(session);
            let waits = system.session(client, slot);
            waits.heard = waits.heard.max(position);
            if waits.sequence == sequence && waits.asked.is_some() {
                answered(system, client, slot, attempt, told, core)?;
            }
        }
        Input::Timer(_) | Input::Frame { .. } => {}
    }
    Ok(())
}

fn slot_of(session: u32) -> usize {
    (session & 0xFFFF) as usize
}

impl<P> Certified<P> {
    fn session(&mut self, client: u16, slot: usize) -> &mut Session {
        &mut self.clients[usize::from(client)].sessions[slot]
    }
}

/// The connection breaks: nobody knows what became of what was asked, so it is asked again.
pub(super) fn disconnect<P: Protocol>(system: &mut Certified<P>, client: u16, core: &mut Core<Certified<P>>) {
    for slot in 0..system.clients[usize::from(client)].sessions.len() {
        let hosts = system.plan.sites.hosts;
        let session = system.session(client, slot);
        if session.asked.is_some() {
            session.host = (session.host + 1) % hosts;
            again(system, client, slot, core);
        }
    }
}

/// Begins the next operation.
fn begin<P: Protocol>(system: &mut Certified<P>, client: u16, slot: usize, core: &mut Core<Certified<P>>) {
    let (keys, horizon) = (system.plan.keys, system.plan.sites.horizons.session);
    let partitions = system.plan.sites.partitions;
    let shares = Shares {
        members_percent: if P::LISTS { system.plan.members_percent } else { 0 },
        member_names: system.plan.member_names,
        pairs_percent: system.plan.pairs_percent,
        pairs: system.plan.pairs,
    };
    let mut opened = system.opened;
    let session = system.session(client, slot);
    if session.left == 0 || session.asked.is_some() {
        return;
    }
    // Some clients take the advice of `certify::sessions`, others do not.
    if session.heard.0 - session.opened_behind.0 >= horizon / 2 && core.draw.percent(50) {
        session.open(partitions, &mut opened);
    }
    session.left -= 1;
    session.sequence += 1;
    session.attempt = 0;
    // No two appends are of the same value.
    let value = u64::from(session.number) << 32 | session.sequence << 3;
    let operation = draw(keys, value, shares, &mut core.draw);
    system.opened = opened;
    let home = P::home_of(system.session(client, slot).id, partitions);
    let behind = system.newest.get(&home).copied().unwrap_or_default();
    let session = system.session(client, slot);
    session.asked = Some(Asked { operation, invoked_ns: core.now_ns(), sent: 0, behind });
    send(system, client, slot, core);
}

/// How often operations use what else there is beside lists.
#[derive(Clone, Copy)]
struct Shares {
    members_percent: u32,
    member_names: u64,
    pairs_percent: u32,
    pairs: u64,
}

/// An operation whose appends are of values from this one on.
fn draw(keys: u64, value: u64, shares: Shares, draw: &mut Draw) -> Operation {
    let count = draw.pick(&[1, 1, 1, 2, 2, 3]);
    let only_reads = draw.percent(40);
    let appends = draw.below(count);
    let step = |index| {
        let is_append = !only_reads && (index == appends || draw.percent(30));
        (draw.below(keys), is_append.then_some(value + index))
    };
    let steps: Vec<_> = (0..count).map(step).collect();
    let step = match only_reads {
        true => MemberStep::Look,
        false => draw.pick(&[
            MemberStep::AddIfListed,
            MemberStep::AddIfListed,
            MemberStep::AddIfCounted,
            MemberStep::Change,
            MemberStep::Change,
            MemberStep::Delete,
            MemberStep::Delete,
            MemberStep::Delete,
            MemberStep::Clear,
        ]),
    };
    let member = Member { step, name: draw.below(shares.member_names), value: value + 3 };
    let member = draw.percent(shares.members_percent).then_some(member);
    let step = match only_reads {
        true => PairStep::Look,
        false => draw.pick(&[
            PairStep::Write,
            PairStep::Write,
            PairStep::Write,
            PairStep::Delete,
            PairStep::Append,
            PairStep::Append,
            PairStep::Take,
            PairStep::Look,
        ]),
    };
    let pair = Pair { step, number: draw.below(shares.pairs), value: value + 4 };
    let pair = draw.percent(shares.pairs_percent).then_some(pair);
    // Alone, so that nothing but the member or the pair can conflict.
    let steps = if (member.is_some() || pair.is_some()) && draw.percent(60) { Vec::new() } else { steps };
    Operation {
        member,
        pair,
        steps,
        only_if_even: !only_reads && pair.is_none() && draw.percent(20),
        is_declared: only_reads && draw.percent(70),
    }
}

fn send<P: Protocol>(system: &mut Certified<P>, client: u16, slot: usize, core: &mut Core<Certified<P>>) {
    let timeout_ns = system.plan.timeout_ns;
    let session = system.session(client, slot);
    let Some(asked) = &mut session.asked else { return };
    session.attempt += 1;
    // Attempts that do not have the time that they need would only void each other.
    let patience_ns = timeout_ns << asked.sent.min(PATIENCE_SENT_MAX);
    asked.sent += 1;
    let (number, sequence, attempt) = (session.number, session.sequence, session.attempt);
    let frame =
        Frame::Ask { session: number, sequence, attempt, id: session.id, operation: asked.operation.clone() };
    let me = Address::Client(client);
    core.send(me, Address::Host(session.host), frame);
    let timer = Timer::Timeout { session: number, sequence, attempt };
    core.set_timer(me, patience_ns, timer);
}

/// Asks again, after a while that grows: clients that conflict with each other must not keep each other from
/// committing.
fn again<P: Protocol>(system: &mut Certified<P>, client: u16, slot: usize, core: &mut Core<Certified<P>>) {
    let tick_ns = system.plan.tick_ns;
    let session = system.session(client, slot);
    let Session { number, sequence, attempt, .. } = *session;
    let timer = Timer::Again { session: number, sequence, attempt };
    let sent = session.asked.as_ref().map_or(0, |asked| asked.sent);
    let after_ns = 1 + core.draw.below(tick_ns << sent.min(BACK_OFF_SENT_MAX));
    core.set_timer(Address::Client(client), after_ns, timer);
}

fn answered<P: Protocol>(
    system: &mut Certified<P>,
    client: u16,
    slot: usize,
    attempt: u32,
    told: Told,
    core: &mut Core<Certified<P>>,
) -> Result<(), Violation> {
    let (hosts, horizon, partitions) =
        (system.plan.sites.hosts, system.plan.sites.horizons.session, system.plan.sites.partitions);
    let tick_ns = system.plan.tick_ns;
    let home = P::home_of(system.session(client, slot).id, partitions);
    let newest = system.newest.get(&home).copied().unwrap_or_default();
    let session = system.session(client, slot);
    let may_be_forgotten = session.known_behind.0 + horizon <= newest.0;
    let Some(asked) = &mut session.asked else {
        return Ok(());
    };
    let waited_ns = core.now_ns() - asked.invoked_ns;
    let has_waited = P::WAIT_TICKS_MAX.is_some_and(|ticks| ticks * tick_ns <= waited_ns);
    let mut is_unknown = false;
    let read = match told {
        // Nothing was ordered: the attempt that was sent since may yet write.
        Told::Committed { is_ordered: false, .. }
            if session.attempt != attempt && asked.operation.may_write() =>
        {
            return Ok(());
        }
        Told::Committed { read, is_ordered } => {
            if is_ordered {
                session.known_behind = session.known_behind.max(asked.behind);
            }
            Some(read)
        }
        Told::CommittedBefore => {
            session.known_behind = session.known_behind.max(asked.behind);
            None
        }
        Told::Unknown if !may_be_forgotten && !has_waited => {
            let text = format!(
                "session {} was opened or had an entry behind {}, and may be forgotten {horizon} entries \
                 later; at {} its client is told that an outcome is unknown",
                session.number, session.known_behind.0, newest.0
            );
            return Err(Violation::new("unknown outcomes", text));
        }
        Told::Unknown if session.attempt != attempt => return Ok(()),
        Told::Unknown => {
            is_unknown = true;
            None
        }
        Told::Failed(text) => return Err(Violation::new("procedures", text)),
        Told::Conflict(_) if session.attempt == attempt => {
            again(system, client, slot, core);
            return Ok(());
        }
        Told::Unavailable if session.attempt == attempt => {
            session.host = (session.host + 1) % hosts;
            again(system, client, slot, core);
            return Ok(());
        }
        Told::Conflict(_) | Told::Unavailable => return Ok(()),
    };
    let (operation, invoked_ns) = (asked.operation.clone(), asked.invoked_ns);
    let (number, left, opening) = (session.number, session.left, session.opening);
    session.asked = None;
    if is_unknown {
        let mut opened = system.opened;
        system.session(client, slot).open(partitions, &mut opened);
        system.opened = opened;
    }
    if let Some(members) = read.as_ref().map(|read| &read.members) {
        let is_late = |value: &&u64| system.gone.get(value).is_some_and(|&gone_ns| gone_ns < invoked_ns);
        if let Some(value) = members.seen.iter().find(is_late) {
            let text = format!("{operation} has seen member {value:x}, which was gone when it was invoked");
            return Err(Violation::new("members", text));
        }
        if members.seen.len() > MEMBERS_MAX {
            let text = format!("{operation} has seen {} members", members.seen.len());
            return Err(Violation::new("members", text));
        }
        for &value in &members.gone {
            if system.gone.insert(value, core.now_ns()).is_some() {
                let text = format!("{operation} has removed member {value:x}, and so has another operation");
                return Err(Violation::new("members", text));
            }
        }
    }
    let values = read.iter().flat_map(|read| &read.lists).map(|list| list.len() as u64).sum();
    core.witness(values);
    let may_write = operation.may_write();
    let end = match read {
        Some(read) => End::Read(read),
        None if is_unknown && has_waited => End::Open,
        None if is_unknown => End::Over,
        None => End::CommittedBefore,
    };
    let seen = Seen { operation, client: opening, invoked_ns, completed_ns: core.now_ns(), end };
    if is_unknown {
        system.tally.unknown += 1;
    } else if may_write {
        system.tally.committed += 1;
        system.acknowledged.extend(seen.acknowledged());
    } else {
        system.tally.snapshot_reads += 1;
    }
    system.tally.last_ns = core.now_ns();
    system.history.push(seen);
    if left > 0 {
        let after_ns = core.draw.below(1 + system.plan.think_us * 1_000);
        core.set_timer(Address::Client(client), after_ns, Timer::Next(number));
    }
    Ok(())
}
