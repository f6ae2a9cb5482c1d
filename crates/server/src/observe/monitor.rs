//! MONITOR: who sees what the clients of this node send.

use crate::hub::{Delivery, Listener, Push, PushBudget};
use parking_lot::Mutex;
use redis_surface::acl::secrets::redacted;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use txn::{Blob, Reply, SessionId};

/// The connections that monitor.
#[derive(Default)]
pub struct Monitors {
    budget: Arc<PushBudget>,
    count: AtomicUsize,
    listeners: Mutex<Vec<Listener>>,
}

impl Monitors {
    /// Monitors whose lines count against a budget.
    pub fn new(budget: Arc<PushBudget>) -> Monitors {
        Monitors { budget, ..Monitors::default() }
    }

    /// Whether nobody monitors: then there is nothing to be told.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// A connection begins to monitor.
    pub fn add(&self, listener: Listener) {
        let mut listeners = self.listeners.lock();
        listeners.push(listener);
        self.count.store(listeners.len(), Ordering::Relaxed);
    }

    /// It does not any more.
    pub fn remove(&self, session: SessionId) {
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| listener.session != session);
        self.count.store(listeners.len(), Ordering::Relaxed);
    }

    /// Tells all of them of a command, its name first, that a client sent at this time since 1970.
    pub fn tell(&self, at: Duration, from: SocketAddr, words: &[Blob]) {
        let line = line(at, from, &redacted(words));
        let bytes = line.len();
        let line = Arc::new(Push::new(Reply::Status(line.into()), bytes, &self.budget));
        // Under the lock, so that all see the same order.
        for listener in &*self.listeners.lock() {
            listener.deliver(Delivery::Monitored(line.clone()));
        }
    }
}

/// A line shows no more of a command: who sends it would else have this thread write out hundreds of
/// megabytes.
const LINE_BYTES_MAX: usize = 256 << 10;

/// A line as Redis prints it, up to a length.
fn line(at: Duration, from: SocketAddr, words: &[Blob]) -> String {
    let mut line = format!("{}.{:06} [0 {from}]", at.as_secs(), at.subsec_micros());
    for word in words {
        line.push_str(" \"");
        for (place, &byte) in word.iter().enumerate() {
            if line.len() >= LINE_BYTES_MAX {
                let _ = write!(line, "\"... ({} more bytes)", word.len() - place);
                return line;
            }
            match byte {
                b'\\' | b'"' => line.extend(['\\', char::from(byte)]),
                b'\n' => line.push_str("\\n"),
                b'\r' => line.push_str("\\r"),
                b'\t' => line.push_str("\\t"),
                0x07 => line.push_str("\\a"),
                0x08 => line.push_str("\\b"),
                b' '..=b'~' => line.push(char::from(byte)),
                _ => {
                    let _ = write!(line, "\\x{byte:02x}");
                }
            }
        }
        line.push('"');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_an_end() {
        let words = [Blob::from("SET"), Blob::from("k"), Blob::from(vec![0; 1 << 20])];
        let line = line(Duration::ZERO, SocketAddr::from(([127, 0, 0, 1], 1)), &words);
        assert!(line.len() < LINE_BYTES_MAX + 100);
        assert!(line.ends_with(" more bytes)"), "{}", &line[LINE_BYTES_MAX - 10..]);
    }

    #[test]
    fn a_line_is_one_of_redis() {
        let words = [Blob::from("SET"), Blob::from(&b"\x00\xff\"\\\n\r\t\x07\x08 ~"[..])];
        let at = Duration::from_micros(1_339_518_083_107_412);
        let from = SocketAddr::from(([127, 0, 0, 1], 60866));
        assert_eq!(
            line(at, from, &words),
            r#"1339518083.107412 [0 127.0.0.1:60866] "SET" "\x00\xff\"\\\n\r\t\a\b ~""#
        );
    }
}
