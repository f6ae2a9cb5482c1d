//! The parts of a session id: `boot (24 bits) | port (8 bits) | counter (32 bits)`.
//!
//! They never repeat within the life of a log: the order gives each process its boot id.

use txn::SessionId;

const COUNTER_BITS: u32 = 32;
const PORT_BITS: u32 = 8;
/// The last boot id.
pub const BOOT_MAX: u32 = (1 << 24) - 1;
/// The last counter of a boot id.
pub const COUNTER_MAX: u32 = u32::MAX;
/// How many ports there can be.
pub const PORTS_MAX: usize = 1 << PORT_BITS;

/// The session id with these parts.
pub fn compose(boot: u32, port: u8, counter: u32) -> SessionId {
    SessionId(
        u64::from(boot) << (COUNTER_BITS + PORT_BITS) | u64::from(port) << COUNTER_BITS | u64::from(counter),
    )
}

/// The boot id and the port of a session id.
pub fn boot_and_port(session: SessionId) -> (u32, u8) {
    ((session.0 >> (COUNTER_BITS + PORT_BITS)) as u32, (session.0 >> COUNTER_BITS) as u8)
}

/// A boot id and a counter as a port keeps them.
pub fn pack_counter(boot: u32, counter: u32) -> u64 {
    u64::from(boot) << COUNTER_BITS | u64::from(counter)
}

/// The boot id and the counter of [`pack_counter`].
pub fn unpack_counter(packed: u64) -> (u32, u32) {
    ((packed >> COUNTER_BITS) as u32, packed as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_their_parts_and_grow_with_boot_and_counter() {
        let id = compose(7, 200, 9);
        assert_eq!(boot_and_port(id), (7, 200));
        assert!(compose(7, 200, COUNTER_MAX) < compose(8, 200, 0));
        assert!(compose(7, 200, 9) < compose(7, 200, 10));
        assert!(compose(1, 0, 0) > SessionId::INTERNAL);
        assert_eq!(unpack_counter(pack_counter(7, 9)), (7, 9));
    }
}
