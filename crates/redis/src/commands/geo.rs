//! Places on the earth: sorted sets whose scores are places.
//!
//! A score is the number of a cell ([`cell`]), so that near places mostly have near scores: a search
//! ([`search`]) finds the nine cells that cover its area ([`area`]) and looks at the members of these ranges
//! of scores alone. Distances are those on a sphere ([`sphere`]).

mod area;
mod cell;
pub mod search;
mod sphere;

use super::collections::{collection_or, find};
use super::options;
use super::sorted_sets::add::{AddOptions, add, score};
use super::strings::{argument, found};
use crate::errors;
use crate::table::per_key::PerKeyResult;
use cell::{Cell, Globe, Position};
use sphere::distance;
use txn::value::{Scored, SortedSetValue};
use txn::{Blob, FragmentContext, Intent, Key, Outcome, Reply, Tx};

impl Position {
    /// From two arguments.
    fn parse(longitude: &Blob, latitude: &Blob) -> Result<Position, Reply> {
        let position = Position { longitude: score(longitude)?, latitude: score(latitude)? };
        match Globe::SCORES.has(position) {
            true => Ok(position),
            false => Err(errors::invalid_position(position.longitude, position.latitude)),
        }
    }

    /// The place of a member, if there is one.
    fn of_member(set: &SortedSetValue, member: &[u8]) -> Option<Position> {
        set.score(member).map(Position::of_score)
    }

    /// As GEOPOS shows it: with all digits of the numbers that the score stands for.
    fn reply(self) -> Reply {
        let degrees = [self.longitude, self.latitude];
        Reply::Array(degrees.map(Reply::Decimal).to_vec())
    }
}

/// The meters of a unit.
fn unit(word: &Blob) -> Result<f64, Reply> {
    Ok(match word {
        word if options::is(word, "M") => 1.0,
        word if options::is(word, "KM") => 1000.0,
        word if options::is(word, "FT") => 0.3048,
        word if options::is(word, "MI") => 1609.34,
        _ => return Err(errors::UNKNOWN_UNIT),
    })
}

/// A distance with four digits behind the point.
fn distance_reply(distance: f64) -> Reply {
    const SCALE: f64 = 10_000.0;
    // Halves to even, as Redis rounds.
    let scaled = (distance * SCALE).round_ties_even();
    Reply::bulk(format!("{:.4}", scaled / SCALE).as_str())
}

/// GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]
pub fn geoadd(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let mut options = AddOptions::default();
    let is_option = |word: &&Blob| ["NX", "XX", "CH"].iter().any(|name| options::is(word, name));
    let words = args[1..].iter().take_while(is_option);
    let taken = words.filter(|word| options.take(word)).count();
    let (places, []) = args[1 + taken..].as_chunks::<3>() else {
        return Err(errors::SYNTAX);
    };
    if places.is_empty() || (options.only_absent && options.only_present) {
        return Err(errors::SYNTAX);
    }
    let mut members = Vec::with_capacity(places.len());
    for [longitude, latitude, member] in places {
        let position = Position::parse(longitude, latitude)?;
        members.push(Scored { score: Cell::smallest_at(position).score(), member: member.clone() });
    }
    add(context, options, members)
}

/// What each of some members has, or else this.
async fn of_each(tx: &mut Tx, args: &[Blob], of_position: fn(Position) -> Reply, absent: Reply) -> Outcome {
    let members = &args[1..];
    let nothing = Reply::Array(vec![absent.clone(); members.len()]);
    let set = collection_or!(SortedSetValue, tx, args, nothing);
    let positions = members.iter().map(|member| Position::of_member(&set, member));
    let replies = positions.map(|position| position.map_or(absent.clone(), of_position));
    Ok(Reply::Array(replies.collect()))
}

/// GEOPOS key [member ...]
pub async fn geopos(tx: &mut Tx, args: &[Blob]) -> Outcome {
    of_each(tx, args, Position::reply, Reply::NilArray).await
}

/// GEOHASH key [member ...]
pub async fn geohash(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let text = |position| Reply::bulk(cell::public_text(position).as_str());
    of_each(tx, args, text, Reply::Nil).await
}

/// GEODIST key member member [M | KM | FT | MI]
pub async fn geodist(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let meters = match &args[3..] {
        [] => 1.0,
        [word] => argument!(unit(word)),
        _ => return Ok(errors::SYNTAX),
    };
    let set = collection_or!(SortedSetValue, tx, args, Reply::Nil);
    let from = Position::of_member(&set, &args[1]);
    let to = Position::of_member(&set, &args[2]);
    Ok(from.zip(to).map_or(Reply::Nil, |(from, to)| distance_reply(distance(from, to) / meters)))
}
