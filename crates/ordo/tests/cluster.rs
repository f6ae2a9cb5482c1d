//! `ordo cluster start`: what keeps the processes, tried with servers that stand alone, and what the command
//! refuses.
#![allow(
    clippy::disallowed_methods,
    reason = "what watches processes is a thread, and a test's patience is a time"
)]

use rustix::process::{Pid, Signal, kill_process};
use server::client::{Answer, Client, ClientError};
use server::cluster::local::{Event, Launch, LocalError, Processes, supervise};
use server::launcher::{ServerProcess, free_port};
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server that stands alone, on a port that is free now.
fn launch(dir: &Path, name: &str) -> Launch {
    let port = free_port().expect("a port").to_string();
    let words = ["serve", "--bind", "127.0.0.1", "--port", &port, "--dir"];
    let mut words = words.map(Into::into).to_vec();
    // With a space: what is printed must be quoted.
    words.push(dir.join(format!("data of {name}")).into());
    Launch {
        name: name.to_owned(),
        zone: format!("zone of {name}"),
        client_address: format!("127.0.0.1:{port}"),
        tls: None,
        log: dir.join(format!("{name}.log")),
        program: env!("CARGO_BIN_EXE_ordo").into(),
        words,
        may_wait: false,
        is_certified: false,
    }
}

fn call(launch: &Launch, words: &[&str]) -> Result<Answer, ClientError> {
    Client::open(&launch.client_address, PATIENCE)?.call(words)
}

fn is_gone(launch: &Launch) -> bool {
    matches!(call(launch, &["PING"]), Err(ClientError::Unreachable { .. }))
}

fn send(signal: Signal, process: u32) {
    let process = Pid::from_raw(process as i32).expect("a process");
    kill_process(process, signal).expect("it runs");
}

/// Sends each line that is written to it.
struct Lines {
    line: Vec<u8>,
    sender: Sender<String>,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            if byte == b'\n' {
                let line = String::from_utf8_lossy(&self.line).into_owned();
                self.line.clear();
                // Whoever reads may have seen enough.
                let _ = self.sender.send(line);
            } else {
                self.line.push(byte);
            }
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Processes that are being watched, as `ordo cluster start` does it.
struct Watched {
    events: Sender<Event>,
    lines: Receiver<String>,
    thread: JoinHandle<Result<(), LocalError>>,
}

impl Watched {
    fn start(launches: &[Launch]) -> (Watched, Vec<u32>) {
        let mut signals = Signals::new([SIGCHLD]).expect("signals");
        let (events, happening) = channel();
        let told = events.clone();
        // It lives as long as the test's process, as the handler does.
        std::thread::spawn(move || {
            for _ in signals.forever() {
                if told.send(Event::ChildEnded).is_err() {
                    break;
                }
            }
        });
        let mut processes = Processes::start(launches, || false).expect("they start");
        let numbers = processes.running().map(|(_, process)| process).collect();
        let (sender, lines) = channel();
        let mut out = Lines { line: Vec::new(), sender };
        let watch = move || supervise(&mut processes, happening.into_iter(), &mut out);
        let watched = Watched { events, lines, thread: std::thread::spawn(watch) };
        (watched, numbers)
    }

    /// The first line from here on that contains a text.
    fn line(&self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(_) => {}
                Err(_) => panic!("nobody said '{text}'"),
            }
        }
    }
}

