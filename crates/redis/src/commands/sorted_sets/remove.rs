//! Taking members away by name, rank or score.

use super::bounds::{Bounds, By};
use crate::commands::collections::{find, found_in, kept, put, stored, taken};
use crate::commands::strings::{argument, found};
use crate::table::per_key::PerKeyResult;
use crate::work;
use txn::value::SortedSetValue;
use txn::{Blob, FragmentContext, Intent, Key, Outcome, Reply, Tx};

/// ZREM key member [member ...]
pub fn zrem(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let (mut set, expires_at_ms) = taken(found_in::<SortedSetValue>(context)?);
    let removed = args[1..].iter().filter(|member| set.remove(member).is_some()).count();
    let reply = Reply::Integer(removed as i64);
    if removed == 0 {
        return Ok(kept(context, set, expires_at_ms, reply));
    }
    work::scored(removed);
    Ok(stored(set, expires_at_ms, reply))
}

async fn remove_range(tx: &mut Tx, args: &[Blob], by: By) -> Outcome {
    let bounds = argument!(Bounds::parse(by, &args[1], &args[2]));
    let key = Key::from(&args[0]);
    let found = found!(find::<SortedSetValue>(tx, &key, Intent::Update));
    let Some((old, expires_at_ms)) = found else {
        return Ok(Reply::Integer(0));
    };
    let ranks = bounds.ranks(&old);
    let removed = ranks.len();
    if removed > 0 {
        let mut set = SortedSetValue::clone(&old);
        work::scored(removed);
        set.remove_range(ranks);
        put(tx, &key, set, expires_at_ms).await?;
    }
    Ok(Reply::Integer(removed as i64))
}

/// ZREMRANGEBYRANK key start stop
pub async fn zremrangebyrank(tx: &mut Tx, args: &[Blob]) -> Outcome {
    remove_range(tx, args, By::Rank).await
}

/// ZREMRANGEBYSCORE key min max
pub async fn zremrangebyscore(tx: &mut Tx, args: &[Blob]) -> Outcome {
    remove_range(tx, args, By::Score).await
}

/// ZREMRANGEBYLEX key min max
pub async fn zremrangebylex(tx: &mut Tx, args: &[Blob]) -> Outcome {
    remove_range(tx, args, By::Name).await
}
