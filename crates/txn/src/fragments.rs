//! Fragments: a call as operations on one record each (Q-Store, section 2.2).
//!
//! A procedure may declare a call as [`Fragments`], if its records, and what it does to each, follow from the
//! arguments. An engine that plans may then execute each fragment when its record's turn comes, several of
//! one transaction at the same time and without a future; every other engine runs the procedure. So that both
//! do the same, a procedure that declares fragments says what it does there only, and its
//! [`crate::Procedure::run`] is [`run`].
//!
//! Between fragments of one transaction there are two kinds of dependencies:
//! - a *data dependency*: a fragment needs what an earlier one found ([`Fragment::inputs`]);
//! - a *commit dependency*: an *abortable* fragment may end the transaction, and then no fragment of the
//!   transaction has written anything.

use crate::key::Key;
use crate::procedure::Call;
use crate::reply::{Outcome, Reply, Stop};
use crate::request::{Args, Request};
use crate::tx::{Intent, Tx};
use crate::value::Entry;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a transaction does to one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The record's key.
    pub key: Key,
    /// The key's [`Key::hash64`].
    hash: u64,
    /// It may write the record; else it only reads.
    pub writes: bool,
    /// The places of earlier fragments whose values it needs: its data dependencies.
    pub inputs: SmallVec<[u16; 2]>,
    /// It may abort the transaction.
    pub abortable: bool,
}

impl Fragment {
    /// A fragment that needs no other one and aborts nothing.
    pub fn independent(key: Key, writes: bool) -> Fragment {
        let hash = key.hash64();
        Fragment { key, hash, writes, inputs: SmallVec::new(), abortable: false }
    }

    /// The key's [`Key::hash64`].
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// What a fragment has done.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// What the record holds now (`Some(None)`: nothing), if the fragment has written it.
    pub write: Option<Option<Entry>>,
    /// What other fragments, and the reply, need of it. [`Reply::Nil`] costs nothing.
    pub value: Reply,
}

/// How a fragment ended.
pub type FragmentOutcome = Result<Done, Stop>;

/// What the fragments of a procedure do. Functions of what they are given, as procedures are; a fragment that
/// panics does nothing, and its value is an error.
#[derive(Clone, Copy, Debug)]
pub struct FragmentCode {
    /// Executes the fragment at a place, with what its record holds and the values of its inputs, in their
    /// order. Only an abortable fragment may end in an error.
    pub execute: fn(&Args, usize, Option<&Entry>, &[Reply]) -> FragmentOutcome,
    /// The call's reply, from the values of all fragments.
    pub reply: fn(&Args, &[Reply]) -> Reply,
}

/// A call as fragments.
///
/// Guarantees: (1) keys are distinct; (2) inputs are places of earlier fragments; (3) there are at most
/// [`Fragments::COUNT_MAX`].
#[derive(Clone, Debug)]
pub struct Fragments {
    list: Vec<Fragment>,
    code: FragmentCode,
    /// No two keys have one hash, so that an engine may tell records by it.
    hashes_differ: bool,
}

/// Lists up to this long are compared all with all.
const COMPARED_MAX: usize = 32;

impl Fragments {
    /// Their places fit into 16 bits.
    pub const COUNT_MAX: usize = 4096;

