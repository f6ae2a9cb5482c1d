use super::rows::{customer, key, stock};
use super::*;
use crate::testing::{Sabotage, Serial, assert_seeded, seed};
use std::collections::BTreeMap;

const SMALL: Tpcc = Tpcc {
    warehouses: 2,
    mix: Mix::Full { update_percent: 90 },
    remote: true,
    scale: Scale { items: 200, customers: 30 },
    partitions: 1,
    rollback_percent: 1,
};

#[test]
fn the_initial_population_is_consistent() {
    SMALL.check(&mut Serial::loaded(&SMALL, 1), &Tally::default()).unwrap();
}

#[test]
fn the_specified_population_has_the_specified_cardinalities() {
    let one = Tpcc { warehouses: 1, ..Tpcc::default() };
    let mut rows: BTreeMap<u8, u32> = BTreeMap::new();
    let mut bad_credit = 0;
    for part in 0..one.parts() {
        one.load(1, part, &mut |key, entry| {
            *rows.entry(key.as_bytes()[0]).or_default() += 1;
            if key.as_bytes()[0] == b'c' {
                bad_credit += u32::from(customer::CREDIT.get(&entry.value.as_string().unwrap()) == b"BC");
            }
        });
    }
    let lines = rows.remove(&b'l').unwrap();
    assert!((295_000..305_000).contains(&lines), "about ten lines an order: {lines}");
    assert!((2_700..3_300).contains(&bad_credit), "{bad_credit}");
    let expected = [
        (b'c', 30_000),
        (b'd', 10),
        (b'h', 30_000),
        (b'i', 100_000),
        (b'n', 9_000),
        (b'o', 30_000),
        (b's', 100_000),
        (b'w', 1),
        (b'x', 10_000),
        (b'y', 30_000),
        (b'z', 10),
    ];
    assert_eq!(rows, BTreeMap::from(expected));
}

#[test]
fn every_mix_keeps_all_conditions() {
    let seed = seed(1);
    for mix in [10, 50, 90]
        .map(|update_percent| Mix::Full { update_percent })
        .into_iter()
        .chain([Mix::NEW_ORDER_PAYMENT])
    {
        for remote in [true, false] {
            let tpcc = Tpcc { mix, remote, ..SMALL };
            let mut state = Serial::loaded(&tpcc, seed);
            let tally = state.drive(&tpcc, seed, 2, 2_000);
            tpcc.check(&mut state, &tally)
                .unwrap_or_else(|error| panic!("{mix:?}, remote {remote}: {error}"));
            assert_eq!(tally.committed + tally.aborted_by_logic, 4_000);
            assert!(tally.aborted_by_logic > 0, "1 % of the NewOrders roll back");
            assert_eq!(state.in_fragments, 4_000, "all profiles declare fragments");
        }
    }
}

/// Drops one write of a run, and gives the check's verdict. `from_end` counts the writes to the table
/// backwards.
fn verdict_without_write(table: u8, from_end: usize) -> Result<(), String> {
    let seed = 7;
    let run = |sabotage: Option<Sabotage>| {
        let mut state = Serial::loaded(&SMALL, seed);
        state.sabotage = sabotage;
        let tally = state.drive(&SMALL, seed, 2, 400);
        (state, tally)
    };
    let (counted, _) = run(Some(Sabotage { table, dropped: usize::MAX, seen: 0 }));
    let seen = counted.sabotage.unwrap().seen;
    let (mut state, tally) = run(Some(Sabotage { table, dropped: seen - 1 - from_end, seen: 0 }));
    SMALL.check(&mut state, &tally)
}

