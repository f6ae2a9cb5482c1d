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
    /// Needs the value of the fragment before it.
    Dependent,
    AbortIf,
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::Read, Kind::Put, Kind::Modify, Kind::Delete, Kind::PanicIf, Kind::Dependent, Kind::AbortIf];
    /// So many of them need no other fragment, and abort nothing.
    const INDEPENDENT: usize = 5;

    fn of_fragment(self) -> FragmentKind {
        match self {
            Kind::Read | Kind::AbortIf => FragmentKind::Read,
            Kind::Put => FragmentKind::Put,
            Kind::Modify | Kind::Delete | Kind::PanicIf | Kind::Dependent => FragmentKind::Update,
        }
    }
}

/// A fragment as the arguments carry it: the kind, a number, and the key behind them.
fn decode(arg: &[u8]) -> Option<(Kind, u64, Key)> {
    let (&kind, rest) = arg.split_first()?;
    let (number, key) = rest.split_first_chunk()?;
    Some((*Kind::ALL.get(usize::from(kind))?, u64::from_le_bytes(*number), Key::new(key)))
}

fn fragment(place: usize, arg: &[u8]) -> Option<Fragment> {
    let (kind, _, key) = decode(arg)?;
    let mut fragment = Fragment::independent(key, kind.of_fragment());
    fragment.abortable = kind == Kind::AbortIf;
    if kind == Kind::Dependent && place > 0 {
        fragment.inputs.push(place as u16 - 1);
    }
    Some(fragment)
}

fn execute(args: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
    let FragmentContext { place, found, inputs, .. } = context;
    let Some((kind, number, _)) = decode(&args[place]) else {
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
    let write = match kind {
        Kind::Read => None,
        Kind::Put | Kind::Modify | Kind::Dependent => Some(new),
        Kind::Delete => Some(None),
        Kind::PanicIf if seen.wrapping_add(number).is_multiple_of(3) => {
            // Not `panic!`: the hook would print it.
            std::panic::resume_unwind(Box::new(crate::program::PANIC_ON_PURPOSE))
        }
        Kind::PanicIf => Some(new),
        Kind::AbortIf if seen.wrapping_add(number).is_multiple_of(3) => {
            return Err(Stop::abort(format!("refused after seeing {seen:x}")));
        }
        Kind::AbortIf => None,
    };
    Ok(Done { write, value: value.into() })
}

/// The procedure whose arguments are fragments.
struct InFragments;

impl Procedure for InFragments {
    fn name(&self) -> &str {
        "sim.fragments"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        let Some(fragments) = self.fragments(args) else {
            return Footprint::unknown();
        };
        let keys = |writes| {
            let list = fragments.list().iter().filter(move |fragment| fragment.kind.writes() == writes);
            list.map(|fragment| fragment.key.clone()).collect()
        };
        Footprint::of_keys(keys(false), keys(true))
    }
    fn fragments(&self, args: &Args) -> Option<Fragments> {
        let list = args.iter().enumerate().map(|(place, arg)| fragment(place, arg)).collect::<Option<_>>()?;
        Fragments::new(list, FragmentCode { execute, reply: Some(fragments::all) })
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin(fragments::run(tx, call))
    }
}

/// A call of fragments over these keys, each of which comes once. They are independent of each other, or may
/// be of any kind.
pub fn call<'a>(
    keys: impl IntoIterator<Item = &'a Key>,
    are_independent: bool,
    draw: &mut Draw,
) -> (Arc<dyn Procedure>, Args) {
    let kinds = if are_independent { Kind::INDEPENDENT } else { Kind::ALL.len() };
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
        let are_independent = draw.percent(self.independent_percent);
        let mut keys: Vec<&Key> = Vec::new();
        for _ in 0..draw.between(1, self.count_max) {
            // The first keys are the hot ones.
            let among = if draw.percent(50) { self.keys.len().min(6) } else { self.keys.len() };
            let key = &self.keys[draw.below(among as u64) as usize];
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let (procedure, args) = call(keys, are_independent, draw);
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
