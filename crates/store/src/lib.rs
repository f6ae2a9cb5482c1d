//! Multi-version records of one partition (to be told here).
pub mod view;
pub use view::{Census, Image, Snapshot, View};
