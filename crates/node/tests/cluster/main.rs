//! Clusters that begin, grow, lose nodes and replace them, deterministically and in memory.

mod bootstrap;
mod levels;
mod members;
mod rig;
mod reader;
