//! The three procedures and their arguments.
//!
//! A relation takes 4 bytes of the arguments ([`RelationId::encode`]); integers are little-endian:
//!
//! | procedure | arguments |
//! |---|---|
//! | reserve | customer, and the queried relations |
//! | delete customer | customer |
//! | update tables | by change: relation, and its new price or 0 |

use super::rows::{Customer, Relation, RelationId, Reservation, STOCK_STEP, Table, customer_key, is_price};
use super::{QUERIES_MAX, STOCK};
use crate::{Native, malformed, missing};
use txn::{Args, Call, Footprint, Key, Outcome, Reply, Stop, Tx};

/// The numbers of the arguments.
fn numbers(args: &Args) -> Result<&[[u8; 4]], Stop> {
    match args.first().map(|bytes| bytes.as_chunks::<4>()) {
        Some((numbers, [])) => Ok(numbers),
        _ => Err(malformed()),
    }
}

fn relation(bytes: &[u8; 4]) -> Result<RelationId, Stop> {
    RelationId::decode(u32::from_le_bytes(*bytes)).ok_or_else(malformed)
}

/// The footprint of a call that may write the records of these relations, and these keys.
fn writes_of(relations: impl Iterator<Item = RelationId>, mut writes: Vec<Key>) -> Footprint {
    let mut relations: Vec<RelationId> = relations.collect();
    relations.sort_unstable();
    relations.dedup();
    writes.extend(relations.into_iter().map(RelationId::key));
    Footprint::of_keys(vec![], writes)
}

/// What a reservation asks for: the customer, and the relations to choose from.
pub fn reserve_arguments(customer: u32, relations: &[RelationId]) -> Args {
    let mut bytes = Vec::with_capacity(4 + 4 * relations.len());
    bytes.extend_from_slice(&customer.to_le_bytes());
    relations.iter().for_each(|relation| bytes.extend_from_slice(&relation.encode().to_le_bytes()));
    Args::one(&bytes[..])
}

fn reserve_arguments_of(args: &Args) -> Result<(u32, Vec<RelationId>), Stop> {
    let [customer, relations @ ..] = numbers(args)? else {
        return Err(malformed());
    };
    if !(1..=QUERIES_MAX).contains(&relations.len()) {
        return Err(malformed());
    }
    let relations = relations.iter().map(relation).collect::<Result<_, Stop>>()?;
    Ok((u32::from_le_bytes(*customer), relations))
}

/// Reserves the dearest free relation of each table among those queried, the first one where several cost the
/// same. Replies with the price of what the call reserved.
async fn reserve(mut tx: Tx, call: Call) -> Outcome {
    let (number, relations) = reserve_arguments_of(&call)?;
    let mut dearest: [Option<(RelationId, Relation)>; Table::ALL.len()] = [None; _];
    for id in relations {
        let Some(relation) = Relation::read(tx.get(&id.key()).await?)? else {
            continue;
        };
        let best = &mut dearest[id.table as usize];
        if relation.free > 0 && best.is_none_or(|(_, best)| best.price < relation.price) {
            *best = Some((id, relation));
        }
    }
    if dearest.iter().all(Option::is_none) {
        return Ok(Reply::Integer(0));
    }
    let key = customer_key(number);
    let mut customer = Customer::read(tx.get_for_update(&key).await?)?.unwrap_or_default();
    let mut owed = 0;
    for (id, relation) in dearest.into_iter().flatten() {
        let reservation = Reservation { relation: id, price: relation.price };
        if let Some(reserved) = relation.reserved()
            && customer.add(reservation)
        {
            tx.put(&id.key(), reserved.encode()).await?;
            owed += i64::from(relation.price);
        }
    }
    if owed > 0 {
        tx.put(&key, customer.encode()).await?;
    }
    Ok(Reply::Integer(owed))
}

pub fn delete_arguments(customer: u32) -> Args {
    Args::one(&customer.to_le_bytes()[..])
}

/// Cancels all reservations of a customer and deletes the customer. Replies with the bill, negated. A
/// customer who does not exist owes nothing.
async fn delete_customer(mut tx: Tx, call: Call) -> Outcome {
    let [number] = numbers(&call)? else {
        return Err(malformed());
    };
    let key = customer_key(u32::from_le_bytes(*number));
    let Some(customer) = Customer::read(tx.get_for_update(&key).await?)? else {
        return Ok(Reply::Integer(0));
    };
    for reservation in customer.reservations() {
        let key = reservation.relation.key();
        let relation = Relation::read(tx.get_for_update(&key).await?)?;
        let cancelled = relation.and_then(Relation::cancelled).ok_or_else(missing)?;
        tx.put(&key, cancelled.encode()).await?;
    }
    tx.delete(&key).await?;
    Ok(Reply::Integer(-customer.bill()))
}

