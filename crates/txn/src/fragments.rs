//! Fragments: a call as operations on one record each (Q-Store, section 2.2).
//!
//! A procedure may declare a call as [`Fragments`], if its records, and what it does to each, follow from the
//! request. An engine that plans may then execute each fragment when its record's turn comes, several of
//! one transaction at the same time and without a future; every other engine runs the procedure. So that both
//! do the same, a procedure that declares fragments says what it does in [`FragmentCode`] (or a
//! [`FragmentPlan`]), and its [`crate::Procedure::run`] is [`run`] or, for keys that may come twice,
//! [`run_in_order`]. A procedure whose `run` is written by hand shares the functions that make its rows, and
//! a test compares the two.
//!
//! # What a call means
//! Its fragments are executed in the order of their places, and the reply is made of their values. The first
//! fragment that aborts ends the transaction, and then nothing of the transaction remains. An engine may
//! execute the fragments in any order that has the same result.
//!
//! # Dependencies
//! Between fragments of one transaction there are two kinds of dependencies:
//! - a *data dependency*: a fragment needs the values of earlier ones ([`Fragment::inputs`]). It is executed
//!   when all of them were. If one of them has aborted, there is no value, and the fragment is left out: the
//!   abort has a lower place, and decides.
//! - a *commit dependency*: every fragment depends on the *abortable* ones ([`Fragment::abortable`]), because
//!   what it writes must not remain if one of these aborts. A fragment may be executed before, and its value
//!   may be used, as long as its write is kept back or can be taken back.
//!
//! The other two kinds of the paper are between transactions, and the engine's business
//! (`execute::qstore::speculation`): a *conflict dependency* is on the last writer of the fragment's record,
//! and a *speculation dependency* is on a transaction whose abortable fragments were not all executed when
//! its write was read.
//!
//! There is no circle among them: inputs have lower places, no value waits for a commit dependency, and
//! conflicts go by the order of the transactions.
//!
//! # Keys that depend on values
//! There are none: a fragment's key says where in the execution queues it stands, and a planner must know
//! that before it plans the transactions behind it, when no value exists yet. A procedure that follows values
//! to its records declares its fragments by the keys of a dry run (reconnaissance), which the request
//! carries, and has abortable fragments look whether these are still the right ones: if not, they end the
//! transaction with [`Stop::Undeclared`], and it comes again.
//!
//! # Inserts
//! A fragment may write records besides its own ([`Fragment::inserts`], [`Done::inserts`]), if these are in
//! the partition of its own record, and if every other transaction that touches one of them has a fragment at
//! the record of this fragment, or of one that has this fragment among its inputs and may write; and if
//! nobody writes one of them without writing that record, too. Then the turn of that record stands for the
//! turns of all: it is what [`crate::KeySets::covers_inserts`] says of whole transactions. The names of
//! inserted records may depend on inputs.
//!
//! # Over several partitions
//! Values do not travel between partitions before the transaction has ended there. So only calls whose
//! fragments depend on nothing are executed apart over several partitions ([`apart`]).
//!
//! Fragments take [`Note`]s as a procedure does, if their transaction has a [`Teller`], or if it may have one
//! in another process that executes a part of it.

use crate::blob::Blob;
use crate::key::{Key, Space};
use crate::procedure::Call;
use crate::reply::{Outcome, Reply, Stop};
use crate::request::{PartitionRoute, Partitions, Request};
use crate::told::{self, Note};
use crate::tx::Tx;
use crate::value::{Entry, LongString, Value};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How a fragment treats its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentKind {
    /// The fragment reads the record.
    Read,
    /// The fragment reads the record, and may write it.
    Update,
    /// The fragment may write the record, and does not read it.
    Put,
}

impl FragmentKind {
    /// Whether the fragment may write its record.
    pub fn writes(self) -> bool {
        self != FragmentKind::Read
    }
}

/// What a transaction does to one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The record's key.
    pub key: Key,
    /// The key's [`Key::hash64`].
    hash: u64,
    /// How it treats the record.
    pub kind: FragmentKind,
    /// The places of earlier fragments whose values it needs: its data dependencies.
    pub inputs: SmallVec<[u16; 2]>,
    /// It may abort the transaction.
    pub abortable: bool,
    /// It may write records that no other transaction touches without a fragment at this one's record.
    pub inserts: bool,
}

