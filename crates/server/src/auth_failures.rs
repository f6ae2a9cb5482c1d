//! Failed authentications, by the addresses that they came from: how long an address's next attempt waits.
//!
//! Whoever guesses passwords must not be able to guess fast, from many connections neither. The first
//! [`FREE`] failures of an address cost nothing. From then on each attempt from there waits before its
//! password is looked at, twice as long with each failure, up to `auth-delay-max-ms`. Attempts that wait
//! count as failures, so that connections side by side wait as connections one behind the other do, and a
//! right password waits as long as a wrong one, or the time would tell. A failure is forgiven after
//! [`FORGIVEN_AFTER`].
//!
//! No thread waits: a session holds the command, and its thread looks at it again when the time is up.

use crate::warnings::Warnings;
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use txn::hash::FixedMap;

/// So many failures of an address delay nothing: somebody mistypes, or a fleet starts with an old password.
pub const FREE: u32 = 8;
/// How long the first attempt waits that does.
const DELAY_MIN: Duration = Duration::from_millis(100);
/// After so long an address has a failure less.
pub const FORGIVEN_AFTER: Duration = Duration::from_secs(10);
/// More failures of an address are not counted: it waits as long as anybody does.
const FAILURES_MAX: u32 = FREE + 16;
/// So many addresses are remembered.
const ADDRESSES_MAX: usize = 4096;
/// Between two lines of the log.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);
/// So many bytes of a user's name are logged.
const NAME_BYTES_MAX: usize = 64;

/// What is known of failed authentications.
pub struct AuthFailures(Mutex<State>);

struct State {
    addresses: FixedMap<IpAddr, Entry>,
    warnings: Warnings<1>,
}

/// What is known of an address.
struct Entry {
    failures: u32,
    /// As of when: since then nothing was forgiven.
    since: Instant,
    /// Attempts that have not ended.
    pending: u32,
}

impl Entry {
    fn forgive(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.since);
        let forgiven = u32::try_from(elapsed.as_secs() / FORGIVEN_AFTER.as_secs()).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_sub(forgiven);
        self.since = match self.failures {
            0 => now,
            _ => self.since + FORGIVEN_AFTER * forgiven,
        };
    }
}

/// An attempt to authenticate, which ends when this is dropped.
pub struct Attempt {
    failures: Arc<AuthFailures>,
    address: IpAddr,
    /// How long it waits before its password is looked at.
    pub delay: Duration,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Attempt").field(&self.delay).finish()
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut state = self.failures.0.lock();
        if let Some(entry) = state.addresses.get_mut(&self.address) {
            entry.pending = entry.pending.saturating_sub(1);
            if entry.pending == 0 && entry.failures == 0 {
                state.addresses.remove(&self.address);
            }
        }
    }
}

impl Default for AuthFailures {
    fn default() -> AuthFailures {
        AuthFailures(Mutex::new(State {
            addresses: FixedMap::default(),
            warnings: Warnings::new(WARNING_INTERVAL),
        }))
    }
}

/// Whose failures count together: those of an address, or of what one customer of a provider has of IPv6.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        v4 => v4,
    }
}

impl AuthFailures {
    /// Begins an attempt from an address, which waits no longer than `delay_max`.
    pub fn begin(self: &Arc<AuthFailures>, address: IpAddr, now: Instant, delay_max: Duration) -> Attempt {
        let address = source(address);
        let mut state = self.0.lock();
        let entry = state.entry(address, now);
        let delay = match (entry.failures + entry.pending).min(FAILURES_MAX).checked_sub(FREE) {
            Some(doublings) => (DELAY_MIN * (1 << doublings)).min(delay_max),
            None => Duration::ZERO,
        };
        entry.pending += 1;
        Attempt { failures: self.clone(), address, delay }
    }

    /// An attempt from an address, as a user, has failed.
    pub fn note(&self, address: SocketAddr, user: &[u8], now: Instant) {
        let mut state = self.0.lock();
        let entry = state.entry(source(address.ip()), now);
        entry.failures = (entry.failures + 1).min(FAILURES_MAX);
        if let Some(others) = state.warnings.admit(0, now) {
            let shown = user.get(..NAME_BYTES_MAX).unwrap_or(user).escape_ascii();
            let others = match others {
                0 => String::new(),
                _ => format!(" ({others} more failed since the last such line)"),
            };
            tracing::warn!(
                "client {address} gave a wrong password, or none that counts, for the user '{shown}'{others}"
            );
        }
    }
}

