//! Real servers on this machine: one by itself, clusters, and clients that write to them all the time.
#![allow(clippy::disallowed_methods, reason = "clients are threads, and their pauses are measured")]

use rustix::process::Signal;
use server::client::{Answer, Client};
use server::cluster::ClusterStatus;
use server::launcher::{HOST, ServerProcess, free_address, poll};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_ordo");
pub const PATIENCE: Duration = Duration::from_secs(90);
/// How long a client waits for a reply before it goes to another node.
pub const REPLY_PATIENCE: Duration = Duration::from_secs(3);
/// How long a test waits for a reply before it asks again.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// The bar: no client waits longer for a write.
pub const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The nodes of [`Cluster::start`], each in the zone of that name.
pub const NAMES: [&str; 3] = ["a", "b", "c"];
pub const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
pub const CLIENTS: usize = 6;
/// Each client has done this many writes before the next thing happens.
const STEPS: u64 = 60;

/// Runs `ordo` to its end.
pub fn ordo(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).env_remove("RUST_LOG").output().expect("it runs")
}

/// Whether `ordo` has succeeded, and what it said on both of its outputs.
pub fn try_ordo(words: &[&str]) -> (bool, String) {
    let output = ordo(words);
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// A path as a word of a command.
pub fn word(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// `host:port` on this machine where nobody listens.
pub fn address() -> String {
    free_address().expect("a port")
}

/// What `look` finds, which must come in time. What the process has said is in the error.
fn wait_in_time<T>(process: &ServerProcess, what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(PATIENCE, look).unwrap_or_else(|| panic!("not {what}\n{}", process.said()))
}

/// A server by itself. It can be started again with its data, and is killed in the end.
pub struct Server {
    dir: tempfile::TempDir,
    pub address: String,
    process: Option<ServerProcess>,
}

impl Server {
    /// None runs yet.
    pub fn new() -> Server {
        Server { dir: tempfile::tempdir().expect("a directory"), address: address(), process: None }
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().expect("a port")
    }

    /// Starts it, and does not wait until it serves.
    pub fn launch(&mut self, words: &[&str]) {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--bind", HOST, "--port", self.port(), "--dir"]).arg(self.data()).args(words);
        self.launch_by(&mut command);
    }

    /// The same by another command, which knows the address and the directory.
    pub fn launch_by(&mut self, command: &mut Command) {
        let log = self.dir.path().join("log");
        let process = ServerProcess::start("the server", command.env_remove("RUST_LOG"), &log);
        self.process = Some(process.unwrap_or_else(|error| panic!("{error}")));
    }

    pub fn wait_until_up(&mut self) {
        let process = self.process.as_mut().expect("it was started");
        process.wait_until_up(&self.address, PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Starts it and waits until it serves.
    pub fn start(&mut self, words: &[&str]) {
        self.launch(words);
        self.wait_until_up();
    }

    pub fn process(&mut self) -> &mut ServerProcess {
        self.process.as_mut().expect("it was started")
    }

    pub fn kill(&mut self) {
        self.process().kill();
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        self.process().wait(PATIENCE).unwrap_or_else(|error| panic!("{error}"))
    }

    /// What it has said since it was last started.
    pub fn said(&self) -> String {
        self.process.as_ref().expect("it was started").said()
    }

    pub fn until<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        wait_in_time(self.process.as_ref().expect("it was started"), what, look)
    }

    pub fn client(&self) -> Client {
        Client::open(&self.address, PATIENCE).expect("a connection")
    }

    pub fn call(&self, words: &[&str]) -> Answer {
        self.client().call(words).expect("an answer")
    }
}

/// What a node is started as.
#[derive(Clone)]
pub struct Build {
    pub program: PathBuf,
    pub words: Vec<String>,
}

impl Build {
    /// This build, with these settings.
    pub fn own(words: &[&str]) -> Build {
        Build { program: PROGRAM.into(), words: words.iter().map(|&word| word.to_owned()).collect() }
    }
}

/// A node of the description, and its process if it was started.
pub struct Node {
    pub name: String,
    pub zone: String,
    pub client: String,
    pub peer: String,
    joins: bool,
    process: Option<ServerProcess>,
}

impl Node {
    fn process(&mut self) -> &mut ServerProcess {
        self.process.as_mut().expect("it was started")
    }
}

/// An entry of a cluster's description.
pub fn described(name: &str, zone: &str, peer: &str, client: &str) -> String {
    format!(
        "[[node]]\nname = \"{name}\"\nzone = \"{zone}\"\npeer_address = \"{peer}\"\nclient_address = \
         \"{client}\"\n"
    )
}

/// What a cluster's description begins with.
pub fn description(partitions: u16) -> String {
    format!("name = \"trial\"\nsecret = \"a secret that only this test knows\"\npartitions = {partitions}\n")
}

/// A cluster on this machine. Its processes end with it.
pub struct Cluster {
    dir: tempfile::TempDir,
    partitions: u16,
    build: Build,
    /// Settings of all nodes, whatever their build.
    settings: Vec<&'static str>,
    pub nodes: Vec<Node>,
}

impl Cluster {
    /// A cluster of three with three partitions, which serves. It makes no checkpoints by itself: what a node
    /// has after a restart comes out of its log, however long a test takes.
    pub fn start(build: Build) -> Cluster {
        let mut cluster = Cluster::prepare(&ZONES, 3, build);
        cluster.settings.extend(["--checkpoint-log-size", "0"]);
        cluster.run_all();
        for place in 0..cluster.nodes.len() {
            cluster.status(place);
        }
        cluster
    }

    /// The description of a node in each of these zones, named a, b, and so on. None runs.
    pub fn prepare(zones: &[&str], partitions: u16, build: Build) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut cluster = Cluster { dir, partitions, build, settings: Vec::new(), nodes: Vec::new() };
        for (name, zone) in ["a", "b", "c", "d"].iter().zip(zones) {
            cluster.describe(name, zone, false);
        }
        cluster
    }

    /// Adds a node to the description.
    pub fn describe(&mut self, name: &str, zone: &str, joins: bool) {
        let (client, peer) = (address(), address());
        let (name, zone) = (name.to_owned(), zone.to_owned());
        self.nodes.push(Node { name, zone, client, peer, joins, process: None });
        let mut text = description(self.partitions);
        for node in &self.nodes {
            text += &described(&node.name, &node.zone, &node.peer, &node.client);
            text += if node.joins { "joins = true\n" } else { "" };
        }
        std::fs::write(self.file("cluster.toml"), text).expect("written");
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn data(&self, place: usize) -> PathBuf {
        self.file(&self.nodes[place].name)
    }

    pub fn run(&mut self, place: usize) {
        self.run_as(place, &self.build.clone());
    }

    pub fn run_all(&mut self) {
        (0..self.nodes.len()).for_each(|place| self.run(place));
    }

    /// Starts a node as another build than the cluster's.
    pub fn run_as(&mut self, place: usize, build: &Build) {
        let name = self.nodes[place].name.clone();
        let mut command = Command::new(&build.program);
        command
            .args(["serve", "--node", &name])
            .args([Path::new("--cluster"), &self.file("cluster.toml"), Path::new("--dir"), &self.file(&name)])
            .args(&self.settings)
            .args(&build.words)
            .env_remove("RUST_LOG");
        let process = ServerProcess::start(&name, &mut command, &self.log(place));
        self.nodes[place].process = Some(process.unwrap_or_else(|error| panic!("{error}")));
    }

    /// What all processes of a node have said is in one file.
    pub fn log(&self, place: usize) -> PathBuf {
        self.file(&format!("{}.log", self.nodes[place].name))
    }

    /// What a node has said since it was last started.
    pub fn said(&self, place: usize) -> String {
        self.nodes[place].process.as_ref().expect("it was started").said()
    }

    pub fn until<T>(&self, place: usize, what: &str, look: impl FnMut() -> Option<T>) -> T {
        let node = &self.nodes[place];
        let process = node.process.as_ref().expect("it was started");
        wait_in_time(process, &format!("{what}: {}", node.name), look)
    }

    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.client.clone()).collect()
    }

    /// A connection to a node.
    pub fn open(&self, place: usize) -> Client {
        Client::open(&self.nodes[place].client, PATIENCE).expect("it accepts connections")
    }

    /// What a node answers, once it answers without an error.
    pub fn call(&self, place: usize, words: &[&str]) -> String {
        self.call_at(place, &self.nodes[place].client, words)
    }

    /// What a server answers, once it does. What a node has said meanwhile is in the error.
    pub fn call_at(&self, place: usize, address: &str, words: &[&str]) -> String {
        self.until(place, &format!("answered by {address}"), || {
            let mut client = Client::open(address, ANSWER_PATIENCE).ok()?;
            match client.call(words) {
                Ok(Answer::Text(text)) => Some(text),
                _ => None,
            }
        })
    }

    pub fn status(&self, place: usize) -> ClusterStatus {
        serde_json::from_str(&self.call(place, &["ORDO.CLUSTER", "STATUS"])).expect("a status")
    }

    /// What `ordo admin` says to these words, asking a node. It is asked again while it says that nothing was
    /// changed because a partition has no leader: on a busy machine nodes elect now and then.
    pub fn admin(&self, place: usize, words: &[&str]) -> String {
        let (done, said) = self.until(place, "of a partition with a leader", || {
            let (done, said) = self.try_admin(place, words);
            let elects = said.contains("has no leader at present, so nothing was changed");
            (done || !elects).then_some((done, said))
        });
        assert!(done, "{words:?}: {said}");
        said
    }

    /// Whether `ordo admin` has succeeded, and what it said. It is asked again while it wants that: nodes
    /// that have just begun change the map by themselves.
    pub fn try_admin(&self, place: usize, words: &[&str]) -> (bool, String) {
        let asked = ["admin", "--address", &self.nodes[place].client];
        self.until(place, "of a map that stays the same", || {
            let (done, said) = try_ordo(&[&asked[..], words].concat());
            (done || !said.contains("has changed meanwhile")).then_some((done, said))
        })
    }

    /// The process of a node that runs.
    pub fn process(&self, place: usize) -> rustix::process::Pid {
        self.nodes[place].process.as_ref().expect("it runs").pid()
    }

    /// Waits until a process has ended.
    pub fn ended(&mut self, place: usize) -> ExitStatus {
        self.nodes[place].process().wait(PATIENCE).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Kills a process.
    pub fn kill(&mut self, place: usize) {
        self.nodes[place].process().kill();
    }

    /// Stops a process in good order. Returns how long that took.
    pub fn stop(&mut self, place: usize) -> Duration {
        let start = Instant::now();
        self.nodes[place].process().signal(Signal::TERM).expect("it runs");
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
