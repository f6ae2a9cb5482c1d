use super::*;
use crate::testing::{Sabotage, Serial, assert_seeded, seed};
use rows::Reservation;
use txn::{Blob, Outcome, Reply, Request, RequestId, Stop, Value};

fn vacation(options: Options) -> Vacation {
    Vacation::new(options).unwrap()
}

/// Few relations, of which many vanish and come back.
fn small() -> Vacation {
    vacation(Options { relations: 20, queries: 4, queried_percent: 60, user_percent: 60 })
}

const CAR: RelationId = RelationId { table: Table::Car, number: 7 };
const FLIGHT: RelationId = RelationId { table: Table::Flight, number: 7 };

fn relation(state: &Serial, id: RelationId) -> Option<Relation> {
    Relation::read(state.records.get(&id.key()).map(|entry| entry.value.clone())).unwrap()
}

fn customer(state: &Serial, number: u32) -> Option<Customer> {
    Customer::read(state.records.get(&customer_key(number)).map(|entry| entry.value.clone())).unwrap()
}

fn put(state: &mut Serial, key: Key, row: Blob) {
    state.records.insert(key, Entry::new(row));
}

fn put_relation(state: &mut Serial, id: RelationId, change: impl FnOnce(&mut Relation)) {
    let mut row = relation(state, id).unwrap_or(Relation::new(100, 50));
    change(&mut row);
    put(state, id.key(), row.encode());
}

fn call(state: &mut Serial, procedure: crate::Native, args: Args) -> Outcome {
    state.run(Request::new(RequestId::default(), procedure.shared(), args)).0
}

fn add(price: i32) -> Change {
    Change::Add { price }
}

#[test]
fn random_calls_keep_the_check_and_declare_what_they_touch() {
    let low = Options { relations: 200, queries: 2, queried_percent: 90, user_percent: 98 };
    let seed = seed(1);
    let all = [
        low,
        Options { relations: 100, ..Options::default() },
        Options { user_percent: 0, ..small().options },
        Options { user_percent: 100, ..small().options },
        Options { relations: 1, queries: 30, queried_percent: 1, user_percent: 50 },
        small().options,
    ];
    for options in all {
        let vacation = vacation(options);
        let mut state = Serial::loaded(&vacation, seed);
        vacation.check(&mut state, &Tally::default()).unwrap();
        let tally = state.drive(&vacation, seed, 3, 1_000);
        vacation.check(&mut state, &tally).unwrap_or_else(|reason| panic!("{options:?}: {reason}"));
        assert_eq!(tally.committed, 3_000);
    }
}

#[test]
fn relations_and_customers_vanish_and_come_back() {
    let vacation = small();
    let mut state = Serial::loaded(&vacation, 1);
    let mut generator = vacation.generator(1, Client::ONLY);
    let (mut vanished, mut came_back, mut deleted, mut returned, mut in_vain) = (0, 0, 0, 0, 0);
    for _ in 0..3_000 {
        let before = state.records.clone();
        let request = generator.next().into_request(RequestId::default(), true);
        let is_reserve = request.procedure.name() == RESERVE.name;
        let (outcome, touched) = state.run(request);
        in_vain += u32::from(is_reserve && touched.writes.is_empty());
        assert!(matches!(outcome, Ok(Reply::Integer(_))), "{outcome:?}");
        for key in touched.writes {
            let is_customer = key.as_bytes()[0] == customer_key(0).as_bytes()[0];
            match (before.contains_key(&key), state.records.contains_key(&key), is_customer) {
                (true, false, false) => vanished += 1,
                (false, true, false) => came_back += 1,
                (true, false, true) => deleted += 1,
                (false, true, true) => returned += 1,
                _ => {}
            }
        }
    }
    for count in [vanished, came_back, deleted, returned, in_vain] {
        assert!(count > 20, "{:?}", [vanished, came_back, deleted, returned, in_vain]);
    }
}

/// The records that the check knows of: all but customers without reservations.
fn checked(mut state: Serial) -> Serial {
    state.records.retain(|_, entry| entry.value.string_len() != Some(0));
    state
}

