//! Payment, clause 2.5: a customer, named by number or by last name, pays at a district.
//!
//! The warehouse row is the hottest of all and is updated first, so that the payments that follow wait before
//! they have done work. The history row is named by the customer and the customer's count of payments:
//! HISTORY has no key of its own, and this one is unique, is known under the customer's lock, and lets the
//! checks find every row.

use super::rows::{Column, customer, district, history, key, middle_customer, patched, row, warehouse};
use crate::{Native, malformed, missing_value};
use std::io::Write;
use std::sync::Arc;
use txn::fragments::{Done, FragmentList, FragmentOutcome, FragmentPlan, FragmentValues};
use txn::{
    Args, Blob, Call, Entry, Footprint, Fragment, FragmentContext, FragmentKind, FragmentValue, Fragments,
    Key, KeySets, Outcome, Reply, Request, Stop, Tx, Value, Weight,
};

/// How a call names a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// By number.
    Number(u32),
    /// By last name, of which the number says everything: see [`super::random::last_name`].
    LastName(u16),
}

impl Named {
    /// A flag and a number.
    pub(super) fn encode(self) -> (u8, u32) {
        match self {
            Named::Number(number) => (0, number),
            Named::LastName(name) => (1, u32::from(name)),
        }
    }
    pub(super) fn decode(flag: u8, number: u32) -> Named {
        if flag == 0 { Named::Number(number) } else { Named::LastName(number as u16) }
    }
}

/// The number of a customer: looked up in the index if named by last name.
pub(super) async fn customer_number(
    tx: &mut Tx,
    warehouse: u32,
    district: u8,
    named: Named,
) -> Result<u32, Stop> {
    match named {
        Named::Number(number) => Ok(number),
        Named::LastName(name) => {
            middle_customer(tx.get(&key::customers_by_name(warehouse, district, name)).await?)
        }
    }
}

const WAREHOUSE: Column<u32> = Column::at(0);
const DISTRICT: Column<u8> = Column::at(WAREHOUSE.end());
const CUSTOMER_WAREHOUSE: Column<u32> = Column::at(DISTRICT.end());
const CUSTOMER_DISTRICT: Column<u8> = Column::at(CUSTOMER_WAREHOUSE.end());
const NAMED: Column<u8> = Column::at(CUSTOMER_DISTRICT.end());
const CUSTOMER: Column<u32> = Column::at(NAMED.end());
const AMOUNT: Column<u32> = Column::at(CUSTOMER.end());
const BYTES: usize = AMOUNT.end();

/// What a call asks for.
#[derive(Clone, Copy, Debug)]
pub struct Payment {
    /// The warehouse that is paid.
    pub warehouse: u32,
    /// The district that is paid.
    pub district: u8,
    /// The customer's warehouse: another one in 15 % of the calls.
    pub customer_warehouse: u32,
    /// The customer's district.
    pub customer_district: u8,
    /// The customer.
    pub customer: Named,
    /// The amount in cents.
    pub amount: u32,
}

impl Payment {
    /// The arguments of a call.
    pub fn encode(&self) -> Args {
        let mut bytes = [0; BYTES];
        let (flag, number) = self.customer.encode();
        WAREHOUSE.set(&mut bytes, self.warehouse);
        DISTRICT.set(&mut bytes, self.district);
        CUSTOMER_WAREHOUSE.set(&mut bytes, self.customer_warehouse);
        CUSTOMER_DISTRICT.set(&mut bytes, self.customer_district);
        NAMED.set(&mut bytes, flag);
        CUSTOMER.set(&mut bytes, number);
        AMOUNT.set(&mut bytes, self.amount);
        Args::one(&bytes)
    }
    fn decode(args: &[Blob]) -> Result<Payment, Stop> {
        let bytes = args.first().filter(|bytes| bytes.len() == BYTES).ok_or_else(malformed)?;
        Ok(Payment {
            warehouse: WAREHOUSE.get(bytes),
            district: DISTRICT.get(bytes),
            customer_warehouse: CUSTOMER_WAREHOUSE.get(bytes),
            customer_district: CUSTOMER_DISTRICT.get(bytes),
            customer: Named::decode(NAMED.get(bytes), CUSTOMER.get(bytes)),
            amount: AMOUNT.get(bytes),
        })
    }
}

