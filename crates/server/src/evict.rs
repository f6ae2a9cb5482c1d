//! Eviction: above `maxmemory` entries go, those first that the policy names.
//!
//! What is used differs from replica to replica, so nothing of this is decided inside a transaction. A node
//! that is above its limit looks for victims in the partitions that it leads, and orders their deletion
//! (`redis.evict`), which all replicas execute. A victim that was written between the look and its deletion
//! stays. A replica's memory is the affair of its leaders: give all nodes of a cluster the same limit.
//!
//! Memory does not come back at once: a value goes when no snapshot needs its version any more (a checkpoint
//! that is being written does), and its record only when its tombstone is behind the horizon
//! ([`store::TOMBSTONE_HORIZON`]). Whoever looked at the allocator alone would evict on and on meanwhile. So
//! what is on its way back counts as back, and is collected by name when it can be. A node may have more than
//! its limit by what was evicted while a checkpoint is written, and by what 65,536 transactions leave of what
//! they evicted: some 12 MB while each transaction evicts one small entry, and up to 32 times as much while
//! transactions are made of the commands of pipelines.
//!
//! While too much is used, commands that may take memory wait; as in Redis they are refused only if nothing
//! can go any more. Redis looks at five random keys for each victim; here about one in [`PICKY`] of those
//! goes that are looked at.

use crate::config::Config;
use crate::memory::used_bytes;
use crate::runtime::{Port, Refused, Routing, Runtime};
use crate::shared::{MemoryState, Shared};
use redis_surface::EvictProcedure;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{Candidate, Keeping, SHARDS, TOMBSTONE_HORIZON, View};
use txn::hash::mix;
use txn::{
    Args, Key, Outcome, PartitionId, PartitionRoute, Position, Procedure, Reply, Request, RequestId,
    SessionId,
};

/// Between two looks while there is a limit that evicts.
const PAUSE: Duration = Duration::from_millis(5);
/// While there is none, or nothing to evict.
const LONG_PAUSE: Duration = Duration::from_millis(100);
/// How many are evicted by one transaction, at most: while it is on its way it takes memory itself.
const VICTIMS_MAX: usize = 64;
/// This share (1 / it) of the limit is no room for old versions.
const HISTORY_SHARE: u64 = 16;
/// Where nothing may be evicted, so many records are looked through in each partition for what nobody needs
/// any more.
const COLLECTED: usize = 256 << 10;
/// Beyond what is too much this share (1 / it) of the limit is evicted.
const MARGIN_SHARE: u64 = 256;
/// But not more bytes than this.
const MARGIN_MAX: u64 = 4 << 20;
/// Records that are looked at in a shard, at most.
const LOOKED_AT_OF_SHARD: usize = 128;
/// Records that may go and are looked at for one transaction, at most, and at least if there are so many.
const LOOKED_AT_MAX: usize = 512;
const LOOKED_AT_MIN: usize = 64;
/// Of what is looked at, one byte in so many goes.
const PICKY: u64 = 8;
/// What a tombstone keeps of an entry beside its key's own heap: the record, its place in the index, and its
/// key among what is owed.
const TOMBSTONE_BYTES: u64 = 176;

/// The `maxmemory-policy` under which nothing goes.
pub const NO_EVICTION: &str = "noeviction";
/// Values of `maxmemory-policy`.
pub static POLICIES: &[&str] = &[
    NO_EVICTION,
    "allkeys-lru",
    "volatile-lru",
    "allkeys-lfu",
    "volatile-lfu",
    "allkeys-random",
    "volatile-random",
    "volatile-ttl",
];

/// By what victims are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The least used first.
    Usage,
    /// Any.
    Random,
    /// Those first that expire next.
    Expiry,
}

/// What `maxmemory-policy` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy {
    order: Order,
    /// Only entries with a time to live.
    volatile: bool,
    /// What is kept for it.
    keeping: Keeping,
}

