//! Runs an ordinary procedure as a certified transaction: at a snapshot, with its writes kept, and again if
//! it conflicts.
//!
//! A [`CertifiedCall`] owns no protocol, no thread and no clock. It tells whoever runs it what it wishes for
//! ([`Wish`]), and is told the protocol's answers. Where the site has all the data the procedure runs in one
//! go ([`Certifier::snapshot_of`](crate::Certifier::snapshot_of)); elsewhere it is parked at each record that
//! it has not seen yet, and goes on with the answer.
//!
//! ```text
//!             Begun            Pending                       returned
//!  Begin ──────────► running ──────────► Look ──► running ──────────► Commit ──► End
//!    ▲                  │ the snapshot is gone                           │
//!    └────── Wait ◄─────┴──────────────────── Conflict ──────────────────┘
//! ```
//!
//! # What counts
//!
//! A procedure may meet a state that never was, if its protocol reads different keys at different moments. So
//! its outcome counts only once its reads are certified, also if it rolls back: that is certified as a
//! transaction without writes.
//!
//! # Time
//!
//! The time of a procedure is that of its call, as of its site's clock: entries expire by it. The clocks of
//! two sites differ, so an entry may have expired for one call and not yet for a later one at another site.
//!
//! # Attempts
//!
//! Each run is an attempt with a higher number, at most [`ATTEMPTS`] of them. A client that sends the
//! transaction again, because it has heard nothing, or of a conflict at last, counts on by [`ATTEMPTS`]: two
//! sites must never use the same number. Between two attempts the call waits for a while that is drawn from
//! its id and grows, so that calls which conflict with each other do not go on doing so.
//!
//! A call that ends without writes may not have been ordered ([`CallEnd::Done`] says so), and then it does
//! not void the client's other attempts: a client that has sent the transaction again takes only the newest
//! attempt's word for that.

use crate::access::{Workspace, without_messages};
use crate::sessions::is_unordered;
use crate::{Answer, Conflict, LocalSnapshot, Look, ReadSet, WriteSet};
use std::sync::Arc;
use std::task::Poll;
use txn::hash::mix;
use txn::{Outcome, ProcedureFuture, Request, RequestId, Stop, Tx, TxContext, running};

/// The runs of a call. The numbers of their attempts follow that of the request.
pub const ATTEMPTS: u32 = 8;

/// What a call wants done.
#[derive(Debug)]
pub enum Wish {
    /// [`Certifier::begin`](crate::Certifier::begin).
    Begin,
    /// [`Certifier::look`](crate::Certifier::look).
    Look(Look),
    /// [`Certifier::commit`](crate::Certifier::commit).
    Commit(ReadSet, WriteSet),
    /// To be told after so many ticks ([`CertifiedCall::waited`]).
    Wait {
        /// At least one.
        ticks: u64,
    },
    /// Nothing more.
    End(CallEnd),
}

/// How a call ended.
#[derive(Debug, PartialEq)]
pub enum CallEnd {
    /// Its writes, if there are any, have taken effect.
    Done {
        /// What the procedure has returned.
        outcome: Outcome,
        /// Whether the end has a place in the group's order. If it has none, an earlier attempt at another
        /// site may yet commit: a client that has sent the transaction again since must wait for that.
        is_ordered: bool,
    },
    /// See [`Answer::CommittedBefore`].
    CommittedBefore,
    /// The last attempt conflicted.
    Conflict(Conflict),
    /// See [`Answer::Unknown`].
    Unknown,
    /// See [`Answer::Unavailable`].
    Unavailable,
}

/// A request that runs as a certified transaction. See the module's head.
pub struct CertifiedCall {
    request: Arc<Request>,
    now_ms: u64,
    /// Attempts before this one.
    before: u32,
    spares_system_writes: bool,
    stage: Stage,
}

enum Stage {
    /// It waits to begin, or has ended.
    Idle,
    Running(Box<Workspace>, ProcedureFuture),
    Committing {
        outcome: Outcome,
        is_ordered: bool,
    },
}

