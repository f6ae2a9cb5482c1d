//! One node over a virtual disk: nothing acknowledged is lost, and replay leads to the oracle's state.

use ordo_sim::draw::{one_seed, seeds};
use ordo_sim::world::{self, WorldReport};

#[test]
fn a_node_loses_nothing_that_it_acknowledged() {
    let mut report = WorldReport::default();
    for seed in seeds(60) {
        match world::run(seed, 1_500) {
            Ok(one) => report.add(&one),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{report:?}");
    if !one_seed() {
        assert!(
            report.committed > 0
                && report.ends > 0
                && report.ends_inside > 0
                && report.checkpoints > 0
        );
        assert!(
            report.recovered_from_checkpoint > 0 && report.lost_unsynced > 0 && report.refused > 0
        );
    }
}
