//! A machine: its power, its clock, its processors' speed and its disk.

use super::mortal::MortalDisk;
use crate::disk::VirtualDisk;
use std::sync::Arc;

/// When every world begins, in milliseconds since 1970.
pub const EPOCH_MS: u64 = 1_700_000_000_000;

/// A machine.
pub struct Host {
    /// What survives a process, and, as far as it was synced, a loss of power.
    pub disk: VirtualDisk,
    /// The disk as the running process sees it: it may die in the middle of its operations.
    pub(super) mortal: Arc<MortalDisk>,
    /// Counts the processes: what belongs to an earlier one is void.
    pub(super) incarnation: u32,
    pub(super) frozen_until_ns: u64,
    pub(super) cpu_factor: u64,
    pub(super) disk_factor: u64,
    /// What the present process ends with if it dies inside a disk operation, and for how long it is down.
    pub(super) death: Option<Death>,
    /// A bit that flipped while the process was down.
    pub(super) flipped: Option<(String, u64, u8)>,
    clock: Clock,
    /// What processes count time by: nobody can set it.
    steady: Clock,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Death {
    pub power: bool,
    pub flip_bit: bool,
    pub lose_disk: bool,
    pub down_ms: u64,
}

/// The most that a steady clock is off, in parts in a million.
const STEADY_PPM_MAX: i64 = 100;

/// A clock that may jump and drift.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// At this true time ...
    since_ns: u64,
    /// ... it showed this,
    shown_ns: i128,
    /// and has been off by so many parts in a million since.
    ppm: i64,
}

impl Clock {
    const RIGHT: Clock = Clock { since_ns: 0, shown_ns: EPOCH_MS as i128 * 1_000_000, ppm: 0 };

    fn jumps(&mut self, now_ns: u64, by_ms: i64) {
        self.shown_ns = self.shows_ns(now_ns) + i128::from(by_ms) * 1_000_000;
        self.since_ns = now_ns;
    }

    fn drifts(&mut self, now_ns: u64, ppm: i64) {
        self.jumps(now_ns, 0);
        self.ppm = ppm;
    }

    fn shows_ms(&self, now_ns: u64) -> u64 {
        u64::try_from(self.shows_ns(now_ns) / 1_000_000).unwrap_or(0)
    }

    fn shows_ns(&self, now_ns: u64) -> i128 {
        let elapsed = i128::from(now_ns - self.since_ns);
        self.shown_ns + elapsed + elapsed * i128::from(self.ppm) / 1_000_000
    }
}

impl Host {
    pub(crate) fn new(disk: VirtualDisk) -> Host {
        Host {
            mortal: Arc::new(MortalDisk::new(disk.clone(), u64::MAX)),
            disk,
            incarnation: 0,
            frozen_until_ns: 0,
            cpu_factor: 1,
            disk_factor: 1,
            death: None,
            flipped: None,
            clock: Clock::RIGHT,
            steady: Clock::RIGHT,
        }
    }

    /// The disk, for the running process.
    pub fn process_disk(&self) -> Arc<MortalDisk> {
        self.mortal.clone()
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen_until_ns > 0
    }

    /// Counts the host's processes.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Whether a bit of its files flipped while its process was down.
    pub fn has_flipped_bit(&self) -> bool {
        self.flipped.is_some()
    }

    /// The file in which a bit flipped while its process was down, if nothing else is wrong with its disk.
    pub fn flipped_file(&self) -> Option<&str> {
        let flipped = self.flipped.as_ref().filter(|_| !self.disk.is_troubled());
        flipped.map(|(name, _, _)| name.as_str())
    }

    /// What the host's clock shows, in milliseconds since 1970.
    pub(super) fn clock_ms(&self, now_ns: u64) -> u64 {
        self.clock.shows_ms(now_ns)
    }
    /// What its processes count, in milliseconds.
    pub(super) fn steady_ms(&self, now_ns: u64) -> u64 {
        self.steady.shows_ms(now_ns)
    }
    pub(super) fn clock_jumps(&mut self, now_ns: u64, by_ms: i64) {
        self.clock.jumps(now_ns, by_ms);
    }
    pub(super) fn clock_drifts(&mut self, now_ns: u64, ppm: i64) {
        self.clock.drifts(now_ns, ppm);
        let steady_ppm = ppm.clamp(-STEADY_PPM_MAX, STEADY_PPM_MAX);
        self.steady.drifts(now_ns, steady_ppm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_jump_and_drift() {
        let mut host = Host::new(VirtualDisk::new(1));
        assert_eq!(host.clock_ms(5_000_000), EPOCH_MS + 5);
        host.clock_jumps(5_000_000, -3);
        assert_eq!(host.clock_ms(5_000_000), EPOCH_MS + 2);
        host.clock_drifts(10_000_000, 500_000);
        assert_eq!(host.clock_ms(10_000_000), EPOCH_MS + 7);
        assert_eq!(host.clock_ms(30_000_000), EPOCH_MS + 37);
        assert_eq!(host.steady_ms(30_000_000), EPOCH_MS + 30);
    }
}