/// Runs a request once at a snapshot that has all the data, in a context that the caller gives: with the
/// request's place in an order, say. Gives its outcome, and what it would write. Nothing is certified.
pub fn run_at(
    snapshot: Arc<dyn LocalSnapshot>,
    request: &Arc<Request>,
    context: TxContext,
) -> (Outcome, WriteSet) {
    let mut future = match running::start_as(Tx::of(context, request), request) {
        Ok(future) => future,
        Err(stop) => return (Err(stop), WriteSet::default()),
    };
    let (mut workspace, polled) = running::poll(Box::new(Workspace::at(Some(snapshot))), &mut future);
    let outcome = match (workspace.take_refused(), polled) {
        (Some(stop), _) => Err(stop),
        (None, Poll::Ready(outcome)) => outcome.map_err(unwanted_restart),
        (None, Poll::Pending) => Err(Stop::abort(STRANGE_WAIT)),
    };
    let (_, writes) = workspace.into_sets();
    match outcome {
        Ok(_) => (outcome, writes),
        Err(_) => (outcome, WriteSet::default()),
    }
}

const STRANGE_WAIT: &str = "ERR the procedure waited for something other than its transaction";

/// A procedure's own wish for a restart, where nothing dooms it.
fn unwanted_restart(stop: Stop) -> Stop {
    match stop {
        Stop::Restart => Stop::abort("ERR the procedure asked for a restart that nobody wanted"),
        other => other,
    }
}

impl CertifiedCall {
    /// A call whose procedure knows this time.
    pub fn new(request: Arc<Request>, now_ms: u64) -> CertifiedCall {
        CertifiedCall { request, now_ms, before: 0, spares_system_writes: false, stage: Stage::Idle }
    }

    /// The same with what [`Tx::spares_system_writes`] tells the procedure.
    pub fn sparing_system_writes(mut self, spares: bool) -> CertifiedCall {
        self.spares_system_writes = spares;
        self
    }

    /// The name of the present attempt.
    pub fn id(&self) -> RequestId {
        let RequestId { session, sequence, attempt } = self.request.id;
        RequestId { session, sequence, attempt: attempt.saturating_add(self.before) }
    }

    /// Whether it is declared to write nothing.
    pub fn is_read_only(&self) -> bool {
        self.request.footprint.read_only
    }

    /// The time that its procedure knows.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// What it calls.
    pub fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// The present attempt has begun; its site has its snapshot, or is asked at each look.
    pub fn begun(&mut self, snapshot: Option<Arc<dyn LocalSnapshot>>) -> Wish {
        let context = TxContext {
            spares_system_writes: self.spares_system_writes,
            ..TxContext::unordered(&self.request, self.now_ms)
        };
        let tx = Tx::of(context, &self.request);
        let workspace = Box::new(Workspace::at(snapshot));
        match running::start_as(tx, &self.request) {
            Ok(future) => self.run(workspace, future),
            Err(stop) => self.returned(*workspace, Err(stop)),
        }
    }

    /// Its protocol answers the present attempt.
    pub fn answered(&mut self, answer: Answer) -> Wish {
        match (answer, std::mem::replace(&mut self.stage, Stage::Idle)) {
            (Answer::Begun, Stage::Idle) => self.begun(None),
            (Answer::Conflict(conflict), _) => self.conflicts(conflict),
            (Answer::CommittedBefore, _) => Wish::End(CallEnd::CommittedBefore),
            (Answer::Unavailable, _) => Wish::End(CallEnd::Unavailable),
            (Answer::Unknown, _) => Wish::End(CallEnd::Unknown),
            (Answer::Committed, Stage::Committing { outcome, is_ordered }) => {
                Wish::End(CallEnd::Done { outcome, is_ordered })
            }
            (Answer::Refused(text), Stage::Committing { .. }) => {
                let outcome = Err(Stop::abort(text));
                Wish::End(CallEnd::Done { outcome, is_ordered: false })
            }
            // This attempt's entry was decided while its site lagged, and an earlier process had made it.
            (Answer::Committed, _) => Wish::End(CallEnd::CommittedBefore),
            (answer, Stage::Running(mut workspace, future)) => {
                workspace.put_found(answer);
                self.run(workspace, future)
            }
            (_, Stage::Idle | Stage::Committing { .. }) => {
                let outcome = Err(Stop::abort("ERR the certified protocol answered out of turn"));
                Wish::End(CallEnd::Done { outcome, is_ordered: false })
            }
        }
    }

    /// It has waited long enough.
    pub fn waited(&mut self) -> Wish {
        Wish::Begin
    }

