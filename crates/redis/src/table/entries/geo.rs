//! Places.

use super::*;
use crate::commands::geo::{self, search};

const fn geo(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Geo, run)
}

const fn behind(word: &'static str, start: usize) -> KeySpec {
    KeySpec { places: KeyPlaces::Word { word, start, half: false }, flags: &["OW", "update"] }
}

const GEOSEARCHSTORE_KEYS: &[KeySpec] =
    &[range(1, 1, 1, &["OW", "update"]), range(2, 2, 1, &["RO", "access"])];
const GEORADIUS_KEYS: &[KeySpec] =
    &[range(1, 1, 1, &["RO", "access"]), behind("STORE", 6), behind("STOREDIST", 6)];
const BYMEMBER_KEYS: &[KeySpec] =
    &[range(1, 1, 1, &["RO", "access"]), behind("STORE", 5), behind("STOREDIST", 5)];

pub(super) const COMMANDS: &[Command] = &[
    geo("geoadd", -5, per_key!(UPDATE, geo::geoadd)).stores().keys(RW_UPDATE),
    geo("geopos", -2, data!(geo::geopos)).readonly().keys(RO_ACCESS),
    geo("geohash", -2, data!(geo::geohash)).readonly().keys(RO_ACCESS),
    geo("geodist", -4, data!(geo::geodist)).readonly().keys(RO_ACCESS),
    geo("geosearch", -7, data!(search::geosearch)).readonly().keys(RO_ACCESS),
    geo("geosearchstore", -8, data!(search::geosearchstore)).stores().keys(GEOSEARCHSTORE_KEYS),
    geo("georadius", -6, data!(search::georadius)).stores().movable().keys(GEORADIUS_KEYS),
    geo("georadius_ro", -6, data!(search::georadius_ro)).readonly().keys(RO_ACCESS),
    geo("georadiusbymember", -5, data!(search::georadiusbymember)).stores().movable().keys(BYMEMBER_KEYS),
    geo("georadiusbymember_ro", -5, data!(search::georadiusbymember_ro)).readonly().keys(RO_ACCESS),
];
