//! For how long a model runs.

use super::{LONGER_MAX, Options};

/// Calls of each client that end in the measured time, unless these are many.
const CALLS_EACH: u64 = 4;
/// So many are.
const CALLS_WANTED: u64 = 4_000;

/// A model in virtual time.
pub(super) trait Timeline {
    fn options(&self) -> &Options;
    /// Calls that have ended.
    fn ended(&self) -> u64;
    fn go_on_until(&mut self, until_ns: u64);

    /// Goes on for this time, and longer until as many calls have ended as clients have under way, or several
    /// times as many where that is little. A judged run takes the time that was asked for: it is not made for
    /// its figures. Returns when it stopped.
    fn go_on_for(&mut self, from_ns: u64, least_ns: u64) -> u64 {
        let Options { clients, nodes, judged, times, .. } = *self.options();
        let clients = clients as u64 * u64::from(nodes);
        let calls = clients.max(CALLS_WANTED.min(CALLS_EACH * clients));
        let ended_before = self.ended();
        let mut until_ns = from_ns + least_ns;
        loop {
            self.go_on_until(until_ns);
            if judged || self.ended() - ended_before >= calls || until_ns >= from_ns + least_ns * LONGER_MAX {
                return until_ns;
            }
            until_ns += times.epoch_ns;
        }
    }
}
