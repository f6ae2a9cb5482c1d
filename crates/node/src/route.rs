//! Where a connection's next transaction runs.

use txn::mutant::{Mutant, is_active};
use txn::{Footprint, Weight};

/// Where a transaction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// At once, at the newest final snapshot, where it was received.
    Snapshot,
    /// At the newest final snapshot as well, but elsewhere, because it takes long. Its connection submits nothing else
    /// before it is answered: what was sent behind it must not be seen by it.
    Aside,
    /// In the order.
    Order,
}

/// Routes a transaction. `unfinished`: its connection has commands that are not answered; then the transaction must come
/// behind them, also if it only reads, because a connection's commands take effect in the order sent.
pub fn route(footprint: &Footprint, unfinished: bool) -> Route {
    let unfinished = unfinished && !is_active(Mutant::ReadOvertakesWrite);
    match footprint.weight {
        _ if !footprint.read_only || unfinished => Route::Order,
        Weight::Light => Route::Snapshot,
        Weight::Heavy => Route::Aside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_of_idle_connections_bypass_the_order() {
        let heavy = Footprint {
            weight: Weight::Heavy,
            ..Footprint::read_only()
        };
        assert_eq!(route(&Footprint::read_only(), false), Route::Snapshot);
        assert_eq!(route(&heavy, false), Route::Aside);
        assert_eq!(route(&Footprint::read_only(), true), Route::Order);
        assert_eq!(route(&heavy, true), Route::Order);
        assert_eq!(route(&Footprint::unknown(), false), Route::Order);
    }
}