#[test]
fn a_procedure_that_forgets_one_write_fails_the_check() {
    for table in [b'w', b'd', b'c', b'h', b'o', b'n', b'l', b's', b'z'] {
        for from_end in [0, 1, 10] {
            let verdict = verdict_without_write(table, from_end);
            assert!(
                verdict.is_err(),
                "write {from_end} from the end to table '{}' was dropped",
                table as char
            );
        }
    }
    // The newest order of a customer is written blindly: only the last write must not be lost.
    assert!(verdict_without_write(b'y', 0).unwrap_err().contains("index"));
    // And by the right condition.
    assert!(verdict_without_write(b'w', 0).unwrap_err().contains("condition 1 "));
    assert!(verdict_without_write(b'c', 0).unwrap_err().contains("condition 9"));
    assert!(verdict_without_write(b's', 0).unwrap_err().contains("stock"));
    assert!(verdict_without_write(b'h', 0).unwrap_err().contains("history"));
}

#[test]
fn a_record_too_many_fails_the_check() {
    let mut state = Serial::loaded(&SMALL, 1);
    state.records.insert(key::order_line(1, 1, 4_000, 1), Entry::new("orphan"));
    assert!(SMALL.check(&mut state, &Tally::default()).unwrap_err().contains("records"));
}

#[test]
fn each_condition_is_checked() {
    use rows::{Number, district, history, order, order_line, warehouse};
    fn set<T: Number>(state: &mut Serial, key: &Key, column: rows::Column<T>, value: T) {
        let mut row = state.records[key].value.as_string().unwrap().to_vec();
        column.set(&mut row, value);
        state.records.insert(key.clone(), Entry::new(row));
    }
    type Damage = fn(&mut Serial);
    let cases: [(u32, Damage); 10] = [
        (1, |s| set(s, &key::warehouse(1), warehouse::YTD, 5)),
        (2, |s| set(s, &key::district(1, 1), district::NEXT_ORDER, 30)),
        (3, |s| drop(s.records.remove(&key::new_order(1, 1, 25)))),
        (5, |s| set(s, &key::order(1, 1, 30), order::CARRIER, 3)),
        (6, |s| set(s, &key::order(1, 1, 1), order::LINES, 4)),
        (7, |s| set(s, &key::order_line(2, 3, 30, 2), order_line::DELIVERY, 9)),
        (9, |s| set(s, &key::history(1, 1, 1, 1), history::DISTRICT, 2)),
        (10, |s| set(s, &key::customer(1, 1, 1), customer::BALANCE, -999)),
        (11, |s| set(s, &key::customer(1, 1, 1), customer::DELIVERIES, 1)),
        (12, |s| set(s, &key::customer(1, 1, 1), customer::YTD_PAYMENT, 999)),
    ];
    for (number, damage) in cases {
        let mut state = Serial::loaded(&SMALL, 1);
        damage(&mut state);
        let error = SMALL.check(&mut state, &Tally::default()).unwrap_err();
        assert!(error.starts_with(&format!("condition {number} ")), "{number}: {error}");
    }
}

/// What the generator drew, by procedure, with the arguments.
fn draws(tpcc: &Tpcc, count: usize) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut generator = tpcc.generator(11, Client::ONLY);
    let mut drawn: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for _ in 0..count {
        let draw = generator.next();
        drawn.entry(draw.procedure.name().to_owned()).or_default().push(draw.args.concat());
    }
    drawn
}

fn share(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}

#[test]
fn the_mixes_are_sparkles() {
    let shares = |mix| -> Vec<(String, f64)> {
        let drawn = draws(&Tpcc { mix, ..SMALL }, 50_000);
        drawn.into_iter().map(|(name, calls)| (name, share(calls.len(), 50_000))).collect()
    };
    let expect = |mix, expected: &[(&str, f64)]| {
        let found = shares(mix);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((name, found), (expected_name, expected)) in found.iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert!((found - expected).abs() < 0.8, "{name}: {found} %, not {expected} %");
        }
    };
    let full = |update_percent, expected: [f64; 5]| {
        let names =
            ["tpcc.delivery", "tpcc.new_order", "tpcc.order_status", "tpcc.payment", "tpcc.stock_level"];
        let expected: Vec<_> = names.into_iter().zip(expected).collect();
        expect(Mix::Full { update_percent }, &expected);
    };
    full(90, [4.0, 43.0, 5.0, 43.0, 5.0]);
    full(50, [4.0, 23.0, 25.0, 23.0, 25.0]);
    full(10, [4.0, 3.0, 45.0, 3.0, 45.0]);
    expect(Mix::NEW_ORDER_PAYMENT, &[("tpcc.new_order", 50.0), ("tpcc.payment", 50.0)]);
}