impl Policy {
    /// The policy in force: none without a limit.
    fn of(config: &Config) -> Option<Policy> {
        let (keys, order) = config.maxmemory_policy.split_once('-')?;
        let (order, keeping) = match order {
            "lru" => (Order::Usage, Keeping::Recency),
            "lfu" => {
                let keeping = Keeping::Frequency {
                    log_factor: config.lfu_log_factor as u8,
                    decay_minutes: config.lfu_decay_time as u16,
                };
                (Order::Usage, keeping)
            }
            "random" => (Order::Random, Keeping::Nothing),
            _ => (Order::Expiry, Keeping::Nothing),
        };
        (config.maxmemory > 0).then_some(Policy { order, volatile: keys == "volatile", keeping })
    }

    /// How good a victim a candidate is: the higher, the better. `None`: it stays.
    fn merit(self, candidate: &Candidate, now_ms: u64) -> Option<u64> {
        let expires_at_ms = candidate.expires_at_ms;
        if expires_at_ms != 0 && expires_at_ms <= now_ms {
            return Some(u64::MAX);
        }
        if self.volatile && expires_at_ms == 0 {
            return None;
        }
        Some(match self.order {
            Order::Usage => candidate.idleness,
            Order::Random => 0,
            Order::Expiry => u64::MAX - expires_at_ms,
        })
    }
}

/// What comes back when an entry goes: of its value soon, of its record when its tombstone goes.
fn bytes_of(candidate: &Candidate) -> (u64, u64) {
    let record = TOMBSTONE_BYTES + candidate.key.heap_bytes() as u64;
    (candidate.value_bytes as u64, record)
}

/// What is on its way back, by partition.
#[derive(Debug, Default)]
struct Owed {
    of: BTreeMap<PartitionId, OwedBy>,
    sum: u64,
}

/// What is on its way back from a partition.
#[derive(Debug, Default)]
struct OwedBy {
    /// In the order of their positions.
    evicted: VecDeque<Evicted>,
    /// Of so many of them, from the first, the values are back.
    without_values: usize,
}

/// What one transaction has evicted.
#[derive(Debug)]
struct Evicted {
    /// No earlier than its position.
    at: Position,
    keys: Vec<Key>,
    /// What their values take, as long as they are not collected.
    values: u64,
    /// What their tombstones take.
    tombstones: u64,
}

impl Evicted {
    fn collect(&self, view: &dyn View) {
        view.collect_keys(&mut self.keys.iter().cloned());
    }
}

impl Owed {
    fn add(&mut self, partition: PartitionId, evicted: Evicted) {
        self.sum += evicted.values + evicted.tombstones;
        let owed = self.of.entry(partition).or_default();
        owed.evicted.push_back(evicted);
    }

    /// Collects what nobody needs any more, and forgets it; `view_of` gives a partition's records, if this
    /// node still looks after them.
    fn settle<'a>(&mut self, view_of: impl Fn(PartitionId) -> Option<&'a dyn View>) {
        let mut back = 0;
        self.of.retain(|&partition, owed| {
            let Some(view) = view_of(partition) else {
                let all = owed.evicted.iter();
                back += all.map(|evicted| evicted.values + evicted.tombstones).sum::<u64>();
                return false;
            };
            let watermark = view.watermark();
            for evicted in owed.evicted.range_mut(owed.without_values..) {
                if evicted.at > watermark {
                    break;
                }
                evicted.collect(view);
                back += std::mem::take(&mut evicted.values);
                owed.without_values += 1;
            }
            while owed.without_values > 0
                && let Some(evicted) = owed.evicted.front()
                && evicted.at.0 + TOMBSTONE_HORIZON <= watermark.0
            {
                evicted.collect(view);
                back += evicted.tombstones;
                owed.evicted.pop_front();
                owed.without_values -= 1;
            }
            true
        });
        self.sum -= back;
    }
}

/// What is to go of a partition.
#[derive(Debug, Default)]
struct Choice {
    victims: Vec<(Candidate, u64)>,
    /// What comes back when they go: of values, and of records.
    bytes: (u64, u64),
}