impl Fragment {
    /// A fragment that needs no other one and aborts nothing.
    pub fn independent(key: Key, kind: FragmentKind) -> Fragment {
        let hash = key.hash64();
        Fragment { key, hash, kind, inputs: SmallVec::new(), abortable: false, inserts: false }
    }

    /// The same with these inputs.
    pub fn needing(self, inputs: impl IntoIterator<Item = u16>) -> Fragment {
        Fragment { inputs: inputs.into_iter().collect(), ..self }
    }
    /// The same, which may abort the transaction.
    pub fn aborting(self) -> Fragment {
        Fragment { abortable: true, ..self }
    }
    /// The same, which may insert.
    pub fn inserting(self) -> Fragment {
        Fragment { inserts: true, ..self }
    }

    /// The key's [`Key::hash64`].
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// An entry that nobody else can see yet: an earlier operation of the same transaction made it.
///
/// An operation may take the entry and change it. It must then write what comes out, or put back what it has
/// left as it was. If it does neither, [`InTurn`] makes the entry again, which costs as much as the
/// operations before have cost, and no later operation may take one.
#[derive(Debug, Default)]
pub struct OwnEntry(RefCell<Option<Entry>>);

impl OwnEntry {
    /// Takes the entry.
    pub fn take(&self) -> Option<Entry> {
        self.0.borrow_mut().take()
    }
    /// Puts the entry back as it was.
    pub fn put_back(&self, entry: Entry) {
        *self.0.borrow_mut() = Some(entry);
    }
}

/// What a fragment executes with.
#[derive(Clone, Copy, Debug)]
pub struct FragmentContext<'a> {
    /// The fragment's place among the transaction's.
    pub place: usize,
    /// What the record holds. `None` if the entry is absent or has expired, or if the fragment does not read.
    pub found: Option<&'a Entry>,
    /// The same, for a fragment that may take it away to change it in place: then `found` is `None`.
    pub own: Option<&'a OwnEntry>,
    /// The record holds an entry that has expired.
    pub has_expired: bool,
    /// The values of the fragment's inputs, in their order.
    pub inputs: &'a [FragmentValue],
    /// The time of the transaction's epoch: [`Tx::now_ms`].
    pub now_ms: u64,
}

/// What other fragments, and the reply, need of a fragment.
#[derive(Clone, Debug, PartialEq)]
pub enum FragmentValue {
    /// A reply. [`Reply::Nil`] costs nothing.
    Reply(Reply),
    /// A string in chunks, shared with the record. The reply puts the chunks together, if there is room.
    Long(Arc<LongString>),
}

impl FragmentValue {
    /// The value of a fragment that has nothing to say.
    pub const NIL: FragmentValue = FragmentValue::Reply(Reply::Nil);

    /// The byte string that a record holds; nothing if it holds another value.
    pub fn of_string(value: &Value) -> FragmentValue {
        match value {
            Value::String(blob) => FragmentValue::Reply(Reply::Bulk(blob.clone())),
            Value::LongString(string) => FragmentValue::Long(string.clone()),
            _ => FragmentValue::NIL,
        }
    }

    /// The value as a reply.
    pub fn into_reply(self) -> Reply {
        match self {
            FragmentValue::Reply(reply) => reply,
            FragmentValue::Long(string) => Reply::bulk(&*string),
        }
    }

    /// Whether the value is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, FragmentValue::Reply(reply) if reply.is_error())
    }
}

impl From<Reply> for FragmentValue {
    fn from(reply: Reply) -> FragmentValue {
        FragmentValue::Reply(reply)
    }
}

/// The values of a transaction's fragments, in the order of the places.
pub type FragmentValues = SmallVec<[FragmentValue; 1]>;

/// A reply for [`FragmentCode::reply`]: the values of all fragments.
pub fn all(_: &[Blob], values: FragmentValues) -> Reply {
    Reply::Array(values.into_iter().map(FragmentValue::into_reply).collect())
}

/// What a fragment has done.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// What the record holds now (`Some(None)`: nothing), if the fragment has written it.
    pub write: Option<Option<Entry>>,
    /// What other fragments, and the reply, need of it.
    pub value: FragmentValue,
    /// Further records that it has written: distinct keys, none of them a fragment's.
    pub inserts: Vec<(Key, Entry)>,
}

