//! Fragments: a call as operations on one record each (Q-Store, section 2.2).
//!
//! A procedure may declare a call as [`Fragments`], if its records, and what it does to each, follow from the
//! arguments. An engine that plans may then execute each fragment when its record's turn comes, several of
//! one transaction at the same time and without a future; every other engine runs the procedure. So that both
//! do the same, a procedure that declares fragments says what it does in [`FragmentCode`] only, and its
//! [`crate::Procedure::run`] is [`run`] or, for keys that may come twice, [`run_in_order`].
//!
//! Between fragments of one transaction there are two kinds of dependencies:
//! - a *data dependency*: a fragment needs what an earlier one found ([`Fragment::inputs`]);
//! - a *commit dependency*: an *abortable* fragment may end the transaction, and then no fragment of the
//!   transaction has written anything.
//!
//! Fragments take [`Note`]s as a procedure does, if their transaction has a [`Teller`], or if it may have one
//! in another process that executes a part of it.

use crate::blob::Blob;
use crate::key::{Key, Space};
use crate::procedure::Call;
use crate::reply::{Outcome, Reply, Stop};
use crate::request::{PartitionRoute, Partitions, Request};
use crate::told::{self, Note};
use crate::tx::{Intent, Tx};
use crate::value::{Entry, LongString, Value};
use smallvec::SmallVec;
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
}

impl Fragment {
    /// A fragment that needs no other one and aborts nothing.
    pub fn independent(key: Key, kind: FragmentKind) -> Fragment {
        let hash = key.hash64();
        Fragment { key, hash, kind, inputs: SmallVec::new(), abortable: false }
    }

    /// The key's [`Key::hash64`].
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// What a fragment executes with.
#[derive(Clone, Copy, Debug)]
pub struct FragmentContext<'a> {
    /// The fragment's place among the transaction's.
    pub place: usize,
    /// What the record holds. `None` if the entry is absent or has expired, or if the fragment does not read.
    pub found: Option<&'a Entry>,
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
}

