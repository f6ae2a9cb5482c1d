//! A service manager, played by the test: what real servers tell it at its socket, and when.
#![allow(clippy::disallowed_methods, reason = "the manager's socket has a time-out")]

use crate::nodes::{Build, Cluster, PATIENCE, PROGRAM, Server, ZONES, word};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use rustix::process::Signal;
use server::client::{Answer, Client};
use server::launcher::{HOST, ServerProcess, poll};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The manager's watchdog time, in microseconds, and how long a server waits between two feeds.
const WATCHDOG_US: &str = "2000000";
const FEED_PAUSE: Duration = Duration::from_millis(500);

const READY: &str = "READY=1";
const FED: &str = "WATCHDOG=1";
const STOPPING: &str = "STOPPING=1";

struct Manager {
    dir: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn listen() -> Manager {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = UnixDatagram::bind(dir.path().join("notify")).expect("bound");
        Manager { dir, socket }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("notify")
    }

    /// Has a command's process tell this manager.
    fn starts(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", self.path()).env("WATCHDOG_USEC", WATCHDOG_US);
    }

    /// The lines of the next message, which must come in this time.
    fn next(&self, within: Duration) -> Option<Vec<String>> {
        self.socket.set_read_timeout(Some(within)).expect("a time-out");
        let mut bytes = [0; 4096];
        let count = self.socket.recv(&mut bytes).ok()?;
        let text = std::str::from_utf8(&bytes[..count]).expect("UTF-8");
        Some(text.lines().map(str::to_owned).collect())
    }

    /// What has come when this line does.
    fn until(&self, line: &str) -> Vec<String> {
        let mut told = Vec::new();
        while !told.iter().any(|told| told == line) {
            let next = self.next(PATIENCE);
            told.extend(next.unwrap_or_else(|| panic!("no {line} behind {told:?}")));
        }
        told
    }

    /// What waits to be read.
    fn told(&self) -> Vec<String> {
        std::iter::from_fn(|| self.next(Duration::from_millis(1))).flatten().collect()
    }
}

/// A server by itself that tells a manager that it is ready.
fn ready(manager: &Manager) -> Server {
    let mut server = Server::new();
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--bind", HOST, "--port", server.port(), "--dir"]).arg(server.data());
    manager.starts(&mut command);
    server.launch_by(&mut command);
    let told = manager.until(READY);
    assert_eq!(told.first().map(String::as_str), Some("STATUS=loading the data"), "{told:?}");
    server
}

#[test]
fn a_server_is_ready_when_it_serves_feeds_the_watchdog_and_says_that_it_ends() {
    let manager = Manager::listen();
    let mut server = ready(&manager);
    // Its clients are served from now on, and it was not called before.
    assert_eq!(server.call(&["SET", "key", "value"]), Answer::Text("OK".to_owned()));
    let told = manager.until("STATUS=ready");
    assert!(!told.iter().any(|line| line == READY), "it says so once: {told:?}");
    manager.until(FED);
    manager.until(FED);
    server.process().signal(Signal::TERM).expect("it runs");
    manager.until(STOPPING);
    let status = server.ended();
    assert!(status.success(), "{status}");
    let told = manager.told();
    assert!(!told.iter().any(|line| line == FED || line == READY), "{told:?}");
}

#[test]
fn shutdown_is_told_as_well() {
    let manager = Manager::listen();
    let mut server = ready(&manager);
    let mut client = server.client();
    // The reply is that the connection closes.
    let _ = client.call(&["SHUTDOWN", "NOSAVE"]);
    manager.until(STOPPING);
    assert!(server.ended().success());
}

#[test]
fn a_node_without_a_majority_is_not_ready() {
    let manager = Manager::listen();
    let mut cluster = Cluster::prepare(&ZONES, 2, Build::own(&[]));
    let mut command = Command::new(PROGRAM);
    let (file, data) = (cluster.file("cluster.toml"), cluster.data(0));
    command.args(["serve", "--node", "a", "--cluster", word(&file), "--dir", word(&data)]);
    manager.starts(&mut command);
    let log = cluster.log(0);
    let mut process = ServerProcess::start("a", &mut command, &log).unwrap_or_else(|error| panic!("{error}"));
    let address = cluster.nodes[0].client.clone();
    // It answers what can be answered without data, for some feeds.
    let client = poll(PATIENCE, || Client::open(&address, PATIENCE).ok());
    let mut client = client.unwrap_or_else(|| panic!("{}", process.said()));
    let loading = client.call(&["PING"]).expect("an answer");
    assert!(matches!(&loading, Answer::Error(text) if text.starts_with("LOADING")), "{loading:?}");
    let mut told = manager.until(FED);
    told.extend(manager.until(FED));
    assert!(!told.iter().any(|line| line == READY), "{told:?}");
    (1..3).for_each(|place| cluster.run(place));
    manager.until(READY);
    let answer = client.call(&["SET", "key", "value"]).expect("an answer");
    assert_eq!(answer, Answer::Text("OK".to_owned()));
    process.signal(Signal::TERM).expect("it runs");
    manager.until(STOPPING);
    assert!(process.wait(PATIENCE).is_ok_and(|status| status.success()), "{}", process.said());
}

/// The number of a server's thread.
fn thread(process: u32, name: &str) -> Pid {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let mut numbers =
        threads.map(|entry| entry.expect("a thread").file_name().into_string().expect("a number"));
    let found = numbers.find(|number| {
        std::fs::read_to_string(format!("/proc/{process}/task/{number}/comm"))
            .is_ok_and(|comm| comm.trim_end() == name)
    });
    let number = found.unwrap_or_else(|| panic!("no thread {name}"));
    Pid::from_raw(number.parse().expect("a number"))
}

#[test]
fn a_server_that_hangs_does_not_feed_the_watchdog() {
    let manager = Manager::listen();
    let mut server = ready(&manager);
    let process = server.process().pid().as_raw_nonzero().get().unsigned_abs();
    for (name, complaint) in
        [("ordo-io-0", "the I/O thread 0 hangs"), ("ordo-tick", "the node's clock hangs")]
    {
        let stopped = thread(process, name);
        // A thread that stops while it has a lock stops the thread as well that would complain.
        let fed = (0..5).find_map(|_| {
            manager.until(FED);
            ptrace::attach(stopped).expect("this process may stop its child's threads");
            waitpid(stopped, Some(WaitPidFlag::__WALL)).expect("it has stopped");
            let complains = poll(FEED_PAUSE * 20, || server.said().contains(complaint).then_some(()));
            manager.told();
            let fed = complains.map(|()| manager.next(FEED_PAUSE * 3));
            ptrace::detach(stopped, None).expect("it goes on");
            fed
        });
        assert_eq!(fed, Some(None), "{name} stands still: {}", server.said());
        manager.until(FED);
    }
}
