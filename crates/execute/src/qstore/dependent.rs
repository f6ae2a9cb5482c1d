//! Split transactions whose fragments depend on each other ([`txn::fragments`]). They have one partition.
//!
//! A fragment is executed when its record's turn has come and all of its inputs have been executed: each
//! fragment with inputs counts what is missing, and the worker that brings the last of it executes the
//! fragment. Until then the fragment is only noted, and the executor of its range goes on behind it.
//!
//! *Commit dependencies.* In the conservative mode, what a fragment writes is kept back until every abortable
//! fragment has been executed: then the transaction is *decided*. If none has aborted, all that was kept is
//! installed; else it is dropped, and the abort at the lowest place is the outcome, as in a serial execution:
//! up to there the fragments have had the same inputs. From then on fragments install what they write at
//! once.
//!
//! A record whose write is kept back, or whose fragment misses an input, has the transaction as its last
//! writer, so that fragments behind it wait for its end. Where a transaction was decided before, they go on
//! at once, as behind a fragment that depends on nothing. So nobody reads what may still be undone by an
//! abort, and there are no cascades.
//!
//! In the speculative mode a fragment installs at once what it writes, unless the transaction has aborted;
//! [`super::speculation`] tells what an abort takes back.
//!
//! # Invariants
//! - A fragment is executed once, but for repairs: its turn comes once, and each of its inputs is executed
//!   once.
//! - Conservative: nothing is installed before the transaction is decided, and nothing if it has aborted.
//! - A fragment that writes counts as executed when what it wrote is installed or dropped.

use super::Mode;
use super::Shared;
use super::split::{FragmentNotes, Share, Split, Written};
use smallvec::{SmallVec, smallvec};
use store::sync::Mutex;
use store::sync::atomic::{AtomicU32, Ordering};
use store::{Partition, RecordRef};
use txn::fragments::{Done, FragmentValues};
use txn::mutant::{Mutant, is_active};
use txn::{Fragment, FragmentValue, Fragments, Position, Stop};

/// What the fragments of a transaction share that depend on each other.
pub(super) struct Dependent {
    /// In the order of the places.
    needy: SmallVec<[Needy; 2]>,
    /// Each input of each fragment: the input's place, and the place in `needy`. In the order of the inputs.
    edges: SmallVec<[(u16, u16); 4]>,
    flow: Mutex<Flow>,
}

/// A fragment that has inputs.
struct Needy {
    place: u16,
    /// Its inputs that have not been executed, and one for its record's turn.
    missing: AtomicU32,
}

struct Flow {
    /// By place: the values of the fragments that were executed and did not abort.
    values: Vec<Option<FragmentValue>>,
    /// Abortable fragments that have not been executed.
    undecided: u32,
    /// The abort with the lowest place.
    abort: Option<(u16, Stop)>,
    /// The writes of executed fragments, until the transaction is decided: in the conservative mode.
    kept: Vec<Kept>,
    /// By place: the fragments that were executed, in the speculative mode.
    executed: Vec<bool>,
    /// The number of fragments that were not executed.
    unexecuted: u32,
    /// The effects of fragments that were executed early.
    early: Share,
    /// The transaction has aborted, and what it has written is still there.
    must_repair: bool,
    notes: FragmentNotes,
}

/// What a fragment has done, with its record if that was looked up.
struct Kept {
    place: u16,
    record: Option<RecordRef<()>>,
    done: Done,
}

impl Dependent {
    /// What these fragments share; none if they depend on nothing.
    pub(super) fn of(fragments: &Fragments) -> Option<Box<Dependent>> {
        if fragments.are_independent() {
            return None;
        }
        let list = fragments.list();
        let needs = |(place, fragment): (usize, &Fragment)| {
            let missing = fragment.inputs.len() as u32;
            (missing > 0).then(|| Needy { place: place as u16, missing: AtomicU32::new(missing + 1) })
        };
        let flow = Flow {
            values: vec![None; list.len()],
            undecided: list.iter().filter(|fragment| fragment.abortable).count() as u32,
            abort: None,
            kept: Vec::new(),
            executed: vec![false; list.len()],
            unexecuted: list.len() as u32,
            early: Share::default(),
            must_repair: false,
            notes: Vec::new(),
        };
        let needy: SmallVec<[Needy; 2]> = list.iter().enumerate().filter_map(needs).collect();
        let edges_of = |(index, needy): (usize, &Needy)| {
            list[usize::from(needy.place)].inputs.iter().map(move |&input| (input, index as u16))
        };
        let mut edges: SmallVec<[(u16, u16); 4]> = needy.iter().enumerate().flat_map(edges_of).collect();
        edges.sort_unstable();
        Some(Box::new(Dependent { needy, edges, flow: Mutex::new(flow) }))
    }

