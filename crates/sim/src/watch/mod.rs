//! Oracles: each watches one promise, and knows nothing of the others.
//!
//! | oracle | promise |
//! |---|---|
//! | `serial` | replies, aborts and states are those of the serial execution of the final order ([`crate::cluster`]) |
//! | `agreement` | what was confirmed at a position stays there, in every process of every replica ([`crate::cluster`]) |
//! | `once` | no request has two positions ([`crate::cluster`]) |
//! | `durability` | what was acknowledged, or only written, is there after what it promised to survive ([`crate::cluster`]) |
//! | `recovery` | a process that begins has the state that belongs to its checkpoint ([`crate::cluster`]) |
//! | `optimistic` | EXEC runs if, and only if, nothing that its connection watches has changed ([`optimistic`]) |
//! | `expiry` | what has expired is decided by the order's time alone ([`expiry`]) |
//! | `real time` | who was answered before another asked comes first in the order ([`real_time`]) |
//! | `connection order` | a connection's commands take effect in the order sent ([`real_time`]) |
//! | `history` | what clients saw has a strictly serializable explanation at all ([`crate::history`]) |
//! | `invariant` | what a workload knows of its state holds at snapshots ([`invariant`]) |
//! | `leak` | nothing is left behind when everything has ended ([`crate::leak`]) |
//! | `liveness` | once faults stop, everything finishes ([`crate::world`]) |

pub mod expiry;
pub mod invariant;
pub mod optimistic;
pub mod real_time;
pub mod recorder;