impl Done {
    /// The fragment has written nothing.
    pub fn read(value: impl Into<FragmentValue>) -> Done {
        Done { write: None, value: value.into() }
    }
    /// The fragment has put an entry into its record.
    pub fn put(entry: Entry, value: impl Into<FragmentValue>) -> Done {
        Done { write: Some(Some(entry)), value: value.into() }
    }
    /// The fragment has deleted what its record held.
    pub fn delete(value: impl Into<FragmentValue>) -> Done {
        Done { write: Some(None), value: value.into() }
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

impl FragmentCode {
    /// Executes one fragment of this kind.
    fn execute(
        &self,
        args: &[Blob],
        kind: FragmentKind,
        is_abortable: bool,
        context: FragmentContext<'_>,
    ) -> FragmentOutcome {
        let executed = catch_unwind(AssertUnwindSafe(|| (self.execute)(args, context)));
        let failed = |text: &'static str| Done::read(Reply::error(text));
        match executed {
            Ok(Err(_)) if !is_abortable => {
                Ok(failed("ERR a fragment that was declared not to abort did: nothing was written there"))
            }
            Ok(Ok(done)) if done.write.is_some() && !kind.writes() => {
                Ok(failed("ERR a fragment that was declared to read wrote: nothing was written there"))
            }
            Ok(done) => done,
            Err(_) => Ok(failed("ERR a fragment panicked: nothing was written there")),
        }
    }

    /// The reply of a transaction whose fragments have these values. What they have written stays, also if
    /// the reply panics, which then is an error.
    fn reply(&self, args: &[Blob], mut values: FragmentValues) -> Reply {
        let Some(reply) = self.reply else {
            return values.pop().map_or(Reply::Nil, FragmentValue::into_reply);
        };
        let replied = catch_unwind(AssertUnwindSafe(|| reply(args, values)));
        replied.unwrap_or(Reply::error("ERR the reply panicked: what the transaction wrote is there"))
    }
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
/// [`Fragments::COUNT_MAX`].
#[derive(Clone, Debug)]
pub struct Fragments {
    list: FragmentList,
    code: FragmentCode,
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

/// Lists up to this long are compared all with all.
const COMPARED_MAX: usize = 32;

impl Fragments {
    /// Their places fit into 16 bits.
    pub const COUNT_MAX: usize = 4096;

    /// A list of fragments. `None` if it does not keep the guarantees.
    pub fn new(list: FragmentList, code: FragmentCode) -> Option<Fragments> {
        let is_early = |(place, fragment): (usize, &Fragment)| {
            fragment.inputs.iter().all(|&input| usize::from(input) < place)
        };
        if list.len() > Fragments::COUNT_MAX || !list.iter().enumerate().all(is_early) {
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

    /// Whether no fragment depends on another one in any way, so that each may be executed by itself.
    pub fn are_independent(&self) -> bool {
        self.hashes_differ
            && self.list.iter().all(|fragment| fragment.inputs.is_empty() && !fragment.abortable)
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

    /// Executes the fragment at a place by itself: for engines that have called [`independent`]. `entry` is
    /// what the record holds, expired or not. Adds to `notes` what the fragment notes, if that is to be told.
    pub fn execute_apart(
        &self,
        args: &[Blob],
        place: usize,
        entry: Option<&Entry>,
        now_ms: u64,
        notes: &mut Vec<Note>,
    ) -> Done {
        match self.teller.is_some() || self.is_noted {
            false => self.execute(args, place, entry, now_ms),
            true => {
                let (taken, done) = told::noting(std::mem::take(notes), || {
                    let done = self.execute(args, place, entry, now_ms);
                    if let Some(entry) = &done.write {
                        told::note_write(&self.list[place].key, entry.as_ref());
                    }
                    done
                });
                *notes = taken;
                done
            }
        }
    }

    fn execute(&self, args: &[Blob], place: usize, entry: Option<&Entry>, now_ms: u64) -> Done {
        let Fragment { key, kind, .. } = &self.list[place];
        let mut found = entry.filter(|_| *kind != FragmentKind::Put);
        if found.is_some_and(|entry| entry.expired(now_ms)) {
            found = None;
            told::note_expired(key);
        }
        let context = FragmentContext { place, found, inputs: &[], now_ms };
        let executed = self.code.execute(args, *kind, false, context);
        executed.unwrap_or_else(|stop| Done::read(Reply::error_owned(stop.to_string())))
    }

    /// The reply of a transaction whose fragments have these values, and have noted this, in the order of
    /// their places. What they have written stays, also if the reply panics, which then is an error.
    pub fn reply(&self, args: &[Blob], values: FragmentValues, notes: impl Iterator<Item = Note>) -> Reply {
        let reply = self.code.reply(args, values);
        match self.teller {
            None => reply,
            Some(Teller { began, tell }) => {
                tell(reply, std::iter::once(Note::Began(began)).chain(notes).collect())
            }
        }
    }
}

/// Whether each fragment of a request may be executed by itself, where its record is; and if so, the
/// fragments. All partitions of a request must decide alike, in whichever processes they are: this depends on
/// nothing but what the order has of the request.
pub fn independent(request: &Request) -> Option<Fragments> {
    // If that panics, so does the procedure, where it is an outcome.
    let fragments = catch_unwind(AssertUnwindSafe(|| request.procedure.fragments(&request.args))).ok()??;
    let is_allowed = |fragment: &Fragment| !(fragment.kind.writes() && request.footprint.read_only);
    let may_run = !request.elsewhere
        && fragments.are_independent()
        && fragments.list.iter().all(is_allowed)
        && fragments.are_where(&request.route);
    may_run.then_some(fragments)
}

/// The procedure of a call that is declared as fragments: executes one after the other.
///
/// # Errors
/// A fragment aborts the transaction, or the engine stops it.
pub async fn run(mut tx: Tx, call: Call) -> Outcome {
    let Some(fragments) = call.request().procedure.fragments(&call) else {
        return Err(Stop::abort("ERR the arguments are malformed"));
    };
    let Fragments { list, code, .. } = &fragments;
    let mut values = FragmentValues::with_capacity(list.len());
    for (place, Fragment { key, kind, inputs, abortable, .. }) in list.iter().enumerate() {
        let inputs: SmallVec<[FragmentValue; 2]> =
            inputs.iter().map(|&input| values[usize::from(input)].clone()).collect();
        let found = find(&mut tx, key, *kind).await?;
        let now_ms = tx.now_ms();
        let context = FragmentContext { place, found: found.as_ref(), inputs: &inputs, now_ms };
        let done = code.execute(&call, *kind, *abortable, context)?;
        if let Some(entry) = done.write {
            tx.write(key, entry).await?;
        }
        values.push(done.value);
    }
    Ok(code.reply(&call, values))
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
        let found = find(tx, &key, kind).await?;
        let context = FragmentContext { place, found: found.as_ref(), inputs, now_ms: tx.now_ms() };
        let done = code.execute(args, kind, false, context)?;
        if let Some(entry) = done.write {
            tx.write(&key, entry).await?;
        }
        if code.reply.is_none() {
            return Ok(done.value.into_reply());
        }
        values.push(done.value);
    }
    Ok(code.reply(args, values))
}

/// What a fragment of a kind finds in its record.
async fn find(tx: &mut Tx, key: &Key, kind: FragmentKind) -> Result<Option<Entry>, Stop> {
    let intent = match kind {
        FragmentKind::Put => return Ok(None),
        FragmentKind::Read => Intent::Read,
        FragmentKind::Update => Intent::Update,
    };
    Ok(tx.read(key, intent).await?.entry)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let list: FragmentList = ["a", "b", "c"].map(fragment).into_iter().collect();
        let fragments = Fragments::new(list, code()).expect("it keeps the guarantees");
        for place in 0..3 {
            let done = fragments.execute_apart(&[], place, None, 0, &mut Vec::new());
            assert!(done.write.is_none() && done.value.is_error(), "{place}: {done:?}");
        }
        let context = FragmentContext { place: 0, found: None, inputs: &[], now_ms: 0 };
        let abortable = code().execute(&[], FragmentKind::Read, true, context);
        assert_eq!(abortable, Err(Stop::abort("ERR no")));
        let panics = FragmentCode { reply: Some(|_, _| panic!("on purpose")), ..code() };
        let fragments = Fragments::new(FragmentList::new(), panics).expect("it keeps the guarantees");
        assert!(fragments.reply(&[], FragmentValues::new(), std::iter::empty()).is_error());
        std::panic::set_hook(hook);
    }

    #[test]
    fn keys_of_one_hash_are_told_apart_and_not_executed_apart() {
        let mut twins: FragmentList = ["a", "b"].map(fragment).into_iter().collect();
        twins[1].hash = twins[0].hash;
        let fragments = Fragments::new(twins, code()).expect("the keys are distinct");
        assert!(!fragments.are_independent());
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
        silent.execute_apart(&[], 0, Some(&expired), 5, &mut notes);
        assert_eq!(notes, []);
        let tell = |_, notes: Vec<Note>| Reply::Integer(notes.len() as i64);
        let told = silent.telling(Some(Teller { began: "test", tell }));
        told.execute_apart(&[], 0, Some(&expired), 5, &mut notes);
        let wrote = Note::Wrote { key: Key::from("a"), is_present: true, expires: false };
        assert_eq!(notes, [Note::Expired(Key::from("a")), wrote]);
        assert_eq!(told.reply(&[], FragmentValues::new(), notes.into_iter()), Reply::Integer(3));
    }
}
