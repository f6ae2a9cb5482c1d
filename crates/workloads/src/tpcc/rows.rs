//! Keys and rows.
//!
//! A key is a table letter and big-endian numbers, at most 14 bytes, behind the tag of its partition where
//! there are several. A row is a fixed number of bytes: every column has its offset and its full width (texts
//! are padded with zeros), integers are little-endian, money is in cents, rates are in ten-thousandths, times
//! are milliseconds since 1970, and 0 stands for null where a column may be null. Columns that are part of
//! the key are not repeated in the row. To update a row is to copy its bytes and to patch columns.

use crate::missing;
use std::marker::PhantomData;
use txn::{Blob, Key, Stop, Value};

/// The districts of a warehouse: the specification's constant.
pub const DISTRICTS: u8 = 10;

/// Names of records. Warehouses are placed numbers ([`crate::placement`]).
pub mod key {
    use super::Key;
    use crate::placement::{beside, key as of};

    /// A row of WAREHOUSE.
    pub fn warehouse(warehouse: u32) -> Key {
        of(b'w', warehouse, [])
    }
    /// A row of DISTRICT.
    pub fn district(warehouse: u32, district: u8) -> Key {
        of(b'd', warehouse, [&[district]])
    }
    /// A row of CUSTOMER.
    pub fn customer(warehouse: u32, district: u8, customer: u32) -> Key {
        of(b'c', warehouse, [&[district], &customer.to_be_bytes()])
    }
    /// The row of HISTORY that a customer's payment number `payment` left.
    pub fn history(warehouse: u32, district: u8, customer: u32, payment: u32) -> Key {
        let numbers = [&customer.to_be_bytes()[..], &payment.to_be_bytes()];
        of(b'h', warehouse, [&[district], numbers[0], numbers[1]])
    }
    /// A row of ORDER.
    pub fn order(warehouse: u32, district: u8, order: u32) -> Key {
        of(b'o', warehouse, [&[district], &order.to_be_bytes()])
    }
    /// A row of NEW-ORDER.
    pub fn new_order(warehouse: u32, district: u8, order: u32) -> Key {
        of(b'n', warehouse, [&[district], &order.to_be_bytes()])
    }
    /// A row of ORDER-LINE.
    pub fn order_line(warehouse: u32, district: u8, order: u32, line: u8) -> Key {
        let number = order.to_be_bytes();
        of(b'l', warehouse, [&[district], &number, &[line]])
    }
    /// A row of ITEM, in the copy of the warehouse's partition: each has the whole table.
    pub fn item(warehouse: u32, item: u32) -> Key {
        of(b'i', beside(warehouse, item), [])
    }
    /// A row of STOCK.
    pub fn stock(warehouse: u32, item: u32) -> Key {
        of(b's', warehouse, [&item.to_be_bytes()])
    }
    /// Index: the customers of a district who share a last name.
    pub fn customers_by_name(warehouse: u32, district: u8, name: u16) -> Key {
        of(b'x', warehouse, [&[district], &name.to_be_bytes()])
    }
    /// Index: the newest order of a customer.
    pub fn last_order(warehouse: u32, district: u8, customer: u32) -> Key {
        of(b'y', warehouse, [&[district], &customer.to_be_bytes()])
    }
    /// Index: the oldest order of a district that is not delivered.
    pub fn oldest_new_order(warehouse: u32, district: u8) -> Key {
        of(b'z', warehouse, [&[district]])
    }
}