    fn run(&mut self, workspace: Box<Workspace>, mut future: ProcedureFuture) -> Wish {
        let (mut workspace, polled) = running::poll(workspace, &mut future);
        match (polled, workspace.take_wanted()) {
            (Poll::Ready(outcome), _) => self.returned(*workspace, outcome),
            (Poll::Pending, Some(look)) => {
                self.stage = Stage::Running(workspace, future);
                Wish::Look(look)
            }
            (Poll::Pending, None) => self.returned(*workspace, Err(Stop::abort(STRANGE_WAIT))),
        }
    }

    fn returned(&mut self, mut workspace: Workspace, outcome: Outcome) -> Wish {
        if let Some(conflict) = workspace.take_conflict() {
            return self.conflicts(conflict);
        }
        let outcome = match (workspace.take_refused(), outcome) {
            (Some(stop), _) => Err(stop),
            (None, outcome) => without_messages(outcome.map_err(unwanted_restart)),
        };
        let (reads, mut writes) = workspace.into_sets();
        if outcome.is_err() {
            writes = WriteSet::default();
        }
        let is_ordered = !is_unordered(self.id(), self.is_read_only(), &writes);
        self.stage = Stage::Committing { outcome, is_ordered };
        Wish::Commit(reads, writes)
    }

    fn conflicts(&mut self, conflict: Conflict) -> Wish {
        self.before += 1;
        if self.before >= ATTEMPTS {
            return Wish::End(CallEnd::Conflict(conflict));
        }
        let ticks_max = 1 << self.before;
        match mix(self.request.id.seed() ^ u64::from(self.id().attempt)) % ticks_max {
            0 => Wish::Begin,
            ticks => Wish::Wait { ticks },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dur::{Dur, GROUP};
    use crate::register::Register;
    use crate::{Certifier, Effects};
    use txn::{Args, Call, Entry, FnProcedure, Key, Reply, SessionId};

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes())
    }

    fn number(entry: Option<&Entry>) -> u64 {
        let text = entry.and_then(|entry| entry.value.as_string());
        text.map_or(0, |text| String::from_utf8_lossy(text.as_ref()).parse().expect("a number"))
    }

    /// Moves one from `a` to `b`, if there is one; replies what `a` had.
    async fn transfer(mut tx: Tx, _: Call) -> Outcome {
        let from = number(tx.entry_for_update(&key("a")).await?.as_ref());
        let to = number(tx.entry_for_update(&key("b")).await?.as_ref());
        tx.put(&key("b"), (to + 1).to_string().as_str()).await?;
        if from == 0 {
            return Err(Stop::abort("ERR nothing is left"));
        }
        tx.put(&key("a"), (from - 1).to_string().as_str()).await?;
        assert_eq!(number(tx.entry(&key("a")).await?.as_ref()), from - 1, "it sees its own write");
        Ok(Reply::Integer(from as i64))
    }

    async fn set_to_ten(mut tx: Tx, _: Call) -> Outcome {
        tx.put(&key("a"), "10").await?;
        Ok(Reply::OK)
    }

    /// Writes an entry that expires two milliseconds later.
    async fn expire(mut tx: Tx, _: Call) -> Outcome {
        let entry = Entry { expires_at_ms: tx.now_ms() + 2, ..Entry::new("x") };
        tx.put_entry(&key("c"), entry).await?;
        Ok(Reply::OK)
    }

    async fn is_there(mut tx: Tx, _: Call) -> Outcome {
        Ok(Reply::Integer(i64::from(tx.entry(&key("c")).await?.is_some())))
    }

