//! Transactions over several partitions equal the serial execution of the one order.

use execute::sparkle::{Options, Sparkle, Variant};
use ordo_sim::draw::seeds;
use ordo_sim::siblings::{Report, run};
use std::sync::Arc;

fn check(variant: Variant, default_seeds: u64) -> Report {
    let mut report = Report::default();
    for seed in seeds(default_seeds) {
        let one = run(
            &|partition, workers, draw| {
                let capacity = draw.pick(&[32, 64, 4096]);
                Arc::new(Sparkle::new(Options {
                    capacity,
                    partition,
                    variant,
                    ..Options::new(workers)
                }))
            },
            seed,
            12,
        );
        match one {
            Ok(one) => report.add(&one),
            Err(wrong) => panic!("{variant:?}: {wrong}"),
        }
    }
    println!("{report:?}");
    report
}

#[test]
fn speculative_confirmation_is_the_specification() {
    check(Variant::SpeculativeConfirmation, 300);
}

#[test]
fn conservative_confirmation_is_the_specification() {
    check(Variant::ConservativeConfirmation, 150);
}

#[test]
fn conservative_execution_is_the_specification() {
    check(Variant::Conservative, 150);
}