impl Done {
    /// The fragment has written nothing.
    pub fn read(value: impl Into<FragmentValue>) -> Done {
        Done { write: None, value: value.into(), inserts: Vec::new() }
    }
    /// The fragment has put an entry into its record.
    pub fn put(entry: Entry, value: impl Into<FragmentValue>) -> Done {
        Done { write: Some(Some(entry)), ..Done::read(value) }
    }
    /// The fragment has deleted what its record held.
    pub fn delete(value: impl Into<FragmentValue>) -> Done {
        Done { write: Some(None), ..Done::read(value) }
    }
    /// The same, with these records besides.
    pub fn inserting(self, inserts: Vec<(Key, Entry)>) -> Done {
        Done { inserts, ..self }
    }
}

/// How a fragment ended.
pub type FragmentOutcome = Result<Done, Stop>;

/// What the fragments of a procedure do. Functions of what they are given, as procedures are; a fragment that
/// panics does nothing, and its value is an error.
#[derive(Clone, Copy, Debug)]
pub struct FragmentCode {
    /// Executes the fragment at a place. Only an abortable fragment may end in an error.
    pub execute: fn(&[Blob], FragmentContext<'_>) -> FragmentOutcome,
    /// The call's reply, from the values of all fragments. `None`: the value of the only one.
    pub reply: Option<fn(&[Blob], FragmentValues) -> Reply>,
}

/// What the fragments of one call do, for calls that work something out once for all of their fragments.
/// Functions of what they are given, as those of [`FragmentCode`] are.
pub trait FragmentPlan: Debug + Send + Sync {
    /// Executes the fragment at a place. Only an abortable fragment may end in an error.
    fn execute(&self, args: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome;
    /// The call's reply, from the values of all fragments.
    fn reply(&self, args: &[Blob], values: FragmentValues) -> Reply;
    /// Whether fragments note what they write by themselves, as [`InTurn`] does.
    fn notes_writes(&self) -> bool {
        false
    }
    /// What the fragments have noted, with their places, in the order in which it is told.
    fn in_order(&self, notes: Vec<(u16, Vec<Note>)>) -> Vec<Note> {
        notes.into_iter().flat_map(|(_, notes)| notes).collect()
    }
}

impl FragmentPlan for FragmentCode {
    fn execute(&self, args: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
        (self.execute)(args, context)
    }
    fn reply(&self, args: &[Blob], mut values: FragmentValues) -> Reply {
        match self.reply {
            Some(reply) => reply(args, values),
            None => values.pop().map_or(Reply::Nil, FragmentValue::into_reply),
        }
    }
}

#[derive(Clone, Debug)]
enum Code {
    Functions(FragmentCode),
    Plan(Arc<dyn FragmentPlan>),
}

impl Code {
    fn plan(&self) -> &dyn FragmentPlan {
        match self {
            Code::Functions(code) => code,
            Code::Plan(plan) => &**plan,
        }
    }
}

/// What a fragment has declared.
#[derive(Clone, Copy)]
struct Declared<'a> {
    kind: FragmentKind,
    abortable: bool,
    /// Its key, and how the request was routed, if the fragment may insert.
    inserts: Option<(&'a Key, &'a PartitionRoute)>,
}

impl<'a> Declared<'a> {
    fn of_kind(kind: FragmentKind) -> Declared<'static> {
        Declared { kind, abortable: false, inserts: None }
    }

    fn of(fragment: &'a Fragment, route: &'a PartitionRoute) -> Declared<'a> {
        let Fragment { kind, abortable, inserts, .. } = *fragment;
        Declared { kind, abortable, inserts: inserts.then_some((&fragment.key, route)) }
    }

    fn may_insert(&self, (key, _): &(Key, Entry)) -> bool {
        let partition_of = |route: &PartitionRoute, key| route.slots.partition_of_key(key);
        self.inserts.is_some_and(|(own, route)| {
            key.space() == own.space() && partition_of(route, key) == partition_of(route, own)
        })
    }
}

/// Executes one fragment, and holds it to what it has declared.
fn execute(
    plan: &dyn FragmentPlan,
    args: &[Blob],
    declared: Declared<'_>,
    context: FragmentContext<'_>,
) -> FragmentOutcome {
    let executed = catch_unwind(AssertUnwindSafe(|| plan.execute(args, context)));
    let failed = |text: &'static str| Ok(Done::read(Reply::error(text)));
    match executed {
        Ok(Err(_)) if !declared.abortable => {
            failed("ERR a fragment that was declared not to abort did: nothing was written there")
        }
        Ok(Ok(done)) if done.write.is_some() && !declared.kind.writes() => {
            failed("ERR a fragment that was declared to read wrote: nothing was written there")
        }
        Ok(Ok(done)) if !done.inserts.iter().all(|insert| declared.may_insert(insert)) => {
            failed("ERR a fragment inserted what it had not declared: nothing was written there")
        }
        Ok(done) => done,
        Err(_) => failed("ERR a fragment panicked: nothing was written there"),
    }
}

