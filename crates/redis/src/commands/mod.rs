//! The commands: async functions over a transaction, by the type of value they work on.

pub mod strings;
