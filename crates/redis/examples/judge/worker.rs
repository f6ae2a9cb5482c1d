//! The process that runs programs for the judge: what kills it, or takes too long, is a finding, and another
//! one goes on.

use crate::store::Store;
use ordo_redis::script::{Limits, ScriptName, recent_steps, set_limits};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use txn::Reply;

/// After this long a program counts as running for ever, though it reaches no basic block that is counted.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a run took.
#[derive(Clone, Debug)]
pub struct Taken {
    pub steps: u64,
    pub blocks: u64,
    pub cpu_ns: u64,
    pub is_error: bool,
    /// Places in code that no run of the worker had seen.
    pub fresh: Vec<u32>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum Ended {
    Taken(Taken),
    /// It had more blocks than allowed.
    Exceeded,
    /// It ended the process, or hung.
    Died(String),
}

/// The processor time of this thread.
pub fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Runs what the standard input has: lines with a length, each followed by a program of that length.
pub fn serve(limits: Limits, blocks_max: u64) {
    // A panic is a finding, also where something would catch it.
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
    set_limits(limits);
    let store = Store::new();
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let length: usize = line.trim().parse().expect("a length");
        line.clear();
        let mut body = vec![0; length];
        input.read_exact(&mut body).expect("a program");
        let before_ns = cpu_ns();
        begin(blocks_max);
        let outcome = store.eval(&body);
        let (blocks, fresh) = end();
        let cpu_ns = cpu_ns().saturating_sub(before_ns);
        let is_error = !matches!(&outcome, Ok(reply) if !matches!(reply, Reply::Error(_)));
        let steps = recent_steps(ScriptName::of(&body));
        let mut answer = format!("{steps} {blocks} {cpu_ns} {}", u8::from(is_error));
        for place in fresh {
            answer += &format!(" {place}");
        }
        answer.push('\n');
        let mut output = std::io::stdout().lock();
        output.write_all(answer.as_bytes()).expect("the judge reads");
        output.flush().expect("the judge reads");
    }
}

#[cfg(feature = "count-blocks")]
fn begin(blocks_max: u64) {
    lua::blocks::begin(blocks_max);
}
#[cfg(feature = "count-blocks")]
fn end() -> (u64, Vec<u32>) {
    (lua::blocks::end(), lua::blocks::fresh_places())
}
#[cfg(not(feature = "count-blocks"))]
fn begin(_: u64) {}
#[cfg(not(feature = "count-blocks"))]
fn end() -> (u64, Vec<u32>) {
    (0, Vec::new())
}

struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The judge's side of a worker.
pub struct Worker {
    /// What it starts.
    program: PathBuf,
    limits: Limits,
    blocks_max: u64,
    process: Option<Process>,
}

impl Worker {
    pub fn new(limits: Limits, blocks_max: u64) -> Worker {
        let program = std::env::current_exe().expect("it runs");
        Worker::of(program, limits, blocks_max)
    }

    fn of(program: PathBuf, limits: Limits, blocks_max: u64) -> Worker {
        Worker { program, limits, blocks_max, process: None }
    }

    fn start(&self) -> Process {
        let mut child = Command::new(&self.program)
            .arg("worker")
            .arg(self.limits.steps_max.to_string())
            .arg(self.limits.memory_bytes_max.to_string())
            .arg(self.blocks_max.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Process { child, input, answers }
    }

    pub fn run(&mut self, body: &[u8]) -> Ended {
        let mut process = self.process.take().unwrap_or_else(|| self.start());
        let sent = writeln!(process.input, "{}", body.len())
            .and_then(|()| process.input.write_all(body))
            .and_then(|()| process.input.flush());
        let answer = match sent {
            Ok(()) => process.answers.recv_timeout(PATIENCE),
            Err(_) => process.answers.recv_timeout(Duration::ZERO),
        };
        match answer.as_deref() {
            Ok("exceeded") => Ended::Exceeded,
            Ok(line) => {
                let mut numbers = line.split(' ').map(|word| word.parse().unwrap_or(0_u64));
                let mut next = || numbers.next().unwrap_or(0);
                let taken = Taken {
                    steps: next(),
                    blocks: next(),
                    cpu_ns: next(),
                    is_error: next() != 0,
                    fresh: numbers.map(|place| place as u32).collect(),
                };
                self.process = Some(process);
                Ended::Taken(taken)
            }
            Err(_) => match process.child.try_wait() {
                Ok(Some(status)) => Ended::Died(status.to_string()),
                // The pipe has closed, so it is about to end.
                _ if process.answers.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                    let status = process.child.wait();
                    Ended::Died(status.map_or_else(|error| error.to_string(), |status| status.to_string()))
                }
                _ => Ended::Died(format!("no end within {} s", PATIENCE.as_secs())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LIMITS;

    #[test]
    fn a_process_that_ends_is_a_finding() {
        let mut worker = Worker::of("false".into(), LIMITS, u64::MAX);
        for _ in 0..2 {
            let ended = worker.run(b"return 1");
            assert!(matches!(&ended, Ended::Died(how) if how == "exit status: 1"), "{ended:?}");
        }
    }
}