#[test]
fn a_lost_write_fails_the_check() {
    let vacation = small();
    let drive = |sabotage| {
        let mut state = Serial::loaded(&vacation, 1);
        state.sabotage = sabotage;
        let tally = state.drive(&vacation, 1, 1, 600);
        (state, tally)
    };
    let expected = checked(drive(None).0);
    let mut detected = 0;
    for table in *b"cfru" {
        for dropped in 0..25 {
            let (mut state, tally) = drive(Some(Sabotage { table, dropped, seen: 0 }));
            let is_detected = vacation.check(&mut state, &tally).is_err();
            detected += u32::from(is_detected);
            let is_lost = checked(state).records != expected.records;
            assert!(is_detected || !is_lost, "write {dropped} to table {}", char::from(table));
        }
    }
    assert!(detected >= 95, "{detected} of 100");
}

#[test]
fn a_lost_call_fails_the_check() {
    let vacation = small();
    let mut state = Serial::loaded(&vacation, 1);
    let mut tally = state.drive(&vacation, 1, 1, 500);
    let kept = state.clone();
    let number = (0..20).find(|&number| customer(&state, number).is_some_and(|one| one.bill() > 0)).unwrap();
    let calls = [
        (RESERVE, calls::reserve_arguments(19, &[FLIGHT, CAR])),
        (DELETE_CUSTOMER, calls::delete_arguments(number)),
        (UPDATE_TABLES, calls::update_arguments(&[(CAR, add(60))])),
    ];
    for (procedure, args) in calls {
        let mut lost = tally;
        lost.add(&call(&mut state, procedure, args));
        vacation.check(&mut state, &lost).unwrap();
        state = kept.clone();
        assert!(vacation.check(&mut state, &lost).unwrap_err().contains("but the calls replied"));
    }
    tally.aborted_by_logic += 1;
    assert!(vacation.check(&mut state, &tally).unwrap_err().contains("rolled back"));
}

#[test]
fn every_broken_record_fails_the_check_with_its_reason() {
    type Break = fn(&mut Serial);
    let cases: [(Break, &str); 18] = [
        (|state| put_relation(state, CAR, |row| row.free += 1), "car 7: 2 used and 299 free are not the 300"),
        (|state| put_relation(state, CAR, |row| row.used -= 1), "are not the 300 in total"),
        (
            |state| put_relation(state, CAR, |row| (row.used, row.free) = (301, -1)),
            "301 used and -1 free: neither",
        ),
        (|state| put_relation(state, CAR, |row| (row.used, row.free) = (-1, 301)), "neither can be negative"),
        (|state| put_relation(state, CAR, |row| row.total = i32::MIN), "in total"),
        (|state| put_relation(state, CAR, |row| row.price = 7), "the price 7"),
        (
            |state| put_relation(state, CAR, |row| (row.used, row.free, row.total) = (0, 0, 0)),
            "car 7: 0 in total",
        ),
        (
            |state| put_relation(state, CAR, |row| (row.used, row.free) = (3, 297)),
            "car 7: 1 more items are in use",
        ),
        (
            |state| put_relation(state, CAR, |row| (row.used, row.free) = (1, 299)),
            "car 7: -1 more items are in use",
        ),
        (
            |state| put_relation(state, CAR, |row| (row.free, row.total) = (398, 400)),
            "the stock has grown by 100 and customers owe",
        ),
        (|state| put(state, CAR.key(), Blob::new(b"short")), "car 7: the record is not a row"),
        (|state| drop(state.records.remove(&CAR.key())), "has reserved car 7, which does not exist"),
        (|state| drop(state.records.remove(&FLIGHT.key())), "the stock has grown by -"),
        (|state| put(state, customer_key(3), Blob::new(b"")), "1 more items are in use"),
        (|state| drop(state.records.remove(&customer_key(3))), "1 more items are in use"),
        (|state| put(state, customer_key(3), Blob::new(b"short")), "customer 3: the record is not a list"),
        (
            |state| {
                let mut row = customer(state, 3).unwrap();
                assert!(row.add(Reservation { relation: RelationId { number: 20, ..CAR }, price: 50 }));
                put(state, customer_key(3), row.encode());
            },
            "customer 3 has reserved car 20, which does not exist",
        ),
        (|state| put(state, customer_key(20), Blob::new(b"")), "there are 81 records, but 80"),
    ];
    let vacation = small();
    let mut state = Serial::loaded(&vacation, 1);
    let mut tally = Tally::default();
    // All of the workload's: 300 cars 7, of which customers 3 and 4 have one each.
    put_relation(&mut state, CAR, |row| *row = Relation::new(300, 70));
    tally.replies_sum += STOCK * i64::from(300 - stock_initial(CAR));
    for number in [3, 4] {
        tally.add(&call(&mut state, RESERVE, calls::reserve_arguments(number, &[CAR])));
    }
    vacation.check(&mut state, &tally).unwrap();
    for (break_state, reason) in cases {
        let mut broken = state.clone();
        break_state(&mut broken);
        let error = vacation.check(&mut broken, &tally).expect_err(reason);
        assert!(error.contains(reason), "'{error}' does not say '{reason}'");
    }
    // The price that a customer pays: behind the relation's four bytes.
    let mut row = [0; 8];
    row.copy_from_slice(&state.records[&customer_key(3)].value.as_string().unwrap());
    row[4] += 10;
    put(&mut state, customer_key(3), Blob::new(&row));
    assert!(vacation.check(&mut state, &tally).unwrap_err().contains("customers owe 150"));
}

