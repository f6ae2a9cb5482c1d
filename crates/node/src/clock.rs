//! What time it is: the clock by which a node stamps batches, judges deadlines and shows the time of day.
//!
//! # Three times
//!
//! - The *steady* time is what a process's own monotonic clock counts. It knows no date, and nobody can set
//!   it. All of a node's inputs carry it (`now_ms`).
//! - The *wall* time is what the machine's clock shows. Operators, time services and virtual machines set it,
//!   forwards and backwards. A node hears its own with every tick, and the others' with their frames.
//! - The *epoch time* is what batches are stamped with. Deadlines of entries are epoch times. A node knows it
//!   as a distance from its steady time, the *lead*.
//!
//! The time of day that clients see is the epoch time less an ordered offset ([`txn::clock`]).
//!
//! # What a node does
//!
//! 1. **Epoch time runs with the steady time.** A step of any wall clock moves no stamp. A node whose epoch
//!    time is behind that of an epoch in its log, or behind what the epoch times of a majority have reached,
//!    goes on from there.
//! 2. **It is slewed toward the wall clocks.** If the clocks of a majority agree with each other (within
//!    `bound_ms`), and show nearly the time of day that the node knows (within `bound_ms`), the lead moves
//!    toward theirs by at most one part in 1,000 ([`SLEW_PER`]). Time services discipline wall clocks; steady
//!    clocks differ by less than a tenth of that rate, so the slew is enough to follow real time forever, and
//!    changes a time to live by a thousandth at most.
//! 3. **A larger difference changes the date, not the epoch time.** If a majority's clocks agree with each
//!    other on a time of day that is further away, and do so for [`CORRECT_AFTER_MS`], the leader of
//!    partition 0 orders another offset ([`Clock::take_correction`]). The group cannot know whether its
//!    majority is right. It need not: dates follow the majority, and times to live follow the steady clocks.
//! 4. **A node that starts knows no epoch time**, since its steady clock did not run while it was down. Until
//!    it knows it, it makes no batch ([`Clock::is_set`]), so nothing is ever stamped with a time that a later
//!    stamp would jump away from. It takes the epoch time from a node that has one. If no node of its groups
//!    has one, the cluster has been down, and only wall clocks know for how long: the epoch time then is what
//!    the clocks of a majority *have reached* (so a minority of clocks that are ahead changes nothing), plus
//!    the offset, and never less than the end of the log. The offset is that of the end of the order, so a
//!    node that has not executed all that was agreed waits, and one that leads no group waits for the time of
//!    one that does: a leader has all that was agreed. (If none says anything for [`LEADER_MS`], it goes by
//!    what it has.) A node that hears a majority but not all waits for [`GRACE_MS`]: somebody who knows the
//!    epoch time may be about to be heard.
//!
//! A node by itself is its own majority: a step of its clock does not move its epoch time, and moves its
//! dates after [`CORRECT_AFTER_MS`]. When it starts, its own clock is all there is, and is believed.
//!
//! # What is not known
//!
//! * A majority of wall clocks that are wrong *while a whole cluster starts* are believed: an hour ahead, and
//!   times to live are an hour shorter. The same holds for a single node that starts.
//! * The rate of the steady clock is trusted. The time for which a virtual machine stands still may be
//!   missing in it; other nodes make up for that (rule 1), and for a node by itself times to live grow by as
//!   much.
//!
//! # Invariants
//!
//! 1. Once set, the epoch time of a process never goes back, and between two readings it grows by no more
//!    than the steady time between them and one part in [`SLEW_PER`] of that, or up to what other nodes have
//!    stamped or a majority has reached.
//! 2. The epoch time that a node starts with is not before the end of its log.

use txn::NodeId;
use txn::mutant::{Mutant, is_active};

/// The lead moves by at most one part in so many of the time that passes.
pub const SLEW_PER: i64 = 1_000;
/// A majority's clocks must show another time of day for so long before the date is corrected.
pub const CORRECT_AFTER_MS: u64 = 10_000;
/// A node that starts and hears a majority, but not all, waits for so long for somebody who knows the epoch
/// time.
pub const GRACE_MS: u64 = 1_000;
/// A node that starts, hears a majority, and leads no group waits for so long for the time of one that does.
pub const LEADER_MS: u64 = 10_000;
/// By how much a clock may be off before it counts as wrong, unless told otherwise.
pub const BOUND_MS: u64 = 500;
/// A clock that is so far ahead of the log's end at the start of a node is worth a word, however long the
/// node was down.
const LONG_DOWN_MS: i64 = 30 * 24 * 3_600_000;