/// The reply of a transaction whose fragments have these values. What they have written stays, also if the
/// reply panics, which then is an error.
fn reply(plan: &dyn FragmentPlan, args: &[Blob], values: FragmentValues) -> Reply {
    let replied = catch_unwind(AssertUnwindSafe(|| plan.reply(args, values)));
    replied.unwrap_or(Reply::error("ERR the reply panicked: what the transaction wrote is there"))
}

/// An operation on one record.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// What does it.
    pub code: FragmentCode,
    /// The arguments of its call.
    pub args: &'a [Blob],
    /// How it treats the record.
    pub kind: FragmentKind,
    /// Its place among its call's.
    pub place: usize,
    /// It takes what it changes, if it may: [`FragmentContext::own`].
    pub takes_own: bool,
}

impl Operation<'_> {
    /// Executes the operation by itself, as [`InTurn`] would if there were no other one.
    pub fn execute(self, key: &Key, context: FragmentContext<'_>) -> Done {
        told::note(|| Note::Read);
        let done = self.execute_on(key, context);
        if let Some(entry) = &done.write {
            told::note_write(key, entry.as_ref());
        }
        done
    }

    fn execute_on(self, key: &Key, context: FragmentContext<'_>) -> Done {
        let Operation { code, args, kind, place, .. } = self;
        let (found, has_expired) = match kind {
            FragmentKind::Put => (None, false),
            FragmentKind::Read | FragmentKind::Update => (context.found, context.has_expired),
        };
        if has_expired {
            told::note_expired(key);
        }
        let context = FragmentContext { place, found, has_expired, ..context };
        let done = execute(&code, args, Declared::of_kind(kind), context);
        done.unwrap_or_else(|_| Done::read(FragmentValue::NIL))
    }

    /// Executes an operation that only reads on what a record holds: the reply of its call.
    pub fn read(self, found: Option<&Entry>, now_ms: u64) -> Reply {
        let Operation { code, args, place, .. } = self;
        let context = FragmentContext { place, found, own: None, has_expired: false, inputs: &[], now_ms };
        let done = execute(&code, args, Declared::of_kind(FragmentKind::Read), context);
        self.reply(done.map_or(FragmentValue::NIL, |done| done.value))
    }

    /// The reply of a call that consists of the operation, which has this value.
    pub fn reply(self, value: FragmentValue) -> Reply {
        match self.code.reply {
            None => value.into_reply(),
            Some(_) => reply(&self.code, self.args, FragmentValues::from_iter([value])),
        }
    }
}

/// Executes operations of several calls on one record, one after the other, as one fragment: for the
/// [`FragmentPlan`] of a call that consists of others, none of which aborts.
///
/// Each operation's notes begin with [`Note::Read`]. What one has written, the next may change in place: a
/// collection that several change is copied once.
pub struct InTurn<'a> {
    key: &'a Key,
    context: FragmentContext<'a>,
    write: Option<Option<Entry>>,
    /// The operations so far, as long as one may take what those before it have written.
    before: Option<SmallVec<[Operation<'a>; 4]>>,
}

