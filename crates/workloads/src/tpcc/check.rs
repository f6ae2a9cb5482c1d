//! The consistency conditions of clause 3.3.2, and what else this layout promises.
//!
//! Each condition is checked for every warehouse, district, order or customer that it speaks of. Condition 11
//! counts the delivered orders in, since the specification states it for the initial population. Three groups
//! of conditions are ours: a stock row must have supplied exactly the order lines that name it (no lost stock
//! update), index records must name what they index, and there must be no records beyond those that the
//! conditions speak of.

use super::Tpcc;
use super::rows::{
    DISTRICTS, customer, district, history, index_number, key, order, order_line, row, stock, warehouse,
};
use crate::State;
use crate::placement::{Placement, count_of};
use txn::{Blob, Key};

/// What is carried from district to district.
struct Totals {
    /// By warehouse and district: the sum of the amounts of history rows that name them.
    paid: Vec<i64>,
    /// By warehouse and item: what order lines took since the start.
    supplied: Vec<Supplied>,
    /// Records that the conditions speak of.
    records: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Supplied {
    quantity: u32,
    lines: u32,
    remote_lines: u32,
}

/// By customer of one district.
#[derive(Clone, Copy, Default)]
struct CustomerOrders {
    delivered_amount: i64,
    deliveries: u32,
    last_order: u32,
}

fn read<const BYTES: usize>(state: &mut dyn State, key: &Key, what: &str) -> Result<Blob, String> {
    row::<BYTES>(state.get(key).map(|entry| entry.value))
        .map_err(|_| format!("{what} is absent or not a row ({key:?})"))
}

/// Condition `number` at `place`: `left` and `right` must be equal.
fn agree<T: PartialEq + std::fmt::Debug>(
    number: u32,
    place: std::fmt::Arguments<'_>,
    left: (&str, T),
    right: (&str, T),
) -> Result<(), String> {
    if left.1 == right.1 {
        return Ok(());
    }
    Err(format!(
        "condition {number} fails at {place}: {} is {:?}, but {} is {:?}",
        left.0, left.1, right.0, right.1
    ))
}

/// Checks everything.
pub fn check(tpcc: &Tpcc, state: &mut dyn State) -> Result<(), String> {
    let warehouses = tpcc.warehouses;
    let placement = &Placement::new(tpcc.partitions);
    let mut totals = Totals {
        paid: vec![0; warehouses as usize * usize::from(DISTRICTS)],
        supplied: vec![Supplied::default(); warehouses as usize * tpcc.scale.items as usize],
        records: u64::from(tpcc.scale.items) * u64::from(placement.of()),
    };
    for warehouse in 1..=warehouses {
        for district in 1..=DISTRICTS {
            District { tpcc, warehouse: tpcc.warehouse(placement, warehouse), number: district }
                .check(state, &mut totals)?;
        }
    }
    for warehouse in 1..=warehouses {
        let warehouse = tpcc.warehouse(placement, warehouse);
        money(warehouse, state, &mut totals)?;
        stocks(tpcc, warehouse, state, &mut totals)?;
    }
    let count = state.count();
    if count != totals.records {
        return Err(format!("there are {count} records, but the tables and indexes have {}", totals.records));
    }
    Ok(())
}

/// Conditions 1, 8 and 9.
fn money(number: u32, state: &mut dyn State, totals: &mut Totals) -> Result<(), String> {
    let home = read::<{ warehouse::BYTES }>(state, &key::warehouse(number), "a warehouse")?;
    let ytd = warehouse::YTD.get(&home);
    let mut sum = 0;
    for district in 1..=DISTRICTS {
        let row = read::<{ district::BYTES }>(state, &key::district(number, district), "a district")?;
        let paid = totals.paid[place_of(number, district)];
        let ytd = district::YTD.get(&row);
        agree(9, format_args!("district {number}/{district}"), ("D_YTD", ytd), ("sum(H_AMOUNT)", paid))?;
        sum += ytd;
    }
    let first = place_of(number, 1);
    let paid: i64 = totals.paid[first..first + usize::from(DISTRICTS)].iter().sum();
    totals.records += 1;
    agree(1, format_args!("warehouse {number}"), ("W_YTD", ytd), ("sum(D_YTD)", sum))?;
    agree(8, format_args!("warehouse {number}"), ("W_YTD", ytd), ("sum(H_AMOUNT)", paid))
}

fn place_of(warehouse: u32, district: u8) -> usize {
    (count_of(warehouse) as usize - 1) * usize::from(DISTRICTS) + usize::from(district) - 1
}

fn stocks(tpcc: &Tpcc, warehouse: u32, state: &mut dyn State, totals: &mut Totals) -> Result<(), String> {
    for item in 1..=tpcc.scale.items {
        let row = read::<{ stock::BYTES }>(state, &key::stock(warehouse, item), "a stock")?;
        let expected = totals.supplied
            [(count_of(warehouse) as usize - 1) * tpcc.scale.items as usize + item as usize - 1];
        let found = Supplied {
            quantity: stock::YTD.get(&row),
            lines: stock::ORDERS.get(&row),
            remote_lines: stock::REMOTE_ORDERS.get(&row),
        };
        if found != expected {
            return Err(format!(
                "stock {warehouse}/{item} says {found:?}, but its order lines say {expected:?}"
            ));
        }
        let quantity = stock::QUANTITY.get(&row);
        if !(10..=100).contains(&quantity) {
            return Err(format!(
                "stock {warehouse}/{item} has a quantity of {quantity}, not one of 10 to 100"
            ));
        }
    }
    totals.records += u64::from(tpcc.scale.items);
    Ok(())
}

/// One district under check.
struct District<'a> {
    tpcc: &'a Tpcc,
    warehouse: u32,
    number: u8,
}

