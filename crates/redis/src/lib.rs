//! The Redis surface, pure: codec, command table, commands and scripts as procedures

pub mod arguments;
pub mod codec;
pub mod commands;
pub mod errors;
pub mod execute;
pub mod parse;
pub mod table;

pub use arguments::Arguments;
pub use execute::{Caller, execute};
