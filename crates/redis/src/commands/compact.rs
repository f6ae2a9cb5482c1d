//! The collections that Redis 7.2 would hold in a compact encoding, with its default bounds, if each was made
//! at once. OBJECT ENCODING tells it, and HSCAN, SSCAN and ZSCAN return such a collection whole. How a value
//! lies in memory here has nothing to do with it.

use crate::parse;
use crate::work;
use txn::BlobRef;
use txn::value::{HashValue, ListValue, SetValue, SortedSetValue};

const LIST_BYTES_MAX: usize = 8192;
const SET_MEMBERS_MAX: usize = 128;
const FIELDS_MAX: usize = 512;
const MEMBERS_MAX: usize = 128;
const ELEMENT_BYTES_MAX: usize = 64;
const INTEGERS_MAX: usize = 512;

/// Whether an element may be in a compact collection. Each look counts as work; a long element ends the
/// search.
fn is_short(bytes: BlobRef<'_>) -> bool {
    work::steps(1);
    bytes.len() <= ELEMENT_BYTES_MAX
}

pub(super) fn is_hash(hash: &HashValue) -> bool {
    hash.len() <= FIELDS_MAX && hash.iter().all(|(field, value)| is_short(field) && is_short(value))
}

/// Whether Redis would hold the set as an array of integers.
pub(super) fn is_integers(set: &SetValue) -> bool {
    let is_integer = |bytes: BlobRef<'_>| {
        work::steps(1);
        parse::integer(&bytes).is_some()
    };
    set.len() <= INTEGERS_MAX && set.names().all(is_integer)
}

pub(super) fn is_set(set: &SetValue) -> bool {
    set.len() <= SET_MEMBERS_MAX && set.names().all(is_short)
}

pub(super) fn is_sorted_set(set: &SortedSetValue) -> bool {
    let mut members = set.iter().map(|one| one.member);
    set.len() <= MEMBERS_MAX && members.all(is_short)
}

pub(super) fn is_list(list: &ListValue) -> bool {
    let mut bytes = LISTPACK_EMPTY_BYTES;
    let mut elements = list.iter();
    elements.all(|element| {
        work::steps(1);
        bytes += listpack_bytes(&element);
        bytes <= LIST_BYTES_MAX
    })
}

/// A listpack's header and its end.
const LISTPACK_EMPTY_BYTES: usize = 7;

/// What an element takes in a listpack: its form, its bytes, and the length of both for those who come from
/// behind.
fn listpack_bytes(element: &[u8]) -> usize {
    let (form, bytes) = match parse::integer(element) {
        Some(0..=0x7f) => (1, 0),
        Some(-0x1000..=0xfff) => (1, 1),
        Some(-0x8000..=0x7fff) => (1, 2),
        Some(-0x80_0000..=0x7f_ffff) => (1, 3),
        Some(-0x8000_0000..=0x7fff_ffff) => (1, 4),
        Some(_) => (1, 8),
        None if element.len() < 64 => (1, element.len()),
        None if element.len() < 4096 => (2, element.len()),
        None => (5, element.len()),
    };
    let entry = form + bytes;
    entry + if entry < 128 { 1 } else { 2 }
}
