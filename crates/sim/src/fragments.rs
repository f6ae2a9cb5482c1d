//! Random calls that are declared as fragments, among random programs.
//!
//! Like a program's, a call's values carry their history: what a fragment writes is a hash of what it found
//! and of the values of its inputs, and the reply has the values of all.

use crate::draw::Draw;
use crate::program::Shape;
use crate::scenario::{ProgramSource, Source};
use std::sync::Arc;
use txn::fragments::{self, Done, FragmentOutcome};
use txn::hash::{hash_bytes, mix};
use txn::{
    Args, Blob, Call, Entry, Footprint, Fragment, FragmentCode, FragmentContext, FragmentKind, Fragments,
    Key, Procedure, ProcedureFuture, Reply, Request, RequestId, SessionId, Stop, Tx,
};

/// What a fragment does. Ordinary ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Put,
    Modify,
    Delete,
    PanicIf,
    /// Needs the values of up to three earlier fragments, as all kinds behind this one.
    Dependent,
    AbortIf,
    /// Writes if it does not abort.
    AbortOrModify,
    /// Writes one of two further records as well, which depends on the inputs: the last kind.
    Insert,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::Read,
        Kind::Put,
        Kind::Modify,
        Kind::Delete,
        Kind::PanicIf,
        Kind::Dependent,
        Kind::AbortIf,
        Kind::AbortOrModify,
        Kind::Insert,
    ];
    /// So many of them need no other fragment, and abort nothing.
    const INDEPENDENT: usize = 5;

    fn of_fragment(self) -> FragmentKind {
        match self {
            Kind::Read | Kind::AbortIf => FragmentKind::Read,
            Kind::Put => FragmentKind::Put,
            Kind::Modify
            | Kind::Delete
            | Kind::PanicIf
            | Kind::Dependent
            | Kind::AbortOrModify
            | Kind::Insert => FragmentKind::Update,
        }
    }

    fn is_independent(self) -> bool {
        Kind::ALL[..Kind::INDEPENDENT].contains(&self)
    }
}

/// A fragment as the arguments carry it: the kind, a number, and the key behind them.
fn decode(arg: &[u8]) -> Option<(Kind, u64, Key)> {
    let (&kind, rest) = arg.split_first()?;
    let (number, key) = rest.split_first_chunk()?;
    Some((*Kind::ALL.get(usize::from(kind))?, u64::from_le_bytes(*number), Key::new(key)))
}

fn fragment(place: usize, arg: &[u8]) -> Option<Fragment> {
    let (kind, number, key) = decode(arg)?;
    let mut fragment = Fragment::independent(key, kind.of_fragment());
    fragment.abortable = matches!(kind, Kind::AbortIf | Kind::AbortOrModify);
    fragment.inserts = kind == Kind::Insert;
    if !kind.is_independent() && place > 0 {
        let mut draw = Draw::new(number);
        // The same one may come twice.
        fragment.inputs.extend((0..draw.below(4)).map(|_| draw.below(place as u64) as u16));
    }
    Some(fragment)
}

/// A record that only the fragment at a key writes, in the key's partition.
fn inserted(key: &Key, seen: u64) -> Key {
    Key::new(&[b"{", key.as_bytes(), b"}", if seen.is_multiple_of(2) { b"0" } else { b"1" }].concat())
}

fn execute(args: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
    let FragmentContext { place, found, inputs, .. } = context;
    let Some((kind, number, key)) = decode(&args[place]) else {
        return Err(Stop::abort("malformed"));
    };
    let found = found.and_then(|entry| entry.value.as_string()).map_or(0, |bytes| hash_bytes(&bytes));
    let seen =
        inputs.iter().fold(found, |seen, input| mix(seen ^ hash_bytes(format!("{input:?}").as_bytes())));
    let new = Some(Entry::new(mix(seen ^ number).to_le_bytes().to_vec()));
    let value = match seen.is_multiple_of(4) {
        true => Reply::Nil,
        false => Reply::Integer(seen as i64),
    };
    let aborts = seen.wrapping_add(number).is_multiple_of(3);
    let mut inserts = Vec::new();
    let write = match kind {
        Kind::Read => None,
        Kind::Put | Kind::Modify | Kind::Dependent => Some(new),
        Kind::Delete => Some(None),
        Kind::PanicIf if aborts => {
            // Not `panic!`: the hook would print it.
            std::panic::resume_unwind(Box::new(crate::program::PANIC_ON_PURPOSE))
        }
        Kind::PanicIf => Some(new),
        Kind::AbortIf | Kind::AbortOrModify if aborts => {
            return Err(Stop::abort(format!("refused after seeing {seen:x}")));
        }
        Kind::AbortIf => None,
        Kind::AbortOrModify => Some(new),
        Kind::Insert => {
            inserts.extend(new.clone().map(|entry| (inserted(&key, seen), entry)));
            if seen.is_multiple_of(3) { None } else { Some(new) }
        }
    };
    Ok(Done { write, value: value.into(), inserts })
}