/// The procedure.
pub(super) const PROCEDURE: Native =
    Native { name: "tpcc.payment", footprint, fragments, run: |tx, call| Box::pin(run(tx, call)) };

/// The rows, if the customer is named by number. The history row is covered by the customer's.
fn footprint(args: &Args) -> Footprint {
    let Ok(payment) = Payment::decode(args) else {
        return Footprint::unknown();
    };
    let Named::Number(customer) = payment.customer else {
        return Footprint::unknown();
    };
    let writes = vec![
        key::warehouse(payment.warehouse),
        key::district(payment.warehouse, payment.district),
        key::customer(payment.customer_warehouse, payment.customer_district, customer),
    ];
    let keys = KeySets { writes, covers_inserts: true, ..KeySets::default() };
    Footprint { keys: Some(Arc::new(keys)), read_only: false, weight: Weight::Light }
}

const WAREHOUSE_PLACE: usize = 0;
const DISTRICT_PLACE: usize = 1;
const CUSTOMER_PLACE: usize = 2;
/// Only if the customer is named by last name: looks whether that name is still the customer's.
const INDEX_PLACE: usize = 3;

/// The fragments, if the customer is named by number, or if reconnaissance has found the number.
fn fragments(request: &Request) -> Option<Fragments> {
    let payment = Payment::decode(&request.args).ok()?;
    let (warehouse, district) = (payment.customer_warehouse, payment.customer_district);
    let at = |key| Fragment::independent(key, FragmentKind::Update);
    let mut list = FragmentList::new();
    list.push(at(key::warehouse(payment.warehouse)));
    list.push(at(key::district(payment.warehouse, payment.district)));
    let number = match payment.customer {
        Named::Number(number) => number,
        Named::LastName(_) => {
            let any = key::customer(warehouse, district, 0);
            let prefix = &any.as_bytes()[..any.as_bytes().len() - 4];
            let keys = request.footprint.keys.as_ref()?;
            let number = |key: &Key| {
                let number = key.as_bytes().strip_prefix(prefix)?;
                Some(u32::from_be_bytes(number.try_into().ok()?))
            };
            keys.writes.iter().find_map(number)?
        }
    };
    let names = [WAREHOUSE_PLACE as u16, DISTRICT_PLACE as u16];
    list.push(at(key::customer(warehouse, district, number)).needing(names).inserting());
    if let Named::LastName(name) = payment.customer {
        let index = key::customers_by_name(warehouse, district, name);
        list.push(Fragment::independent(index, FragmentKind::Read).aborting());
    }
    Fragments::planned(list, Paid { payment, number })
}

/// A payment by the customer with this number.
#[derive(Clone, Copy, Debug)]
struct Paid {
    payment: Payment,
    number: u32,
}

impl FragmentPlan for Paid {
    fn execute(&self, _: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
        let found = context.found.map(|entry| entry.value.clone());
        if context.place == INDEX_PLACE {
            return match middle_customer(found)? == self.number {
                true => Ok(Done::read(FragmentValue::NIL)),
                false => Err(Stop::Undeclared(None)),
            };
        }
        Ok(self.at_row(found, &context).unwrap_or_else(|_| missing_value()))
    }

    fn reply(&self, _: &[Blob], mut values: FragmentValues) -> Reply {
        let wrong = values.iter().position(FragmentValue::is_error);
        values.swap_remove(wrong.unwrap_or(CUSTOMER_PLACE)).into_reply()
    }
}

