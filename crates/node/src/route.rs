//! Where a connection's next transaction runs.

use txn::mutant::{Mutant, is_active};
use txn::{Footprint, Weight};

/// Where a transaction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// At once, at the newest final snapshot, where it was received.
    Snapshot,
    /// At the newest final snapshot as well, but elsewhere, because it takes long. Its connection submits
    /// nothing else before it is answered: what was sent behind it must not be seen by it.
    Aside,
    /// In the order.
    Order,
}

/// What its connection says of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Asker {
    /// It has commands that are not answered. Then the transaction must come behind them, also if it only
    /// reads, because a connection's commands take effect in the order sent.
    pub unfinished: bool,
    /// It lets its reads be a little old (READONLY). A node by itself ignores that: its newest snapshot is
    /// never old.
    pub readonly: bool,
}

/// Routes a transaction.
pub fn route(footprint: &Footprint, asker: Asker) -> Route {
    let unfinished = asker.unfinished && !is_active(Mutant::ReadOvertakesWrite);
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
        let heavy = Footprint { weight: Weight::Heavy, ..Footprint::read_only() };
        for readonly in [false, true] {
            let asker = |unfinished| Asker { unfinished, readonly };
            let (idle, busy) = (asker(false), asker(true));
            assert_eq!(route(&Footprint::read_only(), idle), Route::Snapshot);
            assert_eq!(route(&heavy, idle), Route::Aside);
            assert_eq!(route(&Footprint::read_only(), busy), Route::Order);
            assert_eq!(route(&heavy, busy), Route::Order);
            assert_eq!(route(&Footprint::unknown(), idle), Route::Order);
        }
    }
}
