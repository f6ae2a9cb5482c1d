//! Oracles: each watches one promise, and knows nothing of the others.
//!
//! | oracle | promise |
//! |---|---|
//! | `serial` | replies, aborts and states are those of the serial execution of the final order ([`order`]) |
//! | `durability` | what was acknowledged, or only written, is there after what it promised to survive ([`order`]) |
//! | `recovery` | a recovered process has a prefix of its order, and the state that belongs to it ([`order`]) |
//! | `sessions` | session ids never repeat within the life of a log ([`order`]) |
//! | `optimistic` | EXEC runs if, and only if, nothing that its connection watches has changed ([`optimistic`]) |
//! | `expiry` | what has expired is decided by the order's time alone ([`expiry`]) |
//! | `real time` | who was answered before another asked comes first in the order ([`real_time`]) |
//! | `connection order` | a connection's commands take effect in the order sent ([`real_time`]) |
//! | `history` | what clients saw has a strictly serializable explanation at all ([`crate::history`]) |
//! | `invariant` | what a workload knows of its state holds at snapshots ([`invariant`]) |
//! | `leak` | nothing is left behind when everything has ended ([`leak`]) |
//! | `liveness` | once faults stop, everything finishes ([`crate::world`]) |

pub mod expiry;
pub mod invariant;
pub mod leak;
pub mod optimistic;
pub mod order;
pub mod real_time;
pub mod recorder;
