//! What commands do beyond taking words and giving a reply: what scripts are charged for it.
//!
//! A command may look at millions of elements, or at hundreds of megabytes, and reply one integer. Commands
//! whose work may be much larger than their words and their reply count it here, beside their
//! [`Tx`](txn::Tx), and whoever runs them for a script ([`metered`]) takes the sum. It is in a script's
//! steps, so that these bound its time, whatever it calls.
//!
//! The sum decides outcomes, so it is a function of the arguments and of the state: what is counted are
//! elements and bytes, never how they lie in memory (whether a long string is in chunks, say: a checkpoint
//! puts them together). It need not be exact: what takes as long should count about as much.

use std::cell::Cell;

/// Bytes that are copied, compared or hashed for a step.
const BYTES_PER_STEP: usize = 16;
/// What an element counts as that is looked up, or put at an end.
const STEPS_PER_ELEMENT: u64 = 20;
/// What an element counts as that is passed over.
const STEPS_PER_PASSED: usize = 3;
/// What a member counts as that is put where its name is found, or taken away.
const STEPS_PER_MEMBER: u64 = 60;
/// The same where it has a place in an order, too.
const STEPS_PER_SCORED: u64 = 150;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    /// What the caller of a command has left.
    static STEPS_MAX: Cell<u64> = const { Cell::new(u64::MAX) };
    /// How many words the commands had that the caller has written with: as many keys, at most.
    static WRITTEN: Cell<usize> = const { Cell::new(0) };
}

/// The meter that was there before, which goes on when a poll ends, also by a panic.
struct Outer {
    steps: u64,
    steps_max: u64,
    written: usize,
}

impl Drop for Outer {
    fn drop(&mut self) {
        // A meter inside another is part of that.
        STEPS.set(self.steps.saturating_add(STEPS.get()));
        STEPS_MAX.set(self.steps_max);
        WRITTEN.set(self.written);
    }
}

/// Runs one poll of a command whose caller has so many steps left, and gives the steps that it worked. A
/// caller whose steps are spent takes nothing of what the command gave or wrote.
pub(crate) fn metered<R>(steps_max: u64, poll: impl FnOnce() -> R) -> (R, u64) {
    let outer = Outer {
        steps: STEPS.replace(0),
        steps_max: STEPS_MAX.replace(steps_max),
        written: WRITTEN.replace(0),
    };
    let result = poll();
    let taken = STEPS.get();
    drop(outer);
    (result, taken)
}

/// Says with how many words the caller has written, inside [`metered`].
pub(crate) fn has_written(words: usize) {
    WRITTEN.set(words);
}

/// Counts a look at all keys that the caller has written: engines take one at each page of all keys, and
/// where they count keys.
pub(crate) fn own_writes() {
    elements(WRITTEN.get());
}

/// Whether the command has worked for more steps than its caller has left: then it may stop anywhere, with
/// any reply. Loops that may be long look here.
#[inline]
pub(crate) fn is_spent() -> bool {
    STEPS.get() > STEPS_MAX.get()
}

/// Counts steps: elements that are passed over, say.
#[inline]
pub(crate) fn steps(steps: usize) {
    STEPS.set(STEPS.get().saturating_add(steps as u64));
}

/// Counts bytes that are copied, compared or hashed.
#[inline]
pub(crate) fn bytes(bytes: usize) {
    steps(bytes / BYTES_PER_STEP);
}

/// Counts a string that may lie in chunks, as if it were put together: other replicas may have it as a whole,
/// and who is charged must not know.
pub(crate) fn long_bytes(len: usize) {
    if len >= txn::value::LongString::BYTES_MIN {
        bytes(len);
    }
}

/// Counts elements that are looked up, or put at an end.
#[inline]
pub(crate) fn elements(elements: usize) {
    times(elements, STEPS_PER_ELEMENT);
}

/// Counts members of a set or a hash that are put there or taken away, and entries of a stream.
#[inline]
pub(crate) fn members(members: usize) {
    times(members, STEPS_PER_MEMBER);
}

/// Counts members of a sorted set that are put there or taken away.
#[inline]
pub(crate) fn scored(members: usize) {
    times(members, STEPS_PER_SCORED);
}

fn times(count: usize, each: u64) {
    let taken = (count as u64).saturating_mul(each);
    STEPS.set(STEPS.get().saturating_add(taken));
}

/// Counts an element that is passed over.
#[inline]
pub(crate) fn passed() {
    steps(STEPS_PER_PASSED);
}

/// Counts one such element, all of whose bytes are looked at.
#[inline]
pub(crate) fn element(element: &[u8]) {
    elements(1);
    bytes(element.len());
}

/// Counts the comparison of an element that is passed over with one that is looked for.
#[inline]
pub(crate) fn compared(element: &[u8], wanted: &[u8]) {
    passed();
    if element.len() == wanted.len() {
        bytes(wanted.len());
    }
}

/// Counts putting so many elements in order.
pub(crate) fn sorted(elements: usize) {
    let comparisons = elements.max(1).ilog2() as usize;
    steps(elements.saturating_mul(2 * comparisons));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_of_two_meters_counts_in_both() {
        let ((inner, taken), all) = metered(u64::MAX, || {
            bytes(160);
            let inner = metered(u64::MAX, || elements(2));
            steps(1);
            (inner.1, 10 + 1)
        });
        assert_eq!((inner, all), (40, 40 + taken));
        assert_eq!(metered(u64::MAX, || ()).1, 0, "nothing of it is left");
    }

    #[test]
    fn a_command_is_spent_when_it_works_more_than_its_caller_has_left() {
        let spent = |count| {
            metered(10, || {
                (0..count)
                    .filter(|_| {
                        steps(1);
                        is_spent()
                    })
                    .count()
            })
            .0
        };
        assert_eq!((spent(10), spent(11)), (0, 1));
        let panicked = std::panic::catch_unwind(|| metered(0, || panic!("a command's")));
        assert!(panicked.is_err());
        steps(1);
        assert!(!is_spent(), "the limit has gone with the command");
    }
}