impl District<'_> {
    fn check(&self, state: &mut dyn State, totals: &mut Totals) -> Result<(), String> {
        let row =
            read::<{ district::BYTES }>(state, &key::district(self.warehouse, self.number), "a district")?;
        let next = district::NEXT_ORDER.get(&row);
        let oldest_key = key::oldest_new_order(self.warehouse, self.number);
        let oldest = index_number(state.get(&oldest_key).map(|entry| entry.value))
            .map_err(|_| format!("the oldest-new-order record of district {self} is absent"))?;
        totals.records += 2 + u64::from(self.tpcc.scale.names());
        let mut customers = vec![CustomerOrders::default(); self.tpcc.scale.customers as usize];
        self.orders(state, totals, next, oldest, &mut customers)?;
        self.customers(state, totals, &customers)
    }

    /// Conditions 2 to 7 and 11.
    fn orders(
        &self,
        state: &mut dyn State,
        totals: &mut Totals,
        next: u32,
        oldest: u32,
        customers: &mut [CustomerOrders],
    ) -> Result<(), String> {
        let (warehouse, district) = (self.warehouse, self.number);
        // Condition 2: the newest order is the one before D_NEXT_O_ID, and so is the newest new order, if
        // there is one.
        let newest =
            (1..next + 2).rev().find(|&number| state.get(&key::order(warehouse, district, number)).is_some());
        agree(
            2,
            format_args!("district {self}"),
            ("D_NEXT_O_ID - 1", Some(next - 1)),
            ("max(O_ID)", newest),
        )?;
        let new_orders: Vec<u32> = (1..next + 2)
            .filter(|&number| state.get(&key::new_order(warehouse, district, number)).is_some())
            .collect();
        if let (Some(&first), Some(&last)) = (new_orders.first(), new_orders.last()) {
            agree(2, format_args!("district {self}"), ("D_NEXT_O_ID - 1", next - 1), ("max(NO_O_ID)", last))?;
            let span = last - first + 1;
            let count = new_orders.len() as u32;
            agree(
                3,
                format_args!("district {self}"),
                ("max - min + 1 of NO_O_ID", span),
                ("count(NEW-ORDER)", count),
            )?;
        }
        let first_new = new_orders.first().copied().unwrap_or(next);
        if oldest != first_new {
            return Err(format!(
                "the index says that order {oldest} of district {self} is the oldest new one, not {first_new}"
            ));
        }
        let (mut line_counts, mut lines_found) = (0, 0);
        for number in 1..next {
            let row = read::<{ order::BYTES }>(state, &key::order(warehouse, district, number), "an order")?;
            let open = new_orders.binary_search(&number).is_ok();
            let place = format_args!("order {self}/{number}");
            let no_carrier = order::CARRIER.get(&row) == 0;
            agree(5, place, ("O_CARRIER_ID is null", no_carrier), ("a NEW-ORDER row exists", open))?;
            line_counts += u64::from(order::LINES.get(&row));
            let found = self.order_lines(state, totals, number, &row, customers)?;
            let expected = u64::from(order::LINES.get(&row));
            agree(
                6,
                format_args!("order {self}/{number}"),
                ("O_OL_CNT", expected),
                ("count(ORDER-LINE)", found),
            )?;
            lines_found += found;
        }
        agree(
            4,
            format_args!("district {self}"),
            ("sum(O_OL_CNT)", line_counts),
            ("count(ORDER-LINE)", lines_found),
        )?;
        let delivered = u64::from(next - 1) - new_orders.len() as u64;
        totals.records += u64::from(next - 1) + new_orders.len() as u64 + lines_found;
        let counted: u64 = customers.iter().map(|customer| u64::from(customer.deliveries)).sum();
        let expected = u64::from(self.tpcc.scale.delivered()) + counted;
        agree(
            11,
            format_args!("district {self}"),
            ("count(ORDER) - count(NEW-ORDER)", delivered),
            ("what was delivered", expected),
        )
    }

    /// Condition 7. Returns how many lines there are.
    fn order_lines(
        &self,
        state: &mut dyn State,
        totals: &mut Totals,
        number: u32,
        order: &[u8],
        customers: &mut [CustomerOrders],
    ) -> Result<u64, String> {
        let place = format_args!("order {self}/{number}");
        let customer = order::CUSTOMER.get(order);
        let Some(orders) = customers.get_mut((customer as usize).wrapping_sub(1)) else {
            return Err(format!("{place} is customer {customer}'s, who does not exist"));
        };
        orders.last_order = number;
        let since_start = number > self.tpcc.scale.orders();
        let delivered = order::CARRIER.get(order) != 0;
        orders.deliveries += u32::from(delivered && number > self.tpcc.scale.delivered());
        let mut found = 0;
        let mut all_local = true;
        for line in 1..=u8::MAX {
            let Some(entry) = state.get(&key::order_line(self.warehouse, self.number, number, line)) else {
                break;
            };
            let row = row::<{ order_line::BYTES }>(Some(entry.value))
                .map_err(|_| format!("a line of {place} is no row"))?;
            found += 1;
            let line_delivered = order_line::DELIVERY.get(&row) != 0;
            agree(
                7,
                place,
                ("OL_DELIVERY_D is not null", line_delivered),
                ("O_CARRIER_ID is not null", delivered),
            )?;
            if delivered {
                orders.delivered_amount += i64::from(order_line::AMOUNT.get(&row));
            }
            let (supplier, item) = (order_line::SUPPLIER.get(&row), order_line::ITEM.get(&row));
            let remote = supplier != self.warehouse;
            all_local &= !remote;
            if since_start {
                let items = self.tpcc.scale.items as usize;
                let stock = (count_of(supplier) as usize)
                    .wrapping_sub(1)
                    .wrapping_mul(items)
                    .wrapping_add(item as usize)
                    .wrapping_sub(1);
                let Some(supplied) = totals.supplied.get_mut(stock) else {
                    return Err(format!(
                        "a line of {place} names stock {supplier}/{item}, which does not exist"
                    ));
                };
                supplied.quantity += u32::from(order_line::QUANTITY.get(&row));
                supplied.lines += 1;
                supplied.remote_lines += u32::from(remote);
            }
        }
        if all_local != (order::ALL_LOCAL.get(order) == 1) {
            return Err(format!("O_ALL_LOCAL of {place} does not say where its lines come from"));
        }
        Ok(found)
    }

    /// Conditions 10 and 12, and the sums of HISTORY.
    fn customers(
        &self,
        state: &mut dyn State,
        totals: &mut Totals,
        customers: &[CustomerOrders],
    ) -> Result<(), String> {
        for (number, orders) in (1..).zip(customers) {
            let (warehouse, district) = (self.warehouse, self.number);
            let row = read::<{ customer::BYTES }>(
                state,
                &key::customer(warehouse, district, number),
                "a customer",
            )?;
            let place = format_args!("customer {self}/{number}");
            let balance = customer::BALANCE.get(&row);
            let mut paid = 0;
            let payments = customer::PAYMENTS.get(&row);
            for payment in 1..=payments {
                let key = key::history(warehouse, district, number, payment);
                let row = read::<{ history::BYTES }>(state, &key, "a history row")?;
                let amount = history::AMOUNT.get(&row);
                paid += amount;
                let (to, at) = (history::WAREHOUSE.get(&row), history::DISTRICT.get(&row));
                if !(1..=self.tpcc.warehouses).contains(&count_of(to)) || !(1..=DISTRICTS).contains(&at) {
                    return Err(format!(
                        "a payment of {place} went to district {to}/{at}, which does not exist"
                    ));
                }
                totals.paid[place_of(to, at)] += amount;
            }
            let delivered = orders.delivered_amount;
            agree(10, place, ("C_BALANCE", balance), ("sum(OL_AMOUNT) - sum(H_AMOUNT)", delivered - paid))?;
            let ytd = customer::YTD_PAYMENT.get(&row);
            agree(12, place, ("C_BALANCE + C_YTD_PAYMENT", balance + ytd), ("sum(OL_AMOUNT)", delivered))?;
            let deliveries = customer::DELIVERIES.get(&row);
            agree(11, place, ("C_DELIVERY_CNT", deliveries), ("its delivered orders", orders.deliveries))?;
            let last = index_number(
                state.get(&key::last_order(warehouse, district, number)).map(|entry| entry.value),
            );
            if last != Ok(orders.last_order) {
                return Err(format!(
                    "the index says that {last:?} is the last order of {place}, not {}",
                    orders.last_order
                ));
            }
            totals.records += 2 + u64::from(payments);
        }
        Ok(())
    }
}

impl std::fmt::Display for District<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", count_of(self.warehouse), self.number)
    }
}