/// What a call does to the stock of one relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds [`STOCK_STEP`] items, at a new price for all.
    Add { price: i32 },
    /// Takes [`STOCK_STEP`] free items of a car or a room, or a whole flight that nobody has reserved. Has no
    /// effect where there are none.
    Remove,
}

impl Change {
    /// The relation after the change; `None` if the change has no effect.
    fn apply(self, table: Table, old: Option<Relation>) -> Option<Relation> {
        match (self, old) {
            (Change::Add { price }, None) => Some(Relation::new(STOCK_STEP, price)),
            (Change::Add { price }, Some(old)) => {
                old.restocked(STOCK_STEP).map(|new| Relation { price, ..new })
            }
            (Change::Remove, None) => None,
            (Change::Remove, Some(old)) if table != Table::Flight => old.restocked(-STOCK_STEP),
            (Change::Remove, Some(old)) => (old.used == 0).then_some(Relation { free: 0, total: 0, ..old }),
        }
    }
}

pub fn update_arguments(changes: &[(RelationId, Change)]) -> Args {
    let mut bytes = Vec::with_capacity(8 * changes.len());
    for (relation, change) in changes {
        let price = match change {
            Change::Add { price } => *price,
            Change::Remove => 0,
        };
        bytes.extend_from_slice(&relation.encode().to_le_bytes());
        bytes.extend_from_slice(&price.to_le_bytes());
    }
    Args::one(&bytes[..])
}

fn update_arguments_of(args: &Args) -> Result<Vec<(RelationId, Change)>, Stop> {
    let (changes, []) = numbers(args)?.as_chunks::<2>() else {
        return Err(malformed());
    };
    if !(1..=QUERIES_MAX).contains(&changes.len()) {
        return Err(malformed());
    }
    let change = |[id, price]: &[[u8; 4]; 2]| {
        let change = match i32::from_le_bytes(*price) {
            0 => Change::Remove,
            price if is_price(price) => Change::Add { price },
            _ => return Err(malformed()),
        };
        Ok((relation(id)?, change))
    };
    changes.iter().map(change).collect()
}

/// Changes stock and prices. Replies with [`STOCK`] times what the changes added to the stock. A relation is
/// created by the first stock that it gets, and deleted when it has none any more.
async fn update_tables(mut tx: Tx, call: Call) -> Outcome {
    let mut added = 0;
    for (id, change) in update_arguments_of(&call)? {
        let key = id.key();
        let old = Relation::read(tx.get_for_update(&key).await?)?;
        let Some(new) = change.apply(id.table, old) else {
            continue;
        };
        match new.total {
            0 => tx.delete(&key).await?,
            _ => tx.put(&key, new.encode()).await?,
        }
        added += i64::from(new.total - old.map_or(0, |old| old.total));
    }
    Ok(Reply::Integer(STOCK * added))
}

/// All queried relations count as written, because the arguments do not tell which of them are the dearest.
pub const RESERVE: Native = Native {
    name: "vacation.reserve",
    footprint: |args| match reserve_arguments_of(args) {
        Ok((customer, relations)) => writes_of(relations.into_iter(), vec![customer_key(customer)]),
        Err(_) => Footprint::unknown(),
    },
    fragments: |_| None,
    run: |tx, call| Box::pin(reserve(tx, call)),
};

/// The customer's row tells which relations the call writes.
pub const DELETE_CUSTOMER: Native = Native {
    name: "vacation.delete_customer",
    footprint: |_| Footprint::unknown(),
    fragments: |_| None,
    run: |tx, call| Box::pin(delete_customer(tx, call)),
};

pub const UPDATE_TABLES: Native = Native {
    name: "vacation.update_tables",
    footprint: |args| match update_arguments_of(args) {
        Ok(changes) => writes_of(changes.into_iter().map(|(relation, _)| relation), vec![]),
        Err(_) => Footprint::unknown(),
    },
    fragments: |_| None,
    run: |tx, call| Box::pin(update_tables(tx, call)),
};
