//! Why requests are not taken.

use std::sync::Arc;
use txn::Reply;

/// Why requests were not taken. They stay with the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As much is on its way as the limits allow: submit again when something was answered.
    #[error("too much is on its way: wait for replies and submit again")]
    Busy,
    /// The log cannot be written. The text is an error reply that says why and what to do (`MISCONF ...`).
    #[error("{0}")]
    ReadOnly(Arc<str>),
    /// The node is shutting down.
    #[error("the server is shutting down: connect again when it is back")]
    ShuttingDown,
}

impl Refused {
    /// The error reply that a client gets.
    pub fn reply(&self) -> Reply {
        Reply::error_owned(match self {
            Refused::ReadOnly(text) => text.to_string(),
            other => format!("ERR {other}"),
        })
    }
}
