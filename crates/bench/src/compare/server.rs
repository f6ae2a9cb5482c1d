//! A server process that ends with us.

use super::{Options, Rival};
use crate::child::dying_with_us;
use crate::redis::load::Target;
use ::server::launcher::{HOST, ProcessError, ServerProcess, free_port};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::path::Path;
use std::time::Duration;

/// A server that is not up by then will not be.
const START_MAX: Duration = Duration::from_secs(30);

/// The log that a server keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    None,
    /// Nobody waits for it.
    Lazy,
    /// Every reply waits for it.
    Always,
}

/// A server, with the log that it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    /// None is Ordo.
    pub rival: Option<Rival>,
    pub log: Log,
}

impl Contender {
    pub(super) fn label(&self) -> String {
        let name = self.rival.as_ref().map_or("ordo", |rival| &rival.name);
        match self.log {
            Log::None => format!("{name}, bare"),
            Log::Lazy | Log::Always => name.to_owned(),
        }
    }
}

/// A running server. Dropping it kills it.
pub(super) struct Server {
    contender: Contender,
    process: ServerProcess,
    port: u16,
}

impl Server {
    /// Starts a server in a directory of its own, a new one, and waits until it answers.
    pub(super) fn start(contender: Contender, options: &Options, directory: &Path) -> Result<Server> {
        let label = contender.label();
        let port = free_port()?;
        let dir = directory.join(format!("{}-{port}", label.replace(", ", "-")));
        std::fs::create_dir_all(&dir).with_context(|| format!("could not make {}", dir.display()))?;
        let mut command =
            dying_with_us(contender.rival.as_ref().map_or(&options.ordo, |rival| &rival.program));
        let sync = if contender.log == Log::Always { "always" } else { "no" };
        match contender.rival {
            None => {
                command.args(["serve", "--workers", &options.workers.to_string()]);
            }
            Some(_) => {
                let appendonly = if contender.log == Log::None { "no" } else { "yes" };
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
        let mut process = ServerProcess::start(&label, &mut command, &dir.join("output")).context(
            "the programs of all contenders are needed: install them, or name them (--with, --ordo)",
        )?;
        process.wait_until_up(&format!("{HOST}:{port}"), START_MAX)?;
        Ok(Server { contender, process, port })
    }

    pub(super) fn contender(&self) -> &Contender {
        &self.contender
    }
    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }
    pub(super) fn target(&self) -> Target {
        Target { host: HOST.to_owned(), port: self.port, password: None, process: Some(self.process()) }
    }

    /// An error of the server, with the last lines of its output.
    pub(super) fn error(&self, problem: &str) -> ProcessError {
        self.process.error(problem)
    }

    /// Takes the processor from it.
    pub(super) fn stop(&mut self) -> Result<()> {
        Ok(self.process.signal(Signal::STOP)?)
    }
    /// Gives the processor back.
    pub(super) fn go_on(&mut self) -> Result<()> {
        Ok(self.process.signal(Signal::CONT)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_tells_why_without_a_wait() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // A program that refuses these arguments, on its standard error.
        let rival = Rival { name: "ls".to_owned(), program: "ls".into() };
        let options = Options {
            rivals: vec![rival.clone()],
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
        for rival in [Some(rival), None] {
            let contender = Contender { rival, log: Log::Lazy };
            let Err(error) = Server::start(contender, &options, directory.path()) else {
                panic!("ls is no server")
            };
            let error = error.to_string();
            assert!(error.contains("ended at once") && error.contains("option"), "{error}");
        }
    }
}
