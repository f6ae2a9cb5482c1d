//! Searching around a place: GEOSEARCH, its older forms, and storing what they find.

use super::area::{Area, Shape};
use super::cell::Position;
use super::{distance_reply, unit};
use crate::commands::collections::{find, source_intent, store};
use crate::commands::options;
use crate::commands::sorted_sets::{add::score, collected};
use crate::commands::strings::{argument, found};
use crate::errors;
use crate::work;
use txn::value::{Scored, SortedSetValue};
use txn::{Blob, Key, Outcome, Reply, Tx};

/// Which command it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// GEORADIUS and GEORADIUS_RO: a place and a radius, then options.
    RadiusAt { may_store: bool },
    /// GEORADIUSBYMEMBER and GEORADIUSBYMEMBER_RO: a member and a radius, then options.
    RadiusAround { may_store: bool },
    /// GEOSEARCH: options say everything.
    Search,
    /// GEOSEARCHSTORE.
    SearchStore,
}

impl Form {
    /// The command's name in what it says of options that are missing.
    fn name(self) -> &'static str {
        match self {
            Form::SearchStore => "geosearchstore",
            _ => "geosearch",
        }
    }
    fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }
    /// Whether STORE and STOREDIST name a key.
    fn names_destination(self) -> bool {
        matches!(self, Form::RadiusAt { may_store: true } | Form::RadiusAround { may_store: true })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Nearest,
    Farthest,
}

/// What is searched for. Without a set to search in, members are not looked up.
#[derive(Default)]
struct Query<'a> {
    center: Option<Position>,
    /// The shape with the meters of its unit.
    shape: Option<(Shape, f64)>,
    order: Option<Order>,
    /// How many at most; 0: all.
    count: usize,
    /// Any of them instead of the nearest.
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_position: bool,
    destination: Option<&'a Blob>,
    stores_distances: bool,
}

/// A distance that is not negative.
fn radius(argument: &Blob) -> Result<f64, Reply> {
    let radius = score(argument).map_err(|_| errors::RADIUS_NOT_A_FLOAT)?;
    match radius < 0.0 {
        true => Err(errors::RADIUS_NEGATIVE),
        false => Ok(radius),
    }
}

fn circle(given: &Blob, word: &Blob) -> Result<(Shape, f64), Reply> {
    let radius = radius(given)?;
    Ok((Shape::Circle { radius }, unit(word)?))
}

fn rectangle(width: &Blob, height: &Blob, word: &Blob) -> Result<(Shape, f64), Reply> {
    let width = score(width).map_err(|_| errors::WIDTH_NOT_A_FLOAT)?;
    let height = score(height).map_err(|_| errors::HEIGHT_NOT_A_FLOAT)?;
    if width < 0.0 || height < 0.0 {
        return Err(errors::BOX_NEGATIVE);
    }
    Ok((Shape::Box { width, height }, unit(word)?))
}

/// The place of a member; of none if there is no set at all.
fn around(set: Option<&SortedSetValue>, member: &Blob) -> Result<Position, Reply> {
    match set {
        None => Ok(Position::default()),
        Some(set) => Position::of_member(set, member).ok_or(errors::UNKNOWN_PLACE),
    }
}

