//! The transactions: random ones over some partitions.

use crate::draw::Draw;
use crate::oracle::Touched;
use txn::hash::{hash_bytes, mix};
use txn::key::partition_of_slot;
use txn::{
    Blob, Call, Intent, Key, Outcome, PartitionId, PartitionRoute, Partitions, Reply, Request, ScanRange,
    Space, Stop, Tx,
};

/// How many keys a partition has.
const KEYS: u64 = 4;

/// The keys of each partition.
pub(super) fn keys(partitions: u16) -> Vec<Vec<Key>> {
    let mut keys = vec![Vec::new(); usize::from(partitions)];
    for number in 0.. {
        let key = Key::new(format!("key{number}").as_bytes());
        let place = &mut keys[usize::from(partition_of_slot(key.slot(), partitions).0)];
        if place.len() < KEYS as usize {
            place.push(key);
        }
        if keys.iter().all(|keys| keys.len() == KEYS as usize) {
            return keys;
        }
    }
    keys
}

/// The partitions that the arguments of [`wander`] name.
pub(super) fn wanted(args: &[Blob]) -> Partitions {
    let bytes = args.get(1).map_or(&[][..], |blob| blob.as_bytes());
    let numbers = bytes.as_chunks().0.iter();
    numbers.map(|number| PartitionId(u16::from_le_bytes(*number))).collect()
}

/// A random transaction, which its seed decides: it reads and writes keys of its partitions, some of which
/// depend on what it has read, and answers with a digest of everything that it saw. The partitions are those
/// of its arguments; it rarely strays into another one.
pub(super) async fn wander(mut tx: Tx, call: Call) -> Outcome {
    let seed = u64::from_le_bytes(call[0].as_ref().try_into().unwrap_or_default());
    let mut draw = Draw::new(seed);
    let of = call.request().route.of();
    let all = keys(of);
    let partitions: Partitions = wanted(&call);
    let is_everywhere = partitions.len() == usize::from(of);
    // The places of a transaction differ from partition to partition; its seed must not, if it has siblings.
    let mut seen = match partitions.len() {
        1 => seed,
        _ => mix(seed ^ tx.seed()),
    };
    for _ in 0..draw.between(1, 6) {
        let place = draw.below(partitions.len() as u64) as usize;
        let strays = partitions.len() > 1 && draw.percent(2);
        let at = match strays {
            true => &all[draw.below(u64::from(of)) as usize],
            false => &all[usize::from(partitions[place].0)],
        };
        let depends = if draw.percent(40) { seen } else { draw.bits() };
        let key = &at[(depends % KEYS) as usize];
        match draw.below(if is_everywhere { 40 } else { 32 }) {
            0..8 => {
                let value = tx.get(key).await?;
                seen = mix(seen ^ hash_bytes(format!("{value:?}").as_bytes()));
            }
            8..22 => {
                let intent = draw.pick(&[Intent::Read, Intent::Update, Intent::Update]);
                let entry = tx.read(key, intent).await?.entry;
                seen = mix(seen ^ hash_bytes(format!("{entry:?}").as_bytes()));
                tx.put(key, seen.to_string().as_bytes()).await?;
            }
            22..26 => tx.put(key, seen.to_string().as_bytes()).await?,
            26..29 => tx.delete(key).await?,
            29..32 => {
                if seen % 5 == 0 {
                    return Err(Stop::abort(format!("enough: {seen}")));
                }
            }
            32..35 => seen = mix(seen ^ tx.count().await?),
            35..38 => {
                let range = ScanRange::of(Space::User, seen, draw.between(1, 9) as usize);
                // Pages end where a partition's does; what there is in all of them does not depend on it.
                let mut next = Some(range.from_hash);
                while let Some(from_hash) = next {
                    let page = tx.scan(ScanRange { from_hash, ..range }).await?;
                    for (key, entry) in &page.entries {
                        let text = format!("{key:?} {:?}", entry.value);
                        seen = mix(seen ^ hash_bytes(text.as_bytes()));
                    }
                    next = page.next_hash;
                }
            }
            _ => tx.clear().await?,
        }
    }
    Ok(Reply::bulk(seen.to_string().as_bytes()))
}

/// Whether a transaction has named all that it touches.
pub(super) fn is_declared(request: &Request, touched: &Touched) -> bool {
    let PartitionRoute { partitions, slots, .. } = &request.route;
    let is_here = |key: &Key| partitions.contains(&slots.partition_of_key(key));
    let mut keys = touched.reads.iter().chain(&touched.writes);
    if partitions.len() > 1 && !keys.all(is_here) {
        return false;
    }
    let Some(sets) = request.footprint.certain_keys() else {
        return true;
    };
    let mut reads = touched.reads.iter();
    let mut writes = touched.writes.iter();
    !touched.everything
        && reads.all(|key| sets.reads.contains(key) || sets.writes.contains(key))
        && writes.all(|key| sets.writes.contains(key))
}
