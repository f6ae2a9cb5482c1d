//! A rolling restart of real nodes to another build, under load.
//!
//! One binary acts as both builds (`--behaviour-level`). To try two true ones, name the older binary:
//! `ORDO_OTHER_BUILD=path cargo test -p ordo --test upgrade -- --nocapture`.
#![allow(
    clippy::disallowed_methods,
    reason = "what watches processes has threads, a clock and pauses"
)]

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

const PATIENCE: Duration = Duration::from_secs(90);
/// How long a client waits for a reply before it goes to another node.
const REPLY_PATIENCE: Duration = Duration::from_secs(3);
/// The bar: no client waits longer for a write.
const PAUSE_MAX: Duration = Duration::from_secs(2);
const NAMES: [&str; 3] = ["a", "b", "c"];
const CLIENTS: usize = 6;
/// Each client has done so many writes before the next thing happens.
const STEPS: u64 = 60;

/// What a node is started as.
#[derive(Clone)]
struct Build {
    program: PathBuf,
    words: Vec<String>,
}

/// The build that the cluster is founded with, and the one that it is brought to.
fn builds() -> (Build, Build) {
    let own = PathBuf::from(env!("CARGO_BIN_EXE_ordo"));
    let plain = |program: PathBuf| Build {
        program,
        words: Vec::new(),
    };
    if let Some(other) = std::env::var_os("ORDO_OTHER_BUILD") {
        return (plain(other.into()), plain(own));
    }
    let acting = |level: &str| Build {
        program: own.clone(),
        words: vec!["--behaviour-level".to_owned(), level.to_owned()],
    };
    (acting("1"), acting("2"))
}

/// A cluster of three on this machine. Its processes end with it.
struct Cluster {
    dir: tempfile::TempDir,
    clients: Vec<String>,
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

fn free_address() -> String {
    format!("127.0.0.1:{}", free_port().expect("a port"))
}

impl Cluster {
    fn start(build: &Build) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let clients: Vec<String> = NAMES.iter().map(|_| free_address()).collect();
        let mut text =
            "name = \"upgrade\"\nsecret = \"a secret that only this test knows\"\npartitions = 3\n"
                .to_owned();
        for (name, client) in NAMES.iter().zip(&clients) {
            text.push_str(&format!(
                "[[node]]\nname = \"{name}\"\nzone = \"zone-{name}\"\npeer_address = \"{}\"\nclient_address = \"{client}\"\n",
                free_address()
            ));
        }
        std::fs::write(dir.path().join("cluster.toml"), text).expect("written");
        let mut cluster = Cluster {
            dir,
            clients,
            processes: NAMES.iter().map(|_| None).collect(),
        };
        for place in 0..NAMES.len() {
            cluster.run(place, build);
        }
        for place in 0..NAMES.len() {
            cluster.status(place);
        }
        cluster
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&mut self, place: usize, build: &Build) {
        let name = NAMES[place];
        // What several processes of a node say is in one file.
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.file(&format!("{name}.log")));
        let process = Command::new(&build.program)
            .args(["serve", "--node", name])
            .args([
                Path::new("--cluster"),
                &self.file("cluster.toml"),
                Path::new("--dir"),
                &self.file(name),
            ])
            .args(&build.words)
            .stderr(log.expect("a file"))
            .spawn();
        self.processes[place] = Some(process.expect("it starts"));
    }

    fn said(&self, place: usize) -> String {
        std::fs::read_to_string(self.file(&format!("{}.log", NAMES[place]))).unwrap_or_default()
    }

    fn until<T>(&self, place: usize, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{}: not {what}\n{}",
                NAMES[place],
                self.said(place)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What a node answers, once it answers without an error.
    fn call(&self, place: usize, words: &[&str]) -> String {
        self.until(place, "it answers", || {
            let mut client = Client::open(&self.clients[place], REPLY_PATIENCE).ok()?;
            match client.call(words) {
                Ok(Answer::Text(text)) => Some(text),
                _ => None,
            }
        })
    }

    fn status(&self, place: usize) -> ClusterStatus {
        serde_json::from_str(&self.call(place, &["ORDO.CLUSTER", "STATUS"])).expect("a status")
    }

    /// Waits until a process has ended.
    fn ended(&mut self, place: usize) -> ExitStatus {
        let mut process = self.processes[place].take().expect("it was started");
        self.until(place, "it has ended", || {
            process.try_wait().expect("a status")
        })
    }

    /// Stops a process in good order. Returns how long that took.
    fn stop(&mut self, place: usize) -> Duration {
        let process = self.processes[place].as_ref().expect("it runs").id();
        let start = Instant::now();
        let status = Command::new("kill")
            .args(["-TERM", &process.to_string()])
            .status();
        assert!(status.expect("kill runs").success());
        let status = self.ended(place);
        assert!(status.success(), "{status}\n{}", self.said(place));
        start.elapsed()
    }
}

/// A client that writes all the time, and goes to another node when its own does not answer.
struct Writer {
    /// Writes that were acknowledged, in pairs: a SET, and an addition to the client's counter.
    done: Arc<AtomicU64>,
    thread: JoinHandle<Written>,
}

struct Written {
    /// The longest time from one acknowledgement to the next.
    pause: Duration,
    /// How often it went to another node.
    moves: u64,
}