impl Paid {
    /// What the payment does to the row of the warehouse, the district or the customer.
    fn at_row(&self, found: Option<Value>, context: &FragmentContext<'_>) -> Result<Done, Stop> {
        let Paid { payment, number } = self;
        let amount = i64::from(payment.amount);
        match context.place {
            WAREHOUSE_PLACE => {
                let old = row::<{ warehouse::BYTES }>(found)?;
                let pay =
                    |row: &mut [u8; warehouse::BYTES]| warehouse::YTD.update(row, |value| value + amount);
                let new = patched::<{ warehouse::BYTES }>(&old, pay);
                Ok(Done::put(Entry::new(new), Reply::bulk(warehouse::NAME.get(&old))))
            }
            DISTRICT_PLACE => {
                let old = row::<{ district::BYTES }>(found)?;
                let pay = |row: &mut [u8; district::BYTES]| district::YTD.update(row, |value| value + amount);
                let new = patched::<{ district::BYTES }>(&old, pay);
                Ok(Done::put(Entry::new(new), Reply::bulk(district::NAME.get(&old))))
            }
            _ => {
                let old = row::<{ customer::BYTES }>(found)?;
                let new = paid(&old, payment, *number);
                let (balance, count) = (customer::BALANCE.get(&new), customer::PAYMENTS.get(&new));
                let mut names = [0; 24];
                for (place, input) in names.chunks_mut(14).zip(context.inputs) {
                    let FragmentValue::Reply(Reply::Bulk(name)) = input else { return Err(crate::missing()) };
                    place[..10].copy_from_slice(name);
                }
                let (warehouse, district) = (payment.customer_warehouse, payment.customer_district);
                let key = key::history(warehouse, district, *number, count);
                let inserted = Entry::new(history_row(payment, context.now_ms, &names));
                Ok(Done::put(Entry::new(new), Reply::Integer(balance)).inserting(vec![(key, inserted)]))
            }
        }
    }
}

async fn run(mut tx: Tx, call: Call) -> Outcome {
    let payment = Payment::decode(&call)?;
    let amount = i64::from(payment.amount);
    let mut names = [0; 24];

    let key = key::warehouse(payment.warehouse);
    let old = row::<{ warehouse::BYTES }>(tx.get_for_update(&key).await?)?;
    names[..10].copy_from_slice(warehouse::NAME.get(&old));
    let new = patched::<{ warehouse::BYTES }>(&old, |row| warehouse::YTD.update(row, |value| value + amount));
    drop(old);
    tx.put(&key, new).await?;

    let key = key::district(payment.warehouse, payment.district);
    let old = row::<{ district::BYTES }>(tx.get_for_update(&key).await?)?;
    names[14..].copy_from_slice(district::NAME.get(&old));
    let new = patched::<{ district::BYTES }>(&old, |row| district::YTD.update(row, |value| value + amount));
    drop(old);
    tx.put(&key, new).await?;

    let (warehouse, district) = (payment.customer_warehouse, payment.customer_district);
    let number = customer_number(&mut tx, warehouse, district, payment.customer).await?;
    let key = key::customer(warehouse, district, number);
    let old = row::<{ customer::BYTES }>(tx.get_for_update(&key).await?)?;
    let new = paid(&old, &payment, number);
    drop(old);
    let (balance, count) = (customer::BALANCE.get(&new), customer::PAYMENTS.get(&new));
    tx.put(&key, new).await?;

    let inserted = history_row(&payment, tx.now_ms(), &names);
    tx.put(&key::history(warehouse, district, number, count), inserted).await?;
    Ok(Reply::Integer(balance))
}

/// The customer row after the payment: clause 2.5.2.2.
fn paid(old: &Blob, payment: &Payment, number: u32) -> Blob {
    let amount = i64::from(payment.amount);
    patched::<{ customer::BYTES }>(old, |row| {
        customer::BALANCE.update(row, |value| value - amount);
        customer::YTD_PAYMENT.update(row, |value| value + amount);
        customer::PAYMENTS.update(row, |value| value + 1);
        if customer::CREDIT.get(row) == b"BC" {
            let mut note = [0; 80];
            let mut rest = &mut note[..];
            // 80 bytes hold six numbers of 32 bits; a shorter note would only be cut.
            let _ = write!(
                rest,
                "{number} {} {} {} {} {}.{:02}|",
                payment.customer_district,
                payment.customer_warehouse,
                payment.district,
                payment.warehouse,
                payment.amount / 100,
                payment.amount % 100
            );
            let length = 80 - rest.len();
            let data = customer::DATA.place(row);
            data.copy_within(..data.len() - length, length);
            data[..length].copy_from_slice(&note[..length]);
        }
    })
}

fn history_row(payment: &Payment, now_ms: u64, names: &[u8; 24]) -> Blob {
    let mut row = [0; history::BYTES];
    history::AMOUNT.set(&mut row, i64::from(payment.amount));
    history::DATE.set(&mut row, now_ms);
    history::WAREHOUSE.set(&mut row, payment.warehouse);
    history::DISTRICT.set(&mut row, payment.district);
    history::DATA.set(&mut row, names);
    Blob::new(&row)
}
