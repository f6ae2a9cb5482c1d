//! Starts server processes of this machine, waits until they answer, signals and ends them.
//!
//! `ordo cluster start`, the benchmarks and the tests of real processes start every server by this module. A
//! [`ServerProcess`] writes its output to a log file. Every error about it shows the end of that log.
//! Dropping it kills the process.

mod ports;

pub use ports::{free_address, free_port, is_free};

use crate::client::{Answer, Client};
use crate::private;
use crate::tls::ClientTls;
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Where servers listen that need no other machine.
pub const HOST: &str = "127.0.0.1";
/// The pause between two looks at a process or a server, which do not tell when they change.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a server may take to answer a PING.
const PING_MAX: Duration = Duration::from_secs(1);
/// Lines of a log that an error shows.
const LINES_SHOWN: usize = 8;

/// Looks again and again until `look` finds something. `None` if `patience` has passed before.
pub fn poll<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let found = look();
        if found.is_some() || start.elapsed() > patience {
            return found;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether a server at `host:port` answers a PING, or wants a password first.
pub fn answers_ping(address: &str, tls: Option<&ClientTls>) -> bool {
    let asked = Client::open_with(address, PING_MAX, tls).and_then(|mut client| client.call(&["PING"]));
    match asked {
        Ok(Answer::Text(_)) => true,
        Ok(Answer::Error(text)) => text.starts_with("NOAUTH"),
        _ => false,
    }
}

/// What went wrong with a process, and the last that the process said.
#[derive(Debug, thiserror::Error)]
#[error("{name} {problem}. The last that it said, in {}:\n{said}", log.display())]
pub struct ProcessError {
    name: String,
    problem: String,
    log: PathBuf,
    said: String,
}

/// A process that was started, and may have ended. Dropping it kills the process.
pub struct ServerProcess {
    name: String,
    child: Child,
    log: PathBuf,
    /// The length of the log in bytes when the process started.
    log_start: u64,
    /// How the process has ended, as of the last look.
    status: Option<ExitStatus>,
}

impl ServerProcess {
    /// Starts what `command` says. Both outputs of the process go behind the end of the file `log`.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<ServerProcess, ProcessError> {
        let mut spawn = || -> io::Result<(Child, u64)> {
            let file = private::options().append(true).create(true).open(log)?;
            let log_start = file.metadata()?.len();
            command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
            Ok((command.spawn()?, log_start))
        };
        let (name, log) = (name.to_owned(), log.to_owned());
        match spawn() {
            Ok((child, log_start)) => Ok(ServerProcess { name, child, log, log_start, status: None }),
            Err(cause) => {
                let problem = format!("could not be started: {cause}");
                Err(ProcessError { name, problem, log, said: shown("") })
            }
        }
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process's number, for functions that take a [`Pid`].
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether the process had not ended at the last look.
    pub fn is_running(&self) -> bool {
        self.status.is_none()
    }

    /// Looks how the process has ended, if it has.
    pub fn look(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// Sends a signal. A process that has ended is an error, and nobody else's process gets the signal.
    pub fn signal(&mut self, signal: Signal) -> Result<(), ProcessError> {
        // A process that has not been waited for still has its number.
        match self.look() {
            Ok(None) => kill_process(self.pid(), signal)
                .map_err(|cause| self.error(&format!("could not be signalled: {cause}"))),
            _ => Err(self.error("has ended")),
        }
    }

    /// Kills the process if it runs, and waits for its end.
    pub fn kill(&mut self) {
        if self.status.is_none() {
            // Both fail only if the process has ended.
            let _ = self.child.kill();
            self.status = self.child.wait().ok();
        }
    }

    /// Waits until the process ends.
    pub fn wait(&mut self, patience: Duration) -> Result<ExitStatus, ProcessError> {
        let ended = poll(patience, || self.look().transpose());
        match ended {
            Some(Ok(status)) => Ok(status),
            Some(Err(cause)) => Err(self.error(&format!("cannot be waited for: {cause}"))),
            None => Err(self.error(&format!("still runs after {} s", patience.as_secs()))),
        }
    }

    /// Waits until `look` finds something. It is an error if the process ends before.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, ProcessError> {
        let found = poll(patience, || match self.look() {
            Ok(None) => look().map(Ok),
            Ok(Some(status)) => Some(Err(self.error(&format!("ended at once ({status})")))),
            Err(cause) => Some(Err(self.error(&format!("cannot be looked at: {cause}")))),
        });
        found.unwrap_or_else(|| {
            let seconds = patience.as_secs();
            Err(self.error(&format!("does not {what} after {seconds} s")))
        })
    }

    /// Waits until the process serves clients at `host:port`.
    pub fn wait_until_up(&mut self, address: &str, patience: Duration) -> Result<(), ProcessError> {
        self.wait_for("answer PING", patience, || answers_ping(address, None).then_some(()))
    }

    /// All that the process has said so far.
    pub fn said(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let own = bytes.get(self.log_start as usize..).unwrap_or_default();
        String::from_utf8_lossy(own).into_owned()
    }

    /// The last lines that the process has said, for an error message.
    pub fn last_said(&self) -> String {
        shown(&self.said())
    }

    /// An error of this process, with the last lines that the process has said.
    pub fn error(&self, problem: &str) -> ProcessError {
        ProcessError {
            name: self.name.clone(),
            problem: problem.to_owned(),
            log: self.log.clone(),
            said: self.last_said(),
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last lines of a text, indented.
fn shown(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    match &lines[lines.len().saturating_sub(LINES_SHOWN)..] {
        [] => "  (nothing)".to_owned(),
        last => format!("  {}", last.join("\n  ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn shell(script: &str, log: &Path) -> ServerProcess {
        ServerProcess::start("shell", Command::new("sh").args(["-c", script]), log).expect("sh runs")
    }

    #[test]
    fn a_process_that_ends_tells_why_without_a_wait() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("log");
        std::fs::write(&log, "of an earlier process\n").expect("written");
        let mut process = shell("echo first; printf 'l\\377st' >&2; exit 3", &log);
        let error = process.wait_until_up("127.0.0.1:1", PATIENCE).expect_err("it ends").to_string();
        let want = format!("in {}:\n  first\n  l\u{fffd}st", log.display());
        assert!(
            error.starts_with("shell ended at once (exit status: 3). ") && error.ends_with(&want),
            "{error}"
        );
        assert_eq!(process.wait(PATIENCE).expect("ended").code(), Some(3));
        let error = process.signal(Signal::TERM).expect_err("it has ended").to_string();
        assert!(error.contains("shell has ended"), "{error}");
    }

    #[test]
    fn a_process_is_waited_for_until_there_is_what_was_waited_for_and_killed_in_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut process = shell("echo ready; exec tail -f /dev/null", &dir.path().join("log"));
        let said = || std::fs::read_to_string(dir.path().join("log")).ok().filter(|said| said == "ready\n");
        assert_eq!(process.wait_for("say it", PATIENCE, said).expect("it says it"), "ready\n");
        let error = process.wait_for("sing", Duration::ZERO, || None::<()>).expect_err("never").to_string();
        assert!(error.contains("does not sing after 0 s") && error.contains("  ready"), "{error}");
        let error = process.wait(Duration::ZERO).expect_err("it runs").to_string();
        assert!(error.contains("still runs"), "{error}");
        let task = PathBuf::from(format!("/proc/{}", process.id()));
        assert!(process.is_running() && task.exists());
        drop(process);
        assert!(!task.exists());
    }

    #[test]
    fn what_is_no_program_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut command = Command::new("/no/such/program");
        let started = ServerProcess::start("none", &mut command, &dir.path().join("log"));
        let error = started.err().expect("no program").to_string();
        assert!(error.contains("none could not be started") && error.contains("(nothing)"), "{error}");
    }
}