#[test]
fn a_reservation_takes_the_dearest_that_is_free_and_one_of_each() {
    let id = |table, number| RelationId { table, number };
    let mut state = Serial::loaded(&small(), 1);
    let prices = [
        (id(Table::Car, 0), 60),
        (id(Table::Car, 1), 80),
        (id(Table::Car, 2), 90),
        (id(Table::Room, 0), 70),
        (id(Table::Room, 1), 70),
    ];
    for (id, price) in prices {
        put_relation(&mut state, id, |row| *row = Relation::new(100, price));
    }
    let full = Relation { used: 100, free: 0, total: 100, price: 90 };
    put_relation(&mut state, id(Table::Car, 2), |row| *row = full);
    state.records.remove(&id(Table::Flight, 0).key());
    state.records.remove(&customer_key(5));
    let queried: Vec<RelationId> = prices.iter().map(|(id, _)| *id).chain([id(Table::Flight, 0)]).collect();
    let args = calls::reserve_arguments(5, &queried);

    assert_eq!(call(&mut state, RESERVE, args.clone()), Ok(Reply::Integer(80 + 70)));
    let expected = [(id(Table::Car, 1), 80), (id(Table::Room, 0), 70)];
    let held = customer(&state, 5).unwrap();
    let held: Vec<_> = held.reservations().iter().map(|held| (held.relation, held.price)).collect();
    assert_eq!(held, expected);
    for (id, price) in expected {
        assert_eq!(relation(&state, id), Some(Relation { used: 1, free: 99, total: 100, price }));
    }
    // The same again: the customer has them.
    let before = state.records.clone();
    assert_eq!(call(&mut state, RESERVE, args), Ok(Reply::Integer(0)));
    assert!(state.records == before);
    // Nothing found: no customer is created.
    state.records.remove(&customer_key(6));
    let args = calls::reserve_arguments(6, &[id(Table::Flight, 0), id(Table::Car, 2)]);
    assert_eq!(call(&mut state, RESERVE, args), Ok(Reply::Integer(0)));
    assert_eq!(customer(&state, 6), None);
    // The bill is what was agreed on, whatever the price is now.
    let update = calls::update_arguments(&[(id(Table::Car, 1), add(50))]);
    assert_eq!(call(&mut state, UPDATE_TABLES, update), Ok(Reply::Integer(100 * STOCK)));
    let args = calls::delete_arguments(5);
    assert_eq!(call(&mut state, DELETE_CUSTOMER, args.clone()), Ok(Reply::Integer(-150)));
    assert_eq!(relation(&state, id(Table::Car, 1)), Some(Relation::new(200, 50)));
    assert_eq!(customer(&state, 5), None);
    assert_eq!(call(&mut state, DELETE_CUSTOMER, args), Ok(Reply::Integer(0)));
}