#[test]
fn a_dead_node_is_reported_and_the_others_go_on_until_all_are_stopped() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let launches = ["n1", "n2", "n3"].map(|name| launch(dir.path(), name));
    let (watched, processes) = Watched::start(&launches);
    for (launch, process) in launches.iter().zip(&processes) {
        let line = watched.line(&launch.name);
        assert!(line.contains(&launch.client_address), "{line}");
        assert!(line.contains(&process.to_string()), "{line}");
    }
    watched.line("redis-cli -p");
    watched.line("kill -9");
    watched.line("Ctrl-C");

    let set = call(&launches[0], &["SET", "k", "acknowledged"]).expect("a reply");
    assert_eq!(set, Answer::Text("OK".to_owned()));
    send(Signal::KILL, processes[0]);
    let line = watched.line("has ended");
    assert!(line.starts_with(&format!("n1 (process {})", processes[0])), "{line}");
    assert!(line.contains("signal: 9"), "{line}");
    for launch in &launches[1..] {
        assert!(call(launch, &["PING"]).is_ok(), "{} goes on", launch.name);
    }

    // The command that it tells starts the node again, with its data.
    watched.line("To start it again");
    let command = watched.line("serve");
    let mut by_hand = Command::new("sh");
    by_hand.arg("-c").arg(format!("exec {command}"));
    let by_hand = ServerProcess::start("by hand", &mut by_hand, &dir.path().join("by-hand.log"));
    let by_hand = by_hand.expect("sh runs");
    let again = Launch {
        program: "sh".into(),
        words: vec!["-c".into(), "exec tail -f /dev/null".into()],
        ..launches[0].clone()
    };
    // A process that only waits: what answers at the address is the one that was started by hand.
    drop(Processes::start(&[again], || false).expect("it answers"));
    let value = call(&launches[0], &["GET", "k"]).expect("a reply");
    assert_eq!(value, Answer::Text("acknowledged".to_owned()));

    // A frozen one stops in good order, too.
    send(Signal::STOP, processes[2]);
    watched.events.send(Event::Stop).expect("somebody listens");
    watched.line("Stopping");
    let line = watched.line("had ended before");
    assert!(line.starts_with("n1 "), "{line}");
    watched.line("Stopped");
    watched.thread.join().expect("no panic").expect("a good end");
    assert!(is_gone(&launches[1]) && is_gone(&launches[2]));
    assert!(!is_gone(&launches[0]), "what was started by hand is not ours to stop");
    for launch in &launches[1..] {
        let said = std::fs::read_to_string(&launch.log).expect("a log");
        assert!(said.contains("stopped: everything acknowledged"), "{said}");
        assert!(!said.contains('\u{1b}'), "a file has no colours: {said}");
    }
    drop(by_hand);
}

#[test]
fn when_the_last_one_has_ended_there_is_nothing_to_keep() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let only = launch(dir.path(), "only");
    let (watched, processes) = Watched::start(std::slice::from_ref(&only));
    // One that ends by itself tells why.
    send(Signal::TERM, processes[0]);
    let line = watched.line("has ended");
    assert!(line.contains("exit status: 0"), "{line}");
    // It may have answered the PING that is waited for at the start, and not yet have come to where signals
    // find it: then it says that it has stopped before clients were served.
    watched.line("acknowledged is");
    let end = watched.thread.join().expect("no panic");
    assert!(matches!(end, Err(LocalError::NoneLeft)), "{end:?}");
}

/// One that has no part in anything any more: it ends as a node does that has left its cluster.
fn left(dir: &Path) -> Launch {
    Launch {
        program: "sh".into(),
        words: vec!["-c".into(), "echo 'it has left'; exit 78".into()],
        ..launch(dir, "left")
    }
}

#[test]
fn one_that_has_left_is_left_out_and_one_that_waits_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let good = launch(dir.path(), "good");
    let waits = Launch {
        program: "sleep".into(),
        words: vec!["1000".into()],
        may_wait: true,
        is_certified: false,
        ..launch(dir.path(), "waits")
    };
    let (watched, processes) = Watched::start(&[left(dir.path()), good.clone(), waits]);
    assert_eq!(processes.len(), 2);
    watched.line("good");
    assert!(watched.line("waits").contains("may wait to join"));
    let line = watched.line("has ended");
    assert!(line.starts_with("left ") && line.contains("exit status: 78"), "{line}");
    watched.line("it has left");
    watched.line("not to be started again");
    assert!(call(&good, &["PING"]).is_ok());
    watched.events.send(Event::Stop).expect("somebody listens");
    let mut said = String::new();
    while !said.contains("Stopped.") {
        said.push_str(&watched.line(""));
    }
    assert!(!said.contains("had ended before") && !said.contains("To start it again"), "{said}");
    let end = watched.thread.join().expect("no panic");
    end.expect("a good end");

    let error = Processes::start(&[left(dir.path())], || false).err();
    let error = error.expect("nobody is left").to_string();
    assert!(error.contains("it has left"), "{error}");
}