    fn call<F, R>(session: u64, function: F) -> CertifiedCall
    where
        F: Fn(Tx, Call) -> R + Send + Sync + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        let id = RequestId { session: SessionId(session), sequence: 1, attempt: 0 };
        let procedure = Arc::new(FnProcedure::new("test", function));
        CertifiedCall::new(Arc::new(Request::new(id, procedure, Args::new())), 5)
    }

    /// Runs a call at the only site of a group. Before each commit it asks the protocol for something else.
    fn run<C: Certifier>(
        site: &mut C,
        call: &mut CertifiedCall,
        is_local: bool,
        mut meddle: impl FnMut(&mut C),
    ) -> (CallEnd, u32) {
        let mut wish = Wish::Begin;
        let mut begun = 0;
        loop {
            let (effects, id) = (&mut Effects::default(), call.id());
            match wish {
                Wish::Begin => {
                    begun += 1;
                    site.begin(id, call.is_read_only(), effects);
                }
                Wish::Look(look) => site.look(id, &look, effects),
                Wish::Commit(reads, writes) => {
                    meddle(site);
                    site.commit(id, reads, writes, effects);
                }
                Wish::Wait { ticks } => {
                    assert!(ticks > 0 && ticks < 1 << ATTEMPTS);
                    wish = call.waited();
                    continue;
                }
                Wish::End(end) => return (end, begun),
            }
            for (_, id) in std::mem::take(&mut effects.questions) {
                site.reached(id, effects);
            }
            for (_, entry) in std::mem::take(&mut effects.proposals) {
                site.decided(GROUP, &entry, effects).expect("an entry");
            }
            let (_, answer) = effects.answers.pop().expect("an answer");
            wish = match answer {
                Answer::Begun if is_local => call.begun(site.snapshot_of(id)),
                answer => call.answered(answer),
            };
        }
    }

    fn done(outcome: Outcome) -> CallEnd {
        CallEnd::Done { is_ordered: outcome.is_ok(), outcome }
    }

    fn behaves<C: Certifier + Default>(is_local: bool, value: impl Fn(&C, &Key) -> Option<Entry>) {
        let site = &mut C::default();
        let nothing = |_: &mut C| {};
        let set = |site: &mut C, session| run(site, &mut call(session, set_to_ten), is_local, |_| {});

        let left = done(Err(Stop::abort("ERR nothing is left")));
        assert_eq!(run(site, &mut call(1, transfer), is_local, nothing), (left, 1));
        assert_eq!(value(site, &key("b")), None, "what is rolled back is not written");
        assert_eq!(set(site, 2), (done(Ok(Reply::OK)), 1));
        assert_eq!(run(site, &mut call(3, transfer), is_local, nothing), (done(Ok(Reply::Integer(10))), 1));
        let values =
            |site: &C| [number(value(site, &key("a")).as_ref()), number(value(site, &key("b")).as_ref())];
        assert_eq!(values(site), [9, 1]);

        // Others write what it has read: twice, and then always.
        let mut session = 10;
        let times = |count: u64| {
            move |site: &mut C| {
                session += 1;
                if session <= 10 + count {
                    set(site, 1_000 * count + session);
                }
            }
        };
        let ended = run(site, &mut call(4, transfer), is_local, times(2));
        assert_eq!(ended, (done(Ok(Reply::Integer(10))), 3));
        assert_eq!(values(site), [9, 2]);
        let ended = run(site, &mut call(5, transfer), is_local, times(100));
        assert_eq!(ended, (CallEnd::Conflict(Conflict::Key(key("a"))), ATTEMPTS));
        assert_eq!(values(site), [10, 2]);

        // The time is that of the call.
        assert_eq!(run(site, &mut call(6, expire), is_local, nothing), (done(Ok(Reply::OK)), 1));
        for (session, now_ms, there) in [(7, 6, 1), (8, 7, 0)] {
            let mut call = call(session, is_there);
            call.now_ms = now_ms;
            let CallEnd::Done { outcome, .. } = run(site, &mut call, is_local, nothing).0 else { panic!() };
            assert_eq!(outcome, Ok(Reply::Integer(there)), "at {now_ms}");
        }
        // The client has heard nothing of its first transfer, and sends it again.
        let mut again = call(3, transfer);
        let mut request = (**again.request()).clone();
        request.id.attempt = ATTEMPTS;
        again.request = Arc::new(request);
        assert_eq!(run(site, &mut again, is_local, nothing).0, CallEnd::CommittedBefore);
        assert_eq!(values(site), [10, 2]);
    }

    #[test]
    fn procedures_run_on_the_register() {
        behaves::<Register>(false, Register::value);
    }

    #[test]
    fn procedures_run_on_deferred_update_replication_wherever_their_snapshot_is_read() {
        behaves::<Dur>(false, Dur::value);
        behaves::<Dur>(true, Dur::value);
    }

    #[test]
    fn a_procedure_that_panics_or_waits_for_something_else_rolls_back() {
        let site = &mut Dur::default();
        let panics = call(1, |_, _| async { panic!("no") });
        let waits = call(2, |_, _| std::future::pending());
        for (mut call, text) in [(panics, "panicked"), (waits, "something other")] {
            let (end, _) = run(site, &mut call, true, |_| {});
            assert!(
                matches!(&end, CallEnd::Done { outcome: Err(Stop::Abort(why)), .. } if why.contains(text)),
                "{end:?}"
            );
        }
    }
}