/// Integers that rows hold.
pub trait Number: Copy {
    /// The width in bytes.
    const BYTES: usize;
    /// Reads the first bytes of `bytes`.
    fn read(bytes: &[u8]) -> Self;
    /// Writes the first bytes of `bytes`.
    fn write(self, bytes: &mut [u8]);
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            const BYTES: usize = size_of::<$type>();
            #[inline]
            fn read(bytes: &[u8]) -> $type {
                <$type>::from_le_bytes(bytes[..Self::BYTES].try_into().expect("a slice of this length"))
            }
            #[inline]
            fn write(self, bytes: &mut [u8]) {
                bytes[..Self::BYTES].copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
numbers!(u8, u32, i32, u64, i64);

/// A column of numbers.
pub struct Column<T> {
    offset: usize,
    kind: PhantomData<T>,
}

impl<T: Number> Column<T> {
    pub(super) const fn at(offset: usize) -> Column<T> {
        Column { offset, kind: PhantomData }
    }
    pub(super) const fn end(&self) -> usize {
        self.offset + T::BYTES
    }
    /// The column's value in a row of its table.
    #[inline]
    pub fn get(&self, row: &[u8]) -> T {
        T::read(&row[self.offset..])
    }
    /// Sets the column.
    #[inline]
    pub fn set(&self, row: &mut [u8], value: T) {
        value.write(&mut row[self.offset..]);
    }
    /// Sets the column to a function of its value.
    #[inline]
    pub fn update(&self, row: &mut [u8], change: impl FnOnce(T) -> T) {
        let value = self.get(row);
        self.set(row, change(value));
    }
}

/// A column of text of at most `width` bytes.
pub struct Text {
    offset: usize,
    width: usize,
}

impl Text {
    const fn at(offset: usize, width: usize) -> Text {
        Text { offset, width }
    }
    const fn end(&self) -> usize {
        self.offset + self.width
    }
    /// The bytes, padding included.
    #[inline]
    pub fn get<'a>(&self, row: &'a [u8]) -> &'a [u8] {
        &row[self.offset..self.offset + self.width]
    }
    /// The place of the text, to write into.
    #[inline]
    pub fn place<'a>(&self, row: &'a mut [u8]) -> &'a mut [u8] {
        &mut row[self.offset..self.offset + self.width]
    }
    /// Sets the text to at most `width` bytes of `text`, padded.
    pub fn set(&self, row: &mut [u8], text: &[u8]) {
        let place = self.place(row);
        let length = text.len().min(place.len());
        place[..length].copy_from_slice(&text[..length]);
        place[length..].fill(0);
    }
}

/// Two streets, city, state and zip code: 20, 20, 20, 2 and 9 bytes.
pub struct Address {
    /// Street, second line of the street, city.
    pub lines: [Text; 3],
    /// State.
    pub state: Text,
    /// Zip code.
    pub zip: Text,
}

impl Address {
    const fn at(offset: usize) -> Address {
        Address {
            lines: [Text::at(offset, 20), Text::at(offset + 20, 20), Text::at(offset + 40, 20)],
            state: Text::at(offset + 60, 2),
            zip: Text::at(offset + 62, 9),
        }
    }
    const fn end(&self) -> usize {
        self.zip.end()
    }
}

/// Columns of WAREHOUSE.
pub mod warehouse {
    use super::*;
    /// Year-to-date balance.
    pub const YTD: Column<i64> = Column::at(0);
    /// Sales tax.
    pub const TAX: Column<u32> = Column::at(YTD.end());
    /// Name.
    pub const NAME: Text = Text::at(TAX.end(), 10);
    /// Address.
    pub const ADDRESS: Address = Address::at(NAME.end());
    /// Size of a row.
    pub const BYTES: usize = ADDRESS.end();
}

/// Columns of DISTRICT.
pub mod district {
    use super::*;
    /// Year-to-date balance.
    pub const YTD: Column<i64> = Column::at(0);
    /// The number of the next order.
    pub const NEXT_ORDER: Column<u32> = Column::at(YTD.end());
    /// Sales tax.
    pub const TAX: Column<u32> = Column::at(NEXT_ORDER.end());
    /// Name.
    pub const NAME: Text = Text::at(TAX.end(), 10);
    /// Address.
    pub const ADDRESS: Address = Address::at(NAME.end());
    /// Size of a row.
    pub const BYTES: usize = ADDRESS.end();
}

