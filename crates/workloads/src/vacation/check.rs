//! What must hold after a run.
//!
//! 1. Every relation has the guarantees of [`Relation`]: used and free stock add up to the total.
//! 2. Every reservation of a customer names a relation that exists.
//! 3. As many customers have a reservation of a relation as it has items in use.
//! 4. The stock that was added since the start, and what customers owe, are what the calls replied.
//! 5. There are no other records.
//!
//! The check does not know which customers without reservations exist: deleting one changes nothing that it
//! counts.

use super::rows::{Customer, Relation, RelationId, customer_key};
use super::{STOCK, Vacation, stock_initial};
use crate::{State, row};

/// The stock added and the money owed of a sum of replies, as long as the money is below half of [`STOCK`].
fn parts(ledger: i64) -> (i64, i64) {
    let owed = i64::from(ledger as i32);
    ((ledger - owed) / STOCK, owed)
}

fn relation(state: &mut dyn State, id: RelationId) -> Result<Option<Relation>, String> {
    let Some(entry) = state.get(&id.key()) else {
        return Ok(None);
    };
    let relation = row(Some(entry.value)).and_then(|row| Relation::decode(&row));
    let relation = relation.map_err(|_| format!("{id}: the record is not a row of a relation"))?;
    relation.check().map_err(|reason| format!("{id}: {reason}"))?;
    Ok(Some(relation))
}

fn customer(state: &mut dyn State, number: u32) -> Result<Option<Customer>, String> {
    let value = state.get(&customer_key(number)).map(|entry| entry.value);
    Customer::read(value).map_err(|_| format!("customer {number}: the record is not a list of reservations"))
}

pub fn run(vacation: &Vacation, state: &mut dyn State, replies_sum: i64) -> Result<(), String> {
    let (mut added, mut owed, mut records) = (0, 0, 0);
    // By relation, if it exists: the items in use, and then those that no customer is known to have.
    let mut unexplained: Vec<Option<i32>> = Vec::new();
    for id in vacation.relation_ids() {
        let relation = relation(state, id)?;
        added += i64::from(relation.map_or(0, |relation| relation.total) - stock_initial(id));
        records += u64::from(relation.is_some());
        unexplained.push(relation.map(|relation| relation.used));
    }
    for number in 0..vacation.options.relations {
        let Some(customer) = customer(state, number)? else {
            continue;
        };
        owed += customer.bill();
        records += 1;
        for reservation in customer.reservations() {
            let id = reservation.relation;
            let count = vacation.place(id).and_then(|place| unexplained[place].as_mut());
            *count.ok_or_else(|| format!("customer {number} has reserved {id}, which does not exist"))? -= 1;
        }
    }
    for (id, count) in vacation.relation_ids().zip(unexplained) {
        let count = count.unwrap_or(0);
        if count != 0 {
            return Err(format!("{id}: {count} more items are in use than customers have reserved"));
        }
    }
    if STOCK.wrapping_mul(added).wrapping_add(owed) != replies_sum {
        let (added_replied, owed_replied) = parts(replies_sum);
        return Err(format!(
            "the stock has grown by {added} and customers owe {owed}, but the calls replied {added_replied} \
             and {owed_replied}"
        ));
    }
    let count = state.count();
    if count != records {
        return Err(format!("there are {count} records, but {records} relations and customers"));
    }
    Ok(())
}