#[test]
fn updates_change_stock_as_far_as_it_is_free() {
    let full = Relation::new(STOCK_MAX, 60);
    let used = |used, total| Some(Relation { used, free: total - used, total, price: 60 });
    let cases = [
        (CAR, used(0, 200), Change::Remove, used(0, 100)),
        (CAR, used(100, 200), Change::Remove, used(100, 100)),
        (CAR, used(101, 200), Change::Remove, used(101, 200)),
        (CAR, used(0, 100), Change::Remove, None),
        (CAR, None, Change::Remove, None),
        (CAR, None, add(60), used(0, 100)),
        (CAR, used(5, 200), add(60), used(5, 300)),
        (CAR, used(0, 200), add(90), Some(Relation::new(300, 90))),
        (CAR, Some(full), add(90), Some(full)),
        (FLIGHT, used(0, 500), Change::Remove, None),
        (FLIGHT, used(1, 500), Change::Remove, used(1, 500)),
        (FLIGHT, None, Change::Remove, None),
    ];
    for (id, old, change, new) in cases {
        let mut state = Serial::loaded(&small(), 1);
        match old {
            Some(old) => put(&mut state, id.key(), old.encode()),
            None => drop(state.records.remove(&id.key())),
        }
        let added = new.map_or(0, |new| new.total) - old.map_or(0, |old| old.total);
        let reply = call(&mut state, UPDATE_TABLES, calls::update_arguments(&[(id, change)]));
        assert_eq!(reply, Ok(Reply::Integer(STOCK * i64::from(added))), "{old:?} {change:?}");
        assert_eq!(relation(&state, id), new, "{old:?} {change:?}");
    }
    // One relation twice in one call, and the second change sees the first.
    let mut state = Serial::loaded(&small(), 1);
    put_relation(&mut state, CAR, |row| *row = Relation::new(100, 60));
    let args = calls::update_arguments(&[(CAR, Change::Remove), (CAR, add(80)), (CAR, add(70))]);
    assert_eq!(call(&mut state, UPDATE_TABLES, args), Ok(Reply::Integer(100 * STOCK)));
    assert_eq!(relation(&state, CAR), Some(Relation::new(200, 70)));
}

#[test]
fn malformed_arguments_end_with_an_error() {
    let vacation = small();
    let mut state = Serial::loaded(&vacation, 1);
    let before = state.records.clone();
    let mut refuse = |procedure: fn() -> Arc<dyn Procedure>, args: Args| {
        let request = Request::new(RequestId::default(), procedure(), args.clone());
        assert_eq!(request.footprint, txn::Footprint::unknown(), "{args:?}");
        let (outcome, _) = state.run(request);
        assert_eq!(outcome, Err(crate::malformed()), "{args:?}");
    };
    let of = |numbers: &[u32]| {
        Args::one(&numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()[..])
    };
    let procedures = [|| RESERVE.shared(), || DELETE_CUSTOMER.shared(), || UPDATE_TABLES.shared()];
    for procedure in procedures {
        for args in [Args::new(), Args::one(b"".as_slice()), Args::one(b"short".as_slice())] {
            refuse(procedure, args);
        }
    }
    let [reserve, delete_customer, update_tables] = procedures;
    let (table, number) = (3 << 24, RELATIONS_MAX);
    for numbers in [&[1][..], &[1, table], &[1, number], &[1, u32::MAX], &[1; QUERIES_MAX + 2]] {
        refuse(reserve, of(numbers));
    }
    for numbers in [&[1, 2][..], &[1; 100]] {
        refuse(delete_customer, of(numbers));
    }
    for numbers in [
        &[1][..],
        &[1, 0, 1],
        &[table, 0],
        &[number, 50],
        &[1, 49],
        &[1, 91],
        &[1, u32::MAX],
        &[0; 2 * QUERIES_MAX + 2],
    ] {
        refuse(update_tables, of(numbers));
    }
    assert!(state.records == before);
}