impl Choice {
    /// Chooses entries of about so many bytes among those of some shards, from where `seed` says. Nobody
    /// means that there is none that may go.
    fn of(view: &dyn View, policy: Policy, bytes: u64, seed: u64, now_ms: u64) -> Choice {
        let mut choice = Choice::default();
        let mut sum = 0;
        for turn in 0..SHARDS {
            let candidates =
                view.candidates(seed as usize % SHARDS + turn, (seed >> 32) as usize, LOOKED_AT_OF_SHARD);
            for candidate in candidates {
                let Some(merit) = policy.merit(&candidate, now_ms) else {
                    continue;
                };
                let (value, record) = bytes_of(&candidate);
                sum += value + record;
                choice.victims.push((candidate, merit));
            }
            let seen = choice.victims.len();
            if seen >= LOOKED_AT_MAX || seen >= LOOKED_AT_MIN && sum / PICKY >= bytes {
                break;
            }
        }
        // Stable: what is equal stays in the order of the table, which is as good as any.
        choice.victims.sort_by_key(|&(_, merit)| std::cmp::Reverse(merit));
        let mut sum = 0;
        let wanted = choice.victims.iter().take(VICTIMS_MAX).take_while(|(candidate, _)| {
            let is_wanted = sum < bytes;
            let (value, record) = bytes_of(candidate);
            sum += value + record;
            is_wanted
        });
        let count = wanted.count();
        choice.victims.truncate(count);
        for (candidate, _) in &choice.victims {
            let (value, record) = bytes_of(candidate);
            choice.bytes.0 += value;
            choice.bytes.1 += record;
        }
        choice
    }

    fn to_args(&self) -> Args {
        let victims = self.victims.iter();
        victims.flat_map(|(candidate, _)| EvictProcedure::words(&candidate.key, candidate.version)).collect()
    }
}

/// Keeps a node below its limit, in a thread of its own.
pub struct Evictor {
    shared: Arc<Shared>,
    port: Port,
    session: SessionId,
    sequence: u64,
    seed: u64,
    kept: Keeping,
    owed: Owed,
    past: RoomForPast,
}

/// What the past has to leave, for memory.
///
/// Above `maxmemory` less a share of it ([`HISTORY_SHARE`]) the older half of the past goes. What that has
/// freed shows only when all records were looked through, so the next half goes no sooner. Where less than a
/// second is left, the past ends, and begins anew when there is room for it: a store that lives at its limit
/// pays nothing for a past that it cannot have.
#[derive(Debug, Default)]
struct RoomForPast {
    /// There is no room for a past.
    is_none: bool,
    /// Everything that went has been collected when so many shards were swept.
    sweeps_upto: usize,
}

impl RoomForPast {
    /// Looks at the bytes that are in use. `swept` is the number of shards that were swept so far, and
    /// `shorten` gives up half of the past, and tells how many milliseconds of it are left. Whether there is
    /// something to be collected.
    fn look(&mut self, maxmemory: u64, used: u64, swept: usize, shorten: impl FnOnce() -> u64) -> bool {
        let share = maxmemory / HISTORY_SHARE;
        if maxmemory == 0 || used <= maxmemory - share {
            // Not where it would end again at once.
            self.is_none &= maxmemory > 0 && used > maxmemory - 2 * share;
            return false;
        }
        if swept < self.sweeps_upto {
            return true;
        }
        if self.is_none {
            return false;
        }
        self.is_none = shorten() == 0;
        self.sweeps_upto = swept + SHARDS;
        true
    }
}

impl Evictor {
    /// For a server. `port` wakes the thread that runs it.
    pub fn new(shared: Arc<Shared>, port: Port) -> Evictor {
        let session = port.session();
        Evictor {
            shared,
            session,
            port,
            sequence: 0,
            seed: session.0,
            kept: Keeping::Nothing,
            owed: Owed::default(),
            past: RoomForPast::default(),
        }
    }

    /// Runs until the server stops.
    pub fn run(mut self) {
        while !self.shared.stopping() {
            let config = self.shared.settings.now();
            let pause = self.look(&config);
            std::thread::park_timeout(pause);
        }
    }

