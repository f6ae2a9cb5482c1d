//! TPC-C: an order-entry system, after the TPC-C specification (revision 5.11; "clause" refers to it
//! everywhere here).
//!
//! # What is as specified
//!
//! All nine tables with all columns in full width ([`rows`]); the initial population of clause 4.3 (`load`);
//! the five transaction profiles, a file each; NURand with its constants, 60 % of the customers named by last
//! name, 1 % of the NewOrders rolled back after all their work, 1 % remote order lines, 15 % remote customers
//! (`random`, `generator`). After a run all twelve consistency conditions of clause 3.3.2 are checked, and
//! more (`check`).
//!
//! # What differs, and why
//!
//! - There are no terminals, screens, keying or think times: this measures an engine. Replies carry what the
//!   screens would show that has to be computed or read, so that engines can be compared by their replies.
//! - A call draws its warehouse at random instead of staying at its terminal's, since a client stands for
//!   many terminals.
//! - Delivery is one transaction for all ten districts (clause 2.7.2 allows it), run at once and not from a
//!   queue.
//! - The mix is that of Sparkle, §5.2 ([`Mix`]); the specification asks for 45/43/4/4/4 or so.
//! - Sparkle's own TPC-C splits warehouse and district rows so that Payment and NewOrder never meet, draws
//!   keys uniformly, and has no last names and no rollbacks. Here they meet.
//!
//! # Indexes
//!
//! Records are found by exact keys only, so what SQL would find through an index or a sorted table has its
//! own record:
//!
//! | record | holds | written by | read by |
//! |---|---|---|---|
//! | customers by name | the customers of a district with one last name, by first name | nobody: names never change | Payment, OrderStatus |
//! | last order | the customer's newest order | NewOrder, blindly | OrderStatus |
//! | oldest new order | the district's next order to deliver | Delivery | Delivery |
//!
//! They are separate records because of who writes them: a last-order column in the customer row would make
//! NewOrder, which only reads that row, conflict with Payment; an oldest-new-order column in the district row
//! would make Delivery conflict with NewOrder and Payment. The last-order record costs no conflict, since two
//! NewOrders of one customer already meet at the district row.
//!
//! # Partitions
//!
//! Warehouses may be spread over partitions (Sparkle, §5.2): each has its rows where it is, and every
//! partition has a copy of the items, which nobody writes. The 1 % of the order lines and 15 % of the
//! customers that are not of the home warehouse are then of another *partition's*: about 10 % of the
//! NewOrders and 15 % of the Payments, as there. (A NewOrder may have such lines of more than one.) The other
//! profiles stay in one partition.
//!
//! # Key sets
//!
//! NewOrder, and Payment by number, declare their keys ([`txn::KeySets::covers_inserts`] stands for the rows
//! they insert). Payment by last name, Delivery, OrderStatus and StockLevel learn theirs while running: an
//! engine that needs them has a dry run find them (`guess`).
//!
//! # Fragments
//!
//! All five profiles declare their fragments ([`txn::fragments`]), the last four by the keys of a dry run.
//! Fragments whose keys come from values of other fragments do not exist: a fragment's place in an execution
//! queue is its key's, and must be known before the transactions behind it are planned.

mod check;
mod delivery;
mod generator;
mod guess;
mod load;
mod new_order;
mod order_status;
mod payment;
mod random;
pub mod rows;
mod stock_level;
#[cfg(test)]
mod tests;

use crate::dice::Dice;
use crate::placement::Placement;
use crate::{Client, Generator, State, Tally, Workload};
use random::Constants;
use std::sync::Arc;
use txn::{Entry, Key, Procedure};

/// How many rows the tables have at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Items, and stocks of each warehouse.
    pub items: u32,
    /// Customers of each district, and their orders.
    pub customers: u32,
}

impl Scale {
    /// The specification's: 100,000 items, 3,000 customers and orders a district, 900 of them not delivered.
    pub const SPECIFIED: Scale = Scale { items: 100_000, customers: 3_000 };

    fn orders(&self) -> u32 {
        self.customers
    }
    fn delivered(&self) -> u32 {
        self.customers / 10 * 7
    }
    /// Last names in use: all of them, unless there are too few customers.
    fn names(&self) -> u32 {
        self.customers.min(1_000)
    }
}

