//! Keys and rows.
//!
//! A key is a table's letter and a big-endian number, 5 bytes. A row is binary, its integers little-endian:
//!
//! | record | row |
//! |---|---|
//! | relation | used, free, total, price: 4 bytes each |
//! | customer | the customer's reservations by ascending relation: relation and price, 4 bytes each |

use super::RELATIONS_MAX;
use crate::{bytes_at, missing, row};
use std::fmt;
use txn::{Blob, Key, Stop, Value};

/// How many items a change of stock adds to a relation, or takes from it: as in STAMP.
pub const STOCK_STEP: i32 = 100;
/// How many items a relation may have. A change of stock that would exceed it has no effect.
pub const STOCK_MAX: i32 = 1_000_000;
/// The prices that STAMP draws: 50, 60, 70, 80 and 90.
pub const PRICE_MIN: i32 = 50;
pub const PRICE_STEP: i32 = 10;
pub const PRICES: i32 = 5;
const PRICE_MAX: i32 = PRICE_MIN + (PRICES - 1) * PRICE_STEP;

const RELATION_BYTES: usize = 16;
const RESERVATION_BYTES: usize = 8;
/// Where a relation's encoded number begins to tell the table.
const TABLE_SHIFT: u32 = 24;

const _: () = assert!(RELATIONS_MAX <= 1 << TABLE_SHIFT, "the number of a relation leaves its table alone");

fn key(letter: u8, number: u32) -> Key {
    let [a, b, c, d] = number.to_be_bytes();
    Key::new(&[letter, a, b, c, d])
}

pub fn customer_key(number: u32) -> Key {
    key(b'u', number)
}

/// What a relation offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    Car,
    Flight,
    Room,
}

impl Table {
    pub const ALL: [Table; 3] = [Table::Car, Table::Flight, Table::Room];
}

/// The name of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelationId {
    pub table: Table,
    /// Below [`RELATIONS_MAX`].
    pub number: u32,
}

impl RelationId {
    pub fn encode(self) -> u32 {
        (self.table as u32) << TABLE_SHIFT | self.number
    }
    /// The relation that `encoded` names, if it can name one.
    pub fn decode(encoded: u32) -> Option<RelationId> {
        let table = *Table::ALL.get((encoded >> TABLE_SHIFT) as usize)?;
        let number = encoded & ((1 << TABLE_SHIFT) - 1);
        (number < RELATIONS_MAX).then_some(RelationId { table, number })
    }
    pub fn key(self) -> Key {
        let letter = match self.table {
            Table::Car => b'c',
            Table::Flight => b'f',
            Table::Room => b'r',
        };
        key(letter, self.number)
    }
}

impl fmt::Display for RelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = match self.table {
            Table::Car => "car",
            Table::Flight => "flight",
            Table::Room => "room",
        };
        write!(f, "{table} {}", self.number)
    }
}

pub fn is_price(price: i32) -> bool {
    (PRICE_MIN..=PRICE_MAX).contains(&price)
}

/// The stock of a relation. The row of a relation whose stock is used up by removals does not exist.
///
/// What [`Relation::read`] returns holds:
/// 1. `used` and `free` are at least 0;
/// 2. `used + free = total`;
/// 3. `total` is from 1 to [`STOCK_MAX`];
/// 4. `price` is one that [`is_price`] accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation {
    pub used: i32,
    pub free: i32,
    pub total: i32,
    pub price: i32,
}

impl Relation {
    pub fn new(total: i32, price: i32) -> Relation {
        Relation { used: 0, free: total, total, price }
    }

    /// The relation that a key holds, if it holds one.
    pub fn read(value: Option<Value>) -> Result<Option<Relation>, Stop> {
        if value.is_none() {
            return Ok(None);
        }
        let relation = Relation::decode(&row(value)?)?;
        relation.check().map_err(|_| missing())?;
        Ok(Some(relation))
    }

    /// The relation of a row, whether the four guarantees hold or not.
    pub fn decode(row: &[u8]) -> Result<Relation, Stop> {
        if row.len() != RELATION_BYTES {
            return Err(missing());
        }
        let column = |place: usize| Ok(i32::from_le_bytes(bytes_at(row, 4 * place)?));
        Ok(Relation { used: column(0)?, free: column(1)?, total: column(2)?, price: column(3)? })
    }