#[test]
fn random_arguments_and_records_never_panic() {
    let vacation = small();
    let mut dice = Dice::new(seed(3), 0);
    let mut ended_well = 0;
    for _ in 0..3_000 {
        let mut state = Serial::loaded(&vacation, 1);
        let bytes = |dice: &mut Dice| -> Vec<u8> {
            let mut bytes = vec![0; dice.below(6) as usize * 4];
            for byte in &mut bytes {
                *byte = if dice.percent(80) { dice.below(4) as u8 } else { dice.bits() as u8 };
            }
            bytes
        };
        for letter in *b"cfru" {
            for number in 0..4 {
                let key = Key::new(&[letter, 0, 0, 0, number]);
                match dice.below(6) {
                    0 => put(&mut state, key, Blob::new(&bytes(&mut dice))),
                    1 => drop(state.records.insert(key, Entry::new(Value::Hash(Default::default())))),
                    2 => drop(state.records.remove(&key)),
                    _ => {}
                }
            }
        }
        for procedure in [RESERVE, DELETE_CUSTOMER, UPDATE_TABLES] {
            let outcome = call(&mut state, procedure, Args::one(&bytes(&mut dice)[..]));
            match outcome {
                Ok(Reply::Integer(_)) => ended_well += 1,
                Err(Stop::Abort(reason)) => assert!(reason.starts_with(crate::WRONG), "{reason}"),
                other => panic!("{other:?}"),
            }
        }
        // Whatever it says.
        let _ = vacation.check(&mut state, &Tally::default());
    }
    assert!(ended_well > 100, "some calls find sound records: {ended_well}");
}

#[test]
fn calls_are_drawn_as_the_options_say() {
    let vacation = vacation(Options { user_percent: 80, ..Options::default() });
    let mut generator = vacation.generator(seed(4), Client::ONLY);
    let mut counts = [0; 3];
    let (mut queries, mut customers_max, mut relations_max) = (0, 0, 0);
    for _ in 0..10_000 {
        let draw = generator.next();
        let numbers = draw.args[0].as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let numbers: Vec<u32> = numbers.collect();
        match draw.procedure.name() {
            "vacation.reserve" => {
                counts[0] += 1;
                queries += numbers.len() - 1;
                assert!((2..=5).contains(&numbers.len()));
                customers_max = customers_max.max(numbers[0]);
                for encoded in &numbers[1..] {
                    relations_max = relations_max.max(RelationId::decode(*encoded).unwrap().number);
                }
            }
            "vacation.delete_customer" => counts[1] += 1,
            _ => counts[2] += 1,
        }
    }
    assert!((7_800..8_200).contains(&counts[0]), "{counts:?}");
    assert!((850..1_150).contains(&counts[1]) && (850..1_150).contains(&counts[2]), "{counts:?}");
    let mean = queries as f64 / f64::from(counts[0]);
    assert!((mean - 2.5).abs() < 0.1, "from 1 to 4 queries each: {mean}");
    assert_eq!((customers_max, relations_max), (599, 599), "60 percent of 1,000");
}

#[test]
fn impossible_options_are_refused_with_the_reason() {
    let refused = |options, text: &str| assert!(Vacation::new(options).unwrap_err().contains(text));
    let default = Options::default();
    refused(Options { relations: 0, ..default }, "0 relations: choose from 1 to 1048576");
    refused(Options { relations: RELATIONS_MAX + 1, ..default }, "1048577 relations");
    refused(Options { queries: 0, ..default }, "0 queries: choose from 1 to 1000");
    refused(Options { queries: QUERIES_MAX + 1, ..default }, "1001 queries");
    refused(Options { queried_percent: 0, ..default }, "0 percent queried: choose from 1 to 100");
    refused(Options { queried_percent: 101, ..default }, "101 percent queried");
    refused(Options { user_percent: 101, ..default }, "101 percent users");
    assert_eq!(vacation(Options { relations: RELATIONS_MAX, ..default }).range(), 629_146);
    assert_eq!(vacation(Options { relations: 1, queried_percent: 1, ..default }).range(), 1);
}

#[test]
fn calls_are_a_function_of_the_seed() {
    assert_seeded(&small());
}
