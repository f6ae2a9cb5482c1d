//! Draws calls: the transaction mix and clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and 2.8.1.

use super::new_order::{self, LINES_MAX, Line};
use super::payment::{self, Named, Payment};
use super::random::Constants;
use super::rows::DISTRICTS;
use super::{Mix, Scale, Tpcc, delivery, order_status, stock_level};
use crate::dice::Dice;
use crate::placement::{Placement, count_of};
use crate::{Client, Draw, Generator};
use std::sync::Arc;
use txn::{Args, PartitionRoute, Procedure};

/// Where a client finds the warehouse of its next call.
enum Homes {
    /// Anywhere among so many, of which the first and every so many-th one are the client's partition's.
    Random { first: u32, step: u32, own: u32 },
    /// In turn among its own, which no other client calls (as long as there are no more clients than
    /// warehouses).
    Turns { first: u32, step: u32, warehouses: u32, next: u32 },
}

impl Homes {
    fn new(tpcc: &Tpcc, client: Client) -> Homes {
        let warehouses = tpcc.warehouses;
        if tpcc.remote {
            let step = u32::from(tpcc.partitions.max(1)).min(warehouses);
            let first = client.index as u32 % step + 1;
            return Homes::Random { first, step, own: (warehouses - first) / step + 1 };
        }
        let step = client.count.clamp(1, warehouses as usize) as u32;
        let first = client.index as u32 % step + 1;
        Homes::Turns { first, step, warehouses, next: first }
    }
    fn next(&mut self, dice: &mut Dice) -> u32 {
        match self {
            Homes::Random { first, step, own } => *first + *step * dice.between(0, *own - 1),
            Homes::Turns { first, step, warehouses, next } => {
                let home = *next;
                *next = if home + *step <= *warehouses { home + *step } else { *first };
                home
            }
        }
    }
}

/// The stream of calls of one client.
pub struct TpccGenerator {
    tpcc: Tpcc,
    placement: Placement,
    scale: Scale,
    mix: Mix,
    remote: bool,
    homes: Homes,
    constants: Constants,
    dice: Dice,
    new_order: Arc<dyn Procedure>,
    payment: Arc<dyn Procedure>,
    order_status: Arc<dyn Procedure>,
    delivery: Arc<dyn Procedure>,
    stock_level: Arc<dyn Procedure>,
}

impl TpccGenerator {
    pub fn new(tpcc: &Tpcc, seed: u64, client: Client) -> TpccGenerator {
        TpccGenerator {
            tpcc: *tpcc,
            placement: Placement::new(tpcc.partitions),
            scale: tpcc.scale,
            mix: tpcc.mix,
            remote: tpcc.remote && tpcc.warehouses > 1,
            homes: Homes::new(tpcc, client),
            constants: Constants::new(seed),
            dice: Dice::new(seed, client.index as u64),
            new_order: new_order::PROCEDURE.shared(),
            payment: payment::PROCEDURE.shared(),
            order_status: order_status::PROCEDURE.shared(),
            delivery: delivery::PROCEDURE.shared(),
            stock_level: stock_level::PROCEDURE.shared(),
        }
    }

    fn district(&mut self) -> u8 {
        self.dice.between(1, u32::from(DISTRICTS)) as u8
    }
    /// The placed number of a warehouse.
    fn named(&self, warehouse: u32) -> u32 {
        self.tpcc.warehouse(&self.placement, warehouse)
    }
    /// Another warehouse, and of another partition if there is one.
    fn other_warehouse(&mut self, home: u32) -> u32 {
        let home = count_of(home);
        loop {
            let other = self.dice.between(1, self.tpcc.warehouses - 1);
            let other = other + u32::from(other >= home);
            let is_elsewhere = self.tpcc.partition(other) != self.tpcc.partition(home);
            if is_elsewhere || self.placement.of() == 1 {
                return self.named(other);
            }
        }
    }
    /// The way of a call that touches rows of these placed warehouses, the first of which is its client's.
    fn route(&self, warehouses: &[u32]) -> PartitionRoute {
        let partition = |warehouse: &u32| self.tpcc.partition(count_of(*warehouse));
        let home = warehouses.first().map_or(0, partition);
        self.placement.route(home, warehouses.iter().map(partition))
    }
    fn customer(&mut self) -> u32 {
        self.constants.customer(&mut self.dice, self.scale.customers)
    }
    /// 60 % by last name, 40 % by number.
    fn named_customer(&mut self) -> Named {
        if self.dice.percent(60) {
            Named::LastName(self.constants.called_name(&mut self.dice, self.scale.names()))
        } else {
            Named::Number(self.customer())
        }
    }

