//! Vacation: a travel agency with cars, flights, rooms and customers, after the benchmark of that name in
//! STAMP (Cao Minh and others, IISWC 2008), which Archie's evaluation uses (§6.3, 100 to 1,000 relations).
//!
//! A *relation* is a record of one of the three tables: how many of its items are used and how many are free,
//! and the price of one. A *customer* is a record with a list of reservations. There are three kinds of
//! calls:
//!
//! | call | share | does |
//! |---|---|---|
//! | reserve | `user_percent` | queries relations of random tables, and reserves the dearest free one of each table for a customer, who is created if absent |
//! | delete customer | half of the rest | cancels all reservations of a customer, replies with the bill, and deletes the customer |
//! | update tables | the rest | adds stock to relations and changes their prices, or removes stock; relations appear and vanish |
//!
//! A call queries or updates a random number of relations, up to `queries`. Customers and relations are drawn
//! from the first `queried_percent` of all. STAMP's contention levels are "low" (2 queries, 90 percent
//! queried, 98 percent users) and "high" (4, 60 and 90: the defaults).
//!
//! # What differs from STAMP
//!
//! - STAMP takes a relation of which nothing is free for the dearest one, and then fails to reserve it. Here
//!   a query passes it over, so that a call reserves what it can.
//! - The stock with which a relation starts depends on its name alone, so that the check knows it.
//! - A reservation reads each relation once, not three times.
//!
//! # Replies
//!
//! All calls reply with integers whose sum is a ledger: reservations reply with what the customer owes for
//! them, deletions with the negated bill, updates with 2^32 times the stock that they added. The check
//! compares the sum with the records, and so it sees a call that lost all its writes.
//!
//! # Key sets
//!
//! A reservation declares the customer and all queried relations, an update all its relations. A deletion
//! declares nothing, because the customer's row names the relations.

mod calls;
mod check;
mod rows;
#[cfg(test)]
mod tests;

use crate::dice::Dice;
use crate::{Client, Draw, Generator, State, Tally, Workload};
use calls::{Change, DELETE_CUSTOMER, RESERVE, UPDATE_TABLES};
use rows::{
    Customer, PRICE_MIN, PRICE_STEP, PRICES, Relation, RelationId, STOCK_MAX, STOCK_STEP, Table, customer_key,
};
use std::sync::Arc;
use txn::hash::mix;
use txn::{Args, Entry, Key, PartitionRoute, Procedure};

/// How many relations a table may have: STAMP's largest input.
pub const RELATIONS_MAX: u32 = 1 << 20;
/// How many relations a call may query or update.
pub const QUERIES_MAX: usize = 1_000;
/// What one item of stock counts in a reply. One of money counts 1.
const STOCK: i64 = 1 << 32;

const _: () = assert!(
    QUERIES_MAX as i64 * STOCK_MAX as i64 <= i64::MAX / STOCK,
    "a reply holds the stock of all relations of a call"
);

/// The workload.
#[derive(Clone, Copy, Debug)]
pub struct Vacation {
    options: Options,
}

/// What the caller may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many cars there are, how many flights, how many rooms, and how many customers: from 1 to
    /// [`RELATIONS_MAX`].
    pub relations: u32,
    /// How many relations a call queries or updates at most: from 1 to [`QUERIES_MAX`].
    pub queries: usize,
    /// How many relations in 100 are queried and updated at all, and how many customers call: the fewer, the
    /// more contention.
    pub queried_percent: u32,
    /// How many calls in 100 are reservations.
    pub user_percent: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { relations: 1_000, queries: 4, queried_percent: 60, user_percent: 90 }
    }
}

impl Vacation {
    /// The workload with these options; an error says which of them is impossible.
    pub fn new(options: Options) -> Result<Vacation, String> {
        let Options { relations, queries, queried_percent, user_percent } = options;
        if !(1..=RELATIONS_MAX).contains(&relations) {
            return Err(format!("{relations} relations: choose from 1 to {RELATIONS_MAX}"));
        }
        if !(1..=QUERIES_MAX).contains(&queries) {
            return Err(format!("{queries} queries: choose from 1 to {QUERIES_MAX}"));
        }
        if !(1..=100).contains(&queried_percent) {
            return Err(format!("{queried_percent} percent queried: choose from 1 to 100"));
        }
        if user_percent > 100 {
            return Err(format!("{user_percent} percent users: choose from 0 to 100"));
        }
        Ok(Vacation { options })
    }