impl<'a> InTurn<'a> {
    /// Begins with what a fragment is given.
    pub fn new(key: &'a Key, context: FragmentContext<'a>) -> InTurn<'a> {
        InTurn { key, context, write: None, before: Some(SmallVec::new()) }
    }

    /// Executes an operation. Its value.
    pub fn execute(&mut self, operation: Operation<'a>) -> FragmentValue {
        told::note(|| Note::Read);
        if let Some(value) = self.execute_in_place(operation) {
            return value;
        }
        let done = self.step(operation);
        self.wrote(done.write);
        if let Some(before) = &mut self.before {
            before.push(operation);
        }
        done.value
    }

    /// Lets an operation take what the operations before it have written, if there is something. Gives the
    /// operation's value, unless it took the entry and wrote nothing: then the operation counts as not
    /// executed, and no operation takes anything any more.
    fn execute_in_place(&mut self, operation: Operation<'a>) -> Option<FragmentValue> {
        let is_alive = |entry: &Entry| !entry.expired(self.context.now_ms);
        let before = self.before.as_mut().filter(|_| operation.takes_own)?;
        let Some(Some(written)) = self.write.take_if(|written| written.as_ref().is_some_and(is_alive)) else {
            return None;
        };
        let own = OwnEntry(RefCell::new(Some(written)));
        let place = operation.place;
        let context =
            FragmentContext { place, own: Some(&own), found: None, has_expired: false, ..self.context };
        let (notes, done) = told::kept_apart(|| {
            execute(&operation.code, operation.args, Declared::of_kind(operation.kind), context)
        });
        match (done, own.take()) {
            (Ok(Done { write: Some(entry), value, .. }), _) => {
                before.push(operation);
                told::note_all(notes);
                self.wrote(Some(entry));
                Some(value)
            }
            (Ok(Done { write: None, value, .. }), Some(kept)) => {
                before.push(operation);
                told::note_all(notes);
                self.write = Some(Some(kept));
                Some(value)
            }
            _ => {
                self.make_again();
                None
            }
        }
    }

    /// Executes the operations so far once more, without notes.
    fn make_again(&mut self) {
        let before = self.before.take().unwrap_or_default();
        told::kept_apart(|| {
            for operation in before {
                let done = self.step(operation);
                if let Some(entry) = done.write {
                    self.write = Some(entry);
                }
            }
        });
    }

    /// Executes an operation on what the record holds now.
    fn step(&self, operation: Operation<'_>) -> Done {
        let now_ms = self.context.now_ms;
        let (found, has_expired) = match &self.write {
            None => (self.context.found, self.context.has_expired),
            Some(written) => {
                let has_expired = written.as_ref().is_some_and(|entry| entry.expired(now_ms));
                (written.as_ref().filter(|_| !has_expired), has_expired)
            }
        };
        operation.execute_on(self.key, FragmentContext { found, has_expired, ..self.context })
    }

    fn wrote(&mut self, write: Option<Option<Entry>>) {
        if let Some(entry) = write {
            told::note_write(self.key, entry.as_ref());
            self.write = Some(entry);
        }
    }

    /// What the fragment has done.
    pub fn done(self, value: impl Into<FragmentValue>) -> Done {
        Done { write: self.write, ..Done::read(value) }
    }
}

/// The reply of a call that [`InTurn`] has executed, from the values of its fragments.
pub fn reply_of(code: FragmentCode, args: &[Blob], values: FragmentValues) -> Reply {
    reply(&code, args, values)
}

/// Tells others what a transaction did that was executed fragment by fragment.
#[derive(Clone, Copy, Debug)]
pub struct Teller {
    /// What the transaction's notes begin with: [`Note::Began`].
    pub began: &'static str,
    /// Adds to a reply what the notes come to.
    pub tell: fn(Reply, Vec<Note>) -> Reply,
}

/// A call as fragments.
///
/// Guarantees: (1) keys are distinct; (2) inputs are places of earlier fragments; (3) there are at most
/// [`Fragments::COUNT_MAX`]; (4) a fragment that inserts may write its own record.
#[derive(Clone, Debug)]
pub struct Fragments {
    list: FragmentList,
    code: Code,
    teller: Option<Teller>,
    /// Whether others may want to be told of it: each process knows for itself whether anybody does now.
    may_be_told: bool,
    /// What the fragments do is noted, although nobody wants to know here.
    is_noted: bool,
    /// No two keys have one hash, so that an engine may tell records by it.
    hashes_differ: bool,
}

/// The fragments of a transaction.
pub type FragmentList = SmallVec<[Fragment; 1]>;

/// More fragments than this are not executed apart if they depend on each other.
const DEPENDENT_MAX: usize = 1024;

/// Lists up to this long are compared all with all.
const COMPARED_MAX: usize = 32;

impl Fragments {
    /// Their places fit into 16 bits.
    pub const COUNT_MAX: usize = 4096;

    /// A list of fragments. `None` if it does not keep the guarantees.
    pub fn new(list: FragmentList, code: FragmentCode) -> Option<Fragments> {
        Fragments::of(list, Code::Functions(code))
    }

    /// A list of fragments with a plan. `None` if it does not keep the guarantees.
    pub fn planned(list: FragmentList, plan: impl FragmentPlan + 'static) -> Option<Fragments> {
        Fragments::of(list, Code::Plan(Arc::new(plan)))
    }

