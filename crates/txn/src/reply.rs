//! What a transaction answers.

use crate::PartitionId;
use crate::blob::Blob;
use crate::told::Told;
use std::borrow::Cow;

/// A reply: the value model of RESP3, which RESP2 and native callers see a part of.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// No value.
    Nil,
    /// A null array: RESP2 tells it apart from a null string (EXEC that lost its WATCH race).
    NilArray,
    /// A short status such as `OK`.
    Status(Cow<'static, str>),
    /// An error text, its first word a code such as `ERR` or `WRONGTYPE`. Writes made before it stay.
    Error(Cow<'static, str>),
    /// A number.
    Integer(i64),
    /// A floating-point number.
    Double(f64),
    /// A floating-point number that is shown with 17 digits behind the point, without zeros at the end.
    Decimal(f64),
    /// A truth value.
    Boolean(bool),
    /// A number of any length, in decimal.
    BigNumber(Blob),
    /// A byte string.
    Bulk(Blob),
    /// A text with its format (`txt`, `mkd`).
    Verbatim(&'static str, Blob),
    /// A sequence.
    Array(Vec<Reply>),
    /// Pairs of key and value, flattened in RESP2.
    Map(Vec<(Reply, Reply)>),
    /// An array of pairs, flattened in RESP2: members with scores, say.
    Pairs(Vec<(Reply, Reply)>),
    /// A map, an array of pairs in RESP2: streams with their entries.
    PairMap(Vec<(Reply, Reply)>),
    /// Distinct members, an array in RESP2.
    Set(Vec<Reply>),
    /// An out-of-band message.
    Push(Vec<Reply>),
    /// A reply with what others are told once it is final: see [`crate::told`].
    Told(Box<Told>),
}

impl Reply {
    /// `OK`.
    pub const OK: Reply = Reply::Status(Cow::Borrowed("OK"));

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let all = |items: &[Reply]| items.iter().map(Reply::bytes).sum::<usize>();
        size_of::<Reply>()
            + match self {
                Reply::Status(text) | Reply::Error(text) => text.len(),
                Reply::BigNumber(bytes) | Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => bytes.len(),
                Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => all(items),
                Reply::Map(pairs) | Reply::Pairs(pairs) | Reply::PairMap(pairs) => {
                    pairs.iter().map(|(key, value)| key.bytes() + value.bytes()).sum()
                }
                Reply::Told(told) => told.reply.bytes(),
                _ => 0,
            }
    }

    /// A byte string.
    pub fn bulk(bytes: impl Into<Blob>) -> Reply {
        Reply::Bulk(bytes.into())
    }
    /// A fixed error text.
    pub const fn error(text: &'static str) -> Reply {
        Reply::Error(Cow::Borrowed(text))
    }
    /// A composed error text.
    pub fn error_owned(text: String) -> Reply {
        Reply::Error(Cow::Owned(text))
    }
    /// Whether this is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }
}

/// Why a procedure stopped without a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The engine's business: this incarnation read something stale. The engine runs the procedure again.
    #[error("the transaction must be executed again")]
    Restart,
    /// The procedure's own decision (or a limit): everything it wrote is rolled back, and the caller gets the
    /// reason.
    #[error("{0}")]
    Abort(Cow<'static, str>),
    /// The transaction touched a key outside what its request declared: one of a partition where it is not
    /// executed, which is named; or something else that would need more (it looked at a whole space, or at a
    /// key outside its key sets under an engine that needs them, or it was routed by other slots). It is
    /// rolled back; its submitter finds what it needs and resubmits.
    #[error("the transaction touched a key that its footprint does not name")]
    Undeclared(Option<PartitionId>),
}

impl Stop {
    /// Rolls back with a reason.
    pub fn abort(reason: impl Into<Cow<'static, str>>) -> Stop {
        Stop::Abort(reason.into())
    }
}

/// How a transaction ended: a reply (its writes take effect), or a stop (nothing of it remains).
pub type Outcome = Result<Reply, Stop>;
