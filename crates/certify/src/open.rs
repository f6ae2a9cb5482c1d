//! A transaction of several procedures: its client begins, reads, thinks, writes, and commits.
//!
//! There are two ways to run procedures on a [`Certifier`](crate::Certifier). A
//! [`CertifiedCall`](crate::CertifiedCall) runs one procedure, and runs it again after a conflict. An
//! [`OpenTransaction`] runs one procedure after the other ([`OpenTransaction::run`]), each of which sees what
//! the ones before it have written. It gives each outcome away at once, so it cannot run a procedure again:
//! after a conflict its client has to begin anew.
//!
//! ```text
//!  New ──run──► Beginning ──► Running ◄──run── Idle ──commit──► Committing ──► Over
//!                                └──returned──► ▲
//! ```
//!
//! A transaction begins with its first procedure. What a client was told of reads counts only once the
//! transaction is committed, also if it has written nothing. A procedure that stops leaves no writes behind,
//! and the transaction goes on without it.

use crate::access::{Workspace, without_messages};
use crate::sessions::is_unordered;
use crate::{Answer, CallEnd, LocalSnapshot, Wish};
use std::sync::Arc;
use std::task::Poll;
use txn::{Outcome, ProcedureFuture, Reply, Request, RequestId, Stop, Tx, TxContext, running};

/// What a transaction has read and written may take so many bytes of memory, about.
const BYTES_MAX: usize = 64 << 20;

/// What an open transaction wants done.
#[derive(Debug)]
pub enum Progress {
    /// This, and then to be told the answer. [`Wish::End`] ends the transaction.
    Wish(Wish),
    /// The procedure has returned: its client is told, and the transaction goes on.
    Reply(Outcome),
}

/// A transaction of several procedures. See the module's head.
pub struct OpenTransaction {
    id: RequestId,
    is_read_only: bool,
    /// Keys that it may write, at most.
    writes_max: usize,
    spares_system_writes: bool,
    stage: Stage,
}

enum Stage {
    New,
    /// The first procedure waits, with the time that it is to know.
    Beginning(Arc<Request>, u64),
    Idle(Box<Workspace>),
    Running(Box<Workspace>, ProcedureFuture),
    /// The end, and whether it has a place in the group's order.
    Committing(bool),
    Over,
}

impl OpenTransaction {
    /// A transaction of this name, with at most so many written keys.
    pub fn new(id: RequestId, is_read_only: bool, writes_max: usize) -> OpenTransaction {
        OpenTransaction { id, is_read_only, writes_max, spares_system_writes: false, stage: Stage::New }
    }

    /// The same with what [`Tx::spares_system_writes`] tells its procedures.
    pub fn sparing_system_writes(mut self, spares: bool) -> OpenTransaction {
        self.spares_system_writes = spares;
        self
    }

