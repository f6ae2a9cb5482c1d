//! Processes that belong together.

use super::LocalError;
use crate::client::{Answer, Client};
use crate::private;
use crate::server::EXIT_ENDED;
use crate::tls::ClientTls;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A server that does not answer by then will not.
const START_MAX: Duration = Duration::from_secs(60);
/// How long a server may take to finish what is in flight: more than its `shutdown-timeout`.
const STOP_MAX: Duration = Duration::from_secs(30);
/// Between two looks at what starts or stops.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a server may think about a PING.
const PING_MAX: Duration = Duration::from_secs(1);
/// Lines of a server's output that an error shows.
const LINES_SHOWN: usize = 8;

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Its name.
    pub name: String,
    /// Its zone's name.
    pub zone: String,
    /// Where it answers clients: host and port.
    pub client_address: String,
    /// With what clients connect there; none for no TLS.
    pub tls: Option<ClientTls>,
    /// The file behind whose end its output goes.
    pub log: PathBuf,
    /// What to run.
    pub program: PathBuf,
    /// With which words.
    pub words: Vec<OsString>,
    /// Whether it may be long in answering, because it waits for somebody: then nobody waits for it.
    pub may_wait: bool,
}

impl Launch {
    /// What to type into a shell for the same.
    pub fn command_line(&self) -> String {
        let program = self.program.as_os_str();
        let words = std::iter::once(program).chain(self.words.iter().map(OsString::as_os_str));
        let quoted: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
        quoted.join(" ")
    }

    fn spawn(&self) -> io::Result<Member> {
        let log = private::options().append(true).create(true).open(&self.log)?;
        let log_start = log.metadata()?.len();
        let mut command = Command::new(&self.program);
        command
            .args(&self.words)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Its output is read in a file, and in our errors.
            .env("NO_COLOR", "1")
            // A Ctrl-C is for whoever keeps the processes, who then stops them.
            .process_group(0);
        Ok(Member { child: command.spawn()?, launch: self.clone(), log_start, status: None, told: false })
    }
}

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./:=,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A process that was started, and may have ended.
struct Member {
    child: Child,
    launch: Launch,
    /// The length of its log when it started.
    log_start: u64,
    status: Option<ExitStatus>,
    /// Whether its end was told.
    told: bool,
}

