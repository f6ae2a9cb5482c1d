//! Places.

use super::*;
use crate::commands::geo::{self, search};

const fn geo(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Geo, run)
}

const fn behind(word: &'static str, start: usize) -> KeySpec {
    KeySpec { places: KeyPlaces::Word { word, start, half: false }, flags: &["OW", "update"] }
}

const SEARCH: &str = "O(N) + O(M log M), of N members in the cells around the area, M of them in it";

pub(super) const COMMANDS: &[Command] = &[
    geo("geoadd", -5, data!(geo::geoadd)).write().denyoom().keys(RW_UPDATE).about(
        "3.2.0",
        "O(log N) for each member",
        "Adds members with their places.",
    ),
    geo("geopos", -2, data!(geo::geopos)).readonly().keys(RO_ACCESS).about(
        "3.2.0",
        "O(log N) for each member",
        "Replies the places of members.",
    ),
    geo("geohash", -2, data!(geo::geohash)).readonly().keys(RO_ACCESS).about(
        "3.2.0",
        "O(log N) for each member",
        "Replies the places of members as geohash texts.",
    ),
    geo("geodist", -4, data!(geo::geodist)).readonly().keys(RO_ACCESS).about(
        "3.2.0",
        "O(log N)",
        "Replies the distance between two members.",
    ),
    geo("geosearch", -7, data!(search::geosearch)).readonly().keys(RO_ACCESS).about(
        "6.2.0",
        SEARCH,
        "Replies the members in a circle or a box.",
    ),
    geo("geosearchstore", -8, data!(search::geosearchstore))
        .write()
        .denyoom()
        .keys(&[range(1, 1, 1, &["OW", "update"]), range(2, 2, 1, &["RO", "access"])])
        .about("6.2.0", SEARCH, "Stores the members in a circle or a box."),
    geo("georadius", -6, data!(search::georadius))
        .write()
        .denyoom()
        .flags(Flags::MOVABLEKEYS)
        .keys(&[range(1, 1, 1, &["RO", "access"]), behind("STORE", 6), behind("STOREDIST", 6)])
        .about("3.2.0", SEARCH, "Replies or stores the members around a place: the old form of GEOSEARCH."),
    geo("georadius_ro", -6, data!(search::georadius_ro)).readonly().keys(RO_ACCESS).about(
        "3.2.10",
        SEARCH,
        "Replies the members around a place: an old form of GEOSEARCH.",
    ),
    geo("georadiusbymember", -5, data!(search::georadiusbymember))
        .write()
        .denyoom()
        .flags(Flags::MOVABLEKEYS)
        .keys(&[range(1, 1, 1, &["RO", "access"]), behind("STORE", 5), behind("STOREDIST", 5)])
        .about(
            "3.2.0",
            SEARCH,
            "Replies or stores the members around one of them: an old form of GEOSEARCH.",
        ),
    geo("georadiusbymember_ro", -5, data!(search::georadiusbymember_ro)).readonly().keys(RO_ACCESS).about(
        "3.2.10",
        SEARCH,
        "Replies the members around one of them: an old form of GEOSEARCH.",
    ),
];