/// Columns of CUSTOMER.
pub mod customer {
    use super::*;
    /// Balance.
    pub const BALANCE: Column<i64> = Column::at(0);
    /// Year-to-date payments.
    pub const YTD_PAYMENT: Column<i64> = Column::at(BALANCE.end());
    /// Number of payments.
    pub const PAYMENTS: Column<u32> = Column::at(YTD_PAYMENT.end());
    /// Number of deliveries.
    pub const DELIVERIES: Column<u32> = Column::at(PAYMENTS.end());
    /// Credit limit.
    pub const CREDIT_LIMIT: Column<i64> = Column::at(DELIVERIES.end());
    /// Discount.
    pub const DISCOUNT: Column<u32> = Column::at(CREDIT_LIMIT.end());
    /// Customer since.
    pub const SINCE: Column<u64> = Column::at(DISCOUNT.end());
    /// `GC` (good credit) or `BC` (bad credit).
    pub const CREDIT: Text = Text::at(SINCE.end(), 2);
    /// First name.
    pub const FIRST: Text = Text::at(CREDIT.end(), 16);
    /// Middle name.
    pub const MIDDLE: Text = Text::at(FIRST.end(), 2);
    /// Last name.
    pub const LAST: Text = Text::at(MIDDLE.end(), 16);
    /// Address.
    pub const ADDRESS: Address = Address::at(LAST.end());
    /// Phone number.
    pub const PHONE: Text = Text::at(ADDRESS.end(), 16);
    /// Miscellaneous information.
    pub const DATA: Text = Text::at(PHONE.end(), 500);
    /// Size of a row.
    pub const BYTES: usize = DATA.end();
}

/// Columns of HISTORY. The customer is in the key.
pub mod history {
    use super::*;
    /// The amount paid.
    pub const AMOUNT: Column<i64> = Column::at(0);
    /// The time of the payment.
    pub const DATE: Column<u64> = Column::at(AMOUNT.end());
    /// The warehouse that was paid.
    pub const WAREHOUSE: Column<u32> = Column::at(DATE.end());
    /// The district that was paid.
    pub const DISTRICT: Column<u8> = Column::at(WAREHOUSE.end());
    /// Names of warehouse and district.
    pub const DATA: Text = Text::at(DISTRICT.end(), 24);
    /// Size of a row.
    pub const BYTES: usize = DATA.end();
}

/// Columns of ORDER.
pub mod order {
    use super::*;
    /// The customer.
    pub const CUSTOMER: Column<u32> = Column::at(0);
    /// The time of entry.
    pub const ENTRY: Column<u64> = Column::at(CUSTOMER.end());
    /// The carrier, 0 until the order is delivered.
    pub const CARRIER: Column<u8> = Column::at(ENTRY.end());
    /// The number of order lines.
    pub const LINES: Column<u8> = Column::at(CARRIER.end());
    /// 1 if the home warehouse supplies all lines.
    pub const ALL_LOCAL: Column<u8> = Column::at(LINES.end());
    /// Size of a row.
    pub const BYTES: usize = ALL_LOCAL.end();
}

/// Columns of ORDER-LINE.
pub mod order_line {
    use super::*;
    /// The item.
    pub const ITEM: Column<u32> = Column::at(0);
    /// The warehouse that supplies it.
    pub const SUPPLIER: Column<u32> = Column::at(ITEM.end());
    /// The time of delivery, 0 until then.
    pub const DELIVERY: Column<u64> = Column::at(SUPPLIER.end());
    /// The quantity.
    pub const QUANTITY: Column<u8> = Column::at(DELIVERY.end());
    /// The amount.
    pub const AMOUNT: Column<u32> = Column::at(QUANTITY.end());
    /// The stock's information for the district.
    pub const DISTRICT_INFO: Text = Text::at(AMOUNT.end(), 24);
    /// Size of a row.
    pub const BYTES: usize = DISTRICT_INFO.end();
}

/// Columns of ITEM.
pub mod item {
    use super::*;
    /// The image.
    pub const IMAGE: Column<u32> = Column::at(0);
    /// The price.
    pub const PRICE: Column<u32> = Column::at(IMAGE.end());
    /// Name.
    pub const NAME: Text = Text::at(PRICE.end(), 24);
    /// Brand information.
    pub const DATA: Text = Text::at(NAME.end(), 50);
    /// Size of a row.
    pub const BYTES: usize = DATA.end();
}

