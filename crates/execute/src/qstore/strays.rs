//! Guesses that were wrong: which transactions touch keys that they do not name.

use crate::conservative::{Job, Known};
use std::sync::Arc;
use store::sync::Mutex;
use txn::hash::FixedMap;
use txn::{Key, Request};

/// Which of them have strayed, by the number that similar ones share ([`txn::KeySets::may_stray`]).
#[derive(Default)]
pub(super) struct Strays(Mutex<FixedMap<u64, Strayed>>);

#[derive(Default)]
struct Strayed {
    /// How often.
    times: u32,
    /// So many of the next ones are not planned by their guess.
    left: u32,
    /// What was read that no guess had named.
    keys: Vec<Key>,
}

/// When more than so many have strayed, all are forgotten.
const STRAYED_MAX: usize = 1024;
/// Whoever has strayed so often is given no more patience.
const TIMES_MAX: u32 = 10;
/// So many keys are added to a guess, at most.
const KEYS_MAX: usize = 8;

impl Strays {
    /// Adds to a guess what such transactions have read besides, and has one run alone whose like have
    /// strayed too often lately.
    pub(super) fn judge(&self, job: &mut Job) {
        let Known::Guess(guess) = &mut job.known else { return };
        let Some(number) = guess.may_stray else { return };
        let mut all = self.0.lock();
        let Some(strayed) = all.get_mut(&number) else { return };
        if strayed.left > 0 {
            strayed.left -= 1;
            job.known = Known::Nothing;
        } else if !strayed.keys.is_empty() {
            let guess = Arc::make_mut(guess);
            let more = strayed.keys.iter().filter(|key| !guess.writes.contains(key));
            guess.reads.extend(more.cloned());
            guess.reads.sort_unstable();
            guess.reads.dedup();
        }
    }

    /// One has strayed, by a read of `key`, or otherwise. The first time says little: a script is stored when
    /// it is run for the first time. From then on twice as many as the time before run alone.
    pub(super) fn note(&self, request: &Request, key: Option<Key>) {
        let Some(number) = request.footprint.keys.as_ref().and_then(|keys| keys.may_stray) else { return };
        let mut all = self.0.lock();
        if all.len() >= STRAYED_MAX && !all.contains_key(&number) {
            all.clear();
        }
        let strayed = all.entry(number).or_default();
        strayed.left = (1 << strayed.times) - 1;
        strayed.times = (strayed.times + 1).min(TIMES_MAX);
        strayed.keys.extend(key.filter(|_| strayed.keys.len() < KEYS_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::{Args, FnProcedure, KeySets, Position, RequestId, TxContext};

    fn job(number: u64) -> Job {
        let procedure = FnProcedure::new("nothing", async |_, _| Ok(txn::Reply::OK));
        let mut request = Request::new(RequestId::default(), Arc::new(procedure), Args::new());
        request.footprint.keys = Some(Arc::new(KeySets { may_stray: Some(number), ..KeySets::default() }));
        let known = Known::Guess(request.footprint.keys.clone().expect("keys"));
        let context = TxContext::of(&request, Position(1), 0);
        Job { context, request: Arc::new(request), member: None, known }
    }

    /// How many run alone before one goes by its guess again.
    fn alone(strays: &Strays, number: u64) -> usize {
        let judged = std::iter::from_fn(|| {
            let mut job = job(number);
            strays.judge(&mut job);
            (job.known == Known::Nothing).then_some(())
        });
        judged.count()
    }

    #[test]
    fn who_strays_again_is_trusted_more_rarely() {
        let strays = Strays::default();
        let mut counts = Vec::new();
        for _ in 0..13 {
            strays.note(&job(7).request, None);
            counts.push(alone(&strays, 7));
        }
        assert_eq!(counts, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 1023, 1023]);
        assert_eq!(alone(&strays, 8), 0, "another script");
        for number in 100..100 + STRAYED_MAX as u64 {
            strays.note(&job(number).request, None);
        }
        assert!(strays.0.lock().len() <= STRAYED_MAX);
    }

    #[test]
    fn what_was_read_besides_is_named_the_next_time() {
        let strays = Strays::default();
        let names = |count: u64| (0..count).map(|number| Key::from(format!("{number}").as_str()));
        for key in names(20) {
            strays.note(&job(7).request, Some(key));
        }
        alone(&strays, 7);
        let mut job = job(7);
        strays.judge(&mut job);
        let declared = job.declared().expect("a guess");
        assert_eq!(declared.reads, names(KEYS_MAX as u64).collect::<Vec<_>>());
    }
}