#[test]
fn calls_have_the_specified_shares_of_remote_rows_names_and_rollbacks() {
    let drawn = draws(&Tpcc { warehouses: 5, mix: Mix::NEW_ORDER_PAYMENT, ..SMALL }, 40_000);
    let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let payments = &drawn["tpcc.payment"];
    let remote = payments.iter().filter(|bytes| number(bytes, 0) != number(bytes, 5)).count();
    let by_name = payments.iter().filter(|bytes| bytes[10] == 1).count();
    assert!((14.0..16.0).contains(&share(remote, payments.len())));
    assert!((59.0..61.0).contains(&share(by_name, payments.len())));
    let orders = &drawn["tpcc.new_order"];
    let lines: Vec<(u32, &[u8])> =
        orders.iter().flat_map(|bytes| bytes[9..].chunks(9).map(|line| (number(bytes, 0), line))).collect();
    assert!((9.8..10.2).contains(&(lines.len() as f64 / orders.len() as f64)));
    let remote = lines.iter().filter(|(home, line)| number(line, 4) != *home).count();
    assert!((0.85..1.15).contains(&share(remote, lines.len())));
    let unused = lines.iter().filter(|(_, line)| number(line, 0) > SMALL.scale.items).count();
    assert!((0.8..1.2).contains(&share(unused, orders.len())));
}

#[test]
fn a_mix_may_say_how_many_calls_touch_another_warehouse() {
    let mix = Mix::NewOrderPayment { payment_percent: 30, elsewhere_percent: Some(40) };
    let spread = Tpcc { warehouses: 8, partitions: 4, mix, ..SMALL };
    let mut generator = spread.generator(seed(4), Client { index: 1, count: 4 });
    let (mut payments, mut elsewhere) = (0, [0, 0]);
    for _ in 0..4_000 {
        let draw = generator.next();
        let is_payment = draw.procedure.name() == "tpcc.payment";
        payments += usize::from(is_payment);
        assert!(draw.route.partitions.len() <= 2);
        elsewhere[usize::from(is_payment)] += usize::from(draw.route.partitions.len() > 1);
    }
    assert!((28.0..32.0).contains(&share(payments, 4_000)), "{payments}");
    assert!((37.0..43.0).contains(&share(elsewhere[0], 4_000 - payments)), "{elsewhere:?}");
    assert!((36.0..44.0).contains(&share(elsewhere[1], payments)), "{elsewhere:?}");
    let mut state = Serial::loaded(&spread, 1);
    let tally = state.drive(&spread, 1, 4, 300);
    spread.check(&mut state, &tally).unwrap();
}

#[test]
fn warehouses_of_several_partitions_keep_all_conditions_and_meet_as_in_the_paper() {
    let seed = seed(3);
    let spread = Tpcc { warehouses: 8, partitions: 4, mix: Mix::NEW_ORDER_PAYMENT, ..SMALL };
    let mut state = Serial::loaded(&spread, seed);
    let tally = state.drive(&spread, seed, 4, 500);
    spread.check(&mut state, &tally).unwrap();
    let mut generator = spread.generator(seed, Client { index: 1, count: 4 });
    let mut shared: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..4_000 {
        let request = generator.next().into_request(Default::default(), true);
        let (name, route) = (request.procedure.name().to_owned(), request.route.clone());
        assert_eq!((route.home.0, route.of()), (1, 4));
        *shared.entry(name).or_default() += usize::from(route.partitions.len() > 1);
        let (_, touched) = state.run(request);
        let at: std::collections::BTreeSet<_> = touched
            .reads
            .iter()
            .chain(&touched.writes)
            .map(|key| txn::key::partition_of_slot(key.slot(), 4))
            .collect();
        // What is rolled back may not have come to all its keys.
        assert!(at.iter().all(|at| route.partitions.contains(at)));
        assert!(at.contains(&route.home));
    }
    assert!((160..240).contains(&shared["tpcc.new_order"]), "{shared:?}");
    assert!((260..340).contains(&shared["tpcc.payment"]), "{shared:?}");
}

