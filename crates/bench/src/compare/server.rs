//! A server process that ends with us.

use super::Options;
use crate::child::{HOST, dying_with_us, free_port};
use crate::redis::load::Target;
use ::server::client::{Answer, Client};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// A server that is not up by then will not be.
const START_MAX: Duration = Duration::from_secs(30);

/// Which server, with which log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With a log that nobody waits for.
    Redis,
    /// Without a log.
    RedisWithoutLog,
    /// With a log that every reply waits for.
    RedisAlways,
    /// With a log that nobody waits for.
    Ordo,
    /// With a log that every reply waits for.
    OrdoAlways,
}

impl Kind {
    pub(super) fn label(self) -> &'static str {
        match self {
            Kind::Redis => "redis",
            Kind::RedisWithoutLog => "redis-without-log",
            Kind::RedisAlways => "redis-always",
            Kind::Ordo => "ordo",
            Kind::OrdoAlways => "ordo-always",
        }
    }

    /// What a server on a port says when it is up.
    fn sign(self, port: u16) -> String {
        match self {
            Kind::Redis | Kind::RedisWithoutLog | Kind::RedisAlways => {
                "Ready to accept connections".to_owned()
            }
            Kind::Ordo | Kind::OrdoAlways => format!("serving {HOST}:{port}"),
        }
    }
}

/// A running server. Dropping it kills it.
pub(super) struct Server {
    kind: Kind,
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Server {
    /// Starts a server in a directory of its own and waits until it answers.
    pub(super) fn start(kind: Kind, options: &Options, directory: &Path) -> Result<Server> {
        let dir = directory.join(kind.label());
        std::fs::create_dir_all(&dir).with_context(|| format!("could not make {}", dir.display()))?;
        let log = dir.join("output");
        let port = free_port()?;
        let program = match kind {
            Kind::Redis | Kind::RedisWithoutLog | Kind::RedisAlways => &options.redis_server,
            Kind::Ordo | Kind::OrdoAlways => &options.ordo,
        };
        let mut command = dying_with_us(program);
        let sync = if matches!(kind, Kind::RedisAlways | Kind::OrdoAlways) { "always" } else { "no" };
        match kind {
            Kind::Ordo | Kind::OrdoAlways => {
                command.args(["serve", "--workers", &options.workers.to_string()]);
                // It could keep the server from saying that it is up.
                command.env_remove("RUST_LOG");
            }
            Kind::Redis | Kind::RedisWithoutLog | Kind::RedisAlways => {
                let appendonly = if kind == Kind::RedisWithoutLog { "no" } else { "yes" };
                // No snapshots and no rewriting of the log, which would fork in the middle of a measurement.
                command.args([
                    "--save",
                    "",
                    "--appendonly",
                    appendonly,
                    "--auto-aof-rewrite-percentage",
                    "0",
                ]);
            }
        }
        command.args(["--appendfsync", sync, "--port", &port.to_string(), "--bind", HOST, "--dir"]).arg(&dir);
        let copy = File::create(&log)?;
        let (output, input) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
        let child = command.spawn().with_context(|| {
            format!(
                "could not start {}: install it, or say where it is (--redis-server, --ordo)",
                program.display()
            )
        })?;
        // It holds the pipe open, whose end tells that the server has ended.
        drop(command);
        let mut server = Server { kind, child, port, log };
        server.wait_until_up(follow(output, copy, kind.sign(port))?)?;
        Ok(server)
    }

    fn wait_until_up(&mut self, up: Receiver<()>) -> Result<()> {
        let label = self.kind.label();
        match up.recv_timeout(START_MAX) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let status = match self.child.try_wait()? {
                    Some(status) => format!(", {status}"),
                    None => String::new(),
                };
                bail!("{label} ended at once{status}. {}", self.what_it_said());
            }
            Err(RecvTimeoutError::Timeout) => {
                let seconds = START_MAX.as_secs();
                bail!("{label} was not up after {seconds} s. {}", self.what_it_said());
            }
        }
        let answer = Client::connect(HOST, self.port, None)?.call(&["PING"])?;
        match answer {
            Answer::Text(_) => Ok(()),
            other => bail!("{label} answered PING with {other:?}"),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }
    pub(super) fn target(&self) -> Target {
        Target { host: HOST.to_owned(), port: self.port, password: None }
    }

    /// The last lines of its output, for an error message.
    pub(super) fn what_it_said(&self) -> String {
        let output = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = output.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join("\n  ");
        format!("The last that {} said:\n  {last}", self.kind.label())
    }

    /// Takes the processor from it.
    pub(super) fn stop(&self) -> Result<()> {
        self.signal("STOP")
    }
    /// Gives the processor back.
    pub(super) fn go_on(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let process = self.child.id().to_string();
        let status =
            Command::new("kill").args(["-s", signal, &process]).status().context("could not run kill")?;
        if !status.success() {
            bail!("{} is gone. {}", self.kind.label(), self.what_it_said());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its data is temporary: nothing is lost by an abrupt end, which works on a stopped process too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies what a server says to a file, on a thread of its own, and sends a message for each line with
/// `sign`. The sender is gone once everything is copied.
fn follow(output: impl Read + Send + 'static, mut copy: File, sign: String) -> io::Result<Receiver<()>> {
    let (seen, receiver) = mpsc::channel();
    let follow = move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while let Ok(1..) = output.read_until(b'\n', &mut line) {
            // A server that nobody listens to would stop. So without room for the copy, go on without it.
            let _ = copy.write_all(&line);
            if String::from_utf8_lossy(&line).contains(&sign) {
                // Whoever waited may have what it wanted.
                let _ = seen.send(());
            }
            line.clear();
        }
    };
    std::thread::Builder::new().name("server-output".to_owned()).spawn(follow)?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_server_is_up_when_it_says_so() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("output");
        let copy = File::create(&path).expect("a file");
        let (output, mut input) = io::pipe().expect("a pipe");
        let up = follow(output, copy, Kind::Redis.sign(7)).expect("a thread");
        input.write_all(b"reading\n\xff\n* Ready to acc").expect("taken");
        let early = up.recv_timeout(Duration::from_millis(1));
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
        input.write_all(b"ept connections\nlater").expect("taken");
        assert_eq!(up.recv_timeout(PATIENCE), Ok(()));
        drop(input);
        let end = up.recv_timeout(PATIENCE);
        assert_eq!(end, Err(RecvTimeoutError::Disconnected));
        let said = std::fs::read(&path).expect("copied");
        assert_eq!(said, b"reading\n\xff\n* Ready to accept connections\nlater");
    }

    #[test]
    fn a_server_that_ends_tells_why_without_a_wait() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // A program that refuses these arguments, on its standard error.
        let options = Options {
            redis_server: "ls".into(),
            ordo: "ls".into(),
            workers: 1,
            rounds: 1,
            duration: Duration::from_secs(1),
            keys: 1,
            clients: 1,
            only: Vec::new(),
            dir: None,
            seed: 1,
        };
        for kind in [Kind::Redis, Kind::Ordo] {
            let Err(error) = Server::start(kind, &options, directory.path()) else {
                panic!("ls is no server")
            };
            let error = error.to_string();
            assert!(error.contains("ended at once") && error.contains("option"), "{error}");
        }
    }
}
