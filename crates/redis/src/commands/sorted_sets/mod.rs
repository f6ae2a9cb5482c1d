//! Sorted sets: members with scores, in the order of these.
//!
//! Every command on a part of a set finds the ranks of the part first ([`bounds`]), in O(log n), and then
//! goes over the members of these ranks alone. [`add`] gives scores, [`remove`] and [`pop`] take members
//! away, [`read`] and [`ranges`] look, and [`combine`] makes one set of several.

pub mod add;
mod bounds;
pub mod combine;
pub mod pop;
pub mod ranges;
pub mod read;
pub mod remove;

pub(super) use bounds::ScoreBounds;

use crate::work;
use txn::value::{ScoredRef, SortedSetValue};
use txn::{Blob, Reply};

/// A sorted set of these members.
pub(in crate::commands) fn collected(members: impl Iterator<Item = (Blob, f64)>) -> SortedSetValue {
    let counted = members.inspect(|(member, _)| {
        work::bytes(member.len());
        work::scored(1);
    });
    counted.collect()
}

/// Members in the order in which they come, with their scores or without.
pub(super) fn members_reply<'a>(members: impl Iterator<Item = ScoredRef<'a>>, with_scores: bool) -> Reply {
    let name = |one: ScoredRef<'_>| Reply::Bulk(one.member.to_blob());
    if with_scores {
        let pair = |one: ScoredRef<'_>| (name(one), Reply::Double(one.score));
        Reply::Pairs(members.map(pair).collect())
    } else {
        Reply::Array(members.map(name).collect())
    }
}
