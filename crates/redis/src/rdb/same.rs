//! Whether two values have the same content, whatever order hashes and sets keep it in.

use txn::value::{Consumer, Pending, StreamGroup, StreamValue};
use txn::{Blob, Value};

/// Whether two values have the same content. Of a stream's groups, how many entries were read does not count,
/// nor when consumers were last seen and last got something: Redis does not tell its replicas of it.
pub fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Hash(one), Value::Hash(other)) => {
            one.len() == other.len() && one.iter().all(|(field, value)| other.get(&field) == Some(value))
        }
        (Value::Set(one), Value::Set(other)) => {
            one.len() == other.len() && one.names().all(|member| other.contains(&member))
        }
        (Value::Stream(one), Value::Stream(other)) => is_same_stream(one, other),
        (one, other) => one == other,
    }
}

fn is_same_stream(one: &StreamValue, other: &StreamValue) -> bool {
    let known =
        |stream: &StreamValue| (stream.len(), stream.last_id, stream.max_deleted_id, stream.entries_added);
    known(one) == known(other)
        && one.iter().eq(other.iter())
        && one.groups().count() == other.groups().count()
        && one.groups().zip(other.groups()).all(|((name, group), (other_name, other_group))| {
            name == other_name && is_same_group(group, other_group)
        })
}

fn is_same_group(one: &StreamGroup, other: &StreamGroup) -> bool {
    let names = |group: &StreamGroup| -> Vec<Blob> {
        group.consumers().iter().map(|consumer: &Consumer| consumer.name.clone()).collect()
    };
    let pending = |group: &StreamGroup| -> Vec<Pending> { group.pending().iter().cloned().collect() };
    one.last_id == other.last_id && pending(one) == pending(other) && names(one) == names(other)
}
