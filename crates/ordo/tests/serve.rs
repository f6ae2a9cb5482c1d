//! `ordo serve` as a process: what it says when it can't start, and how it stops.
#![allow(clippy::disallowed_methods, reason = "clients of a test are threads, and their patience is a time")]

use redis_surface::codec::{decode_reply, encode_command};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use txn::Reply;

const PATIENCE: Duration = Duration::from_secs(60);

fn ordo(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ordo"));
    command.args(words).env_remove("RUST_LOG");
    command
}

/// A server process. Killed when dropped.
struct Process {
    child: Child,
    port: u16,
}

impl Process {
    /// Starts a server in `dir` and waits until it listens.
    fn start(dir: &Path, flags: &[&str]) -> Process {
        let dir = dir.to_str().expect("UTF-8");
        let mut words = vec!["serve", "--port", "0", "--bind", "127.0.0.1", "--dir", dir];
        words.extend(flags);
        Process::started_by(ordo(&words))
    }

    /// Waits until a server listens that a command starts.
    fn started_by(mut command: Command) -> Process {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut said = String::new();
        let port = loop {
            let Some(Ok(line)) = lines.next() else { panic!("the server did not start: {said}") };
            if let Some((_, rest)) = line.split_once("serving 127.0.0.1:") {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                break digits.parse().expect("a port");
            }
            said.push_str(&line);
        };
        // Keeps the pipe from filling up.
        std::thread::spawn(move || lines.for_each(drop));
        Process { child, port }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client { stream, buffer: Vec::new() }
    }

    /// Sends a signal.
    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits for the end and gives the exit code; `None` if a signal ended it.
    fn end(mut self) -> Option<i32> {
        self.child.wait().expect("a status").code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    /// Sends a command. `None` if the connection is gone.
    fn try_call(&mut self, words: &[&str]) -> Option<Reply> {
        let mut bytes = Vec::new();
        encode_command(words, &mut bytes);
        self.stream.write_all(&bytes).ok()?;
        loop {
            if let Some((reply, used)) = decode_reply(&self.buffer).expect("RESP") {
                self.buffer.drain(..used);
                return Some(reply);
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(count) if count > 0 => self.buffer.extend_from_slice(&chunk[..count]),
                _ => return None,
            }
        }
    }
    fn call(&mut self, words: &[&str]) -> Reply {
        self.try_call(words).expect("the connection is open")
    }
    /// The number at a key; 0 if it is absent.
    fn number(&mut self, key: &str) -> u64 {
        match self.call(&["GET", key]) {
            Reply::Nil => 0,
            Reply::Bulk(digits) => String::from_utf8_lossy(&digits).parse().expect("a number"),
            other => panic!("GET {key} answered {other:?}"),
        }
    }
}

fn refused(words: &[&str]) -> String {
    let Output { status, stderr, .. } = ordo(words).output().expect("the binary runs");
    assert!(!status.success(), "{words:?} succeeded");
    String::from_utf8_lossy(&stderr).into_owned()
}

#[test]
fn what_cannot_be_served_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().to_str().expect("UTF-8");
    // No resolver is asked for a label of more than 63 letters.
    let nowhere = "nowhere".repeat(10);
    for (words, wants) in [
        (&["serve", "--prot", "1"][..], &["'prot'", "did you mean 'port'"][..]),
        (&["serve", "--port", "x"], &["command line: port", "from 0 to 65535"]),
        (&["serve", "--appendfsync", "never"], &["always, everysec, no"]),
        (&["serve", "--databases", "16"], &["databases: '16'", "one database", "leave the setting out"]),
        (&["serve", "/no/such/file.toml"], &["/no/such/file.toml", "cannot be read"]),
        (&["serve", "--bind", "0.0.0.0"], &["--requirepass", "--protected-mode no"]),
        (
            &["serve", "--bind", &nowhere, "--dir", path],
            &["bind", &nowhere, "does not resolve", "give an IPv4"],
        ),
        (&["serve", "--port", "0", "--dir", "/proc/nothing"], &["/proc/nothing"]),
    ] {
        let said = refused(words);
        for want in wants {
            assert!(said.contains(want), "{words:?} said {said}, without '{want}'");
        }
        assert!(said.matches("os error").count() <= 1, "{words:?} repeated a cause: {said}");
    }
    let first = Process::start(dir.path(), &[]);
    let port = first.port.to_string();
    let other = tempfile::tempdir().expect("a temporary directory");
    let other = other.path().to_str().expect("UTF-8");
    let said = refused(&["serve", "--port", &port, "--dir", other]);
    assert!(said.contains("the port is in use") && said.contains("--port"), "{said}");
    // Who starts the same again is told that, and not only that the port is in use.
    let said = refused(&["serve", "--port", &port, "--dir", path]);
    assert!(said.contains("in use by another process, which holds its lock"), "{said}");
    let said = refused(&["serve", "--port", "0", "--dir", path]);
    assert!(said.contains(path), "{said}");
}