    /// The turn of a fragment's record has come: whether the fragment has all that it needs.
    fn begins(&self, place: u16) -> bool {
        let needy = self.needy.binary_search_by_key(&place, |needy| needy.place);
        needy.map_or(true, |index| self.needy[index].missing.fetch_sub(1, Ordering::AcqRel) == 1)
    }

    /// A fragment was executed: adds to `ready` those that have all that they need now.
    fn pass_on(&self, place: u16, ready: &mut SmallVec<[u16; 4]>) {
        let first = self.edges.partition_point(|&(input, _)| input < place);
        for &(_, index) in self.edges[first..].iter().take_while(|&&(input, _)| input == place) {
            let needy = &self.needy[usize::from(index)];
            if needy.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
                ready.push(needy.place);
            }
        }
    }

    /// The values that a fragment needs; none if there is one that has none.
    fn inputs_of(&self, fragment: &Fragment) -> Option<SmallVec<[FragmentValue; 4]>> {
        if fragment.inputs.is_empty() {
            return Some(SmallVec::new());
        }
        self.flow.lock().inputs_of(fragment)
    }

    /// Whether what was written early may still be taken back: not every fragment was executed, so that the
    /// transaction may abort or read what is unsettled; or it has aborted, and nobody has repaired.
    pub(super) fn is_open(&self) -> bool {
        self.flow.lock().is_open()
    }

    /// Whether there is something to repair, which is done now.
    pub(super) fn begin_repair(&self) -> bool {
        std::mem::take(&mut self.flow.lock().must_repair)
    }

    /// Takes back what was written early, and counts the versions.
    pub(super) fn take_back(&self, partition: &Partition<()>, position: Position) -> u32 {
        self.flow.lock().early.take_back(partition, position)
    }

    /// Takes the effects of early fragments, once nothing can change these.
    pub(super) fn take_share(&self) -> Share {
        std::mem::take(&mut self.flow.lock().early)
    }

    /// The values of all fragments, and what they have noted; or why the transaction has aborted. To be asked
    /// once, when all were executed.
    pub(super) fn take(&self) -> Result<(FragmentValues, FragmentNotes), Stop> {
        let mut flow = self.flow.lock();
        if let Some((_, stop)) = flow.abort.take() {
            return Err(stop);
        }
        let values = flow.values.drain(..).map(|value| value.unwrap_or(FragmentValue::NIL)).collect();
        Ok((values, std::mem::take(&mut flow.notes)))
    }
}

impl Flow {
    fn inputs_of(&self, fragment: &Fragment) -> Option<SmallVec<[FragmentValue; 4]>> {
        let value = |&input: &u16| match is_active(Mutant::LoseFragmentValue) {
            true => Some(FragmentValue::NIL),
            false => self.values[usize::from(input)].clone(),
        };
        fragment.inputs.iter().map(value).collect()
    }

    fn is_open(&self) -> bool {
        self.unexecuted > 0 || self.must_repair
    }

    fn is_decided(&self) -> bool {
        self.undecided == 0 || is_active(Mutant::WriteUndecided)
    }

    fn abort(&mut self, place: u16, stop: Stop) {
        let is_first = self.abort.as_ref().is_none_or(|(first, _)| place < *first);
        if is_first && !(self.abort.is_some() && is_active(Mutant::AnyAbortDecides)) {
            self.abort = Some((place, stop));
        }
    }
}

impl Shared {
    /// The turn of a fragment's record has come. Executes the fragment, and those that have missed only this
    /// one; or notes it, if it misses something itself. Whether what it has written is there for those behind
    /// it.
    pub(super) fn execute_dependent(
        &self,
        split: &Split,
        dependent: &Dependent,
        place: u16,
        share: &mut Share,
    ) -> Written {
        if !dependent.begins(place) {
            return Written::NotYet;
        }
        let mut written = Written::NotYet;
        let mut ready: SmallVec<[u16; 4]> = smallvec![place];
        while let Some(next) = ready.pop() {
            let of_next = match self.options.mode {
                Mode::Speculative => self.execute_early(split, dependent, next, share),
                Mode::Conservative => self.execute_one(split, dependent, next, share),
            };
            written = if next == place { of_next } else { written };
            dependent.pass_on(next, &mut ready);
        }
        if is_active(Mutant::PassKeptWrite) { Written::Yes } else { written }
    }