    fn of(list: FragmentList, code: Code) -> Option<Fragments> {
        let is_allowed = |(place, fragment): (usize, &Fragment)| {
            fragment.inputs.iter().all(|&input| usize::from(input) < place)
                && (fragment.kind.writes() || !fragment.inserts)
        };
        if list.len() > Fragments::COUNT_MAX || !list.iter().enumerate().all(is_allowed) {
            return None;
        }
        let hashes_differ = match list.len() <= COMPARED_MAX {
            true => list
                .iter()
                .enumerate()
                .all(|(place, fragment)| list[..place].iter().all(|earlier| earlier.hash != fragment.hash)),
            false => {
                let mut hashes: Vec<u64> = list.iter().map(|fragment| fragment.hash).collect();
                hashes.sort_unstable();
                hashes.is_sorted_by(|one, next| one < next)
            }
        };
        let keys_differ = || {
            let mut keys: Vec<&Key> = list.iter().map(|fragment| &fragment.key).collect();
            keys.sort_unstable();
            keys.is_sorted_by(|one, next| one < next)
        };
        (hashes_differ || keys_differ()).then_some(Fragments {
            list,
            code,
            teller: None,
            may_be_told: false,
            is_noted: false,
            hashes_differ,
        })
    }

    /// The same, of which others are told, if anybody wants to know now.
    pub fn telling(self, teller: Option<Teller>) -> Fragments {
        Fragments { teller, may_be_told: true, ..self }
    }

    /// The same as a part of a transaction over several processes: what others may want to be told of it is
    /// noted in any case.
    pub fn noted(self) -> Fragments {
        Fragments { is_noted: self.may_be_told, ..self }
    }

    /// Whether others may want to be told of it. If so, every process in which a part of it is executed makes
    /// the reply, of what was noted by all.
    pub fn may_be_told(&self) -> bool {
        self.may_be_told
    }

    /// The fragments, in the order in which their places count.
    pub fn list(&self) -> &[Fragment] {
        &self.list
    }

    /// Whether no fragment depends on another one in any way, or inserts.
    pub fn are_independent(&self) -> bool {
        let mut list = self.list.iter();
        list.all(|fragment| fragment.inputs.is_empty() && !fragment.abortable && !fragment.inserts)
    }

    /// Whether a request that has this route reaches all records. If it has several partitions, each has
    /// some of them, and all are of the user's space, of which there are no copies.
    fn are_where(&self, route: &PartitionRoute) -> bool {
        if route.partitions.len() == 1 {
            return self.list.iter().all(|fragment| route.holds(&fragment.key));
        }
        let is_of_user = |fragment: &Fragment| fragment.key.space() == Space::User;
        if !self.list.iter().all(is_of_user) {
            return false;
        }
        let partition_of = |fragment: &Fragment| route.slots.partition_of_key(&fragment.key);
        let mut found: Partitions = self.list.iter().map(partition_of).collect();
        found.sort_unstable();
        found.dedup();
        found == route.partitions
    }

    /// Executes the fragment at a place by itself: for engines that have called [`apart`]. `entry` is what
    /// the record holds, expired or not, and `inputs` are the values of the fragment's inputs. Adds to
    /// `notes` what the fragment notes, if that is to be told.
    ///
    /// # Errors
    /// The fragment aborts the transaction.
    pub fn execute_apart(
        &self,
        request: &Request,
        place: usize,
        entry: Option<&Entry>,
        inputs: &[FragmentValue],
        now_ms: u64,
        notes: &mut Vec<Note>,
    ) -> FragmentOutcome {
        let Fragment { key, kind, .. } = &self.list[place];
        let entry = entry.filter(|_| *kind != FragmentKind::Put);
        let has_expired = entry.is_some_and(|entry| entry.expired(now_ms));
        let found = entry.filter(|_| !has_expired);
        let context = FragmentContext { place, found, own: None, has_expired, inputs, now_ms };
        let declared = Declared::of(&self.list[place], &request.route);
        let plan = self.code.plan();
        if self.teller.is_none() && !self.is_noted {
            return execute(plan, &request.args, declared, context);
        }
        let (taken, outcome) = told::noting(std::mem::take(notes), || {
            if has_expired && !plan.notes_writes() {
                told::note_expired(key);
            }
            let done = execute(plan, &request.args, declared, context)?;
            if let Some(entry) = done.write.as_ref().filter(|_| !plan.notes_writes()) {
                told::note_write(key, entry.as_ref());
            }
            done.inserts.iter().for_each(|(key, entry)| told::note_write(key, Some(entry)));
            Ok(done)
        });
        *notes = taken;
        outcome
    }

