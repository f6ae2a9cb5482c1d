//! The tests of the program, one module a subject: as one binary they are linked once and run side by side.
//!
//! `cargo test --workspace --test all members::` runs those of one subject. A test has a binary of its own if
//! it takes signals of its process, or if a quick look at it should not build all others.

#[path = "../../server/tests/support/authority.rs"]
mod authority;
mod backup;
mod bench_cluster;
mod deploy;
mod disks;
mod doctor;
mod engines;
mod export;
mod faults;
mod geo;
mod hierarchy;
mod hostile;
mod http;
mod import;
mod kill;
mod lobby;
mod members;
mod nodes;
mod partitions;
mod past;
mod processes;
mod replay;
mod serve;
mod service_manager;
mod sim;
mod skip;
mod slots;
mod survivor;
mod telling;
mod tls;
mod transfers;
mod upgrade;
mod users;
