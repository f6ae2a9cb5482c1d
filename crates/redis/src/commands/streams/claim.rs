//! Taking over what other consumers have pending.

use super::{entry_reply, id, id_reply, no_group, start};
use crate::commands::collections::{find, put};
use crate::commands::options;
use crate::commands::strings::{argument, found};
use crate::work;
use crate::{errors, parse};
use std::sync::Arc;
use txn::value::{Pending, StreamId, StreamValue};
use txn::{Blob, Intent, Key, Note, Outcome, Reply, Tx};

/// The options of XCLAIM.
struct Claim {
    ids: Vec<StreamId>,
    force: bool,
    just_id: bool,
    delivered_ms: u64,
    deliveries: Option<u64>,
    last_id: StreamId,
}

fn number(text: &Blob, what: &str) -> Result<i64, Reply> {
    parse::integer(text).ok_or_else(|| Reply::error_owned(format!("ERR Invalid {what} argument for XCLAIM")))
}

impl Claim {
    fn parse(words: &[Blob], now_ms: u64, clock_offset_ms: i64) -> Result<Claim, Reply> {
        let ids: Vec<StreamId> = words.iter().map_while(|word| id(word, 0).ok()).collect();
        let mut rest = &words[ids.len()..];
        let mut claim = Claim {
            ids,
            force: false,
            just_id: false,
            delivered_ms: now_ms,
            deliveries: None,
            last_id: StreamId::MIN,
        };
        // Nonsense is now: clients may count from a clock of their own.
        let past = |date_ms: i64| {
            let ms = u64::try_from(date_ms).ok()?.checked_add_signed(clock_offset_ms);
            ms.filter(|&ms| ms <= now_ms)
        };
        loop {
            rest = match rest {
                [] => return Ok(claim),
                [word, rest @ ..] if options::is(word, "FORCE") => {
                    claim.force = true;
                    rest
                }
                [word, rest @ ..] if options::is(word, "JUSTID") => {
                    claim.just_id = true;
                    rest
                }
                [word, value, rest @ ..] if options::is(word, "IDLE") => {
                    let idle_ms = number(value, "IDLE option")?;
                    let delivered_ms = now_ms.checked_sub_signed(idle_ms);
                    claim.delivered_ms = delivered_ms.filter(|&ms| ms <= now_ms).unwrap_or(now_ms);
                    rest
                }
                [word, value, rest @ ..] if options::is(word, "TIME") => {
                    let delivered_ms = number(value, "TIME option")?;
                    claim.delivered_ms = past(delivered_ms).unwrap_or(now_ms);
                    rest
                }
                [word, value, rest @ ..] if options::is(word, "RETRYCOUNT") => {
                    claim.deliveries = u64::try_from(number(value, "RETRYCOUNT option")?).ok();
                    rest
                }
                [word, value, rest @ ..] if options::is(word, "LASTID") => {
                    claim.last_id = id(value, 0)?;
                    rest
                }
                [word, ..] => {
                    return Err(Reply::error_owned(format!(
                        "ERR Unrecognized XCLAIM option '{}'",
                        String::from_utf8_lossy(word)
                    )));
                }
            };
        }
    }
}

/// What of a pending entry becomes of it when it is claimed.
struct Terms<'a> {
    consumer: &'a Blob,
    now_ms: u64,
    least_idle_ms: u64,
    delivered_ms: u64,
    /// Instead of one more.
    deliveries: Option<u64>,
    just_id: bool,
}

impl Terms<'_> {
    /// Gives an entry of the stream to the consumer, if it has been idle for long enough; the reply for it.
    fn claim(
        &self,
        stream: &mut StreamValue,
        group: &Blob,
        pending: Option<Pending>,
        id: StreamId,
    ) -> Option<Reply> {
        let idle_ms = |pending: &Pending| self.now_ms.saturating_sub(pending.delivered_ms);
        if pending.as_ref().is_some_and(|pending| idle_ms(pending) < self.least_idle_ms) {
            return None;
        }
        // One that FORCE makes has been delivered once already.
        let before = pending.map_or(1, |pending| pending.deliveries);
        let deliveries = self.deliveries.unwrap_or(before + u64::from(!self.just_id));
        stream.update_group(group, |group| {
            group.activate(self.consumer, self.now_ms);
            group.give(Pending {
                id,
                consumer: self.consumer.clone(),
                delivered_ms: self.delivered_ms,
                deliveries,
            });
        });
        match self.just_id {
            true => Some(id_reply(id)),
            false => stream.get(id).map(entry_reply),
        }
    }
}

/// Others are told of a consumer that the new version of a stream has and the old one has not.
fn note_new_consumer(tx: &Tx, [old, new]: [&StreamValue; 2], group: &Blob, consumer: &Blob) {
    let is_there =
        |stream: &StreamValue| stream.group(group).is_some_and(|group| group.consumer(consumer).is_some());
    if is_there(new) && !is_there(old) {
        tx.note(|| Note::Named("xgroup-createconsumer".into()));
    }
}

/// XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-ms] [RETRYCOUNT count]
/// [FORCE] [JUSTID] [LASTID last-id]
pub async fn xclaim(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    let found = found!(find::<Arc<StreamValue>>(tx, &key, Intent::Update));
    let Some((old, expires_at_ms)) = found.filter(|(stream, _)| stream.group(&args[1]).is_some()) else {
        return Ok(no_group(&args[0], &args[1], ""));
    };
    let group = &args[1];
    let least_idle_ms = argument!(number(&args[3], "min-idle-time")).max(0) as u64;
    let clock_offset_ms = match args[4..].iter().any(|word| options::is(word, "TIME")) {
        true => tx.clock_offset_ms().await?,
        false => 0,
    };
    let claim = argument!(Claim::parse(&args[4..], tx.now_ms(), clock_offset_ms));
    let terms = Terms {
        consumer: &args[2],
        now_ms: tx.now_ms(),
        least_idle_ms,
        delivered_ms: claim.delivered_ms,
        deliveries: claim.deliveries,
        just_id: claim.just_id,
    };
    let mut stream = StreamValue::clone(&old);
    let changes = stream.update_group(group, |group| {
        let is_behind = group.last_id < claim.last_id;
        group.last_id = group.last_id.max(claim.last_id);
        group.see(&args[2], terms.now_ms) || is_behind
    });
    let mut changes = changes == Some(true);
    let mut replies = Vec::new();
    for id in claim.ids {
        let pending = stream.group(group).and_then(|group| group.pending_of(id));
        let pending = pending.cloned();
        if stream.get(id).is_none() {
            // It was deleted, so nobody can do anything with it.
            stream.update_group(group, |group| group.acknowledge(id));
            changes |= pending.is_some();
        } else if pending.is_some() || claim.force {
            replies.extend(terms.claim(&mut stream, group, pending, id));
        }
    }
    // Who only asked is not written down: who watches the key does not mind.
    if changes || !replies.is_empty() {
        note_new_consumer(tx, [&*old, &stream], group, &args[2]);
        put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    }
    Ok(Reply::Array(replies))
}

/// XAUTOCLAIM looks at so many entries for each that it may claim.
const LOOKS_PER_CLAIM: usize = 10;

/// XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]
pub async fn xautoclaim(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let least_idle_ms =
        parse::integer(&args[3]).ok_or(Reply::error("ERR Invalid min-idle-time argument for XAUTOCLAIM"));
    let least_idle_ms = argument!(least_idle_ms).max(0) as u64;
    let first = argument!(start(&args[4]));
    let (mut limit, mut just_id) = (100, false);
    let mut rest = &args[5..];
    while let [word, more @ ..] = rest {
        rest = match more {
            [value, more @ ..] if options::is(word, "COUNT") => {
                let wanted = parse::integer(value);
                let wanted = wanted.filter(|wanted| (1..=i64::MAX / 16).contains(wanted));
                let wanted = wanted.ok_or(Reply::error("ERR COUNT must be > 0"));
                limit = argument!(wanted) as usize;
                more
            }
            more if options::is(word, "JUSTID") => {
                just_id = true;
                more
            }
            _ => return Ok(errors::SYNTAX),
        };
    }
    let key = Key::from(&args[0]);
    let found = found!(find::<Arc<StreamValue>>(tx, &key, Intent::Update));
    let Some((old, expires_at_ms)) = found.filter(|(stream, _)| stream.group(&args[1]).is_some()) else {
        return Ok(no_group(&args[0], &args[1], ""));
    };
    let group = &args[1];
    let terms = Terms {
        consumer: &args[2],
        now_ms: tx.now_ms(),
        least_idle_ms,
        delivered_ms: tx.now_ms(),
        deliveries: None,
        just_id,
    };
    let mut stream = StreamValue::clone(&old);
    let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
    let is_new = stream.update_group(group, |group| group.see(&args[2], terms.now_ms));
    let mut looks = limit.saturating_mul(LOOKS_PER_CLAIM);
    // By the old version, which nothing of this changes.
    let pending = old.group(group).map(|group| {
        let first = group.count_pending_before(first);
        group.pending().range(first..usize::MAX)
    });
    let mut pending = pending.into_iter().flatten().peekable();
    while let Some(one) = pending.next_if(|_| looks > 0 && claimed.len() + deleted.len() < limit) {
        looks -= 1;
        work::elements(1);
        if stream.get(one.id).is_none() {
            stream.update_group(group, |group| group.acknowledge(one.id));
            deleted.push(id_reply(one.id));
        } else {
            claimed.extend(terms.claim(&mut stream, group, Some(one.clone()), one.id));
        }
    }
    let next = pending.next().map_or(StreamId::MIN, |pending| pending.id);
    if is_new == Some(true) || !claimed.is_empty() || !deleted.is_empty() {
        note_new_consumer(tx, [&*old, &stream], group, &args[2]);
        put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    }
    Ok(Reply::Array(vec![id_reply(next), Reply::Array(claimed), Reply::Array(deleted)]))
}