impl State {
    /// What is known of an address, as of now.
    fn entry(&mut self, address: IpAddr, now: Instant) -> &mut Entry {
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&address) {
            self.make_room(now);
        }
        let new = Entry { failures: 0, since: now, pending: 0 };
        let entry = self.addresses.entry(address).or_insert(new);
        entry.forgive(now);
        entry
    }

    /// Forgets who is forgiven, or else the address with the fewest failures.
    fn make_room(&mut self, now: Instant) {
        self.addresses.retain(|_, entry| {
            entry.forgive(now);
            entry.failures > 0 || entry.pending > 0
        });
        if self.addresses.len() < ADDRESSES_MAX {
            return;
        }
        let fewest = self.addresses.iter().min_by_key(|(_, entry)| entry.failures + entry.pending);
        if let Some(address) = fewest.map(|(&address, _)| address) {
            self.addresses.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY_MAX: Duration = Duration::from_secs(1);

    fn address(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + number).into())
    }

    #[test]
    fn each_failure_doubles_what_the_next_attempt_waits_and_other_addresses_do_not() {
        let failures = Arc::new(AuthFailures::default());
        let start = Instant::now();
        let note = |number, now| failures.note((address(number), 1).into(), b"bob", now);
        let mut delays = Vec::new();
        for _ in 0..30 {
            let attempt = failures.begin(address(1), start, DELAY_MAX);
            delays.push(attempt.delay.as_millis());
            note(1, start);
        }
        assert_eq!(delays[..13], [0, 0, 0, 0, 0, 0, 0, 0, 100, 200, 400, 800, 1000]);
        assert!(delays[13..].iter().all(|&ms| ms == 1000));
        assert_eq!(failures.begin(address(2), start, DELAY_MAX).delay, Duration::ZERO);
        let delay_at = |seconds| {
            let now = start + Duration::from_secs(seconds);
            failures.begin(address(1), now, DELAY_MAX).delay.as_millis()
        };
        // Of 24 failures thirteen are forgiven, and in the end all.
        assert_eq!((delay_at(9), delay_at(130), delay_at(139), delay_at(150)), (1000, 800, 800, 200));
        assert_eq!((delay_at(170), delay_at(10_000)), (0, 0));
        assert_eq!(failures.begin(address(1), start, Duration::ZERO).delay, Duration::ZERO);
    }

    #[test]
    fn attempts_side_by_side_wait_as_those_one_behind_the_other() {
        let failures = Arc::new(AuthFailures::default());
        let start = Instant::now();
        let begin = || failures.begin(address(1), start, DELAY_MAX);
        let attempts: Vec<Attempt> = (0..FREE + 3).map(|_| begin()).collect();
        let delays: Vec<_> = attempts.iter().map(|attempt| attempt.delay.as_millis()).collect();
        assert_eq!(delays[..FREE as usize], [0; FREE as usize]);
        assert_eq!(delays[FREE as usize..], [100, 200, 400]);
        drop(attempts);
        assert_eq!(begin().delay, Duration::ZERO, "none has failed");
        assert!(failures.0.lock().addresses.is_empty());
    }

    #[test]
    fn what_one_customer_has_of_ipv6_is_one_source() {
        let of = |text: &str| source(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::"), of("2001:db8:1:3::"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_fails_most() {
        let failures = Arc::new(AuthFailures::default());
        let start = Instant::now();
        let note = |number, now| failures.note((address(number), 1).into(), b"bob", now);
        for _ in 0..FREE + 6 {
            note(0, start);
        }
        for number in 1..2 * ADDRESSES_MAX as u32 {
            note(number, start);
        }
        assert_eq!(failures.0.lock().addresses.len(), ADDRESSES_MAX);
        assert!(!failures.begin(address(0), start, DELAY_MAX).delay.is_zero());
        let later = start + FORGIVEN_AFTER * 3;
        note(1 << 20, later);
        assert_eq!(failures.0.lock().addresses.len(), 2);
    }
}
