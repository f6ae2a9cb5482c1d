//! What commands do beyond taking words and giving a reply: what scripts are charged for it.
//!
//! A command may look at millions of elements, or at hundreds of megabytes, and reply one integer. Commands whose work may be much
//! larger than their words and their reply count it here, beside their [`Tx`](txn::Tx), and whoever runs them for a script
//! ([`metered`]) takes the sum. It is in a script's steps, so that these bound its time, whatever it calls.
//!
//! The sum decides outcomes, so it is a function of the arguments and of the state: what is counted are elements and bytes, never
//! how they lie in memory (whether a long string is in chunks, say: a checkpoint puts them together). It need not be exact: what takes as long should count about as much.

use std::cell::Cell;

/// Bytes that are copied, compared or hashed for a step.
const BYTES_PER_STEP: usize = 16;
/// What an element counts as that is looked up, or put at an end.
const STEPS_PER_ELEMENT: u64 = 10;
/// What a member counts as that is put where its name is found, or taken away.
const STEPS_PER_MEMBER: u64 = 60;
/// The same where it has a place in an order, too.
const STEPS_PER_SCORED: u64 = 150;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Runs one poll of a command, and gives the steps that it worked.
pub(crate) fn metered<R>(poll: impl FnOnce() -> R) -> (R, u64) {
    let outer = STEPS.replace(0);
    let result = poll();
    let taken = STEPS.get();
    // Who is metered inside another is part of that.
    STEPS.set(outer.saturating_add(taken));
    (result, taken)
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

/// Counts one such element, all of whose bytes are looked at.
#[inline]
pub(crate) fn element(element: &[u8]) {
    elements(1);
    bytes(element.len());
}

/// Counts the comparison of an element that is passed over with one that is looked for.
#[inline]
pub(crate) fn compared(element: &[u8], wanted: &[u8]) {
    steps(1);
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
        let ((inner, taken), all) = metered(|| {
            bytes(160);
            let inner = metered(|| elements(2));
            steps(1);
            (inner.1, 10 + 1)
        });
        assert_eq!((inner, all), (20, 20 + taken));
        assert_eq!(metered(|| ()).1, 0, "nothing of it is left");
    }
}
