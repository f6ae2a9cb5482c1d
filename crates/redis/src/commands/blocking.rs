//! What may wait, as one attempt that does not: BLPOP within a block or a script, and each time that a
//! connection tries it for a client that waits ([`crate::waiting`]).

use super::lists::{self, End, PopFirst};
use super::sorted_sets::pop::{self, ManyPop};
use super::strings::{argument, found};
use crate::waiting::timeout;
use std::ops::Range;
use txn::{Blob, Outcome, Reply, Tx};

/// What a command of lists or sorted sets waits for: where its keys stand among its words (`argv`, its name
/// first), and for how many milliseconds; `None`: for ever.
pub(crate) type WaitsFor = (Range<usize>, Option<u64>);

/// What the command waits for, as it reads its words itself. The error is its own.
pub(crate) fn waits_for(name: &str, argv: &[Blob]) -> Result<WaitsFor, Reply> {
    let last = argv.len() - 1;
    Ok(match name {
        "blmpop" => {
            let keys = PopFirst::parse(&argv[2..])?.names.len();
            (3..3 + keys, timeout(&argv[1])?)
        }
        "bzmpop" => {
            let keys = ManyPop::parse(&argv[2..])?.keys.len();
            (3..3 + keys, timeout(&argv[1])?)
        }
        "blmove" => {
            End::parse(&argv[3])?;
            End::parse(&argv[4])?;
            (1..2, timeout(&argv[last])?)
        }
        "brpoplpush" => (1..2, timeout(&argv[last])?),
        _ => (1..last, timeout(&argv[last])?),
    })
}

async fn pop_of_lists(tx: &mut Tx, args: &[Blob], end: End) -> Outcome {
    let (last, names) = args.split_last().unwrap_or((&args[0], &[]));
    argument!(timeout(last));
    let popped = found!(lists::pop_first(tx, names, end, 1));
    Ok(popped.map_or(Reply::NilArray, |(name, elements)| {
        let elements = elements.into_iter().map(Reply::Bulk);
        Reply::Array(std::iter::once(Reply::Bulk(name)).chain(elements).collect())
    }))
}

/// BLPOP key [key ...] timeout
pub async fn blpop(tx: &mut Tx, args: &[Blob]) -> Outcome {
    pop_of_lists(tx, args, End::Left).await
}

/// BRPOP key [key ...] timeout
pub async fn brpop(tx: &mut Tx, args: &[Blob]) -> Outcome {
    pop_of_lists(tx, args, End::Right).await
}

/// BLMOVE source destination LEFT | RIGHT LEFT | RIGHT timeout
pub async fn blmove(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let from = argument!(End::parse(&args[2]));
    let to = argument!(End::parse(&args[3]));
    argument!(timeout(&args[4]));
    let moved = found!(lists::move_element(tx, [&args[0], &args[1]], from, to));
    Ok(moved.map_or(Reply::Nil, Reply::Bulk))
}

/// BRPOPLPUSH source destination timeout
pub async fn brpoplpush(tx: &mut Tx, args: &[Blob]) -> Outcome {
    argument!(timeout(&args[2]));
    let keys = [&args[0], &args[1]];
    let moved = found!(lists::move_element(tx, keys, End::Right, End::Left));
    Ok(moved.map_or(Reply::Nil, Reply::Bulk))
}

/// BLMPOP timeout numkeys key [key ...] LEFT | RIGHT [COUNT count]
pub async fn blmpop(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let wanted = argument!(PopFirst::parse(&args[1..]));
    argument!(timeout(&args[0]));
    lists::pop_many(tx, &wanted).await
}

async fn pop_of_sorted_sets(tx: &mut Tx, args: &[Blob], end: pop::End) -> Outcome {
    let (last, keys) = args.split_last().unwrap_or((&args[0], &[]));
    argument!(timeout(last));
    let Some(popped) = found!(pop::pop(tx, keys, end, 1)) else {
        return Ok(Reply::NilArray);
    };
    let member =
        popped.members.into_iter().flat_map(|one| [Reply::Bulk(one.member), Reply::Double(one.score)]);
    let key = std::iter::once(Reply::Bulk(popped.key));
    Ok(Reply::Array(key.chain(member).collect()))
}

/// BZPOPMIN key [key ...] timeout
pub async fn bzpopmin(tx: &mut Tx, args: &[Blob]) -> Outcome {
    pop_of_sorted_sets(tx, args, pop::End::Min).await
}

/// BZPOPMAX key [key ...] timeout
pub async fn bzpopmax(tx: &mut Tx, args: &[Blob]) -> Outcome {
    pop_of_sorted_sets(tx, args, pop::End::Max).await
}

/// BZMPOP timeout numkeys key [key ...] MIN | MAX [COUNT count]
pub async fn bzmpop(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let ManyPop { keys, end, count } = argument!(ManyPop::parse(&args[1..]));
    argument!(timeout(&args[0]));
    Ok(pop::many_reply(found!(pop::pop(tx, keys, end, count))))
}