#[test]
fn help_is_on_standard_output() {
    let output = ordo(&["serve", "--help"]).output().expect("the binary runs");
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("--appendfsync") && text.contains("--maxclients"));
}

#[test]
fn the_version_is_the_same_everywhere() {
    let print = |words: &[&str]| {
        let output = ordo(words).output().expect("the binary runs");
        assert!(output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let version = print(&["--version"]);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    for word in ["--version", "-V", "-v"] {
        assert_eq!(print(&["serve", word]), version, "{word}");
    }
}

#[test]
fn the_help_says_what_each_command_is_and_guesses_only_what_is_near() {
    let output = ordo(&["--help"]).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stdout);
    for want in
        ["Shows a cluster, and changes who is in it", "Runs whole nodes, clients, a network and faults"]
    {
        assert!(said.contains(want), "no '{want}' in {said}");
    }
    assert!(!said.contains("`ordo "), "{said}");
    let said = refused(&["nosuch"]);
    assert!(said.contains("'nosuch'") && !said.contains("bench"), "{said}");
    assert!(refused(&["srve"]).contains("'serve'"));
    let said = refused(&["bench", "engine"]);
    assert!(said.contains("serial|nocc|calvin|ssmr|sparkle"), "{said}");
    let said = refused(&["bench", "faults", "--rounds", "0"]);
    assert!(said.contains("give at least 1"), "{said}");
    let said = refused(&["bench", "faults", "--faults", "cut-link", "--network", "loopback"]);
    assert!(said.contains("--network namespaces"), "{said}");
    assert!(!said.contains("the nodes' data"), "{said}");
}

#[test]
fn a_file_of_settings_is_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("ordo.toml");
    std::fs::write(&file, "maxclients = 77\nrequirepass = 'from the file'\n").expect("written");
    let server = Process::start(dir.path(), &["--config", file.to_str().expect("UTF-8")]);
    let mut client = server.client();
    assert!(client.call(&["PING"]).is_error());
    assert_eq!(client.call(&["AUTH", "from the file"]), Reply::OK);
    let want = Reply::Array(vec![Reply::bulk("maxclients"), Reply::bulk("77")]);
    assert_eq!(client.call(&["CONFIG", "GET", "maxclients"]), want);
}

/// The files and directories below a directory, itself included, that others than their owner may use in any
/// way.
fn open_to_others(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let inner = entries.map(|entry| entry.expect("an entry").path());
    let mut open: Vec<PathBuf> = inner
        .flat_map(|path| match path.is_dir() {
            true => open_to_others(&path),
            false => vec![path],
        })
        .chain([dir.to_owned()])
        .collect();
    open.retain(|path| {
        let mode = path.metadata().map_or(0, |found| found.permissions().mode());
        mode & 0o077 != 0
    });
    open
}

#[test]
fn what_a_server_creates_is_for_its_user_alone_whatever_the_umask_is() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("all/of/it");
    let settings = dir.path().join("ordo.toml");
    std::fs::write(&settings, "requirepass = 'from the file'\n").expect("written");
    std::fs::set_permissions(&settings, Permissions::from_mode(0o600)).expect("ours");
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ordo"), "serve"]);
    command.arg(&settings).args(["--port", "0", "--bind", "127.0.0.1", "--dir"]).arg(&data);
    let server = Process::started_by(command);
    let mut client = server.client();
    assert_eq!(client.call(&["AUTH", "from the file"]), Reply::OK);
    for words in [
        &["SET", "k", "v"][..],
        &["SAVE"],
        &["CONFIG", "SET", "requirepass", "another", "timeout", "9"],
        &["CONFIG", "REWRITE"],
        &["SAVE"],
    ] {
        assert_eq!(client.call(words), Reply::OK, "{words:?}");
    }
    assert_eq!(open_to_others(&dir.path().join("all")), Vec::<PathBuf>::new());
    let mode = settings.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let rewritten = std::fs::read_to_string(&settings).expect("there");
    assert!(rewritten.contains("requirepass = \"#") && !rewritten.contains("another"), "{rewritten}");
}

#[test]
fn signals_stop_the_server_in_good_order() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (round, signal) in ["TERM", "INT"].into_iter().enumerate() {
        // Even without any fsync on the way, a stop brings the log to the disk.
        let server = Process::start(dir.path(), &["--appendfsync", "no"]);
        let mut client = server.client();
        assert_eq!(client.number("n"), round as u64 * 100);
        for _ in 0..100 {
            client.call(&["INCR", "n"]);
        }
        server.signal(signal);
        assert_eq!(server.end(), Some(0), "SIG{signal}");
    }
    let server = Process::start(dir.path(), &[]);
    assert_eq!(server.client().number("n"), 200);
}