/// What a node knows of the clocks of its groups at a tick. All times are distances from its steady time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// What the wall clocks of a majority show at least.
    pub reached_ms: Option<i64>,
    /// What the wall clocks of a majority show that agree with each other.
    pub agreed_ms: Option<i64>,
    /// What the epoch times of a majority have reached.
    pub epoch_ms: Option<i64>,
    /// The lowest epoch time of another node that has one.
    pub known_ms: Option<i64>,
    /// All others were heard, and none of them has an epoch time.
    pub none_knows: bool,
    /// The node has not executed all that it knows to be agreed: the offset that it knows may be an old one.
    pub replays: bool,
    /// It leads no group, and so others may know of more that was agreed.
    pub follows: bool,
    /// The wall clocks of the others.
    pub others: Vec<(NodeId, i64)>,
}

/// What a majority of `of` has reached, by what is known of some.
pub fn reached(mut leads: Vec<i64>, of: usize) -> Option<i64> {
    leads.sort_unstable_by(|a, b| b.cmp(a));
    leads.get(of / 2).copied()
}

/// What a majority of `of` agrees on within a bound, by what is known of some: the middle of those that are
/// the closest together.
pub fn agreed(mut leads: Vec<i64>, of: usize, bound_ms: i64) -> Option<i64> {
    leads.sort_unstable();
    let majority = of / 2 + 1;
    let spread = |near: &&[i64]| near[majority - 1].saturating_sub(near[0]);
    let near = leads.windows(majority).min_by_key(spread)?;
    (spread(&near) <= bound_ms).then(|| near[(majority - 1) / 2])
}

/// What an operator is told of a node's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockStatus {
    /// Whether the epoch time is known.
    pub is_set: bool,
    /// How far this machine's clock is ahead of the time of day that the node knows.
    pub ahead_ms: i64,
    /// Whether that is more than a right clock may be.
    pub is_wrong: bool,
    /// The epoch time less the time of day.
    pub offset_ms: i64,
}

/// A node's clock. See the module's head.
#[derive(Debug)]
pub struct Clock {
    bound_ms: i64,
    /// The end of the log that the process began with.
    last_ms: u64,
    /// The epoch time less the steady time, in microseconds.
    lead_us: i64,
    is_set: bool,
    /// The steady time of the last tick.
    tick_ms: Option<u64>,
    /// What this machine's clock shows, less the steady time.
    wall_lead_ms: i64,
    /// The offset that is in force.
    offset_ms: i64,
    /// Since when a majority is heard.
    majority_since_ms: Option<u64>,
    /// Since when a majority agrees on another time of day, and on which.
    differs: Option<(u64, i64)>,
    told: Told,
}

/// What was said of clocks that are wrong.
#[derive(Debug, Default)]
struct Told {
    majority: bool,
    own: bool,
    others: Vec<NodeId>,
}

impl Clock {
    /// The clock of a process whose log ends at an epoch time.
    pub fn new(last_ms: u64, bound_ms: u64) -> Clock {
        Clock {
            bound_ms: i64::try_from(bound_ms).unwrap_or(i64::MAX),
            last_ms,
            lead_us: 0,
            is_set: false,
            tick_ms: None,
            wall_lead_ms: 0,
            offset_ms: 0,
            majority_since_ms: None,
            differs: None,
            told: Told::default(),
        }
    }

    /// Whether the epoch time is known: only then may a batch be stamped.
    pub fn is_set(&self) -> bool {
        self.is_set
    }

    /// The epoch time less the steady time.
    pub fn lead_ms(&self) -> i64 {
        self.lead_us.div_euclid(1_000)
    }