    /// Its name.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Whether it is declared to write nothing.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Runs a request's procedure, which knows this time. The procedure before it must have returned.
    pub fn run(&mut self, request: Arc<Request>, now_ms: u64) -> Progress {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New => {
                self.stage = Stage::Beginning(request, now_ms);
                Progress::Wish(Wish::Begin)
            }
            Stage::Idle(workspace) => self.start(workspace, &request, now_ms),
            _ => out_of_turn(),
        }
    }

    /// The transaction has begun; its site has its snapshot, or is asked at each look.
    pub fn begun(&mut self, snapshot: Option<Arc<dyn LocalSnapshot>>) -> Progress {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Beginning(request, now_ms) => {
                self.start(Box::new(Workspace::at(snapshot)), &request, now_ms)
            }
            _ => out_of_turn(),
        }
    }

    /// The client wants it committed.
    pub fn commit(&mut self) -> Progress {
        let done = |is_ordered| CallEnd::Done { outcome: Ok(Reply::OK), is_ordered };
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New => Progress::Wish(Wish::End(done(false))),
            Stage::Idle(workspace) => {
                let (reads, writes) = workspace.into_sets();
                self.stage = Stage::Committing(!is_unordered(self.id, self.is_read_only, &writes));
                Progress::Wish(Wish::Commit(reads, writes))
            }
            _ => out_of_turn(),
        }
    }

    /// Its protocol answers.
    pub fn answered(&mut self, answer: Answer) -> Progress {
        let end = match (answer, std::mem::replace(&mut self.stage, Stage::Over)) {
            (Answer::Begun, stage @ Stage::Beginning(..)) => {
                self.stage = stage;
                return self.begun(None);
            }
            (Answer::Conflict(conflict), _) => CallEnd::Conflict(conflict),
            (Answer::CommittedBefore, _) => CallEnd::CommittedBefore,
            (Answer::Unavailable, _) => CallEnd::Unavailable,
            (Answer::Unknown, _) => CallEnd::Unknown,
            (Answer::Committed, Stage::Committing(is_ordered)) => {
                CallEnd::Done { outcome: Ok(Reply::OK), is_ordered }
            }
            (Answer::Refused(text), Stage::Committing(_)) => {
                CallEnd::Done { outcome: Err(Stop::abort(text)), is_ordered: false }
            }
            (answer, Stage::Running(mut workspace, future)) => {
                workspace.put_found(answer);
                return self.poll(workspace, future);
            }
            _ => return out_of_turn(),
        };
        Progress::Wish(Wish::End(end))
    }

    fn start(&mut self, mut workspace: Box<Workspace>, request: &Arc<Request>, now_ms: u64) -> Progress {
        workspace.save();
        let context = TxContext {
            spares_system_writes: self.spares_system_writes,
            ..TxContext::unordered(request, now_ms)
        };
        let tx = Tx::of(context, request);
        match running::start_as(tx, request) {
            Ok(future) => self.poll(workspace, future),
            Err(stop) => self.returned(workspace, Err(stop)),
        }
    }

    fn poll(&mut self, workspace: Box<Workspace>, mut future: ProcedureFuture) -> Progress {
        let (mut workspace, polled) = running::poll(workspace, &mut future);
        match (polled, workspace.take_wanted()) {
            (Poll::Ready(outcome), _) => self.returned(workspace, outcome),
            (Poll::Pending, Some(look)) => {
                self.stage = Stage::Running(workspace, future);
                Progress::Wish(Wish::Look(look))
            }
            (Poll::Pending, None) => {
                let text = "ERR the procedure waited for something other than its transaction";
                self.returned(workspace, Err(Stop::abort(text)))
            }
        }
    }

    fn returned(&mut self, mut workspace: Box<Workspace>, outcome: Outcome) -> Progress {
        if let Some(conflict) = workspace.take_conflict() {
            return Progress::Wish(Wish::End(CallEnd::Conflict(conflict)));
        }
        let keys = workspace.written_keys();
        let outcome = match (workspace.take_refused(), outcome) {
            (Some(stop), _) => Err(stop),
            (None, Err(Stop::Restart)) => {
                Err(Stop::abort("ERR the procedure asked for a restart that nobody wanted"))
            }
            (None, Ok(_)) if self.is_read_only && keys > 0 => {
                Err(Stop::abort("ERR the transaction was begun with READONLY, and writes nothing"))
            }
            (None, Ok(_)) if keys > self.writes_max => Err(Stop::abort(format!(
                "ERR the transaction would write {keys} keys, and may write {}: commit what it has, or roll \
                 it back",
                self.writes_max
            ))),
            (None, Ok(_)) if workspace.bytes() > BYTES_MAX => Err(Stop::abort(
                "ERR the transaction would hold more than 64 MiB of what it has read and written: commit \
                 what it has, or roll it back",
            )),
            (None, outcome) => without_messages(outcome),
        };
        if outcome.is_err() {
            workspace.restore();
        }
        self.stage = Stage::Idle(workspace);
        Progress::Reply(outcome)
    }
}

