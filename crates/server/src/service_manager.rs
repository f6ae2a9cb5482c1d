//! Tells the service manager that has started this process, such as systemd, how the server is: the protocol
//! of `sd_notify(3)`, docs/packages.md.
//!
//! | message | when |
//! |---|---|
//! | `READY=1` | once, when `/readyz` would say `ready` for the first time |
//! | `STATUS=` | the first line of `/readyz`, whenever it changes |
//! | `WATCHDOG=1` | four times in the manager's watchdog time, if the server has made progress since |
//! | `STOPPING=1` | when the server was asked to end, by SIGTERM, SIGINT or SHUTDOWN |
//!
//! A thread of its own sends these messages. It feeds the watchdog only if all of this holds:
//!
//! 1. each I/O thread has ticked since the last look: the thread waits for its sockets, or serves them a
//!    round at a time;
//! 2. the node's clock has ticked since, which takes the lock of the order, and so has a site's clock;
//! 3. an engine has final-committed something since, if at the last look something was confirmed that is not
//!    final-committed yet, and no script runs. A script ends at its step limit, and a node that starts
//!    anew would run it again. The engines of a node that keeps only some of the partitions may wait for
//!    other nodes, so the thread does not look at them.
//!
//! The watchdog is fed while a sync of the disk hangs, and while other nodes do not answer: a new process
//! would meet the same disk and the same nodes. It is also fed while the data is loaded. The manager counts
//! from `READY=1` on, but a process that has started itself anew was ready before.

use crate::readiness::{Readiness, Verdict};
use crate::runtime::Runtime;
use crate::server::Server;
use crate::shared::Shared;
use redis_surface::script;
use sd_notify::NotifyState;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the thread looks whether the server is ready, until it is.
const LOOK_BEFORE_READY: Duration = Duration::from_millis(20);
/// How often it looks whether what `STATUS=` tells has changed.
const LOOK: Duration = Duration::from_secs(1);
/// The watchdog is fed so often in the manager's time.
const FEEDS: u32 = 4;
/// Between two feeds there are at least two ticks of each thread, whatever time the manager gives.
const FEED_PAUSE_MIN: Duration = Duration::from_millis(250);

/// The thread that tells the service manager.
pub struct ServiceManager {
    server: Arc<OnceLock<Arc<Shared>>>,
    thread: JoinHandle<()>,
}

impl ServiceManager {
    /// Tells the manager that this process loads its data. `None` if no manager listens.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start() -> io::Result<Option<ServiceManager>> {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(None);
        }
        let server = Arc::<OnceLock<Arc<Shared>>>::default();
        let teller = Teller::new(sd_notify::watchdog_enabled());
        let told = server.clone();
        let thread = std::thread::Builder::new().name("ordo-manager".to_owned());
        let thread = thread.spawn(move || teller.run(&told))?;
        Ok(Some(ServiceManager { server, thread }))
    }

    /// From now on this server is what the manager is told of.
    pub fn follow(&self, server: &Server) {
        // The first server stays: a process has one.
        let _ = self.server.set(server.shared().clone());
        self.thread.thread().unpark();
    }

    /// Waits until the manager was told that the server ends, which must have been asked to.
    pub fn end(self) {
        if self.thread.join().is_err() {
            tracing::error!("the thread ordo-manager panicked: please report it, with the message above");
        }
    }
}

struct Teller {
    /// The time between two feeds, if the manager has a watchdog.
    feed_pause: Option<Duration>,
    fed: Instant,
    beats: Option<Beats>,
    status: String,
    is_starved: bool,
    has_failed: bool,
}

impl Teller {
    fn new(watchdog: Option<Duration>) -> Teller {
        Teller {
            feed_pause: watchdog.map(|time| (time / FEEDS).max(FEED_PAUSE_MIN)),
            fed: Instant::now(),
            beats: None,
            status: String::new(),
            is_starved: false,
            has_failed: false,
        }
    }

    fn run(mut self, server: &OnceLock<Arc<Shared>>) {
        self.tell(&[NotifyState::Status("loading the data")]);
        let shared = loop {
            if let Some(shared) = server.get() {
                break shared;
            }
            std::thread::park_timeout(self.feed_pause.unwrap_or(LOOK).min(LOOK));
            if self.is_feed_due() {
                self.tell(&[NotifyState::Watchdog]);
            }
        };
        let mut is_ready = false;
        loop {
            let pause = if is_ready { self.feed_pause.unwrap_or(LOOK).min(LOOK) } else { LOOK_BEFORE_READY };
            if shared.wait_for_stop_until(Instant::now() + pause).is_some() {
                return self
                    .tell(&[NotifyState::Stopping, NotifyState::Status("finishing what is in flight")]);
            }
            if self.is_feed_due() {
                self.feed(shared);
            }
            if self.is_starved {
                // A part that hangs may have a lock that the look below needs.
                continue;
            }
            let readiness = Readiness::of(Some(shared));
            if !is_ready && readiness.verdict == Verdict::Ready {
                is_ready = true;
                self.tell(&[NotifyState::Ready]);
            }
            self.tell_status(&readiness);
        }
    }

    fn is_feed_due(&mut self) -> bool {
        let is_due = self.feed_pause.is_some_and(|pause| self.fed.elapsed() >= pause);
        if is_due {
            self.fed = Instant::now();
        }
        is_due
    }