/// Columns of STOCK.
pub mod stock {
    use super::*;
    /// The quantity in stock.
    pub const QUANTITY: Column<i32> = Column::at(0);
    /// The quantity sold.
    pub const YTD: Column<u32> = Column::at(QUANTITY.end());
    /// The number of order lines supplied.
    pub const ORDERS: Column<u32> = Column::at(YTD.end());
    /// The number of them that belong to other warehouses' orders.
    pub const REMOTE_ORDERS: Column<u32> = Column::at(ORDERS.end());
    /// Ten texts of 24 bytes, one for each district.
    pub const DISTRICT_INFOS: Text = Text::at(REMOTE_ORDERS.end(), 240);
    /// Brand information.
    pub const DATA: Text = Text::at(DISTRICT_INFOS.end(), 50);
    /// Size of a row.
    pub const BYTES: usize = DATA.end();

    /// The information for district `district`, which counts from 1.
    pub fn district_info(row: &[u8], district: u8) -> &[u8] {
        let start = 24 * (usize::from(district.clamp(1, DISTRICTS)) - 1);
        &DISTRICT_INFOS.get(row)[start..start + 24]
    }
}

/// The row of `BYTES` bytes that a record holds.
#[inline]
pub fn row<const BYTES: usize>(value: Option<Value>) -> Result<Blob, Stop> {
    match value {
        Some(Value::String(row)) if row.len() == BYTES => Ok(row),
        _ => Err(missing()),
    }
}

/// A copy of a row with some columns patched.
#[inline]
pub fn patched<const BYTES: usize>(row: &Blob, patch: impl FnOnce(&mut [u8; BYTES])) -> Blob {
    let mut bytes = [0; BYTES];
    bytes.copy_from_slice(row);
    patch(&mut bytes);
    Blob::new(&bytes)
}

/// A number that an index record holds.
pub fn index_number(value: Option<Value>) -> Result<u32, Stop> {
    Ok(u32::read(&row::<4>(value)?))
}

/// An index record that holds a number.
pub fn index_record(number: u32) -> Blob {
    Blob::new(&number.to_le_bytes())
}

/// The customer in the middle of those who share a last name: position n/2 rounded up in the order of first
/// names.
pub fn middle_customer(value: Option<Value>) -> Result<u32, Stop> {
    let Some(Value::String(customers)) = value else {
        return Err(missing());
    };
    let count = customers.len() / 4;
    if count == 0 {
        return Err(missing());
    }
    Ok(u32::read(&customers[(count - 1) / 2 * 4..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_specifications_widths() {
        // Sums of clause 1.3's widths: texts in full, and what the columns of numbers take here.
        assert_eq!(warehouse::BYTES, 12 + 10 + 71);
        assert_eq!(district::BYTES, 16 + 10 + 71);
        assert_eq!(customer::BYTES, 44 + 2 + 16 + 2 + 16 + 71 + 16 + 500);
        assert_eq!(history::BYTES, 21 + 24);
        assert_eq!(order_line::BYTES, 21 + 24);
        assert_eq!(item::BYTES, 8 + 24 + 50);
        assert_eq!(stock::BYTES, 16 + 240 + 50);
    }

    #[test]
    fn the_middle_customer_is_at_half_the_count_rounded_up() {
        let of = |ids: &[u32]| {
            let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            middle_customer(Some(Value::from(bytes)))
        };
        assert_eq!(of(&[7]), Ok(7));
        assert_eq!(of(&[7, 8]), Ok(7));
        assert_eq!(of(&[7, 8, 9]), Ok(8));
        assert_eq!(of(&[7, 8, 9, 10]), Ok(8));
        assert!(of(&[]).is_err() && middle_customer(None).is_err());
    }

    #[test]
    fn patching_changes_the_named_column_only() {
        let old = Blob::new(&[1; stock::BYTES]);
        let new = patched::<{ stock::BYTES }>(&old, |row| stock::YTD.set(row, 9));
        assert_eq!(stock::YTD.get(&new), 9);
        assert_eq!(old[..4], new[..4]);
        assert_eq!(old[8..], new[8..]);
    }
}
