//! Which words of a command are keys.

use super::command::{Command, KeyPlaces, KeySpec, Run};
use crate::acl::commands_of_users;
use crate::commands::{options, sort};
use crate::parse;
use std::iter::{StepBy, successors};
use std::ops::Range;
use txn::{Blob, Footprint, Key, KeySets, Weight, clock};

use super::Flags;

impl KeySpec {
    /// The places of the keys in `argv` (the name at 0); `None` if the words don't say, or say nonsense.
    pub fn places_in(
        &self,
        argc: usize,
        word: impl Fn(usize) -> Option<Blob>,
    ) -> Option<StepBy<Range<usize>>> {
        let (first, end, step) = match self.places {
            KeyPlaces::Range { first, last, step } => {
                let last = if last < 0 { argc.checked_add_signed(last)? } else { last.unsigned_abs() };
                (first, last + 1, step)
            }
            KeyPlaces::Counted { at } => {
                let count = parse::integer(&word(at)?).and_then(|count| usize::try_from(count).ok())?;
                (at + 1, (at + 1).checked_add(count)?, 1)
            }
            KeyPlaces::Word { word: wanted, start, half } => {
                let is_it = |place: &usize| {
                    word(*place).is_some_and(|word| word.eq_ignore_ascii_case(wanted.as_bytes()))
                };
                // Nothing stands behind the last argument: it is a key itself, or a slip.
                let end = argc.saturating_sub(1);
                let first = (start..end).find(is_it);
                match first {
                    None => (argc, argc, 1),
                    Some(at) if half => (at + 1, at + 1 + (argc - at - 1) / 2, 1),
                    Some(first) => {
                        // The last counts; what stands behind one is a key, whatever it is called.
                        let next = |at: &usize| (at + 2..end).find(is_it);
                        let at = successors(Some(first), next).last().unwrap_or(first);
                        (at + 1, at + 2, 1)
                    }
                }
            }
            KeyPlaces::Patterns => (argc, argc, 1),
            KeyPlaces::SortStore => match sort_store(argc, word) {
                None => (argc, argc, 1),
                Some(at) => (at, at + 1, 1),
            },
        };
        (end <= argc && first <= end).then(|| (first..end).step_by(step))
    }
}

/// The place of the key in which SORT stores: behind the last STORE that is no argument of another option.
fn sort_store(argc: usize, word: impl Fn(usize) -> Option<Blob>) -> Option<usize> {
    let (mut at, mut found) = (2, None);
    while at < argc {
        let option = word(at)?;
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if is("STORE") && at + 1 < argc {
            found = Some(at + 1);
        }
        at += match () {
            () if is("LIMIT") => 3,
            () if is("BY") || is("GET") || is("STORE") => 2,
            () => 1,
        };
    }
    found
}

impl Command {
    /// Whether it touches keys that none of these words tells, from those after its name on: SORT with a
    /// pattern.
    pub fn strays(&self, args: &[Blob]) -> bool {
        let has_patterns = |spec: &KeySpec| spec.places == KeyPlaces::Patterns;
        self.keys.iter().any(has_patterns)
            && sort::Options::parse(args.get(1..).unwrap_or(&[]), true)
                .is_ok_and(|options| options.name_keys())
    }

    /// What the command touches, from the arguments after its name.
    ///
    /// A command without a key specification is one that touches no key or one that walks over all; the
    /// latter have unknown keys, and so has one that strays.
    pub fn footprint(&self, args: &[Blob]) -> Footprint {
        if let Run::Acl(command) = self.run {
            return commands_of_users::footprint(command);
        }
        Footprint { keys: self.key_sets(args).map(std::sync::Arc::new), ..self.footprint_without_keys(args) }
    }

    /// [`Command::footprint`] without the keys: costs nothing.
    pub fn footprint_without_keys(&self, args: &[Blob]) -> Footprint {
        if let Run::Acl(command) = self.run {
            return Footprint { keys: None, ..commands_of_users::footprint(command) };
        }
        let weight = match self.is(Flags::HEAVY) || self.draws_many(args) {
            true => Weight::Heavy,
            false => Weight::Light,
        };
        Footprint { keys: None, read_only: self.is(Flags::READONLY) && !self.is(Flags::ORDERED), weight }
    }

    /// Whether it replies many elements at random: as many as a word of its says, however small the
    /// collection is.
    fn draws_many(&self, args: &[Blob]) -> bool {
        const FEW: u64 = 1024;
        if !self.is(Flags::ORDERED) || !["hrandfield", "srandmember", "zrandmember"].contains(&self.name) {
            return false;
        }
        let count = args.get(1).and_then(|count| options::draws(count).ok());
        count.is_some_and(|count| count.unsigned_abs() > FEW)
    }

    /// Whether it takes or shows a date, which depends on the clock's offset ([`txn::clock`]).
    fn tells_dates(&self, args: &[Blob]) -> bool {
        let has = |words: &[&str]| {
            let mut options = args.iter().skip(1);
            options.any(|arg| words.iter().any(|word| arg.eq_ignore_ascii_case(word.as_bytes())))
        };
        match self.name {
            "time" | "xadd" | "expireat" | "pexpireat" | "expiretime" | "pexpiretime" => true,
            "set" | "getex" => has(&["EXAT", "PXAT"]),
            "restore" => has(&["ABSTTL"]),
            "xclaim" => has(&["TIME"]),
            "xinfo" | "xinfo|stream" => has(&["FULL"]),
            _ => false,
        }
    }

    fn key_sets(&self, args: &[Blob]) -> Option<KeySets> {
        let mut sets = KeySets::default();
        if self.keys.is_empty() && (self.is(Flags::READONLY) || self.is(Flags::WRITE)) {
            return None;
        }
        if self.strays(args) {
            return None;
        }
        // Redis says of XREADGROUP's keys that they are read.
        let writes_all = self.is(Flags::WRITE) && !self.keys.iter().any(KeySpec::writes);
        for spec in self.keys {
            // What is read-only here is so whatever Redis says of its keys: PFCOUNT keeps no estimate.
            let set = if writes_all || spec.writes() && !self.is(Flags::READONLY) {
                &mut sets.writes
            } else {
                &mut sets.reads
            };
            let places = spec.places_in(args.len() + 1, |place| args.get(place.checked_sub(1)?).cloned())?;
            set.extend(places.map(|place| Key::from(&args[place - 1])));
        }
        if self.tells_dates(args) {
            sets.reads.push(clock::offset_key());
        }
        normalize(&mut sets);
        Some(sets)
    }
}

/// Each key once, and not among the reads if it is written.
pub(crate) fn normalize(sets: &mut KeySets) {
    for set in [&mut sets.reads, &mut sets.writes] {
        if set.len() > 1 {
            set.sort_unstable();
            set.dedup();
        }
    }
    if !sets.writes.is_empty() {
        let writes = &sets.writes;
        sets.reads.retain(|key| writes.binary_search(key).is_err());
    }
}