    /// The epoch time. Before it is known, the least that it can be.
    pub fn epoch_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_add_signed(self.lead_ms())
    }

    /// What a batch is stamped with.
    pub fn stamp_ms(&self, now_ms: u64) -> u64 {
        let epoch_ms = self.epoch_ms(now_ms);
        if is_active(Mutant::StampWallClock) {
            return self.wall_ms(now_ms);
        }
        if is_active(Mutant::EpochTimeGoesBack) {
            return self.wall_ms(now_ms).min(epoch_ms);
        }
        epoch_ms
    }

    /// What this machine's clock shows; 0 before the first tick.
    pub fn wall_ms(&self, now_ms: u64) -> u64 {
        match self.tick_ms {
            None => 0,
            Some(_) => now_ms.saturating_add_signed(self.wall_lead_ms),
        }
    }

    /// There is an epoch of this time.
    pub fn reach(&mut self, epoch_ms: u64, now_ms: u64) {
        if !self.is_set {
            self.last_ms = self.last_ms.max(epoch_ms);
        }
        if self.tick_ms.is_some() {
            self.raise(less(epoch_ms, now_ms));
        }
    }

    fn raise(&mut self, lead_ms: i64) {
        if lead_ms > self.lead_ms() {
            self.lead_us = lead_ms.saturating_mul(1_000);
        }
    }

    /// Time has passed. Says what an operator should know.
    pub fn tick(&mut self, now_ms: u64, wall_ms: u64, offset_ms: i64, sight: &Sight) -> Vec<String> {
        let before = self.is_set.then_some(self.lead_us);
        let elapsed_ms = match self.tick_ms.replace(now_ms) {
            Some(tick_ms) => now_ms.saturating_sub(tick_ms),
            None => {
                self.raise_to_log(now_ms);
                0
            }
        };
        self.wall_lead_ms = less(wall_ms, now_ms);
        self.offset_ms = offset_ms;
        let mut news = Vec::new();
        if !self.is_set {
            self.try_to_set(now_ms, sight, &mut news);
        }
        if self.is_set {
            if let Some(lead_ms) = sight.epoch_ms {
                self.raise(lead_ms);
            }
            if before.is_some() {
                self.slew(elapsed_ms, sight);
            }
            self.judge(now_ms, sight, &mut news);
        }
        self.check_invariants(now_ms, before, elapsed_ms);
        news
    }

    /// Those of the module's head, after a tick.
    fn check_invariants(&self, now_ms: u64, lead_before_us: Option<i64>, elapsed_ms: u64) {
        if let Some(before_us) = lead_before_us {
            let slewed_us = elapsed_ms.cast_signed() * 1_000 / SLEW_PER;
            assert!(self.lead_us >= before_us - slewed_us, "the epoch time went back");
        }
        assert!(self.epoch_ms(now_ms) >= self.last_ms, "the epoch time is before the log's end");
    }

    fn raise_to_log(&mut self, now_ms: u64) {
        self.lead_us = less(self.last_ms, now_ms).saturating_mul(1_000);
    }

    fn try_to_set(&mut self, now_ms: u64, sight: &Sight, news: &mut Vec<String>) {
        if let Some(lead_ms) = sight.known_ms {
            self.raise(lead_ms);
            self.is_set = true;
            return;
        }
        let Some(reached_ms) = sight.reached_ms else {
            self.majority_since_ms = None;
            return;
        };
        let since_ms = *self.majority_since_ms.get_or_insert(now_ms);
        let waited_ms = now_ms.saturating_sub(since_ms);
        let waits_for_others = !sight.none_knows && waited_ms < GRACE_MS;
        let waits_for_leader = sight.follows && waited_ms < LEADER_MS;
        if sight.replays || waits_for_others || waits_for_leader {
            return;
        }
        let wanted_ms = reached_ms.saturating_add(self.offset_ms);
        let ahead_ms = wanted_ms.saturating_sub(self.lead_ms());
        if self.last_ms > 0 && ahead_ms < -self.bound_ms {
            news.push(format!(
                "the clocks show a time {} before the end of the log: the times to live of keys go on from \
                 the log's end; the date will follow the clocks in {} s, unless they are set right",
                Span(-ahead_ms),
                CORRECT_AFTER_MS / 1_000
            ));
            self.told.majority = true;
        } else if self.last_ms > 0 && ahead_ms > LONG_DOWN_MS {
            news.push(format!(
                "the clocks show a time {} after the end of the log, and keys whose time to live has ended \
                 since then are gone: check the clock of this machine",
                Span(ahead_ms)
            ));
        }
        self.raise(wanted_ms);
        self.is_set = true;
    }

    /// By how much what a majority agrees on is ahead of the time of day.
    fn ahead_ms(&self, wall_lead_ms: i64) -> i64 {
        wall_lead_ms.saturating_add(self.offset_ms).saturating_sub(self.lead_ms())
    }

    fn slew(&mut self, elapsed_ms: u64, sight: &Sight) {
        let Some(agreed_ms) = sight.agreed_ms else {
            return;
        };
        let wanted_us = agreed_ms.saturating_add(self.offset_ms).saturating_mul(1_000);
        let ahead_us = wanted_us.saturating_sub(self.lead_us);
        if ahead_us.saturating_abs() <= self.bound_ms.saturating_mul(1_000) {
            let most_us = (elapsed_ms.min(60_000) * 1_000).cast_signed() / SLEW_PER;
            self.lead_us += ahead_us.clamp(-most_us, most_us);
        }
    }

    fn judge(&mut self, now_ms: u64, sight: &Sight, news: &mut Vec<String>) {
        let is_far = |ahead_ms: i64| ahead_ms.saturating_abs() > self.bound_ms;
        let agreed = sight.agreed_ms.map(|agreed_ms| (agreed_ms, self.ahead_ms(agreed_ms)));
        let majority = agreed.filter(|&(_, ahead_ms)| is_far(ahead_ms));
        self.differs = majority.map(|(agreed_ms, _)| match self.differs {
            Some((since_ms, before_ms)) if !is_far(agreed_ms.saturating_sub(before_ms)) => {
                (since_ms, before_ms)
            }
            _ => (now_ms, agreed_ms),
        });
        let told = std::mem::take(&mut self.told);
        let whose =
            if sight.others.is_empty() { "this machine's clock shows" } else { "a majority's clocks show" };
        if let Some((_, ahead_ms)) = majority
            && !told.majority
        {
            news.push(format!(
                "{whose} a time that is {}: the date follows in {} s, and no time to live changes; if that \
                 time is wrong, set it right before",
                Ahead(ahead_ms),
                CORRECT_AFTER_MS / 1_000
            ));
        } else if majority.is_none() && agreed.is_some() && told.majority {
            news.push(format!("{whose} the time of day again"));
        }
        self.told.majority = majority.is_some() || told.majority && agreed.is_none();
        // While a majority shows another time, those that do not are no news.
        if self.told.majority {
            (self.told.own, self.told.others) = (told.own, told.others);
            return;
        }
        let own_ms = self.ahead_ms(self.wall_lead_ms);
        self.told.own = self.tells("this machine's clock", own_ms, told.own, news);
        for &(node, lead_ms) in &sight.others {
            let name = format!("the clock of {node}");
            if self.tells(&name, self.ahead_ms(lead_ms), told.others.contains(&node), news) {
                self.told.others.push(node);
            }
        }
    }

    /// Says that a clock is wrong, or right again. Whether it is wrong.
    fn tells(&self, name: &str, ahead_ms: i64, was_wrong: bool, news: &mut Vec<String>) -> bool {
        // What is told of another clock is as late as frames are.
        let bound_ms = if was_wrong { self.bound_ms / 2 } else { self.bound_ms };
        let is_wrong = ahead_ms.saturating_abs() > bound_ms;
        if is_wrong && !was_wrong {
            news.push(format!(
                "{name} is wrong, it is {}: the date does not follow it, and no time to live changes; set it \
                 right",
                Ahead(ahead_ms)
            ));
        } else if was_wrong && !is_wrong {
            news.push(format!("{name} is right again"));
        }
        is_wrong
    }

    /// The change of the offset that is due, from what it is to what it should be. Who takes it orders it; if
    /// that fails, it is due again later.
    pub fn take_correction(&mut self) -> Option<(i64, i64)> {
        let is_due = |&mut (since_ms, _): &mut (u64, i64)| self.tick_ms >= Some(since_ms + CORRECT_AFTER_MS);
        let (_, agreed_ms) = self.differs.take_if(is_due)?;
        Some((self.offset_ms, self.lead_ms().saturating_sub(agreed_ms)))
    }

    /// By how much a wall clock is ahead of the time of day, given how far it is ahead of the steady time; 0
    /// if it is right.
    pub fn wrong_ms(&self, wall_lead_ms: i64) -> i64 {
        let ahead_ms = self.ahead_ms(wall_lead_ms);
        match self.is_set && ahead_ms.saturating_abs() > self.bound_ms {
            true => ahead_ms,
            false => 0,
        }
    }

    /// What an operator is told.
    pub fn status(&self) -> ClockStatus {
        ClockStatus {
            is_set: self.is_set,
            ahead_ms: if self.is_set { self.ahead_ms(self.wall_lead_ms) } else { 0 },
            is_wrong: self.wrong_ms(self.wall_lead_ms) != 0,
            offset_ms: self.offset_ms,
        }
    }
}

fn less(time_ms: u64, now_ms: u64) -> i64 {
    time_ms.cast_signed().saturating_sub(now_ms.cast_signed())
}

/// A length of time, for people.
struct Span(i64);

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 / 1_000 {
            0..600 => write!(f, "{}.{:03} s", self.0 / 1_000, self.0 % 1_000),
            seconds @ 600..172_800 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} days", seconds / 86_400),
        }
    }
}

/// Where a clock is, for people.
struct Ahead(i64);

impl std::fmt::Display for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = if self.0 < 0 { "behind" } else { "ahead of" };
        write!(f, "{} {word} the time of day that the nodes go by", Span(self.0.saturating_abs()))
    }
}