    /// How many relations of a table, and how many customers, calls name: rounded, and at least one.
    fn range(&self) -> u32 {
        let Options { relations, queried_percent, .. } = self.options;
        ((relations * queried_percent + 50) / 100).max(1)
    }

    /// All relations that can exist, in the order of [`Vacation::place`].
    fn relation_ids(&self) -> impl Iterator<Item = RelationId> {
        let numbers = 0..self.options.relations;
        Table::ALL
            .into_iter()
            .flat_map(move |table| numbers.clone().map(move |number| RelationId { table, number }))
    }

    /// The place of a relation among all that can exist.
    fn place(&self, relation: RelationId) -> Option<usize> {
        let RelationId { table, number } = relation;
        let relations = self.options.relations;
        (number < relations).then_some(table as usize * relations as usize + number as usize)
    }
}

/// The stock with which a relation starts: 100, 200, 300, 400 or 500.
fn stock_initial(relation: RelationId) -> i32 {
    const STEPS: u64 = 5;
    STOCK_STEP * (1 + (mix(u64::from(relation.encode())) % STEPS) as i32)
}

fn draw_price(dice: &mut Dice) -> i32 {
    PRICE_MIN + PRICE_STEP * dice.below(PRICES as u64) as i32
}

struct VacationGenerator {
    options: Options,
    range: u32,
    dice: Dice,
    reserve: Arc<dyn Procedure>,
    delete_customer: Arc<dyn Procedure>,
    update_tables: Arc<dyn Procedure>,
    relations: Vec<RelationId>,
    changes: Vec<(RelationId, Change)>,
}

impl VacationGenerator {
    fn count(&mut self) -> usize {
        1 + self.dice.below(self.options.queries as u64) as usize
    }
    fn number(&mut self) -> u32 {
        self.dice.below(u64::from(self.range)) as u32
    }
    fn relation(&mut self) -> RelationId {
        let table = Table::ALL[self.dice.below(Table::ALL.len() as u64) as usize];
        RelationId { table, number: self.number() }
    }
    fn draw_reserve(&mut self) -> Args {
        self.relations.clear();
        for _ in 0..self.count() {
            let relation = self.relation();
            self.relations.push(relation);
        }
        calls::reserve_arguments(self.number(), &self.relations)
    }
    fn draw_update(&mut self) -> Args {
        self.changes.clear();
        for _ in 0..self.count() {
            let relation = self.relation();
            let adds = self.dice.percent(50);
            let change =
                if adds { Change::Add { price: draw_price(&mut self.dice) } } else { Change::Remove };
            self.changes.push((relation, change));
        }
        calls::update_arguments(&self.changes)
    }
}

impl Generator for VacationGenerator {
    fn next(&mut self) -> Draw {
        let (procedure, args) = if self.dice.percent(self.options.user_percent) {
            (self.reserve.clone(), self.draw_reserve())
        } else if self.dice.percent(50) {
            (self.delete_customer.clone(), calls::delete_arguments(self.number()))
        } else {
            (self.update_tables.clone(), self.draw_update())
        };
        Draw { procedure, args, read_only: false, route: PartitionRoute::default() }
    }
}

impl Workload for Vacation {
    fn name(&self) -> &'static str {
        "vacation"
    }
    fn procedures(&self) -> Vec<Arc<dyn Procedure>> {
        vec![RESERVE.shared(), DELETE_CUSTOMER.shared(), UPDATE_TABLES.shared()]
    }
    fn load(&self, seed: u64, _part: usize, sink: &mut dyn FnMut(Key, Entry)) {
        let mut dice = Dice::new(!seed, 0);
        for relation in self.relation_ids() {
            let row = Relation::new(stock_initial(relation), draw_price(&mut dice));
            sink(relation.key(), Entry::new(row.encode()));
        }
        for number in 0..self.options.relations {
            sink(customer_key(number), Entry::new(Customer::default().encode()));
        }
    }
    fn generator(&self, seed: u64, client: Client) -> Box<dyn Generator> {
        Box::new(VacationGenerator {
            options: self.options,
            range: self.range(),
            dice: Dice::new(seed, client.index as u64),
            reserve: RESERVE.shared(),
            delete_customer: DELETE_CUSTOMER.shared(),
            update_tables: UPDATE_TABLES.shared(),
            relations: Vec::with_capacity(self.options.queries),
            changes: Vec::with_capacity(self.options.queries),
        })
    }
    fn check(&self, state: &mut dyn State, tally: &Tally) -> Result<(), String> {
        tally.no_wrong_replies()?;
        tally.nothing_rolled_back()?;
        check::run(self, state, tally.replies_sum)
    }
}
