//! Clusters that begin, grow, lose nodes and replace them, deterministically and in memory.

mod agreement;
mod backlog;
mod bootstrap;
mod clocks;
mod compare;
mod feeds;
mod levels;
mod lies;
mod members;
mod out;
mod rig;
