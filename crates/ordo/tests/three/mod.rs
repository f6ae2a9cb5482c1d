//! A cluster of three real nodes on this machine, and clients that write to it all the time.
#![allow(dead_code, reason = "each test uses a part")]

use server::client::{Answer, Client};
use server::cluster::ClusterStatus;
use server::cluster::local::free_port;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(90);
/// How long a client waits for a reply before it goes to another node.
pub const REPLY_PATIENCE: Duration = Duration::from_secs(3);
/// The bar: no client waits longer for a write.
pub const PAUSE_MAX: Duration = Duration::from_secs(2);
pub const NAMES: [&str; 3] = ["a", "b", "c"];
pub const CLIENTS: usize = 6;
/// Each client has done so many writes before the next thing happens.
const STEPS: u64 = 60;

/// What a node is started as.
#[derive(Clone)]
pub struct Build {
    pub program: PathBuf,
    pub words: Vec<String>,
}

/// A cluster of three on this machine. Its processes end with it.
pub struct Cluster {
    dir: tempfile::TempDir,
    pub clients: Vec<String>,
    processes: Vec<Option<Child>>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            // Both fail if it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port().expect("a port"))
}

impl Cluster {
    pub fn start(build: &Build) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let clients: Vec<String> = NAMES.iter().map(|_| free_address()).collect();
        let mut text =
            "name = \"upgrade\"\nsecret = \"a secret that only this test knows\"\npartitions = 3\n"
                .to_owned();
        for (name, client) in NAMES.iter().zip(&clients) {
            text.push_str(&format!(
                "[[node]]\nname = \"{name}\"\nzone = \"zone-{name}\"\npeer_address = \"{}\"\n\
                 client_address = \"{client}\"\n",
                free_address()
            ));
        }
        std::fs::write(dir.path().join("cluster.toml"), text).expect("written");
        let mut cluster = Cluster { dir, clients, processes: NAMES.iter().map(|_| None).collect() };
        for place in 0..NAMES.len() {
            cluster.run(place, build);
        }
        for place in 0..NAMES.len() {
            cluster.status(place);
        }
        cluster
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn run(&mut self, place: usize, build: &Build) {
        let name = NAMES[place];
        // What several processes of a node say is in one file.
        let log = File::options().create(true).append(true).open(self.file(&format!("{name}.log")));
        let process = Command::new(&build.program)
            // Without checkpoints: what a node has after a restart comes out of its log, however long a test
            // takes.
            .args(["serve", "--node", name, "--checkpoint-log-size", "0"])
            .args([Path::new("--cluster"), &self.file("cluster.toml"), Path::new("--dir"), &self.file(name)])
            .args(&build.words)
            .stderr(log.expect("a file"))
            .spawn();
        self.processes[place] = Some(process.expect("it starts"));
    }

    pub fn said(&self, place: usize) -> String {
        std::fs::read_to_string(self.file(&format!("{}.log", NAMES[place]))).unwrap_or_default()
    }

    pub fn until<T>(&self, place: usize, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "{}: not {what}\n{}", NAMES[place], self.said(place));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What a node answers, once it answers without an error.
    pub fn call(&self, place: usize, words: &[&str]) -> String {
        self.until(place, "it answers", || {
            let mut client = Client::open(&self.clients[place], REPLY_PATIENCE).ok()?;
            match client.call(words) {
                Ok(Answer::Text(text)) => Some(text),
                _ => None,
            }
        })
    }

    pub fn status(&self, place: usize) -> ClusterStatus {
        serde_json::from_str(&self.call(place, &["ORDO.CLUSTER", "STATUS"])).expect("a status")
    }

    /// The process of a node that runs.
    pub fn process(&self, place: usize) -> rustix::process::Pid {
        let process = self.processes[place].as_ref().expect("it runs");
        rustix::process::Pid::from_child(process)
    }

    /// Waits until a process has ended.
    pub fn ended(&mut self, place: usize) -> ExitStatus {
        let mut process = self.processes[place].take().expect("it was started");
        self.until(place, "it has ended", || process.try_wait().expect("a status"))
    }

    /// Kills a process.
    pub fn kill(&mut self, place: usize) {
        let mut process = self.processes[place].take().expect("it was started");
        process.kill().expect("it runs");
        process.wait().expect("it has ended");
    }

    /// Stops a process in good order. Returns how long that took.
    pub fn stop(&mut self, place: usize) -> Duration {
        let process = self.processes[place].as_ref().expect("it runs").id();
        let start = Instant::now();
        let status = Command::new("kill").args(["-TERM", &process.to_string()]).status();
        assert!(status.expect("kill runs").success());
        let status = self.ended(place);
        assert!(status.success(), "{status}\n{}", self.said(place));
        start.elapsed()
    }
}

/// A client that writes all the time, and goes to another node when its own does not answer.
pub struct Writer {
    /// Writes that were acknowledged, in pairs: a SET, and an addition to the client's counter.
    pub done: Arc<AtomicU64>,
    pub thread: JoinHandle<Written>,
}

pub struct Written {
    /// The longest time from one acknowledgement to the next.
    pub pause: Duration,
    /// How often it went to another node.
    pub moves: u64,
}

impl Writer {
    pub fn start(number: usize, addresses: Vec<String>, stop: Arc<AtomicBool>) -> Writer {
        let done = Arc::new(AtomicU64::new(0));
        let counted = done.clone();
        let thread = std::thread::spawn(move || {
            let mut place = number % addresses.len();
            let mut client: Option<Client> = None;
            let mut written = Written { pause: Duration::ZERO, moves: 0 };
            let mut last = Instant::now();
            // Until it is acknowledged: the same words again, at another node if this one does not answer.
            let mut write = |words: &[&str]| -> String {
                loop {
                    if client.is_none() {
                        client = Client::open(&addresses[place], REPLY_PATIENCE).ok();
                    }
                    if let Some(Ok(Answer::Text(text))) = client.as_mut().map(|client| client.call(words)) {
                        written.pause = written.pause.max(last.elapsed());
                        last = Instant::now();
                        return text;
                    }
                    client = None;
                    place = (place + 1) % addresses.len();
                    written.moves += 1;
                    // Nobody helps a node that is busy by asking it again at once.
                    std::thread::sleep(Duration::from_millis(2));
                }
            };
            let counter = format!("counter:{number}");
            for step in 1.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("key:{number}:{step}");
                assert_eq!(write(&["SET", &key, &key]), "OK");
                let id = format!("{number}:{step}");
                let sum = write(&["ORDO.IDEMPOTENT", &id, "INCR", &counter]);
                assert_eq!(sum, step.to_string(), "client {number}");
                counted.store(step, Ordering::Relaxed);
            }
            written
        });
        Writer { done, thread }
    }
}

pub fn wait_for_steps(cluster: &Cluster, writers: &[Writer]) {
    let done = |writer: &Writer| writer.done.load(Ordering::Relaxed);
    let before: Vec<u64> = writers.iter().map(done).collect();
    for (number, (writer, before)) in writers.iter().zip(before).enumerate() {
        let what = format!("client {number} goes on behind {before}");
        cluster.until(number % NAMES.len(), &what, || {
            (done(writer) >= before + STEPS || writer.thread.is_finished()).then_some(())
        });
    }
}
