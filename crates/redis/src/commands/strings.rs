//! Strings.

use crate::errors;
use txn::{Blob, Key, Outcome, Reply, Tx, Value};

/// GET key
pub async fn get(tx: &mut Tx, args: &[Blob]) -> Outcome {
    Ok(match tx.get(&Key::from(&args[0])).await? {
        None => Reply::Nil,
        Some(Value::String(value)) => Reply::Bulk(value),
        Some(_) => errors::WRONG_TYPE,
    })
}