#[test]
fn if_one_does_not_start_none_does() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let good = launch(dir.path(), "good");
    let mut bad = launch(dir.path(), "bad");
    std::fs::write(&bad.log, "of an earlier run\n").expect("written");
    bad.words = vec!["serve".into(), "--prot".into(), "1".into()];
    let error = Processes::start(&[good.clone(), bad.clone()], || false).err();
    let error = error.expect("one is bad").to_string();
    for want in ["bad ended at once (exit status: 1)", "bad.log", "did you mean 'port'"] {
        assert!(error.contains(want), "'{error}' lacks '{want}'");
    }
    assert!(!error.contains("earlier"), "{error}");
    assert!(is_gone(&good));

    bad.program = "/no/such/program".into();
    let error = Processes::start(&[good.clone(), bad], || false).err();
    let error = error.expect("one is no program").to_string();
    assert!(error.contains("bad could not be started"), "{error}");
    assert!(is_gone(&good));
}

#[test]
fn who_interrupts_the_start_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut deaf = launch(dir.path(), "deaf");
    deaf.program = "sleep".into();
    deaf.words = vec!["1000".into()];
    let good = launch(dir.path(), "good");
    let mut looks = 0;
    let interrupted = || {
        looks += 1;
        looks > 3
    };
    let error = Processes::start(&[good.clone(), deaf], interrupted).err();
    assert!(matches!(error, Some(LocalError::Interrupted)), "{error:?}");
    assert!(is_gone(&good));
}

/// A port that three nodes may begin with: theirs for clients and for peers are free now.
fn three_ports() -> String {
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let all = |&port: &u16| (port..port + 3).all(|port| free(port) && free(port + 10_000));
    let mut tried = std::iter::repeat_with(|| free_port().expect("a port"));
    tried.find(all).expect("without an end").to_string()
}

#[test]
fn what_cannot_be_started_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("cluster").to_str().expect("UTF-8").to_owned();
    let file = dir.path().join("broken");
    std::fs::create_dir(&file).expect("made");
    std::fs::write(file.join("cluster.toml"), "name = 'x'\nsecret = 'short'\n").expect("written");
    let broken = file.to_str().expect("UTF-8");
    for (words, wants) in [
        (&["--dir", &path][..], &["no cluster", "--local 3"][..]),
        (&["--dir", &path, "--local", "8"], &["--local 8", "from 1 to 7"]),
        (&["--dir", &path, "--local", "three"], &["'three'", "--local"]),
        (&["--dir", &path, "--local", "3", "--port", "60000"], &["--port 60000", "from 1 to"]),
        (&["--dir", &path, "--local", "3", "--port", "PORT", "--partitions", "999"], &["partitions is 999"]),
        (&["--dir", broken, "--local", "3"], &["line 2", "5 characters", "openssl"]),
        (&["--dir", "/proc/nothing", "--local", "3", "--port", "PORT"], &["/proc/nothing"]),
    ] {
        let said = loop {
            let port = three_ports();
            let words = words.iter().map(|&word| match word {
                "PORT" => port.as_str(),
                word => word,
            });
            let output = Command::new(env!("CARGO_BIN_EXE_ordo"))
                .args(["cluster", "start"])
                .args(words)
                .output()
                .expect("the binary runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "it succeeded: {said}");
            // Another test may have been faster.
            if !said.contains("is in use") {
                break said;
            }
        };
        for want in wants {
            assert!(said.contains(want), "{words:?} said {said}, without '{want}'");
        }
    }
    assert!(!dir.path().join("cluster").exists(), "a refusal leaves nothing behind");
}