    /// Looks once, and evicts what is too much. Returns how long nothing has to be done.
    fn look(&mut self, config: &Config) -> Duration {
        self.keep_history(config);
        let policy = Policy::of(config);
        self.keep_usage(policy.map_or(Keeping::Nothing, |policy| policy.keeping));
        let runtime = self.shared.runtime.clone();
        let Some(policy) = policy else {
            self.owed = Owed::default();
            if config.maxmemory > 0 && used_bytes() > config.maxmemory {
                runtime.collect(COLLECTED);
                self.shared.look_at_memory();
            }
            // The past makes room in time, or writes are refused for it.
            return if config.history_seconds > 0 { PAUSE } else { LONG_PAUSE };
        };
        let led = runtime.led();
        self.owed.settle(|partition| {
            let found = led.iter().find(|(led, _)| *led == partition);
            found.map(|(_, view)| *view)
        });
        let used = used_bytes().saturating_sub(self.owed.sum);
        if used <= config.maxmemory || led.is_empty() {
            self.shared.memory_found(config, MemoryState::Ample);
            return PAUSE;
        }
        // A little more than what is too much: transactions of a few victims each would take longer than what
        // they make room for.
        let more = (config.maxmemory / MARGIN_SHARE).min(MARGIN_MAX);
        let excess = used - config.maxmemory + more;
        match self.evict(&runtime, &led, policy, excess) {
            Ok(true) => {
                // Writers go on as soon as there is room again.
                if used_bytes().saturating_sub(self.owed.sum) <= config.maxmemory {
                    self.shared.memory_found(config, MemoryState::Ample);
                    return PAUSE;
                }
                self.shared.memory_found(config, MemoryState::Evicting);
                Duration::ZERO
            }
            Ok(false) => {
                // What was deleted or flushed may still be there.
                runtime.collect(COLLECTED);
                let is_short = used_bytes().saturating_sub(self.owed.sum) > config.maxmemory;
                let state = match is_short {
                    true => MemoryState::Short,
                    false => MemoryState::Ample,
                };
                self.shared.memory_found(config, state);
                LONG_PAUSE
            }
            // The node stops, or does not take writes: who waits for room goes on, and is told why.
            Err(_) => {
                self.shared.memory_found(config, MemoryState::Ample);
                LONG_PAUSE
            }
        }
    }

    /// Keeps the past that is wanted, as far as there is room: before an entry goes, or a write is refused,
    /// the past does.
    fn keep_history(&mut self, config: &Config) {
        let runtime = &self.shared.runtime;
        if config.history_seconds == 0 || !runtime.has_past() {
            self.past = RoomForPast::default();
            return runtime.set_history_ms(0);
        }
        let shorten = || runtime.shorten_history();
        if self.past.look(config.maxmemory, used_bytes(), runtime.swept(), shorten) {
            runtime.collect(COLLECTED);
        }
        let wanted_ms = config.history_seconds * 1000;
        runtime.set_history_ms(if self.past.is_none { 0 } else { wanted_ms });
    }

    fn keep_usage(&mut self, keeping: Keeping) {
        if keeping == Keeping::Nothing && self.kept == keeping {
            return;
        }
        let runtime = &self.shared.runtime;
        runtime.keep_usage(keeping, runtime.now_ms());
        self.kept = keeping;
    }