/// How often each transaction profile is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Sparkle's mixes, with 10, 50 or 90 percent updates: 4 % Delivery, the other updates half NewOrder and
    /// half Payment, the rest half OrderStatus and half StockLevel.
    Full {
        /// How many calls in 100 update, 4 to 100.
        update_percent: u32,
    },
    /// NewOrder and Payment only.
    NewOrderPayment {
        /// How many calls in 100 are Payment.
        payment_percent: u32,
        /// How many calls in 100 touch another warehouse as well: one line of a NewOrder, or the customer of
        /// a Payment (Q-Store's evaluation). `None`: as the specification has it, 1 % of the lines and 15 %
        /// of the customers.
        elsewhere_percent: Option<u32>,
    },
}

impl Mix {
    /// Half NewOrder, half Payment, as the specification draws them.
    pub const NEW_ORDER_PAYMENT: Mix = Mix::NewOrderPayment { payment_percent: 50, elsewhere_percent: None };

    /// How many calls in 100 touch another warehouse, if the mix says so.
    fn elsewhere_percent(&self) -> Option<u32> {
        match *self {
            Mix::NewOrderPayment { elsewhere_percent, .. } => elsewhere_percent,
            Mix::Full { .. } => None,
        }
    }
}

/// The workload's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tpcc {
    /// How many warehouses there are, at least 1.
    pub warehouses: u32,
    /// The transaction mix.
    pub mix: Mix,
    /// Whether order lines and customers may be of other warehouses. If not, each client also calls its own
    /// warehouses only, in turn: with no more clients than warehouses, calls of different clients never
    /// conflict, and calls that conflict are as far apart in the order as there are warehouses.
    pub remote: bool,
    /// Sizes.
    pub scale: Scale,
    /// Over how many partitions the warehouses are spread. With more than one, clients call the warehouses of
    /// their own partition, and rows that are not of the called warehouse are of another partition's.
    pub partitions: u16,
    /// How many NewOrders in 100 roll back: 1 in the specification.
    pub rollback_percent: u32,
}

impl Tpcc {
    /// The name of warehouse `number`, from 1 on: partitions have them in turn.
    fn warehouse(&self, placement: &Placement, number: u32) -> u32 {
        placement.place(self.partition(number), number)
    }
    fn partition(&self, number: u32) -> u16 {
        ((number - 1) % u32::from(self.partitions.max(1))) as u16
    }
}

impl Default for Tpcc {
    fn default() -> Tpcc {
        Tpcc {
            warehouses: 12,
            mix: Mix::Full { update_percent: 90 },
            remote: true,
            scale: Scale::SPECIFIED,
            partitions: 1,
            rollback_percent: 1,
        }
    }
}

impl Workload for Tpcc {
    fn name(&self) -> &'static str {
        match self.mix {
            Mix::Full { .. } => "tpcc",
            Mix::NewOrderPayment { .. } => "new-order-payment",
        }
    }
    fn procedures(&self) -> Vec<Arc<dyn Procedure>> {
        vec![
            new_order::PROCEDURE.shared(),
            payment::PROCEDURE.shared(),
            order_status::PROCEDURE.shared(),
            delivery::PROCEDURE.shared(),
            stock_level::PROCEDURE.shared(),
        ]
    }
    /// The items, and each warehouse.
    fn parts(&self) -> usize {
        1 + self.warehouses as usize
    }
    fn load(&self, seed: u64, part: usize, sink: &mut dyn FnMut(Key, Entry)) {
        let dice = Dice::new(!seed, part as u64);
        let placement = Placement::new(self.partitions);
        let mut loader = load::Loader {
            scale: self.scale,
            constants: Constants::new(seed),
            dice,
            placement: &placement,
            sink,
        };
        match part as u32 {
            0 => loader.items(),
            warehouse => loader.warehouse(self.warehouse(&placement, warehouse)),
        }
    }
    fn generator(&self, seed: u64, client: Client) -> Box<dyn Generator> {
        Box::new(generator::TpccGenerator::new(self, seed, client))
    }
    fn check(&self, state: &mut dyn State, tally: &Tally) -> Result<(), String> {
        tally.no_wrong_replies()?;
        check::check(self, state)
    }
}