impl Member {
    /// How it has ended, if it has.
    fn look(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// It has not been waited for if it is `running`, so its number is still its own.
    fn signal(&mut self, signal: Signal) {
        if matches!(self.look(), Ok(None)) {
            // It fails if the process has just ended, which is what is wanted.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    fn answers(&self) -> bool {
        let launch = &self.launch;
        let asked = Client::open_with(&launch.client_address, PING_MAX, launch.tls.as_ref())
            .and_then(|mut client| client.call(&["PING"]));
        match asked {
            Ok(Answer::Text(_)) => true,
            Ok(Answer::Error(text)) => text.starts_with("NOAUTH"),
            _ => false,
        }
    }

    /// The last lines that it has said.
    fn said(&self) -> String {
        let bytes = std::fs::read(&self.launch.log).unwrap_or_default();
        let own = bytes.get(self.log_start as usize..).unwrap_or_default();
        let text = String::from_utf8_lossy(own);
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
        match last {
            [] => "  (nothing)".to_owned(),
            _ => format!("  {}", last.join("\n  ")),
        }
    }

    fn not_up(&self, problem: String) -> LocalError {
        LocalError::NotUp {
            name: self.launch.name.clone(),
            problem,
            log: self.launch.log.display().to_string(),
            said: self.said(),
        }
    }
}

/// A process that has ended by itself, or by somebody else's will.
#[derive(Debug)]
pub struct Ended {
    /// What it was.
    pub launch: Launch,
    /// Its number.
    pub process: u32,
    /// How it ended.
    pub status: ExitStatus,
    /// The last lines that it said.
    pub said: String,
}

impl Ended {
    /// Whether starting it again, as it is, is of no use.
    pub fn is_for_good(&self) -> bool {
        is_for_good(self.status)
    }
}

fn is_for_good(status: ExitStatus) -> bool {
    status.code() == Some(EXIT_ENDED)
}

/// Processes that were started together and are stopped together. Those that run are killed when this is
/// dropped.
pub struct Processes {
    members: Vec<Member>,
}

impl Processes {
    /// Starts servers, and waits until each of them answers a PING, apart from those that may wait for
    /// somebody, and from those that end because they have no part in anything any more. If one does not, or
    /// if `interrupted` says so meanwhile, those that run are stopped.
    pub fn start(
        launches: &[Launch],
        mut interrupted: impl FnMut() -> bool,
    ) -> Result<Processes, LocalError> {
        let mut processes = Processes { members: Vec::new() };
        let up = processes.start_all(launches, &mut interrupted);
        if let Err(error) = up {
            processes.stop();
            return Err(error);
        }
        Ok(processes)
    }

    fn start_all(
        &mut self,
        launches: &[Launch],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(), LocalError> {
        for launch in launches {
            let member = launch.spawn().map_err(|cause| LocalError::NotUp {
                name: launch.name.clone(),
                problem: format!("could not be started: {cause}"),
                log: launch.log.display().to_string(),
                said: "  (nothing)".to_owned(),
            })?;
            self.members.push(member);
        }
        let started = Instant::now();
        let mut waiting: Vec<usize> = (0..self.members.len()).collect();
        waiting.retain(|&index| !self.members[index].launch.may_wait);
        loop {
            let mut any_runs = false;
            for member in &mut self.members {
                match member.look()? {
                    Some(status) if !is_for_good(status) => {
                        return Err(member.not_up(format!("ended at once ({status})")));
                    }
                    status => any_runs |= status.is_none(),
                }
            }
            if let (false, Some(first)) = (any_runs, self.members.first()) {
                let problem = "and all others ended at once, and are not to be started again as they are";
                return Err(first.not_up(problem.to_owned()));
            }
            waiting.retain(|&index| {
                let member = &self.members[index];
                member.status.is_none() && !member.answers()
            });
            let Some(&first) = waiting.first() else {
                return Ok(());
            };
            if interrupted() {
                return Err(LocalError::Interrupted);
            }
            if started.elapsed() > START_MAX {
                let seconds = START_MAX.as_secs();
                let problem = format!("does not answer PING after {seconds} s");
                return Err(self.members[first].not_up(problem));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Those that run: what they are, and their process numbers.
    pub fn running(&self) -> impl Iterator<Item = (&Launch, u32)> {
        let running = self.members.iter().filter(|member| member.status.is_none());
        running.map(|member| (&member.launch, member.child.id()))
    }

    /// Those that have ended since the last look, or since they were started.
    pub fn newly_ended(&mut self) -> io::Result<Vec<Ended>> {
        let mut ended = Vec::new();
        for member in &mut self.members {
            if !member.told
                && let Some(status) = member.look()?
            {
                member.told = true;
                ended.push(Ended {
                    launch: member.launch.clone(),
                    process: member.child.id(),
                    status,
                    said: member.said(),
                });
            }
        }
        Ok(ended)
    }

    /// Lets all finish what is in flight, at once, and waits for them. Gives the logs of those that had to be
    /// killed.
    pub fn stop(&mut self) -> Vec<&Path> {
        for member in &mut self.members {
            member.signal(Signal::TERM);
            // One that was frozen could not hear it.
            member.signal(Signal::CONT);
        }
        let asked = Instant::now();
        // An error means that nobody can tell, so it is waited for no longer than the others.
        while self.members.iter_mut().any(|member| !matches!(member.look(), Ok(Some(_)))) {
            if asked.elapsed() > STOP_MAX {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        let mut killed = Vec::new();
        for member in &mut self.members {
            if member.status.is_none() {
                // It fails only if the process has ended after all.
                let _ = member.child.kill();
                member.status = member.child.wait().ok();
                killed.push(member.launch.log.as_path());
            }
        }
        killed
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for member in &mut self.members {
            if member.status.is_none() {
                // Both fail only if it has ended.
                let _ = member.child.kill();
                let _ = member.child.wait();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, expected) in [
            ("/a-b/c_d.toml", "/a-b/c_d.toml"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("$(rm)", "'$(rm)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