    /// A list of fragments. `None` if it does not keep the guarantees.
    pub fn new(list: Vec<Fragment>, code: FragmentCode) -> Option<Fragments> {
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
        (hashes_differ || keys_differ()).then_some(Fragments { list, code, hashes_differ })
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

    /// Executes one fragment.
    ///
    /// # Errors
    /// The fragment aborts the transaction.
    pub fn execute(
        &self,
        args: &Args,
        place: usize,
        found: Option<&Entry>,
        inputs: &[Reply],
    ) -> FragmentOutcome {
        let executed = catch_unwind(AssertUnwindSafe(|| (self.code.execute)(args, place, found, inputs)));
        let failed = |text: &'static str| Done { write: None, value: Reply::error(text) };
        match executed {
            Ok(Err(_)) if !self.list[place].abortable => {
                Ok(failed("ERR a fragment that was declared not to abort did: nothing was written there"))
            }
            Ok(Ok(done)) if done.write.is_some() && !self.list[place].writes => {
                Ok(failed("ERR a fragment that was declared to read wrote: nothing was written there"))
            }
            Ok(done) => done,
            Err(_) => Ok(failed("ERR a fragment panicked: nothing was written there")),
        }
    }

    /// The reply of a transaction whose fragments have these values. What they have written stays, also if
    /// the reply panics, which then is an error.
    pub fn reply(&self, args: &Args, values: &[Reply]) -> Reply {
        let replied = catch_unwind(AssertUnwindSafe(|| (self.code.reply)(args, values)));
        replied.unwrap_or(Reply::error("ERR the reply panicked: what the transaction wrote is there"))
    }
}

/// Whether each fragment of a request may be executed by itself, where its record is; and if so, the
/// fragments.
pub fn independent(request: &Request) -> Option<Fragments> {
    // If that panics, so does the procedure, where it is an outcome.
    let fragments = catch_unwind(AssertUnwindSafe(|| request.procedure.fragments(&request.args))).ok()??;
    let is_allowed = |fragment: &Fragment| {
        request.route.holds(&fragment.key) && !(fragment.writes && request.footprint.read_only)
    };
    let may_run = !request.elsewhere
        && request.route.partitions.len() == 1
        && fragments.are_independent()
        && fragments.list.iter().all(is_allowed);
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
    let mut values: Vec<Reply> = Vec::with_capacity(fragments.list.len());
    for (place, fragment) in fragments.list.iter().enumerate() {
        let intent = if fragment.writes { Intent::Update } else { Intent::Read };
        let found = tx.read(&fragment.key, intent).await?.entry;
        let inputs: SmallVec<[Reply; 2]> =
            fragment.inputs.iter().map(|&input| values[usize::from(input)].clone()).collect();
        let done = fragments.execute(&call, place, found.as_ref(), &inputs)?;
        match done.write {
            Some(Some(entry)) => tx.put_entry(&fragment.key, entry).await?,
            Some(None) => tx.delete(&fragment.key).await?,
            None => {}
        }
        values.push(done.value);
    }
    Ok(fragments.reply(&call, &values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code() -> FragmentCode {
        fn execute(_: &Args, place: usize, _: Option<&Entry>, _: &[Reply]) -> Result<Done, Stop> {
            match place {
                0 => Err(Stop::abort("ERR no")),
                1 => panic!("on purpose"),
                _ => Ok(Done { write: Some(None), value: Reply::OK }),
            }
        }
        FragmentCode { execute, reply: |_, values| Reply::Array(values.to_vec()) }
    }

    fn fragment(key: &str) -> Fragment {
        Fragment::independent(Key::from(key), false)
    }

    #[test]
    fn lists_that_break_a_guarantee_are_refused() {
        let needs = |input| {
            let mut needy = fragment("b");
            needy.inputs.push(input);
            needy
        };
        let of = |list: Vec<Fragment>| Fragments::new(list, code());
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
        let list = ["a", "b", "c"].map(fragment).to_vec();
        let abortable = Fragment { abortable: true, ..fragment("a") };
        let fragments = Fragments::new(list, code()).expect("it keeps the guarantees");
        for place in 0..3 {
            let done = fragments.execute(&Args::new(), place, None, &[]).expect("it may not abort");
            assert!(done.write.is_none() && done.value.is_error(), "{place}: {done:?}");
        }
        let fragments = Fragments::new(vec![abortable], code()).expect("it keeps the guarantees");
        assert_eq!(fragments.execute(&Args::new(), 0, None, &[]), Err(Stop::abort("ERR no")));
        let panics = FragmentCode { reply: |_, _| panic!("on purpose"), ..code() };
        let fragments = Fragments::new(Vec::new(), panics).expect("it keeps the guarantees");
        assert!(fragments.reply(&Args::new(), &[]).is_error());
        std::panic::set_hook(hook);
    }

    #[test]
    fn keys_of_one_hash_are_told_apart_and_not_executed_apart() {
        let mut twins = ["a", "b"].map(fragment).to_vec();
        twins[1].hash = twins[0].hash;
        let fragments = Fragments::new(twins, code()).expect("the keys are distinct");
        assert!(!fragments.are_independent());
        let mut many: Vec<_> = (0..=COMPARED_MAX).map(|number| fragment(&number.to_string())).collect();
        many.push(fragment("0"));
        assert!(Fragments::new(many, code()).is_none(), "a key twice");
    }
}