    /// Executes one fragment, and installs what it writes at once.
    fn execute_early(&self, split: &Split, dependent: &Dependent, place: u16, share: &mut Share) -> Written {
        let fragment = &split.fragments()[usize::from(place)];
        let is_void = self.order.is_void(split.position());
        let inputs = if is_void { None } else { dependent.inputs_of(fragment) };
        let mut noted = Share::default();
        let executed = inputs.map(|inputs| self.execute_on_record(split, place, &inputs, &mut noted));
        let mut flow = dependent.flow.lock();
        let flow = &mut *flow;
        share.executed += 1;
        flow.undecided -= u32::from(fragment.abortable);
        flow.notes.append(noted.notes());
        flow.executed[usize::from(place)] = true;
        flow.unexecuted -= 1;
        match executed {
            Some((record, Ok(mut done))) => {
                let value = std::mem::replace(&mut done.value, FragmentValue::NIL);
                flow.values[usize::from(place)] = Some(value);
                if flow.abort.is_none() {
                    self.install_done(split, place, record, done, &mut flow.early);
                }
            }
            Some((_, Err(stop))) => {
                flow.abort(place, stop);
                let position = split.position();
                let has_repaired = !flow.early.has_installed()
                    || split
                        .speculation()
                        .unless_read(|| _ = flow.early.take_back(&self.partition, position));
                flow.must_repair |= !has_repaired;
                share.must_repair |= !has_repaired;
            }
            None => {}
        }
        match flow.is_open() || split.speculation().has_speculated() {
            true => Written::Unsettled,
            false => Written::Yes,
        }
    }

    /// Executes again what was executed of a transaction and taken back, and counts the fragments.
    pub(super) fn execute_dependent_again(&self, split: &Split, dependent: &Dependent) -> u32 {
        let mut flow = dependent.flow.lock();
        let flow = &mut *flow;
        flow.values.fill(None);
        flow.notes.clear();
        (flow.abort, flow.must_repair, flow.early) = (None, false, Share::default());
        let mut all_done = Vec::new();
        let mut executed = 0;
        for (place, fragment) in split.fragments().iter().enumerate() {
            if !flow.executed[place] {
                continue;
            }
            let Some(inputs) = flow.inputs_of(fragment) else { continue };
            executed += 1;
            let mut noted = Share::default();
            let (record, outcome) = self.execute_on_record(split, place as u16, &inputs, &mut noted);
            flow.notes.append(noted.notes());
            match outcome {
                Ok(mut done) => {
                    let value = std::mem::replace(&mut done.value, FragmentValue::NIL);
                    flow.values[place] = Some(value);
                    all_done.push((place as u16, record, done));
                }
                Err(stop) => flow.abort(place as u16, stop),
            }
        }
        if flow.abort.is_none() {
            for (place, record, done) in all_done {
                self.install_done(split, place, record, done, &mut flow.early);
            }
        }
        executed
    }

    /// Executes one fragment, and installs what it writes once the transaction is decided.
    fn execute_one(&self, split: &Split, dependent: &Dependent, place: u16, share: &mut Share) -> Written {
        let fragment = &split.fragments()[usize::from(place)];
        let is_void = self.order.is_void(split.position());
        let inputs = if is_void { None } else { dependent.inputs_of(fragment) };
        let executed = inputs.map(|inputs| self.execute_on_record(split, place, &inputs, share));
        let mut flow = dependent.flow.lock();
        flow.undecided -= u32::from(fragment.abortable);
        // Not with the share: another worker may end the transaction before that is added.
        flow.notes.append(share.notes());
        let mut own = Kept { place, record: None, done: Done::read(FragmentValue::NIL) };
        match executed {
            Some((record, Ok(mut done))) => {
                let value = std::mem::replace(&mut done.value, FragmentValue::NIL);
                flow.values[usize::from(place)] = Some(value);
                (own.record, own.done) = (record, done);
            }
            Some((_, Err(stop))) => flow.abort(place, stop),
            None => {}
        }
        if !flow.is_decided() {
            match fragment.kind.writes() {
                true => flow.kept.push(own),
                false => share.executed += 1,
            }
            return Written::NotYet;
        }
        let is_dropped = flow.abort.is_some() || is_void;
        // Under the latch: a fragment that finds the transaction decided finds installed what was kept.
        for kept in flow.kept.drain(..) {
            self.install_kept(split, kept, is_dropped, share);
        }
        drop(flow);
        self.install_kept(split, own, is_dropped, share);
        Written::Yes
    }

    fn install_kept(&self, split: &Split, kept: Kept, is_dropped: bool, share: &mut Share) {
        share.executed += 1;
        if !is_dropped {
            self.install_done(split, kept.place, kept.record, kept.done, share);
        }
    }
}