impl Writer {
    fn start(number: usize, addresses: Vec<String>, stop: Arc<AtomicBool>) -> Writer {
        let done = Arc::new(AtomicU64::new(0));
        let counted = done.clone();
        let thread = std::thread::spawn(move || {
            let mut place = number % addresses.len();
            let mut client: Option<Client> = None;
            let mut written = Written {
                pause: Duration::ZERO,
                moves: 0,
            };
            let mut last = Instant::now();
            // Until it is acknowledged: the same words again, at another node if this one does not answer.
            let mut write = |words: &[&str]| -> String {
                loop {
                    if client.is_none() {
                        client = Client::open(&addresses[place], REPLY_PATIENCE).ok();
                    }
                    if let Some(Ok(Answer::Text(text))) =
                        client.as_mut().map(|client| client.call(words))
                    {
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

fn wait_for_steps(cluster: &Cluster, writers: &[Writer]) {
    let done = |writer: &Writer| writer.done.load(Ordering::Relaxed);
    let before: Vec<u64> = writers.iter().map(done).collect();
    for (number, (writer, before)) in writers.iter().zip(before).enumerate() {
        let what = format!("client {number} goes on behind {before}");
        cluster.until(number % NAMES.len(), &what, || {
            (done(writer) >= before + STEPS || writer.thread.is_finished()).then_some(())
        });
    }
}

#[test]
fn nodes_are_restarted_one_after_the_other_with_another_build_and_nobody_notices() {
    let (old, new) = builds();
    let acts = !old.words.is_empty();
    let mut cluster = Cluster::start(&old);
    let founded = cluster.status(0);
    if acts {
        assert_eq!(founded.level, 1, "in force from the beginning");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<Writer> = (0..CLIENTS)
        .map(|number| Writer::start(number, cluster.clients.clone(), stop.clone()))
        .collect();
    for (place, name) in NAMES.iter().enumerate() {
        wait_for_steps(&cluster, &writers);
        let status = cluster.status(place);
        let leads = |found: &&server::cluster::PartitionStatus| found.leader == Some(status.me);
        let led = status.partitions.iter().filter(leads).count();
        let took = cluster.stop(place);
        cluster.run(place, &new);
        let started = Instant::now();
        let status = cluster.status(place);
        println!(
            "{name}: led {led} of 3 partitions, ended after {took:?}, served again {:?} later",
            started.elapsed()
        );
        let known: Vec<u32> = status.nodes.iter().map(|node| node.level).collect();
        let is_last = place + 1 == NAMES.len();
        if acts && !is_last {
            assert_eq!(status.level, 1, "the nodes know {known:?}");
        }
    }
    let level = cluster.until(0, "the behaviour that all know is in force", || {
        let status = cluster.status(0);
        let known = status.nodes.iter().map(|node| node.level).min();
        (Some(status.level) == known).then_some(status.level)
    });
    println!("behaviour {} before, {level} afterwards", founded.level);
    if acts {
        assert_eq!(level, 2);
    }
    wait_for_steps(&cluster, &writers);
    stop.store(true, Ordering::Relaxed);
    let mut steps = Vec::new();
    for writer in writers {
        let written = writer.thread.join().expect("no wrong reply");
        let done = writer.done.load(Ordering::Relaxed);
        println!(
            "a client: {done} pairs of writes, longest pause {:?}, {} times to another node",
            written.pause, written.moves
        );
        assert!(written.pause < PAUSE_MAX, "{:?}", written.pause);
        steps.push(done);
    }

    if acts {
        // The old build is refused from now on, and leaves the data as it is.
        cluster.stop(1);
        cluster.run(1, &old);
        let status = cluster.ended(1);
        let said = cluster.said(1);
        assert_eq!(status.code(), Some(78), "{said}");
        for want in [
            "behaviour 2 is in force",
            "knows behaviours up to 1",
            "Start this node with the version",
        ] {
            assert!(said.contains(want), "no '{want}' in {said}");
        }
        cluster.run(1, &new);
    }
    // Every node has everything.
    for place in 0..NAMES.len() {
        cluster.call(place, &["PING"]);
        let mut client = Client::open(&cluster.clients[place], PATIENCE).expect("it serves");
        let mut get = |key: &str| client.call(&["GET", key]).expect("a reply");
        for (number, &done) in steps.iter().enumerate() {
            let sum = get(&format!("counter:{number}"));
            assert_eq!(sum, Answer::Text(done.to_string()));
            // Reading takes longer than writing did: each node is asked for another share of it.
            for step in (1..=done).filter(|step| step % 3 == place as u64) {
                let key = format!("key:{number}:{step}");
                assert_eq!(get(&key), Answer::Text(key));
            }
        }
        let said = cluster.said(place);
        assert!(
            said.contains("partitions 0, 1, 2: no checkpoint, "),
            "{said}"
        );
        assert!(
            !acts || !said.contains("\u{1b}"),
            "a file has no colours: {said}"
        );
        assert!(!said.contains(" ERROR ") || place == 1, "{said}");
    }
}

#[test]
fn a_build_that_knows_too_little_is_refused_before_it_touches_anything() {
    let mut acting = builds().1;
    acting.program = env!("CARGO_BIN_EXE_ordo").into();
    acting.words = vec!["--behaviour-level".to_owned(), "0".to_owned()];
    let mut cluster = Cluster::start(&acting);
    // As if the cluster had gone on without it, and the node had learned that with a checkpoint.
    cluster.stop(2);
    let mut identity = server::cluster::identity::Identity::load(&cluster.file("c"))
        .expect("readable")
        .expect("it has run");
    identity.map.level = 1_000;
    identity.save(&cluster.file("c")).expect("written");
    let before = std::fs::metadata(cluster.file("c")).and_then(|dir| dir.modified());
    cluster.run(2, &acting);
    let status = cluster.ended(2);
    let said = cluster.said(2);
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(said.contains("behaviour 1000 is in force"), "{said}");
    let after = std::fs::metadata(cluster.file("c")).and_then(|dir| dir.modified());
    assert_eq!(before.expect("a time"), after.expect("a time"));
}
