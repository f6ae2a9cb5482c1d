//! A server process that ends with us.

use super::Options;
use crate::child::dying_with_us;
use crate::redis::load::Target;
use ::server::launcher::{HOST, ProcessError, ServerProcess, free_port};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::path::Path;
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
}

/// A running server. Dropping it kills it.
pub(super) struct Server {
    kind: Kind,
    process: ServerProcess,
    port: u16,
}

impl Server {
    /// Starts a server in a directory of its own and waits until it answers.
    pub(super) fn start(kind: Kind, options: &Options, directory: &Path) -> Result<Server> {
        let dir = directory.join(kind.label());
        std::fs::create_dir_all(&dir).with_context(|| format!("could not make {}", dir.display()))?;
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
        let mut process = ServerProcess::start(kind.label(), &mut command, &dir.join("output"))
            .context("both programs are needed: install them, or name them (--redis-server, --ordo)")?;
        process.wait_until_up(&format!("{HOST}:{port}"), START_MAX)?;
        Ok(Server { kind, process, port })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }
    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }
    pub(super) fn target(&self) -> Target {
        Target { host: HOST.to_owned(), port: self.port, password: None }
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
