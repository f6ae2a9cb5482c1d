//! How soon nodes answer while something is wrong with them.
//!
//! Every node is asked all the time: through a connection that was there before, through new ones, and
//! through one that reads what the node has (READONLY). An error is an answer; silence is none.

use server::client::{Answer, Client};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(5);
/// A question without an answer for so long has none.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a node answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// How long the slowest answer took.
    pub longest: Duration,
    /// Answers, errors too.
    pub count: u64,
    /// Errors among them.
    pub errors: u64,
    /// Questions without an answer.
    pub silent: u64,
}

/// Asks until it is ended.
pub struct Probe {
    stop: Arc<AtomicBool>,
    /// By node.
    threads: Vec<JoinHandle<Answers>>,
}

impl Probe {
    /// Begins to ask all nodes.
    pub fn start(addresses: &[SocketAddr]) -> Probe {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = addresses.iter().map(|address| {
            let (stop, address) = (stop.clone(), address.to_string());
            std::thread::spawn(move || ask(&address, &stop))
        });
        Probe { threads: threads.collect(), stop }
    }

    /// Ends, and tells what each node answered.
    pub fn end(self) -> Vec<Answers> {
        self.stop.store(true, Ordering::SeqCst);
        let threads = self.threads.into_iter();
        let joined = threads.map(|thread| thread.join());
        joined.map(|answers| answers.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    }
}

fn ask(address: &str, stop: &AtomicBool) -> Answers {
    let mut answers = Answers::default();
    let mut old = Client::open(address, PATIENCE).ok();
    let mut reader = Client::open(address, PATIENCE).ok();
    let asked = |client: &mut Option<Client>, words: &[&str]| {
        client.as_mut().and_then(|client| client.call(words).ok())
    };
    asked(&mut reader, &["READONLY"]);
    while !stop.load(Ordering::SeqCst) {
        for turn in 0..3 {
            let began = Instant::now();
            let answer = match turn {
                0 => asked(&mut old, &["GET", "served"]),
                1 => asked(&mut reader, &["GET", "served"]),
                _ => asked(&mut Client::open(address, PATIENCE).ok(), &["GET", "served"]),
            };
            answers.longest = answers.longest.max(began.elapsed());
            match answer {
                Some(answer) => {
                    answers.count += 1;
                    answers.errors += u64::from(matches!(answer, Answer::Error(_)));
                }
                None => answers.silent += 1,
            }
        }
        std::thread::sleep(PAUSE);
    }
    answers
}
