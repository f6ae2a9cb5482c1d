//! Tests of the node with its log on a virtual disk.

mod clock;
mod expiry;
mod machine;
mod recovery;
mod rig;
