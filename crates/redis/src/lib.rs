//! The Redis surface, pure: codec, command table, commands and scripts as procedures

pub mod arguments;
pub mod commands;
pub mod errors;
pub mod execute;
pub mod table;

pub use arguments::Arguments;
pub use execute::{Caller, execute};
