//! A server process that ends with us.

use super::Options;
use crate::redis::client::{Answer, Client};
use crate::redis::load::Target;
use anyhow::{Context, Result, bail};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const HOST: &str = "127.0.0.1";
/// A server that is not up by then will not be.
const START_MAX: Duration = Duration::from_secs(30);
/// Between two looks at a server that starts.
const LOOK: Duration = Duration::from_millis(20);

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
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Server {
    /// Starts a server in a directory of its own and waits until it answers.
    pub(super) fn start(kind: Kind, options: &Options, directory: &Path) -> Result<Server> {
        let dir = directory.join(kind.label());
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("could not make {}", dir.display()))?;
        let log = dir.join("output");
        let port = free_port()?;
        let program = match kind {
            Kind::Redis | Kind::RedisWithoutLog | Kind::RedisAlways => &options.redis_server,
            Kind::Ordo | Kind::OrdoAlways => &options.ordo,
        };
        let mut command = dying_with_us(program);
        let sync = if matches!(kind, Kind::RedisAlways | Kind::OrdoAlways) {
            "always"
        } else {
            "no"
        };
        match kind {
            Kind::Ordo | Kind::OrdoAlways => {
                command.args(["serve", "--workers", &options.workers.to_string()]);
            }
            Kind::Redis | Kind::RedisWithoutLog | Kind::RedisAlways => {
                let appendonly = if kind == Kind::RedisWithoutLog {
                    "no"
                } else {
                    "yes"
                };
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
        command
            .args([
                "--appendfsync",
                sync,
                "--port",
                &port.to_string(),
                "--bind",
                HOST,
                "--dir",
            ])
            .arg(&dir);
        let output = std::fs::File::create(&log)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = command.spawn().with_context(|| {
            format!(
                "could not start {}: install it, or say where it is (--redis-server, --ordo)",
                program.display()
            )
        })?;
        let mut server = Server {
            kind,
            child,
            port,
            log,
        };
        server.wait_until_up()?;
        Ok(server)
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "{} ended at once, {status}. {}",
                    self.kind.label(),
                    self.what_it_said()
                );
            }
            if let Ok(mut client) = Client::connect(HOST, self.port, None)
                && let Ok(Answer::Text(_)) = client.call(&["PING"])
            {
                return Ok(());
            }
            if started.elapsed() > START_MAX {
                bail!(
                    "{} did not answer. {}",
                    self.kind.label(),
                    self.what_it_said()
                );
            }
            std::thread::sleep(LOOK);
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }
    pub(super) fn target(&self) -> Target {
        Target {
            host: HOST.to_owned(),
            port: self.port,
            password: None,
        }
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
        let status = Command::new("kill")
            .args(["-s", signal, &process])
            .status()
            .context("could not run kill")?;
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

/// A command whose process the kernel kills when we die, where there is `setpriv` to say so.
fn dying_with_us(program: &Path) -> Command {
    let known = Command::new("setpriv")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if known.is_ok_and(|status| status.success()) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program);
        return command;
    }
    Command::new(program)
}

/// A port that nobody uses now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((HOST, 0)).context("could not find a free port")?;
    Ok(listener.local_addr()?.port())
}