#[test]
fn without_remote_rows_clients_never_meet() {
    let tpcc = Tpcc { warehouses: 5, remote: false, ..SMALL };
    let mut state = Serial::loaded(&tpcc, 1);
    for index in 0..2 {
        let mut generator = tpcc.generator(1, Client { index, count: 2 });
        let own = if index == 0 { vec![1, 3, 5] } else { vec![2, 4] };
        for call in 0..600 {
            let (_, touched) = state.run(generator.next().into_request(Default::default(), true));
            for key in touched.reads.iter().chain(&touched.writes).filter(|key| key.as_bytes()[0] != b'i') {
                let warehouse = u32::from_be_bytes(key.as_bytes()[1..5].try_into().unwrap());
                assert_eq!(warehouse, own[call % own.len()], "{key:?} of client {index}");
            }
        }
    }
}

#[test]
fn a_rolled_back_order_leaves_nothing_after_doing_all_its_work() {
    let mut state = Serial::loaded(&SMALL, 1);
    let before = state.records.clone();
    let line = |item| new_order::Line { item, supplier: 1, quantity: 3 };
    let args = new_order::arguments(1, 1, 1, &[line(4), line(5), line(SMALL.scale.items + 1)]);
    let request = txn::Request::new(Default::default(), new_order::PROCEDURE.shared(), args);
    let (outcome, touched) = state.run(request);
    assert_eq!(outcome, Err(txn::Stop::abort(new_order::UNUSED_ITEM)));
    assert!(touched.writes.contains(&key::stock(1, 5)) && touched.writes.contains(&key::order(1, 1, 31)));
    assert!(state.records == before);
}

#[test]
fn an_order_takes_from_stock_and_refills_it() {
    let mut state = Serial::loaded(&SMALL, 1);
    let stock_of = |state: &Serial, warehouse, item| {
        state.records[&key::stock(warehouse, item)].value.as_string().unwrap().clone()
    };
    let before = stock_of(&state, 2, 9);
    let mut quantity = stock::QUANTITY.get(&before);
    for round in 1..=20 {
        let lines = [new_order::Line { item: 9, supplier: 2, quantity: 10 }; 2];
        let args = new_order::arguments(1, 4, 2, &lines);
        state.run(txn::Request::new(Default::default(), new_order::PROCEDURE.shared(), args)).0.unwrap();
        for _ in 0..2 {
            quantity = if quantity >= 20 { quantity - 10 } else { quantity + 81 };
        }
        let row = stock_of(&state, 2, 9);
        assert_eq!(stock::QUANTITY.get(&row), quantity);
        assert_eq!(stock::YTD.get(&row), 20 * round);
        assert_eq!(stock::REMOTE_ORDERS.get(&row), 2 * round, "the same item twice in an order counts twice");
    }
    SMALL.check(&mut state, &Tally::default()).unwrap();
}

