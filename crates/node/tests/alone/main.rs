//! Tests of a node that stands alone, with its journal on a virtual disk.

mod clock;
mod expiry;
mod machine;
mod own;
mod recovery;
mod removed;
mod rig;
mod traced;
