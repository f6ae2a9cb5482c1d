//! Benchmarks: programs with fixed seeds whose figures are ratios taken in one run.
//!
//! Drivers, comparisons with others, a trial by faults and papers' figures live here:
//!
//! * [`engine`] drives engines in one process, without a network, on the workloads of the `workloads` crate.
//! * [`redis`] drives any server that speaks RESP over the network, from one thread that costs less than the
//!   server.
//! * [`cluster`] drives a cluster that way, one that it starts or one that runs, and tells what agreement
//!   takes.
//! * [`faults`] starts nodes, works on them, kills and freezes them and cuts their links, and judges what
//!   clients saw.
//! * [`hostile`] starts nodes, attacks them with commands at limits, and measures what well-behaved clients
//!   see of it.
//! * [`compare`] starts Debian's `redis-server` and `ordo serve`, drives them in turn, and prints the ratios.
//! * [`etcd`] does the same with two clusters, Debian's `etcd-server` and Ordo's.
//! * [`reproduce`] makes the figures of papers again, on real cores as far as there are any and in the scale
//!   model beyond.
//!
//! A machine's speed drifts by tens of percent within minutes (other tenants, frequency, page cache), so no
//! figure is compared with a figure of another run. Contenders are *interleaved*: each runs for a short slice
//! (or round), in an order that alternates, and what is reported is the median over the slices of the ratio
//! between neighbours, with the smallest and the largest beside it.
//!
//! Every driver checks what it measured: error replies, lost money or a violated consistency condition make
//! it fail.
#![allow(
    clippy::disallowed_methods,
    reason = "benchmarks measure real time with real threads: clocks and threads are theirs"
)]

mod child;
pub mod cluster;
pub mod compare;
pub mod engine;
pub mod etcd;
pub mod faults;
pub mod hostile;
pub mod progress;
pub mod redis;
pub mod report;
pub mod reproduce;
