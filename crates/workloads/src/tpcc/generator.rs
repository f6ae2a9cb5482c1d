//! Draws calls: the transaction mix and clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and 2.8.1.

use super::new_order::{self, LINES_MAX, Line};
use super::payment::{self, Named, Payment};
use super::random::Constants;
use super::rows::DISTRICTS;
use super::{Mix, Scale, Tpcc, delivery, order_status, stock_level};
use crate::dice::Dice;
use crate::{Client, Draw, Generator};
use std::sync::Arc;
use txn::{Args, Procedure};

/// Where a client finds the warehouse of its next call.
enum Homes {
    /// Anywhere among so many.
    Random { warehouses: u32 },
    /// In turn among its own, which no other client calls (as long as there are no more clients than warehouses).
    Turns {
        first: u32,
        step: u32,
        warehouses: u32,
        next: u32,
    },
}

impl Homes {
    fn new(tpcc: &Tpcc, client: Client) -> Homes {
        let warehouses = tpcc.warehouses;
        if tpcc.remote {
            return Homes::Random { warehouses };
        }
        let step = client.count.clamp(1, warehouses as usize) as u32;
        let first = client.index as u32 % step + 1;
        Homes::Turns {
            first,
            step,
            warehouses,
            next: first,
        }
    }
    fn next(&mut self, dice: &mut Dice) -> u32 {
        match self {
            Homes::Random { warehouses } => dice.between(1, *warehouses),
            Homes::Turns {
                first,
                step,
                warehouses,
                next,
            } => {
                let home = *next;
                *next = if home + *step <= *warehouses {
                    home + *step
                } else {
                    *first
                };
                home
            }
        }
    }
}

/// The stream of calls of one client.
pub struct TpccGenerator {
    scale: Scale,
    mix: Mix,
    remote: bool,
    warehouses: u32,
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
            scale: tpcc.scale,
            mix: tpcc.mix,
            remote: tpcc.remote && tpcc.warehouses > 1,
            warehouses: tpcc.warehouses,
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
    fn other_warehouse(&mut self, home: u32) -> u32 {
        let other = self.dice.between(1, self.warehouses - 1);
        other + u32::from(other >= home)
    }
    fn customer(&mut self) -> u32 {
        self.constants
            .customer(&mut self.dice, self.scale.customers)
    }
    /// 60 % by last name, 40 % by number.
    fn named_customer(&mut self) -> Named {
        if self.dice.percent(60) {
            Named::LastName(
                self.constants
                    .called_name(&mut self.dice, self.scale.names()),
            )
        } else {
            Named::Number(self.customer())
        }
    }

    fn draw_new_order(&mut self, home: u32) -> Args {
        let (district, customer) = (self.district(), self.customer());
        let count = self.dice.between(5, LINES_MAX as u32) as usize;
        let mut lines = [Line::default(); LINES_MAX];
        for line in &mut lines[..count] {
            line.item = self.constants.item(&mut self.dice, self.scale.items);
            let elsewhere = self.remote && self.dice.percent(1);
            line.supplier = if elsewhere {
                self.other_warehouse(home)
            } else {
                home
            };
            line.quantity = self.dice.between(1, 10) as u8;
        }
        if self.dice.percent(1) {
            lines[count - 1].item = self.scale.items + 1;
        }
        new_order::arguments(home, district, customer, &lines[..count])
    }

    fn draw_payment(&mut self, home: u32) -> Args {
        let district = self.district();
        let (customer_warehouse, customer_district) = if self.remote && self.dice.percent(15) {
            (self.other_warehouse(home), self.district())
        } else {
            (home, district)
        };
        let customer = self.named_customer();
        let amount = self.dice.between(100, 500_000);
        Payment {
            warehouse: home,
            district,
            customer_warehouse,
            customer_district,
            customer,
            amount,
        }
        .encode()
    }
}

impl Generator for TpccGenerator {
    fn next(&mut self) -> Draw {
        let home = self.homes.next(&mut self.dice);
        match self.mix.draw(&mut self.dice) {
            Profile::NewOrder => Draw {
                args: self.draw_new_order(home),
                procedure: self.new_order.clone(),
                read_only: false,
            },
            Profile::Payment => Draw {
                args: self.draw_payment(home),
                procedure: self.payment.clone(),
                read_only: false,
            },
            Profile::Delivery => {
                let args = delivery::arguments(home, self.dice.between(1, 10) as u8);
                Draw {
                    args,
                    procedure: self.delivery.clone(),
                    read_only: false,
                }
            }
            Profile::OrderStatus => {
                let args = order_status::arguments(home, self.district(), self.named_customer());
                Draw {
                    args,
                    procedure: self.order_status.clone(),
                    read_only: true,
                }
            }
            Profile::StockLevel => {
                let args =
                    stock_level::arguments(home, self.district(), self.dice.between(10, 20) as i32);
                Draw {
                    args,
                    procedure: self.stock_level.clone(),
                    read_only: true,
                }
            }
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
            Mix::NewOrderPayment => {
                if point < 100 {
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