    /// The reply of a transaction whose fragments have these values, and have noted this, with their places,
    /// in the order of these. What they have written stays, also if the reply panics, which then is an error.
    pub fn reply(&self, args: &[Blob], values: FragmentValues, notes: Vec<(u16, Vec<Note>)>) -> Reply {
        let plan = self.code.plan();
        let reply = reply(plan, args, values);
        match self.teller {
            None => reply,
            Some(Teller { began, tell }) => {
                tell(reply, std::iter::once(Note::Began(began)).chain(plan.in_order(notes)).collect())
            }
        }
    }
}

/// Whether each fragment of a request may be executed by itself, where its record is and when its turn comes;
/// and if so, the fragments. If the request has several partitions, they depend on nothing. All partitions of
/// a request must decide alike, in whichever processes they are: this depends on nothing but what the order
/// has of the request.
pub fn apart(request: &Request) -> Option<Fragments> {
    // If that panics, so does the procedure, where it is an outcome.
    let fragments = catch_unwind(AssertUnwindSafe(|| request.procedure.fragments(request))).ok()??;
    let writes = |fragment: &Fragment| fragment.kind.writes();
    let may_run = !request.elsewhere
        && fragments.hashes_differ
        && (fragments.are_independent()
            || request.route.partitions.len() == 1 && fragments.list.len() <= DEPENDENT_MAX)
        && !(request.footprint.read_only && fragments.list.iter().any(writes))
        && fragments.are_where(&request.route);
    may_run.then_some(fragments)
}

/// The procedure of a call that is declared as fragments: executes one after the other.
///
/// # Errors
/// A fragment aborts the transaction, or the engine stops it.
pub async fn run(mut tx: Tx, call: Call) -> Outcome {
    let request = call.request();
    let Some(fragments) = request.procedure.fragments(request) else {
        return Err(Stop::abort("ERR the arguments are malformed"));
    };
    let Fragments { list, code, .. } = &fragments;
    let plan = code.plan();
    let mut values = FragmentValues::with_capacity(list.len());
    for (place, fragment) in list.iter().enumerate() {
        let Fragment { key, kind, inputs, .. } = fragment;
        let inputs: SmallVec<[FragmentValue; 2]> =
            inputs.iter().map(|&input| values[usize::from(input)].clone()).collect();
        let found = tx.find(key, *kind).await?;
        let (found, now_ms) = (found.as_ref(), tx.now_ms());
        let context =
            FragmentContext { place, found, own: None, has_expired: false, inputs: &inputs, now_ms };
        let done = execute(plan, &call, Declared::of(fragment, &request.route), context)?;
        if let Some(entry) = done.write {
            tx.write(key, entry).await?;
        }
        for (key, entry) in done.inserts {
            tx.put_entry(&key, entry).await?;
        }
        values.push(done.value);
    }
    Ok(reply(plan, &call, values))
}