    /// Evicts so many bytes of the partitions that this node leads, about evenly. Whether anything could go.
    fn evict(
        &mut self,
        runtime: &Runtime,
        led: &[(PartitionId, &dyn View)],
        policy: Policy,
        excess: u64,
    ) -> Result<bool, Refused> {
        let share = excess.div_ceil(led.len() as u64);
        let mut routing = Routing::alone();
        if runtime.partitions_count() > 1 {
            runtime.refresh_routing(&mut routing);
        }
        let mut requests = Vec::new();
        let mut choices = BTreeMap::new();
        for &(partition, view) in led {
            self.seed = mix(self.seed);
            let choice = Choice::of(view, policy, share, self.seed, runtime.epoch_ms());
            if choice.victims.is_empty() {
                continue;
            }
            self.sequence += 1;
            let args = choice.to_args();
            requests.push(Arc::new(Request {
                id: RequestId { session: self.session, sequence: self.sequence, attempt: 0 },
                slots_version: routing.version,
                footprint: EvictProcedure.footprint(&args),
                procedure: Arc::new(EvictProcedure),
                args,
                route: PartitionRoute::single(partition),
                elsewhere: false,
            }));
            choices.insert(self.sequence, (partition, view, choice));
        }
        let any = !requests.is_empty();
        let is_over = || self.shared.stopping();
        for (id, outcome) in runtime.ask(&self.port, requests, is_over)? {
            let Some((partition, view, choice)) = choices.remove(&id.sequence) else {
                continue;
            };
            let evicted = evicted(&outcome);
            self.shared.evicted.fetch_add(evicted, Ordering::Relaxed);
            // Some may have been written meanwhile.
            let part = |bytes: u64| bytes * evicted / choice.victims.len() as u64;
            let (values, tombstones) = (part(choice.bytes.0), part(choice.bytes.1));
            // Not collected in place, which would keep the room that the values took.
            let mut keys = Vec::with_capacity(choice.victims.len());
            keys.extend(choice.victims.into_iter().map(|(victim, _)| victim.key));
            let evicted = Evicted { at: view.final_position(), keys, values, tombstones };
            self.owed.add(partition, evicted);
        }
        Ok(any)
    }
}

