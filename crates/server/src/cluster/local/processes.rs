//! Processes that belong together.

use super::LocalError;
use crate::launcher::{ProcessError, ServerProcess, answers_ping, poll};
use crate::server::EXIT_ENDED;
use crate::tls::ClientTls;
use rustix::process::Signal;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// A server that does not answer by then will not.
const START_MAX: Duration = Duration::from_secs(60);
/// How long a server may take to finish what is in flight: more than its `shutdown-timeout`.
const STOP_MAX: Duration = Duration::from_secs(30);

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
    /// Whether it is of a hierarchy.
    pub is_certified: bool,
}

impl Launch {
    /// What to type into a shell for the same.
    pub fn command_line(&self) -> String {
        let program = self.program.as_os_str();
        let words = std::iter::once(program).chain(self.words.iter().map(OsString::as_os_str));
        let quoted: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
        quoted.join(" ")
    }

    fn start(&self) -> Result<Member, ProcessError> {
        let mut command = Command::new(&self.program);
        // A Ctrl-C is for whoever keeps the processes, who then stops them.
        command.args(&self.words).process_group(0);
        let process = ServerProcess::start(&self.name, &mut command, &self.log)?;
        Ok(Member { process, launch: self.clone(), told: false })
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

/// A process, and how to start it.
struct Member {
    process: ServerProcess,
    launch: Launch,
    /// Whether its end was told.
    told: bool,
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
            self.members.push(launch.start()?);
        }
        let mut waiting: Vec<usize> = (0..self.members.len()).collect();
        waiting.retain(|&index| !self.members[index].launch.may_wait);
        let up = poll(START_MAX, || match self.are_up(&mut waiting) {
            Ok(false) => interrupted().then_some(Err(LocalError::Interrupted)),
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        up.unwrap_or_else(|| {
            let problem = format!("does not answer PING after {} s", START_MAX.as_secs());
            Err(self.members[waiting[0]].process.error(&problem).into())
        })
    }

    /// Whether all have answered or have ended for good; those that have not are left in `waiting`.
    fn are_up(&mut self, waiting: &mut Vec<usize>) -> Result<bool, LocalError> {
        let mut any_runs = false;
        for Member { process, .. } in &mut self.members {
            match process.look()? {
                Some(status) if !is_for_good(status) => {
                    return Err(process.error(&format!("ended at once ({status})")).into());
                }
                status => any_runs |= status.is_none(),
            }
        }
        if let (false, Some(first)) = (any_runs, self.members.first()) {
            let problem = "and all others ended at once, and are not to be started again as they are";
            return Err(first.process.error(problem).into());
        }
        waiting.retain(|&index| {
            let Member { process, launch, .. } = &self.members[index];
            process.is_running() && !answers_ping(&launch.client_address, launch.tls.as_ref())
        });
        Ok(waiting.is_empty())
    }

    /// Those that run: what they are, and their process numbers.
    pub fn running(&self) -> impl Iterator<Item = (&Launch, u32)> {
        let running = self.members.iter().filter(|member| member.process.is_running());
        running.map(|member| (&member.launch, member.process.id()))
    }

    /// Those that have ended since the last look, or since they were started.
    pub fn newly_ended(&mut self) -> io::Result<Vec<Ended>> {
        let mut ended = Vec::new();
        for Member { process, launch, told } in &mut self.members {
            if !*told && let Some(status) = process.look()? {
                *told = true;
                let said = process.last_said();
                ended.push(Ended { launch: launch.clone(), process: process.id(), status, said });
            }
        }
        Ok(ended)
    }

    /// Lets all finish what is in flight, at once, and waits for them. Gives the logs of those that had to be
    /// killed.
    pub fn stop(&mut self) -> Vec<&Path> {
        for Member { process, .. } in &mut self.members {
            // A frozen process hears nothing before it goes on. An error means that the process has ended.
            let _ = process.signal(Signal::TERM).and_then(|()| process.signal(Signal::CONT));
        }
        // A process of which nobody can tell is waited for no longer than the others.
        poll(STOP_MAX, || {
            let ended = |member: &mut Member| matches!(member.process.look(), Ok(Some(_)));
            self.members.iter_mut().all(ended).then_some(())
        });
        let late = self.members.iter_mut().filter(|member| member.process.is_running());
        let killed = late.map(|Member { process, launch, .. }| {
            process.kill();
            launch.log.as_path()
        });
        killed.collect()
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
