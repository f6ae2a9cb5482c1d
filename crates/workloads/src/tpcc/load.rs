//! The initial population of clause 4.3.3.

use super::Scale;
use super::random::{Constants, brand, digits, last_name, letters};
use super::rows::{
    Address, DISTRICTS, customer, district, history, index_record, item, key, order, order_line, stock,
    warehouse,
};
use crate::dice::Dice;
use crate::placement::Placement;
use txn::{Blob, Entry, Key};

/// The time of everything that is loaded: 2020-01-01.
pub const LOADED_AT_MS: u64 = 1_577_836_800_000;
/// What each customer has paid before the run, in cents.
pub const PAID: i64 = 1_000;

/// Loads records of one part.
pub struct Loader<'a> {
    pub scale: Scale,
    pub constants: Constants,
    pub dice: Dice,
    pub placement: &'a Placement,
    pub sink: &'a mut dyn FnMut(Key, Entry),
}

impl Loader<'_> {
    fn put(&mut self, key: Key, row: impl Into<Blob>) {
        (self.sink)(key, Entry::new(row.into()));
    }

    pub fn items(&mut self) {
        for number in 1..=self.scale.items {
            let mut row = [0; item::BYTES];
            item::IMAGE.set(&mut row, self.dice.between(1, 10_000));
            item::PRICE.set(&mut row, self.dice.between(100, 10_000));
            letters(&mut self.dice, 14, item::NAME.place(&mut row));
            brand(&mut self.dice, item::DATA.place(&mut row));
            for partition in 0..self.placement.of() {
                let copy = self.placement.place(partition, 0);
                self.put(key::item(copy, number), &row);
            }
        }
    }

    pub fn warehouse(&mut self, number: u32) {
        let mut row = [0; warehouse::BYTES];
        let per_district = i64::from(self.scale.customers) * PAID;
        warehouse::YTD.set(&mut row, i64::from(DISTRICTS) * per_district);
        warehouse::TAX.set(&mut row, self.dice.between(0, 2_000));
        letters(&mut self.dice, 6, warehouse::NAME.place(&mut row));
        self.address(&warehouse::ADDRESS, &mut row);
        self.put(key::warehouse(number), &row);
        for item in 1..=self.scale.items {
            self.stock(number, item);
        }
        for district in 1..=DISTRICTS {
            self.district(number, district);
        }
    }

    fn address(&mut self, address: &Address, row: &mut [u8]) {
        for line in &address.lines {
            letters(&mut self.dice, 10, line.place(row));
        }
        letters(&mut self.dice, 2, address.state.place(row));
        let zip = address.zip.place(row);
        zip.fill(b'1');
        digits(&mut self.dice, &mut zip[..4]);
    }

    fn stock(&mut self, warehouse: u32, item: u32) {
        let mut row = [0; stock::BYTES];
        stock::QUANTITY.set(&mut row, self.dice.between(10, 100) as i32);
        let infos = stock::DISTRICT_INFOS.place(&mut row);
        letters(&mut self.dice, infos.len(), infos);
        brand(&mut self.dice, stock::DATA.place(&mut row));
        self.put(key::stock(warehouse, item), &row);
    }

    fn district(&mut self, warehouse: u32, number: u8) {
        let mut row = [0; district::BYTES];
        district::YTD.set(&mut row, i64::from(self.scale.customers) * PAID);
        district::NEXT_ORDER.set(&mut row, self.scale.orders() + 1);
        district::TAX.set(&mut row, self.dice.between(0, 2_000));
        letters(&mut self.dice, 6, district::NAME.place(&mut row));
        self.address(&district::ADDRESS, &mut row);
        self.put(key::district(warehouse, number), &row);
        self.customers(warehouse, number);
        self.orders(warehouse, number);
    }

    fn customers(&mut self, warehouse: u32, district: u8) {
        let names = self.scale.names();
        let mut by_name: Vec<Vec<([u8; 16], u32)>> = vec![Vec::new(); names as usize];
        for number in 1..=self.scale.customers {
            let name = if number <= names {
                (number - 1) as u16
            } else {
                self.constants.loaded_name(&mut self.dice, names)
            };
            let mut row = [0; customer::BYTES];
            customer::BALANCE.set(&mut row, -PAID);
            customer::YTD_PAYMENT.set(&mut row, PAID);
            customer::PAYMENTS.set(&mut row, 1);
            customer::CREDIT_LIMIT.set(&mut row, 5_000_000);
            customer::DISCOUNT.set(&mut row, self.dice.between(0, 5_000));
            customer::SINCE.set(&mut row, LOADED_AT_MS);
            customer::CREDIT.set(&mut row, if self.dice.percent(10) { b"BC" } else { b"GC" });
            letters(&mut self.dice, 8, customer::FIRST.place(&mut row));
            customer::MIDDLE.set(&mut row, b"OE");
            last_name(name, customer::LAST.place(&mut row));
            self.address(&customer::ADDRESS, &mut row);
            digits(&mut self.dice, customer::PHONE.place(&mut row));
            letters(&mut self.dice, 300, customer::DATA.place(&mut row));
            let mut first = [0; 16];
            first.copy_from_slice(customer::FIRST.get(&row));
            by_name[usize::from(name)].push((first, number));
            self.put(key::customer(warehouse, district, number), &row);

            let mut row = [0; history::BYTES];
            history::AMOUNT.set(&mut row, PAID);
            history::DATE.set(&mut row, LOADED_AT_MS);
            history::WAREHOUSE.set(&mut row, warehouse);
            history::DISTRICT.set(&mut row, district);
            letters(&mut self.dice, 12, history::DATA.place(&mut row));
            self.put(key::history(warehouse, district, number, 1), &row);
        }
        for (name, mut customers) in by_name.into_iter().enumerate() {
            customers.sort_unstable();
            let ids: Vec<u8> = customers.iter().flat_map(|(_, number)| number.to_le_bytes()).collect();
            self.put(key::customers_by_name(warehouse, district, name as u16), ids);
        }
    }

    fn orders(&mut self, warehouse: u32, district: u8) {
        let mut customers: Vec<u32> = (1..=self.scale.customers).collect();
        self.dice.shuffle(&mut customers);
        for (number, customer) in (1..).zip(customers) {
            let delivered = number <= self.scale.delivered();
            let lines = self.dice.between(5, 15) as u8;
            let mut row = [0; order::BYTES];
            order::CUSTOMER.set(&mut row, customer);
            order::ENTRY.set(&mut row, LOADED_AT_MS);
            order::CARRIER.set(&mut row, if delivered { self.dice.between(1, 10) as u8 } else { 0 });
            order::LINES.set(&mut row, lines);
            order::ALL_LOCAL.set(&mut row, 1);
            self.put(key::order(warehouse, district, number), &row);
            self.put(key::last_order(warehouse, district, customer), index_record(number));
            if !delivered {
                self.put(key::new_order(warehouse, district, number), Blob::EMPTY);
            }
            for line in 1..=lines {
                let mut row = [0; order_line::BYTES];
                order_line::ITEM.set(&mut row, self.dice.between(1, self.scale.items));
                order_line::SUPPLIER.set(&mut row, warehouse);
                order_line::DELIVERY.set(&mut row, if delivered { LOADED_AT_MS } else { 0 });
                order_line::QUANTITY.set(&mut row, 5);
                order_line::AMOUNT.set(&mut row, if delivered { 0 } else { self.dice.between(1, 999_999) });
                letters(&mut self.dice, 24, order_line::DISTRICT_INFO.place(&mut row));
                self.put(key::order_line(warehouse, district, number, line), &row);
            }
        }
        self.put(key::oldest_new_order(warehouse, district), index_record(self.scale.delivered() + 1));
    }
}