/// Executes fragments of one kind, none of which aborts, one after the other: for a procedure that runs code
/// that it also declares as fragments. A key may come several times, and every fragment has the same inputs.
///
/// # Errors
/// The engine stops the transaction.
pub async fn run_in_order(
    tx: &mut Tx,
    args: &[Blob],
    code: FragmentCode,
    kind: FragmentKind,
    keys: impl Iterator<Item = Key>,
    inputs: &[FragmentValue],
) -> Outcome {
    let expected = keys.size_hint().1.map_or(0, |most| most.min(Fragments::COUNT_MAX));
    let mut values = FragmentValues::with_capacity(expected);
    for (place, key) in keys.enumerate() {
        let found = tx.find(&key, kind).await?;
        let (found, now_ms) = (found.as_ref(), tx.now_ms());
        let context = FragmentContext { place, found, own: None, has_expired: false, inputs, now_ms };
        let done = execute(&code, args, Declared::of_kind(kind), context)?;
        if let Some(entry) = done.write {
            tx.write(&key, entry).await?;
        }
        if code.reply.is_none() {
            return Ok(done.value.into_reply());
        }
        values.push(done.value);
    }
    Ok(reply(&code, args, values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Args, FnProcedure, RequestId};

    fn code() -> FragmentCode {
        fn execute(_: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
            match context.place {
                0 => Err(Stop::abort("ERR no")),
                1 => panic!("on purpose"),
                _ => Ok(Done::delete(Reply::OK)),
            }
        }
        FragmentCode { execute, reply: Some(all) }
    }

    fn fragment(key: &str) -> Fragment {
        Fragment::independent(Key::from(key), FragmentKind::Read)
    }

    fn request() -> Request {
        let nothing = FnProcedure::new("nothing", async |_, _| Ok(Reply::OK));
        Request::new(RequestId::default(), Arc::new(nothing), Args::new())
    }

    #[test]
    fn lists_that_break_a_guarantee_are_refused() {
        let needs = |input| {
            let mut needy = fragment("b");
            needy.inputs.push(input);
            needy
        };
        let of = |list: Vec<Fragment>| Fragments::new(list.into(), code());
        assert!(of(vec![fragment("a"), fragment("a")]).is_none(), "a key twice");
        assert!(of(vec![fragment("a"), needs(1)]).is_none(), "its own value");
        assert!(of(vec![needs(1), fragment("a")]).is_none(), "a later one's value");
        let many = |count| (0..count).map(|number: usize| fragment(&number.to_string())).collect();
        assert!(of(many(Fragments::COUNT_MAX + 1)).is_none());
        assert!(of(many(3)).is_some_and(|fragments| fragments.are_independent()));
        let dependent = of(vec![fragment("a"), needs(0)]).expect("it keeps the guarantees");
        assert!(!dependent.are_independent());
        let abortable = Fragment { abortable: true, ..fragment("a") };
        assert!(of(vec![abortable]).is_some_and(|fragments| !fragments.are_independent()));
    }

    #[test]
    fn a_fragment_that_breaks_its_declaration_does_nothing() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let request = request();
        let list: FragmentList = ["a", "b", "c"].map(fragment).into_iter().collect();
        let fragments = Fragments::new(list, code()).expect("it keeps the guarantees");
        for place in 0..3 {
            let done = fragments.execute_apart(&request, place, None, &[], 0, &mut Vec::new());
            let done = done.expect("none may abort");
            assert!(done.write.is_none() && done.value.is_error(), "{place}: {done:?}");
        }
        let abortable = Fragments::new(std::iter::once(fragment("a").aborting()).collect(), code());
        let abortable = abortable.expect("it keeps the guarantees");
        let aborted = abortable.execute_apart(&request, 0, None, &[], 0, &mut Vec::new());
        assert_eq!(aborted, Err(Stop::abort("ERR no")));
        let panics = FragmentCode { reply: Some(|_, _| panic!("on purpose")), ..code() };
        let fragments = Fragments::new(FragmentList::new(), panics).expect("it keeps the guarantees");
        assert!(fragments.reply(&[], FragmentValues::new(), Vec::new()).is_error());
        std::panic::set_hook(hook);
    }

    #[test]
    fn keys_of_one_hash_are_told_apart_and_not_executed_apart() {
        let mut twins: FragmentList = ["a", "b"].map(fragment).into_iter().collect();
        twins[1].hash = twins[0].hash;
        let fragments = Fragments::new(twins, code()).expect("the keys are distinct");
        assert!(!fragments.hashes_differ);
        let mut many: FragmentList = (0..=COMPARED_MAX).map(|number| fragment(&number.to_string())).collect();
        many.push(fragment("0"));
        assert!(Fragments::new(many, code()).is_none(), "a key twice");
    }

    #[test]
    fn what_a_fragment_does_is_noted_if_it_is_told() {
        let code = FragmentCode {
            execute: |_, context| {
                assert_eq!(context.found, None, "the entry has expired");
                Ok(Done::put(Entry::new("new"), FragmentValue::NIL))
            },
            reply: Some(|_, _| Reply::OK),
        };
        let fragment = Fragment::independent(Key::from("a"), FragmentKind::Update);
        let silent = Fragments::new(std::iter::once(fragment).collect(), code).expect("one key");
        let expired = Entry { expires_at_ms: 5, ..Entry::new("old") };
        let mut notes = Vec::new();
        let request = request();
        silent.execute_apart(&request, 0, Some(&expired), &[], 5, &mut notes).expect("it does not abort");
        assert_eq!(notes, []);
        let tell = |_, notes: Vec<Note>| Reply::Integer(notes.len() as i64);
        let told = silent.telling(Some(Teller { began: "test", tell }));
        told.execute_apart(&request, 0, Some(&expired), &[], 5, &mut notes).expect("it does not abort");
        let wrote = Note::Wrote { key: Key::from("a"), is_present: true, expires: false };
        assert_eq!(notes, [Note::Expired(Key::from("a")), wrote]);
        assert_eq!(told.reply(&[], FragmentValues::new(), vec![(0, notes)]), Reply::Integer(3));
    }
}