fn out_of_turn() -> Progress {
    let outcome = Err(Stop::abort("ERR the certified protocol answered out of turn"));
    Progress::Wish(Wish::End(CallEnd::Done { outcome, is_ordered: false }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dur::{Dur, GROUP};
    use crate::register::Register;
    use crate::{Certifier, Conflict, Effects};
    use txn::{Args, Call, Event, FnProcedure, Key, Message, SessionId, Told};

    fn id(session: u64, sequence: u64) -> RequestId {
        RequestId { session: SessionId(session), sequence, attempt: 0 }
    }

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes())
    }

    fn request<F, R>(function: F) -> Arc<Request>
    where
        F: Fn(Tx, Call) -> R + Send + Sync + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        Arc::new(Request::new(id(99, 1), Arc::new(FnProcedure::new("test", function)), Args::new()))
    }

    fn set(name: &'static str, value: &'static str) -> Arc<Request> {
        request(move |mut tx, _| async move {
            tx.put(&key(name), value).await?;
            Ok(Reply::OK)
        })
    }

    fn get(name: &'static str) -> Arc<Request> {
        request(move |mut tx, _| async move {
            let entry = tx.entry(&key(name)).await?;
            Ok(entry.and_then(|entry| entry.value.as_string()).map_or(Reply::Nil, Reply::bulk))
        })
    }

    /// Does what a transaction wishes, until its procedure has returned or it has ended.
    fn carry<C: Certifier>(
        site: &mut C,
        transaction: &mut OpenTransaction,
        mut progress: Progress,
    ) -> Result<Outcome, CallEnd> {
        loop {
            let (effects, id) = (&mut Effects::default(), transaction.id());
            match progress {
                Progress::Reply(outcome) => return Ok(outcome),
                Progress::Wish(Wish::End(end)) => return Err(end),
                Progress::Wish(Wish::Begin) => site.begin(id, transaction.is_read_only(), effects),
                Progress::Wish(Wish::Look(look)) => site.look(id, &look, effects),
                Progress::Wish(Wish::Commit(reads, writes)) => site.commit(id, reads, writes, effects),
                Progress::Wish(Wish::Wait { .. }) => panic!("it waits for nothing"),
            }
            for (_, id) in std::mem::take(&mut effects.questions) {
                site.reached(id, effects);
            }
            for (_, entry) in std::mem::take(&mut effects.proposals) {
                site.decided(GROUP, &entry, effects).expect("an entry");
            }
            let (_, answer) = effects.answers.pop().expect("an answer");
            progress = match answer {
                Answer::Begun => transaction.begun(site.snapshot_of(id)),
                answer => transaction.answered(answer),
            };
        }
    }

    fn run<C: Certifier>(
        site: &mut C,
        transaction: &mut OpenTransaction,
        request: Arc<Request>,
    ) -> Result<Outcome, CallEnd> {
        let progress = transaction.run(request, 5);
        carry(site, transaction, progress)
    }

    fn commit<C: Certifier>(site: &mut C, transaction: &mut OpenTransaction) -> CallEnd {
        let progress = transaction.commit();
        carry(site, transaction, progress).expect_err("it ends")
    }

    fn text(text: &'static str) -> Result<Outcome, CallEnd> {
        Ok(Ok(Reply::bulk(text)))
    }

    const OK: Result<Outcome, CallEnd> = Ok(Ok(Reply::OK));
    const NIL: Result<Outcome, CallEnd> = Ok(Ok(Reply::Nil));

    fn done(is_ordered: bool) -> CallEnd {
        CallEnd::Done { outcome: Ok(Reply::OK), is_ordered }
    }

    fn behaves<C: Certifier + Default>() {
        let site = &mut C::default();
        let mut first = OpenTransaction::new(id(1, 1), false, 2);
        let mut other = OpenTransaction::new(id(2, 1), false, 2);
        assert_eq!(run(site, &mut first, get("a")), NIL);
        assert_eq!(run(site, &mut first, set("a", "1")), OK);
        assert_eq!(run(site, &mut first, get("a")), text("1"), "it sees its own write");
        assert_eq!(run(site, &mut other, get("a")), NIL, "nobody else does");

        // A procedure that stops leaves nothing behind, and the transaction goes on.
        let stops = request(|mut tx, _| async move {
            tx.put(&key("a"), "2").await?;
            tx.put(&key("b"), "2").await?;
            tx.delete(&key("a")).await?;
            Err(Stop::abort("ERR no"))
        });
        assert_eq!(run(site, &mut first, stops), Ok(Err(Stop::abort("ERR no"))));
        assert_eq!(run(site, &mut first, get("a")), text("1"));
        assert_eq!(run(site, &mut first, get("b")), NIL);

        // It writes a bounded number of keys.
        assert_eq!(run(site, &mut first, set("b", "1")), OK);
        let refused = run(site, &mut first, set("c", "1"));
        assert!(
            matches!(&refused, Ok(Err(Stop::Abort(text))) if text.contains("may write 2")),
            "{refused:?}"
        );
        // What it holds is bounded, and so is what it tells others.
        let large = request(|mut tx, _| async move {
            tx.put(&key("b"), vec![0; BYTES_MAX]).await?;
            Ok(Reply::OK)
        });
        let refused = run(site, &mut first, large);
        assert!(matches!(&refused, Ok(Err(Stop::Abort(text))) if text.contains("64 MiB")), "{refused:?}");
        assert_eq!(run(site, &mut first, get("b")), text("1"));
        let published = request(|_, _| async {
            let message = Message { channel: "c".into(), payload: "m".into(), is_sharded: false };
            Ok(Reply::Told(Box::new(Told { reply: Reply::OK, events: vec![Event::Message(message)] })))
        });
        let refused = run(site, &mut first, published);
        assert!(matches!(&refused, Ok(Err(Stop::Abort(text))) if text.contains("message")), "{refused:?}");
        assert_eq!(commit(site, &mut first), done(true));
        let over = commit(site, &mut first);
        assert!(matches!(over, CallEnd::Done { outcome: Err(_), .. }), "{over:?}");

        // The other one has read what was overwritten meanwhile.
        assert_eq!(run(site, &mut other, set("z", "1")), OK);
        assert_eq!(commit(site, &mut other), CallEnd::Conflict(Conflict::Key(key("a"))));

        let mut reader = OpenTransaction::new(id(3, 1), true, 2);
        assert_eq!(run(site, &mut reader, get("a")), text("1"));
        assert_eq!(run(site, &mut reader, get("z")), NIL);
        let refused = run(site, &mut reader, set("a", "3"));
        assert!(matches!(&refused, Ok(Err(Stop::Abort(text))) if text.contains("READONLY")), "{refused:?}");
        assert_eq!(commit(site, &mut reader), done(false));
        assert_eq!(commit(site, &mut OpenTransaction::new(id(3, 2), false, 2)), done(false));
    }

    #[test]
    fn procedures_of_one_transaction_see_each_other_and_take_effect_together() {
        behaves::<Register>();
        behaves::<Dur>();
    }
}