    fn draw_new_order(&mut self, home: u32) -> (Args, PartitionRoute) {
        let (district, customer) = (self.district(), self.customer());
        let count = self.dice.between(5, LINES_MAX as u32) as usize;
        let mut lines = [Line::default(); LINES_MAX];
        let line_percent = if self.mix.elsewhere_percent().is_some() { 0 } else { 1 };
        for line in &mut lines[..count] {
            line.item = self.constants.item(&mut self.dice, self.scale.items);
            let elsewhere = self.remote && self.dice.percent(line_percent);
            line.supplier = if elsewhere { self.other_warehouse(home) } else { home };
            line.quantity = self.dice.between(1, 10) as u8;
        }
        if let Some(percent) = self.mix.elsewhere_percent()
            && self.remote
            && self.dice.percent(percent)
        {
            lines[0].supplier = self.other_warehouse(home);
        }
        if self.dice.percent(self.tpcc.rollback_percent) {
            lines[count - 1].item = self.scale.items + 1;
        }
        let mut touched = [home; LINES_MAX + 1];
        for (place, line) in touched[1..].iter_mut().zip(&lines[..count]) {
            *place = line.supplier;
        }
        let args = new_order::arguments(home, district, customer, &lines[..count]);
        (args, self.route(&touched[..=count]))
    }

    fn draw_payment(&mut self, home: u32) -> (Args, PartitionRoute) {
        let district = self.district();
        let percent = self.mix.elsewhere_percent().unwrap_or(15);
        let (customer_warehouse, customer_district) = if self.remote && self.dice.percent(percent) {
            (self.other_warehouse(home), self.district())
        } else {
            (home, district)
        };
        let customer = self.named_customer();
        let amount = self.dice.between(100, 500_000);
        let payment =
            Payment { warehouse: home, district, customer_warehouse, customer_district, customer, amount };
        (payment.encode(), self.route(&[home, customer_warehouse]))
    }
}

impl Generator for TpccGenerator {
    fn next(&mut self) -> Draw {
        let home = self.homes.next(&mut self.dice);
        let home = self.named(home);
        let profile = self.mix.draw(&mut self.dice);
        let (args, route) = match profile {
            Profile::NewOrder => self.draw_new_order(home),
            Profile::Payment => self.draw_payment(home),
            Profile::Delivery => {
                let carrier = self.dice.between(1, 10) as u8;
                (delivery::arguments(home, carrier), self.route(&[home]))
            }
            Profile::OrderStatus => {
                let args = order_status::arguments(home, self.district(), self.named_customer());
                (args, self.route(&[home]))
            }
            Profile::StockLevel => {
                let (district, threshold) = (self.district(), self.dice.between(10, 20));
                let args = stock_level::arguments(home, district, threshold as i32);
                (args, self.route(&[home]))
            }
        };
        let procedure = match profile {
            Profile::NewOrder => &self.new_order,
            Profile::Payment => &self.payment,
            Profile::Delivery => &self.delivery,
            Profile::OrderStatus => &self.order_status,
            Profile::StockLevel => &self.stock_level,
        };
        Draw {
            procedure: procedure.clone(),
            args,
            read_only: matches!(profile, Profile::OrderStatus | Profile::StockLevel),
            route,
        }
    }
}

/// The five transaction profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Profile {
    NewOrder,
    Payment,
    Delivery,
    OrderStatus,
    StockLevel,
}

impl Mix {
    /// Shares are counted in halves of a percent, since a share may be an odd number to be halved.
    fn draw(&self, dice: &mut Dice) -> Profile {
        let point = dice.below(200) as u32;
        match *self {
            Mix::NewOrderPayment { payment_percent, .. } => {
                if point < 2 * (100 - payment_percent.min(100)) {
                    Profile::NewOrder
                } else {
                    Profile::Payment
                }
            }
            Mix::Full { update_percent } => {
                let updates = update_percent.clamp(4, 100);
                let (delivery, half_updates, half_reads) = (8, updates - 4, 100 - updates);
                match point {
                    _ if point < delivery => Profile::Delivery,
                    _ if point < delivery + half_updates => Profile::NewOrder,
                    _ if point < delivery + 2 * half_updates => Profile::Payment,
                    _ if point < delivery + 2 * half_updates + half_reads => Profile::OrderStatus,
                    _ => Profile::StockLevel,
                }
            }
        }
    }
}
