//! Tests of the judge of histories: it accepts what a correct store shows, finds what a faulty one does, and
//! agrees with exhaustive search and with an independent checker.

mod defects;
mod search;
mod second_opinion;
mod store;

use defects::Defect;
use ordo_sim::draw::{Draw, one_seed, seeds};
use ordo_sim::history::{Kind, Operation, Order, Outcome, Step, check, check_order};
use std::collections::BTreeMap;
use store::Shape;

#[test]
fn histories_of_a_correct_store_pass() {
    for seed in seeds(600) {
        let mut draw = Draw::new(seed);
        let operations = draw.between(1, 400);
        let history = store::valid(&mut draw, operations);
        if let Err(anomaly) = check(&history) {
            panic!("seed {seed}: {anomaly}");
        }
    }
}

#[test]
fn every_planted_defect_is_found_and_named() {
    let mut planted: BTreeMap<Defect, u64> = BTreeMap::new();
    for seed in seeds(300) {
        for defect in Defect::ALL {
            let mut draw = Draw::new(seed);
            let operations = draw.between(1, 150);
            let mut history = store::valid(&mut draw, operations);
            let Some(kinds) = defect.plant(&mut draw, &mut history) else {
                continue;
            };
            *planted.entry(defect).or_default() += 1;
            match check(&history) {
                Ok(()) => panic!("seed {seed}: {defect:?} was not found in {history:#?}"),
                Err(anomaly) => assert!(
                    kinds.contains(&anomaly.kind),
                    "seed {seed}: {defect:?} is {kinds:?}, not {anomaly}"
                ),
            }
        }
    }
    for defect in Defect::ALL {
        let count = planted.get(&defect).copied().unwrap_or(0);
        assert!(one_seed() || count >= 30, "{defect:?} found a place in {count} histories only");
    }
}

/// Small changes that may or may not make a difference.
fn change(draw: &mut Draw, history: &mut [Operation]) {
    let appended: Vec<u64> = history
        .iter()
        .flat_map(|operation| &operation.steps)
        .filter_map(|step| match step {
            Step::Append { value, .. } => Some(*value),
            Step::Read { .. } => None,
        })
        .collect();
    let lists: Vec<Vec<u64>> = history
        .iter()
        .flat_map(|operation| &operation.steps)
        .filter_map(|step| match step {
            Step::Read { values, .. } => Some(values.clone()),
            Step::Append { .. } => None,
        })
        .collect();
    let index = draw.below(history.len() as u64) as usize;
    let operation = &mut history[index];
    match draw.below(8) {
        0 => {
            let outcomes = [Outcome::Committed, Outcome::Aborted, Outcome::Unknown];
            operation.outcome = draw.pick(&outcomes);
        }
        1 => operation.client = draw.below(4) as u32,
        2 => operation.completed_ns = Some(operation.invoked_ns),
        3 => {
            operation.invoked_ns = draw.below(60);
            let lasts_ns = draw.below(10);
            operation.completed_ns = Some(operation.invoked_ns + lasts_ns);
        }
        _ => {
            let step = draw.below(operation.steps.len() as u64) as usize;
            let Step::Read { values, .. } = &mut operation.steps[step] else {
                return;
            };
            let place = draw.below(values.len() as u64) as usize;
            match draw.below(5) {
                0 => drop(values.pop()),
                1 if !values.is_empty() => drop(values.remove(place)),
                2 if values.len() > 1 => values.swap(place, (place + 1) % 2),
                3 if !appended.is_empty() => values.push(draw.pick(&appended)),
                _ => *values = lists[draw.below(lists.len() as u64) as usize].clone(),
            }
        }
    }
}

#[test]
fn the_verdict_is_that_of_exhaustive_search() {
    let (mut passed, mut failed) = (0, BTreeMap::new());
    for seed in seeds(20_000) {
        let mut draw = Draw::new(seed);
        let operations = draw.between(1, 6);
        let shape = Shape {
            clients: draw.between(1, 4),
            keys: draw.between(1, 3),
            steps_max: draw.between(1, 3),
            delay_ns: draw.pick(&[1, 10]),
            pause_ns: draw.pick(&[1, 10]),
            ..Shape::draw(&mut draw, operations)
        };
        let mut plans = store::plan(&mut draw, &shape);
        if draw.percent(40) {
            for plan in &mut plans {
                plan.lag = draw.below(3) as usize;
            }
        }
        let mut history = store::run(&mut draw, plans);
        if operations <= 2 {
            // Rare in random histories, and one change away from valid ones.
            let defect = draw.pick(&Defect::ALL);
            if defect != Defect::AskedTwice {
                defect.plant(&mut draw, &mut history);
            }
        }
        for _ in 0..draw.below(3) {
            change(&mut draw, &mut history);
        }
        let expected = search::explains(&history, Order::Clients);
        let actual = check_order(&history, Order::Clients);
        assert_eq!(expected, actual.is_ok(), "seed {seed}, without real time: {actual:?} of {history:#?}");
        let expected = search::explains(&history, Order::RealTime);
        let actual = check(&history);
        assert_eq!(
            expected,
            actual.is_ok(),
            "seed {seed}: the search for an order succeeds: {expected}, but the judge says {actual:?} of \
             {history:#?}"
        );
        match actual {
            Ok(()) => passed += 1,
            Err(anomaly) => *failed.entry(anomaly.kind).or_insert(0) += 1,
        }
    }
    let count = failed.values().sum::<u64>();
    assert!(
        one_seed() || (passed >= 2000 && count >= 2000 && failed.len() >= 12),
        "{passed} passed, and failed {failed:?}"
    );
}

#[test]
fn an_independent_checker_agrees() {
    let mut failed = 0;
    for seed in seeds(400) {
        let mut draw = Draw::new(seed);
        let operations = draw.between(1, 200);
        let shape = Shape::draw(&mut draw, operations);
        let mut plans = store::plan(&mut draw, &shape);
        let stale_percent = draw.pick(&[0, 1, 5, 50]);
        for plan in &mut plans {
            if draw.percent(stale_percent) {
                plan.lag = draw.between(1, 6) as usize;
            }
        }
        let mut history = store::run(&mut draw, plans);
        let defect = draw.percent(50).then(|| draw.pick(&Defect::ALL));
        if let Some(defect) = defect {
            defect.plant(&mut draw, &mut history);
        }
        let found = second_opinion::anomalies(&history);
        match check(&history) {
            Ok(()) => assert!(found.is_empty(), "seed {seed}: adya finds {found:?}"),
            Err(anomaly) => {
                failed += 1;
                // It does not know the clients' order, passes over values that nobody appended and over the
                // order of a transaction's own appends, and gives no verdict on malformed histories.
                let beyond = [Kind::ClientOrder, Kind::ImpossibleRead, Kind::Malformed];
                assert!(
                    !found.is_empty() || beyond.contains(&anomaly.kind) || defect == Some(Defect::Reversed),
                    "seed {seed}: adya finds nothing, but: {anomaly}"
                );
            }
        }
    }
    assert!(one_seed() || failed >= 100, "only {failed} histories failed");
}