#[test]
fn payments_of_bad_credit_are_noted_in_front_of_the_customers_data() {
    let mut state = Serial::loaded(&SMALL, 1);
    let number = (1..=30).find(|&number| {
        let row = state.records[&key::customer(2, 1, number)].value.as_string().unwrap();
        customer::CREDIT.get(&row) == b"BC"
    });
    let number = number.expect("one customer in ten has bad credit");
    let payment = payment::Payment {
        warehouse: 1,
        district: 7,
        customer_warehouse: 2,
        customer_district: 1,
        customer: payment::Named::Number(number),
        amount: 12_305,
    };
    let before = state.records[&key::customer(2, 1, number)].value.as_string().unwrap().clone();
    state
        .run(txn::Request::new(Default::default(), payment::PROCEDURE.shared(), payment.encode()))
        .0
        .unwrap();
    let after = state.records[&key::customer(2, 1, number)].value.as_string().unwrap();
    let note = format!("{number} 1 2 7 1 123.05|");
    let data = customer::DATA.get(&after);
    assert!(data.starts_with(note.as_bytes()));
    assert_eq!(data[note.len()..], customer::DATA.get(&before)[..500 - note.len()]);
    SMALL.check(&mut state, &Tally::default()).unwrap();
}

#[test]
fn deliveries_run_dry_and_go_on() {
    let mut state = Serial::loaded(&SMALL, 1);
    let deliver = |state: &mut Serial| {
        let args = delivery::arguments(1, 3);
        let request = txn::Request::new(Default::default(), delivery::PROCEDURE.shared(), args);
        let txn::Reply::Bulk(numbers) = state.run(request).0.unwrap() else { panic!("order numbers") };
        u32::from_le_bytes(numbers[..4].try_into().unwrap())
    };
    let delivered: Vec<u32> = (0..11).map(|_| deliver(&mut state)).collect();
    assert_eq!(delivered, [22, 23, 24, 25, 26, 27, 28, 29, 30, 0, 0]);
    SMALL.check(&mut state, &Tally::default()).unwrap();
    let args = new_order::arguments(1, 1, 5, &[new_order::Line { item: 1, supplier: 1, quantity: 1 }]);
    state.run(txn::Request::new(Default::default(), new_order::PROCEDURE.shared(), args)).0.unwrap();
    assert_eq!((deliver(&mut state), deliver(&mut state)), (31, 0));
    SMALL.check(&mut state, &Tally::default()).unwrap();
}

/// The keys of a call that were right before other calls, and are not afterwards, end it in
/// [`txn::Stop::Undeclared`]; those of another dry run do not.
#[test]
fn fragments_notice_that_a_guess_is_outdated() {
    let request =
        |procedure: crate::Native, args| txn::Request::new(Default::default(), procedure.shared(), args);
    let order = |district, customer| {
        let line = |item| new_order::Line { item, supplier: 1, quantity: 3 };
        let args = new_order::arguments(1, district, customer, &[line(11 * customer), line(4)]);
        request(new_order::PROCEDURE, args)
    };
    let guessed = |state: &Serial, mut request: txn::Request| {
        let (_, touched) = state.clone().run(request.clone());
        request.footprint.keys = txn::Footprint::of_keys(touched.reads, touched.writes).keys;
        request
    };
    let status = order_status::arguments(1, 3, payment::Named::Number(7));
    let calls = [
        (
            delivery::PROCEDURE,
            delivery::arguments(1, 5),
            request(delivery::PROCEDURE, delivery::arguments(1, 1)),
        ),
        (order_status::PROCEDURE, status, order(3, 7)),
        (stock_level::PROCEDURE, stock_level::arguments(1, 3, 15), order(3, 9)),
    ];
    for (procedure, args, between) in calls {
        let mut state = Serial::loaded(&SMALL, 2);
        let call = request(procedure, args);
        let early = guessed(&state, call.clone());
        let ended = |state: &Serial, call| state.execute_in_fragments(&call, 5).expect("fragments").0;
        assert!(ended(&state, early.clone()).is_ok(), "{early:?}");
        state.run(between).0.expect("it commits");
        assert_eq!(ended(&state, early.clone()), Err(txn::Stop::Undeclared(None)), "{early:?}");
        assert!(ended(&state, guessed(&state, call)).is_ok(), "{early:?}");
    }
}

#[test]
fn calls_are_a_function_of_the_seed() {
    assert_seeded(&SMALL);
}
