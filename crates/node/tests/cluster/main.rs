//! Clusters that begin, grow, lose nodes and replace them, deterministically and in memory.

mod bootstrap;
mod members;
mod rig;