fn of(args: &Args) -> Option<Fragments> {
    let list = args.iter().enumerate().map(|(place, arg)| fragment(place, arg)).collect::<Option<_>>()?;
    Fragments::new(list, FragmentCode { execute, reply: Some(fragments::all) })
}

/// The procedure whose arguments are fragments.
struct InFragments;

impl Procedure for InFragments {
    fn name(&self) -> &str {
        "sim.fragments"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        let Some(fragments) = of(args) else {
            return Footprint::unknown();
        };
        let keys = |writes| {
            let list = fragments.list().iter().filter(move |fragment| fragment.kind.writes() == writes);
            list.map(|fragment| fragment.key.clone()).collect()
        };
        let mut footprint = Footprint::of_keys(keys(false), keys(true));
        if fragments.list().iter().any(|fragment| fragment.inserts)
            && let Some(keys) = &mut footprint.keys
        {
            Arc::make_mut(keys).covers_inserts = true;
        }
        footprint
    }
    fn fragments(&self, request: &Request) -> Option<Fragments> {
        of(&request.args)
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin(fragments::run(tx, call))
    }
}

/// Which fragments a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Those that need no other one, and abort nothing.
    Independent,
    /// All that write only what their call names.
    Named,
    /// All.
    Any,
}

/// A call of fragments over these keys, each of which comes once.
pub fn call<'a>(
    keys: impl IntoIterator<Item = &'a Key>,
    mix: Mix,
    draw: &mut Draw,
) -> (Arc<dyn Procedure>, Args) {
    let kinds = match mix {
        Mix::Independent => Kind::INDEPENDENT,
        Mix::Named => Kind::ALL.len() - 1,
        Mix::Any => Kind::ALL.len(),
    };
    let arg = |key: &Key| {
        let (kind, number) = (draw.below(kinds as u64) as u8, draw.bits());
        [&[kind][..], &number.to_le_bytes(), key.as_bytes()].concat()
    };
    (Arc::new(InFragments), keys.into_iter().map(arg).collect())
}

/// Programs of a drawn shape, some of them in fragments.
pub struct FragmentSource {
    programs: ProgramSource,
    keys: Vec<Key>,
    /// How many calls are in fragments, how many of these have only independent ones, and how many fragments
    /// they have at most.
    percent: u32,
    independent_percent: u32,
    count_max: u64,
}

impl FragmentSource {
    /// Draws one.
    pub fn draw(draw: &mut Draw) -> FragmentSource {
        let shape = Shape { declared_percent: draw.pick(&[50, 90, 100]), ..Shape::draw(draw) };
        FragmentSource::of(shape, draw)
    }

    /// Draws one over the keys of a shape.
    pub fn of(shape: Shape, draw: &mut Draw) -> FragmentSource {
        FragmentSource {
            keys: shape.keys(),
            programs: ProgramSource::new(shape),
            percent: draw.pick(&[30, 70, 100]),
            independent_percent: draw.pick(&[50, 100]),
            count_max: draw.pick(&[1, 4, 12]),
        }
    }
}

impl Source for FragmentSource {
    fn request(&mut self, sequence: u64, draw: &mut Draw) -> Arc<Request> {
        if !draw.percent(self.percent) {
            return self.programs.request(sequence, draw);
        }
        let mix = if draw.percent(self.independent_percent) { Mix::Independent } else { Mix::Any };
        let mut keys: Vec<&Key> = Vec::new();
        for _ in 0..draw.between(1, self.count_max) {
            // The first keys are the hot ones.
            let among = if draw.percent(50) { self.keys.len().min(6) } else { self.keys.len() };
            let key = &self.keys[draw.below(among as u64) as usize];
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let (procedure, args) = call(keys, mix, draw);
        let id = RequestId { session: SessionId(1 + sequence % 5), sequence, attempt: 0 };
        Arc::new(Request::new(id, procedure, args))
    }
    fn read_only(&mut self, sequence: u64, draw: &mut Draw) -> Arc<Request> {
        self.programs.read_only(sequence, draw)
    }
    fn keys(&self) -> Vec<Key> {
        self.keys.clone()
    }
    fn describe(&self) -> String {
        let FragmentSource { percent, independent_percent, count_max, .. } = self;
        let programs = self.programs.describe();
        format!("{percent} % of up to {count_max} fragments, {independent_percent} % independent; {programs}")
    }
}