    /// Feeds the watchdog, or says why not.
    fn feed(&mut self, shared: &Shared) {
        let runtime = &shared.runtime;
        // A clock that may stand between two feeds tells nothing.
        let clocks_tick = self.feed_pause.is_some_and(|pause| pause >= 2 * runtime.clock_pause());
        let clocks = if clocks_tick { runtime.clock_ticks() } else { Vec::new() };
        let mut beats = Beats { ticks: shared.thread_ticks(), clocks, execution: None };
        let stuck = |beats: &Beats, before: &Option<Beats>| beats.stuck_since(before.as_ref()?);
        let reason = stuck(&beats, &self.beats).or_else(|| {
            beats.execution = execution(runtime);
            stuck(&beats, &self.beats)
        });
        self.beats = Some(beats);
        match reason {
            None => {
                if std::mem::take(&mut self.is_starved) {
                    tracing::info!("the server makes progress again, and feeds the watchdog");
                }
                self.tell(&[NotifyState::Watchdog]);
            }
            Some(reason) => {
                self.is_starved = true;
                tracing::error!(
                    "{reason}: the watchdog is not fed, and the service manager ends this process if that \
                     stays. Nothing acknowledged is lost. Please report it, with the core dump"
                );
            }
        }
    }

    fn tell_status(&mut self, readiness: &Readiness) {
        let status = match &readiness.verdict {
            Verdict::Ready => "ready".to_owned(),
            Verdict::NotReady(reason) => format!("not ready: {reason}"),
        };
        if status != self.status {
            self.tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    fn tell(&mut self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tracing::warn!("the service manager at NOTIFY_SOCKET cannot be told how the server is: {error}");
        }
    }
}

/// How far the parts of a server are that must never stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Beats {
    /// Of each I/O thread.
    ticks: Vec<u64>,
    /// Of the node, and of its site if it has one.
    clocks: Vec<u64>,
    /// The last positions that are final, and those that are final-committed; `None` where what is confirmed
    /// may have to wait for other nodes, or for a script.
    execution: Option<(u64, u64)>,
}

/// See [`Beats::execution`].
fn execution(runtime: &Runtime) -> Option<(u64, u64)> {
    let depends_on_others = runtime.is_spread() || runtime.is_certified();
    if depends_on_others || script::is_running() {
        return None;
    }
    let node = runtime.status().node;
    Some((node.confirmed.0, node.final_committed.0))
}

impl Beats {
    /// The part that has not gone on since, if there is one.
    fn stuck_since(&self, before: &Beats) -> Option<String> {
        let stands = |now: &[u64], before: &[u64]| now.iter().zip(before).position(|(now, then)| now == then);
        if let Some(thread) = stands(&self.ticks, &before.ticks) {
            return Some(format!("the I/O thread {thread} hangs"));
        }
        if stands(&self.clocks, &before.clocks).is_some() {
            return Some("the node's clock hangs, or somebody keeps the lock of the order".to_owned());
        }
        let ((_, final_committed), (confirmed_before, final_committed_before)) =
            self.execution.zip(before.execution)?;
        let stands = final_committed == final_committed_before && confirmed_before > final_committed;
        stands.then(|| {
            format!("execution hangs behind position {final_committed}, with {confirmed_before} confirmed")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beats(ticks: &[u64], clocks: &[u64], execution: Option<(u64, u64)>) -> Beats {
        Beats { ticks: ticks.to_vec(), clocks: clocks.to_vec(), execution }
    }

    #[test]
    fn each_part_that_stands_still_is_named() {
        let before = beats(&[7, 9], &[3, 5], Some((10, 8)));
        let stuck = |ticks: &[u64], clocks: &[u64], execution| {
            beats(ticks, clocks, execution).stuck_since(&before).unwrap_or_default()
        };
        assert_eq!(stuck(&[8, 10], &[4, 6], Some((12, 9))), "");
        assert_eq!(stuck(&[8, 9], &[4, 6], Some((12, 9))), "the I/O thread 1 hangs");
        assert!(stuck(&[8, 10], &[4, 5], Some((12, 9))).starts_with("the node's clock hangs"));
        let hangs = "execution hangs behind position 8, with 10 confirmed";
        assert_eq!(stuck(&[8, 10], &[4, 6], Some((12, 8))), hangs);
        assert_eq!(stuck(&[8, 10], &[4, 6], None), "", "it may wait for others");
        // A counter that has begun anew has moved.
        assert_eq!(stuck(&[0, 0], &[0, 0], Some((0, 0))), "");
    }

    #[test]
    fn a_server_without_requests_is_not_stuck() {
        let before = beats(&[7], &[3], Some((10, 10)));
        assert_eq!(beats(&[8], &[4], Some((10, 10))).stuck_since(&before), None);
        // Confirmed since: nobody knows how long ago.
        assert_eq!(beats(&[8], &[4], Some((11, 10))).stuck_since(&before), None);
    }

    #[test]
    fn the_watchdog_is_fed_four_times_in_its_time_and_never_between_two_ticks() {
        let pause = |time| Teller::new(Some(time)).feed_pause;
        assert_eq!(pause(Duration::from_secs(120)), Some(Duration::from_secs(30)));
        assert_eq!(pause(Duration::from_millis(400)), Some(FEED_PAUSE_MIN));
        assert_eq!(Teller::new(None).feed_pause, None);
    }
}