impl<'a> Query<'a> {
    /// From the arguments behind the source's key.
    fn parse(args: &'a [Blob], form: Form, set: Option<&SortedSetValue>) -> Result<Query<'a>, Reply> {
        let mut query = Query::default();
        let words = match form {
            Form::RadiusAt { .. } => {
                query.center = Some(Position::parse(&args[0], &args[1])?);
                query.shape = Some(circle(&args[2], &args[3])?);
                &args[4..]
            }
            Form::RadiusAround { .. } => {
                // Redis does not even read the radius if there is no key.
                if set.is_some() {
                    query.center = Some(around(set, &args[0])?);
                    query.shape = Some(circle(&args[1], &args[2])?);
                }
                &args[3..]
            }
            Form::Search | Form::SearchStore => args,
        };
        query.take_options(words, form, set)?;
        query.check(form)?;
        Ok(query)
    }

    fn take_options(
        &mut self,
        mut words: &'a [Blob],
        form: Form,
        set: Option<&SortedSetValue>,
    ) -> Result<(), Reply> {
        let (mut by_member, mut by_place) = (false, false);
        while let [word, rest @ ..] = words {
            let is = |name| options::is(word, name);
            words = match rest {
                rest if is("WITHDIST") => {
                    self.with_distance = true;
                    rest
                }
                rest if is("WITHHASH") => {
                    self.with_hash = true;
                    rest
                }
                rest if is("WITHCOORD") => {
                    self.with_position = true;
                    rest
                }
                rest if is("ANY") => {
                    self.any = true;
                    rest
                }
                rest if is("ASC") => {
                    self.order = Some(Order::Nearest);
                    rest
                }
                rest if is("DESC") => {
                    self.order = Some(Order::Farthest);
                    rest
                }
                [count, rest @ ..] if is("COUNT") => {
                    let count = options::integer(count)?;
                    self.count = usize::try_from(count)
                        .ok()
                        .filter(|&count| count > 0)
                        .ok_or(errors::GEO_COUNT_ZERO)?;
                    rest
                }
                [key, rest @ ..] if form.names_destination() && (is("STORE") || is("STOREDIST")) => {
                    // The last counts.
                    self.stores_distances = is("STOREDIST");
                    self.destination = Some(key);
                    rest
                }
                rest if form == Form::SearchStore && is("STOREDIST") => {
                    self.stores_distances = true;
                    rest
                }
                [member, rest @ ..] if form.is_search() && !by_place && is("FROMMEMBER") => {
                    self.center = Some(around(set, member)?);
                    by_member = true;
                    rest
                }
                [longitude, latitude, rest @ ..] if form.is_search() && !by_member && is("FROMLONLAT") => {
                    self.center = Some(Position::parse(longitude, latitude)?);
                    by_place = true;
                    rest
                }
                [given, unit, rest @ ..]
                    if form.is_search()
                        && !matches!(self.shape, Some((Shape::Box { .. }, _)))
                        && is("BYRADIUS") =>
                {
                    self.shape = Some(circle(given, unit)?);
                    rest
                }
                [width, height, unit, rest @ ..]
                    if form.is_search()
                        && !matches!(self.shape, Some((Shape::Circle { .. }, _)))
                        && is("BYBOX") =>
                {
                    self.shape = Some(rectangle(width, height, unit)?);
                    rest
                }
                _ => return Err(errors::SYNTAX),
            };
        }
        Ok(())
    }

    /// Refuses options that are missing or exclude each other.
    fn check(&self, form: Form) -> Result<(), Reply> {
        let shows_more = self.with_distance || self.with_hash || self.with_position;
        if shows_more && form == Form::SearchStore {
            return Err(errors::SEARCHSTORE_WITH);
        }
        if shows_more && self.destination.is_some() {
            return Err(errors::GEORADIUS_STORE_WITH);
        }
        if form.is_search() && self.center.is_none() {
            return Err(errors::search_from_nowhere(form.name()));
        }
        if form.is_search() && self.shape.is_none() {
            return Err(errors::search_of_no_shape(form.name()));
        }
        if self.any && self.count == 0 {
            return Err(errors::ANY_WITHOUT_COUNT);
        }
        Ok(())
    }

    /// What is found, in the order that was asked for.
    fn run(&self, set: &SortedSetValue) -> Vec<Found> {
        let Some((center, (shape, unit_meters))) = self.center.zip(self.shape) else {
            return Vec::new();
        };
        let area = Area { center, shape, unit_meters };
        let limit = match self.any {
            true => self.count,
            false => usize::MAX,
        };
        let cells = area.cells().into_iter();
        let members = cells.flat_map(|cell| set.range(cell.scores().ranks(set)));
        let found = members.filter_map(|one| {
            work::elements(1);
            let position = Position::of_score(one.score);
            let meters = area.distance_within(position)?;
            Some(Found { one: one.to_scored(), position, meters })
        });
        let mut found: Vec<Found> = found.take(limit).collect();
        // So many of all would be arbitrary: the nearest are meant, unless any will do.
        let order = match self.order {
            None if self.count > 0 && !self.any => Some(Order::Nearest),
            order => order,
        };
        work::sorted(found.len());
        // Sorting keeps the order of the search among equal distances.
        match order {
            None => {}
            Some(Order::Nearest) => found.sort_by(|a, b| a.meters.total_cmp(&b.meters)),
            Some(Order::Farthest) => found.sort_by(|a, b| b.meters.total_cmp(&a.meters)),
        }
        if self.count > 0 {
            found.truncate(self.count);
        }
        found
    }

    /// In the unit that was asked for.
    fn distance(&self, found: &Found) -> f64 {
        self.shape.map_or(0.0, |(_, meters)| found.meters / meters)
    }

    fn reply(&self, found: &Found) -> Reply {
        let name = Reply::Bulk(found.one.member.clone());
        if !(self.with_distance || self.with_hash || self.with_position) {
            return name;
        }
        let mut parts = vec![name];
        if self.with_distance {
            parts.push(distance_reply(self.distance(found)));
        }
        if self.with_hash {
            parts.push(Reply::Integer(found.one.score as i64));
        }
        if self.with_position {
            parts.push(found.position.reply());
        }
        Reply::Array(parts)
    }
}

/// A member in an area.
struct Found {
    one: Scored,
    position: Position,
    /// From the center.
    meters: f64,
}

/// The key behind the last STORE or STOREDIST, as far as the words tell before they are understood.
fn destination(args: &[Blob]) -> Option<&Blob> {
    let mut pairs = args.windows(2).rev();
    let pair = pairs.find(|pair| options::is(&pair[0], "STORE") || options::is(&pair[0], "STOREDIST"));
    pair.map(|pair| &pair[1])
}

async fn search(tx: &mut Tx, args: &[Blob], form: Form) -> Outcome {
    let (stored, source, words) = match form {
        Form::SearchStore => (Some(&args[0]), &args[1], &args[2..]),
        _ => (None, &args[0], &args[1..]),
    };
    let written = match form.names_destination() {
        true => destination(words),
        false => stored,
    };
    let intent = source_intent(source, written);
    let found = found!(find::<SortedSetValue>(tx, &Key::from(source), intent));
    let set = found.as_ref().map(|(set, _)| set);
    let query = argument!(Query::parse(words, form, set));
    let found = set.map_or_else(Vec::new, |set| query.run(set));
    let Some(destination) = stored.or(query.destination) else {
        let replies = found.iter().map(|found| query.reply(found));
        return Ok(Reply::Array(replies.collect()));
    };
    let scored = found.into_iter().map(|found| match query.stores_distances {
        true => (found.one.member.clone(), query.distance(&found)),
        false => (found.one.member, found.one.score),
    });
    store(tx, destination, collected(scored)).await
}

/// GEORADIUS key longitude latitude radius M | KM | FT | MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count
/// [ANY]] [ASC | DESC] [STORE key | STOREDIST key]
pub async fn georadius(tx: &mut Tx, args: &[Blob]) -> Outcome {
    search(tx, args, Form::RadiusAt { may_store: true }).await
}

/// GEORADIUS_RO key longitude latitude radius M | KM | FT | MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count
/// [ANY]] [ASC
/// | DESC]
pub async fn georadius_ro(tx: &mut Tx, args: &[Blob]) -> Outcome {
    search(tx, args, Form::RadiusAt { may_store: false }).await
}

/// GEORADIUSBYMEMBER key member radius M | KM | FT | MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]]
/// [ASC | DESC] [STORE key | STOREDIST key]
pub async fn georadiusbymember(tx: &mut Tx, args: &[Blob]) -> Outcome {
    search(tx, args, Form::RadiusAround { may_store: true }).await
}

/// GEORADIUSBYMEMBER_RO key member radius M | KM | FT | MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count
/// [ANY]] [ASC | DESC]
pub async fn georadiusbymember_ro(tx: &mut Tx, args: &[Blob]) -> Outcome {
    search(tx, args, Form::RadiusAround { may_store: false }).await
}

/// GEOSEARCH key FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius unit | BYBOX width height
/// unit [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]
pub async fn geosearch(tx: &mut Tx, args: &[Blob]) -> Outcome {
    search(tx, args, Form::Search).await
}

/// GEOSEARCHSTORE destination source FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius unit |
/// BYBOX width height unit [ASC | DESC] [COUNT count [ANY]] [STOREDIST]
pub async fn geosearchstore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    search(tx, args, Form::SearchStore).await
}