/// How many entries went. What was not executed (slots moved, say) comes again by itself, with other victims.
fn evicted(outcome: &Outcome) -> u64 {
    match outcome {
        Ok(Reply::Integer(count)) => u64::try_from(*count).unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Final, Image, Partition};
    use txn::{Entry, Key};

    fn store_of(entries: impl Iterator<Item = (String, Entry)>) -> Partition<()> {
        let store = Partition::new();
        let mut position = 0;
        for (key, entry) in entries {
            position += 1;
            store.load(Image {
                key: Key::from(key.as_str()),
                version: Position(position),
                entry: Some(entry),
            });
        }
        store.publish(Final { position: Position(position), time_ms: 0, live: position as i64 });
        store
    }

    fn policy(name: &str) -> Policy {
        let mut config = Config::default();
        config.maxmemory_policy = name.to_owned();
        assert_eq!(Policy::of(&config), None, "there is no limit");
        config.maxmemory = 1;
        Policy::of(&config).expect("a policy")
    }

    #[test]
    fn half_of_the_past_goes_at_a_time_and_none_is_kept_where_there_is_no_room() {
        let mut past = RoomForPast::default();
        let mut shortened = 0;
        let mut look = |used, swept, left_ms| {
            let is_to_collect = past.look(1_600, used, swept, || {
                shortened += 1;
                left_ms
            });
            (is_to_collect, past.is_none, std::mem::take(&mut shortened))
        };
        assert_eq!(look(1_500, 7, 4_000), (false, false, 0));
        assert_eq!(look(1_501, 7, 4_000), (true, false, 1));
        // Not before all records were looked through, however much is used.
        assert_eq!(look(1_501, 8, 2_000), (true, false, 0));
        assert_eq!(look(1_700, SHARDS + 6, 2_000), (true, false, 0));
        assert_eq!(look(1_501, SHARDS + 7, 2_000), (true, false, 1));
        assert_eq!(look(1_500, SHARDS + 8, 2_000), (false, false, 0));
        // Nothing is left, and not enough has come back.
        assert_eq!(look(1_501, 3 * SHARDS, 0), (true, true, 1));
        assert_eq!(look(1_501, 4 * SHARDS - 1, 0), (true, true, 0));
        assert_eq!(look(1_700, 4 * SHARDS, 0), (false, true, 0));
        assert_eq!(look(1_450, 4 * SHARDS, 0), (false, true, 0));
        assert_eq!(look(1_400, 4 * SHARDS, 0), (false, false, 0));
        // Without a limit there is room.
        assert_eq!(look(1_501, 5 * SHARDS, 0), (true, true, 1));
        assert!(!past.look(0, 1_501, 6 * SHARDS, || 0) && !past.is_none);
    }

    #[test]
    fn the_least_used_go_first() {
        for name in ["allkeys-lru", "allkeys-lfu"] {
            let policy = policy(name);
            let store = store_of((0..20_000).map(|n| (format!("k{n}"), Entry::new("x"))));
            store.keep_usage(policy.keeping, 1_000_000);
            for n in 0..10_000 {
                store.get(&Key::from(format!("k{n}").as_str()));
            }
            store.keep_usage(policy.keeping, 2_000_000);
            for _ in 0..20 {
                for n in 0..10_000 {
                    store.get(&Key::from(format!("k{n}").as_str()));
                }
            }
            let choice = Choice::of(&store, policy, 50 * TOMBSTONE_BYTES, 7, 0);
            let count = choice.victims.len();
            assert_eq!(count, 50);
            let is_used = |key: &Key| {
                let number: usize = String::from_utf8_lossy(&key.as_bytes()[1..]).parse().expect("a number");
                number < 10_000
            };
            let wrong = choice.victims.iter().filter(|(victim, _)| is_used(&victim.key));
            assert_eq!(wrong.count(), 0, "{name}");
        }
    }

    #[test]
    fn only_what_has_a_time_to_live_goes_and_what_ends_next_first() {
        let entry = |n: u64| Entry {
            expires_at_ms: match n % 100 {
                0 => 10_000 + n,
                _ => 0,
            },
            ..Entry::new("x")
        };
        let store = store_of((0..10_000).map(|n| (format!("k{n}"), entry(n))));
        for name in ["volatile-ttl", "volatile-random", "volatile-lru"] {
            let choice = Choice::of(&store, policy(name), 10 * TOMBSTONE_BYTES, 7, 0);
            assert_eq!(choice.victims.len(), 10, "{name}");
            let has_ttl = |(victim, _): &(Candidate, u64)| victim.expires_at_ms != 0;
            assert!(choice.victims.iter().all(has_ttl), "{name}");
        }
        let all = Choice::of(&store, policy("volatile-ttl"), u64::MAX, 7, 0);
        assert_eq!(all.victims.len(), VICTIMS_MAX);
        let ends: Vec<u64> = all.victims.iter().map(|(victim, _)| victim.expires_at_ms).collect();
        assert!(ends.is_sorted(), "{ends:?}");
        let none = store_of((0..100).map(|n| (format!("k{n}"), Entry::new("x"))));
        let choice = Choice::of(&none, policy("volatile-lru"), 1000, 7, 0);
        assert!(choice.victims.is_empty());
    }

    #[test]
    fn what_is_on_its_way_back_counts_as_back_until_it_is() {
        let (one, two) = (store_of([].into_iter()), store_of([].into_iter()));
        let at = |store: &Partition<()>, position| {
            store.publish(Final { position: Position(position), time_ms: 0, live: 0 })
        };
        let key = Key::from("gone");
        one.load(Image { key: key.clone(), version: Position(10), entry: None });
        let mut owed = Owed::default();
        let evicted = |position, values, tombstones| Evicted {
            at: Position(position),
            keys: vec![key.clone()],
            values,
            tombstones,
        };
        owed.add(PartitionId(0), evicted(10, 1000, 20));
        owed.add(PartitionId(1), evicted(50, 400, 3));
        // A checkpoint is being written.
        let snapshot = two.open();
        at(&one, 60);
        at(&two, 60);
        let both = |partition| -> Option<&dyn View> {
            Some(match partition {
                PartitionId(0) => &one,
                _ => &two,
            })
        };
        owed.settle(both);
        assert_eq!((owed.sum, one.census().records), (423, 1));
        two.close(snapshot);
        owed.settle(both);
        assert_eq!((owed.sum, one.census().records), (23, 1));
        at(&one, 10 + TOMBSTONE_HORIZON);
        owed.settle(both);
        assert_eq!((owed.sum, one.census().records), (3, 0));
        owed.settle(|partition| both(partition).filter(|_| partition == PartitionId(0)));
        assert_eq!(owed.sum, 0, "what is led elsewhere is not looked at any more");
    }
}