    /// Whether the four guarantees hold.
    pub fn check(&self) -> Result<(), String> {
        let Relation { used, free, total, price } = *self;
        if used < 0 || free < 0 {
            return Err(format!("{used} used and {free} free: neither can be negative"));
        }
        if i64::from(used) + i64::from(free) != i64::from(total) {
            return Err(format!("{used} used and {free} free are not the {total} in total"));
        }
        if !(1..=STOCK_MAX).contains(&total) {
            return Err(format!("{total} in total: a record has from 1 to {STOCK_MAX}"));
        }
        if !is_price(price) {
            return Err(format!("the price {price} is not from {PRICE_MIN} to {PRICE_MAX}"));
        }
        Ok(())
    }

    pub fn encode(self) -> Blob {
        let mut bytes = [0; RELATION_BYTES];
        for (place, column) in [self.used, self.free, self.total, self.price].into_iter().enumerate() {
            bytes[4 * place..4 * place + 4].copy_from_slice(&column.to_le_bytes());
        }
        Blob::new(&bytes)
    }

    /// The relation with one item more in use, if one is free.
    pub fn reserved(self) -> Option<Relation> {
        (self.free > 0).then(|| Relation { used: self.used + 1, free: self.free - 1, ..self })
    }

    /// The relation with one item fewer in use, if one is used.
    pub fn cancelled(self) -> Option<Relation> {
        (self.used > 0).then(|| Relation { used: self.used - 1, free: self.free + 1, ..self })
    }

    /// The relation with `count` items more that are free, if their number is possible.
    pub fn restocked(self, count: i32) -> Option<Relation> {
        let (free, total) = (self.free + count, self.total + count);
        (free >= 0 && total <= STOCK_MAX).then_some(Relation { free, total, ..self })
    }
}

/// An item that a customer has reserved, and the price that the customer pays for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub relation: RelationId,
    pub price: i32,
}

/// The reservations of a customer.
///
/// 1. The relations ascend: a customer has at most one item of each.
/// 2. The prices are such that [`is_price`] accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Customer {
    reservations: Vec<Reservation>,
}

impl Customer {
    /// The customer that a key holds, if it holds one.
    pub fn read(value: Option<Value>) -> Result<Option<Customer>, Stop> {
        if value.is_none() {
            return Ok(None);
        }
        let row = row(value)?;
        let (chunks, []) = row.as_chunks::<RESERVATION_BYTES>() else {
            return Err(missing());
        };
        let reservations = chunks.iter().map(|chunk| {
            let relation = RelationId::decode(u32::from_le_bytes(bytes_at(chunk, 0)?)).ok_or_else(missing)?;
            let price = i32::from_le_bytes(bytes_at(chunk, 4)?);
            if is_price(price) { Ok(Reservation { relation, price }) } else { Err(missing()) }
        });
        let reservations: Vec<Reservation> = reservations.collect::<Result<_, Stop>>()?;
        if !reservations.is_sorted_by(|a, b| a.relation < b.relation) {
            return Err(missing());
        }
        Ok(Some(Customer { reservations }))
    }

    pub fn encode(&self) -> Blob {
        let mut bytes = Vec::with_capacity(self.reservations.len() * RESERVATION_BYTES);
        for Reservation { relation, price } in &self.reservations {
            bytes.extend_from_slice(&relation.encode().to_le_bytes());
            bytes.extend_from_slice(&price.to_le_bytes());
        }
        Blob::new(&bytes)
    }

    pub fn reservations(&self) -> &[Reservation] {
        &self.reservations
    }

    /// The sum of the prices.
    pub fn bill(&self) -> i64 {
        self.reservations.iter().map(|reservation| i64::from(reservation.price)).sum()
    }

    /// Adds a reservation, unless the customer has one of the same relation.
    pub fn add(&mut self, new: Reservation) -> bool {
        match self.reservations.binary_search_by_key(&new.relation, |old| old.relation) {
            Ok(_) => false,
            Err(place) => {
                self.reservations.insert(place, new);
                true
            }
        }
    }
}
