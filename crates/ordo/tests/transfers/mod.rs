//! Clients that transfer between accounts, each transfer as one transaction.
#![allow(clippy::disallowed_methods, reason = "writers are threads")]

use crate::nodes::PATIENCE;
use server::client::{Answer, Client};
use server::launcher::poll;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// What accounts have together, whatever is transferred.
pub const TOTAL: i64 = 800;
pub const ACCOUNTS: u64 = 8;

pub fn text(answer: Answer) -> String {
    match answer {
        Answer::Text(text) => text,
        Answer::Nil => "nil".to_owned(),
        Answer::List(all) => all.into_iter().map(text).collect::<Vec<_>>().join(" "),
        Answer::Error(error) => panic!("{error}"),
    }
}

pub fn call(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match client.call(&words) {
        Ok(Answer::Error(error)) => panic!("{line}: {error}"),
        Ok(answer) => text(answer),
        Err(error) => panic!("{line}: {error}"),
    }
}

/// Transfers between accounts, one after another, as whole transactions.
pub struct Transfers {
    pub steps: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Transfers {
    pub fn start(addresses: Vec<String>) -> Transfers {
        let (steps, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stopped) = (steps.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut client = None;
            let mut step = 0_u64;
            while !stopped.load(Ordering::Relaxed) {
                step += 1;
                let (from, to) = (step * 7 % ACCOUNTS, step * 5 % ACCOUNTS);
                let (from, to) = (format!("account:{from}"), format!("account:{to}"));
                let script = "redis.call('DECRBY', KEYS[1], 3) redis.call('INCRBY', KEYS[2], 3) \
                              redis.call('INCR', KEYS[3]) redis.call('RPUSH', KEYS[4], ARGV[1])";
                let (id, number) = (format!("transfer-{step}"), step.to_string());
                let words =
                    ["ORDO.IDEMPOTENT", &id, "EVAL", script, "4", &from, &to, "steps", "history", &number];
                // Until it is acknowledged, at whichever node.
                for place in 0.. {
                    let address = &addresses[place % addresses.len()];
                    if client.is_none() {
                        client = Client::open(address, std::time::Duration::from_secs(3)).ok();
                    }
                    match client.as_mut().map(|client| client.call(&words)) {
                        Some(Ok(Answer::Nil)) => break,
                        _ if stopped.load(Ordering::Relaxed) => return,
                        _ => client = None,
                    }
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                counted.store(step, Ordering::Relaxed);
            }
        });
        Transfers { steps, stop, thread }
    }

    /// Waits until there are so many more.
    pub fn go_on(&self, more: u64) {
        let until = self.steps.load(Ordering::Relaxed) + more;
        poll(PATIENCE, || (self.steps.load(Ordering::Relaxed) >= until).then_some(())).expect("it goes on");
    }

    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends");
    }
}
