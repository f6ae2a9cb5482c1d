//! One client: what it sends, and what it makes of the replies.

use super::load::{
    ACCOUNTS, COUNTERS, GENERATION, LISTS, Load, REGISTERS, Seen, account_key, check_total, counter_key,
    exact_key, item, items, list_key, register_key,
};
use super::resume::Resume;
use crate::redis::template::SplitMix;
use server::client::{Answer, Client, put_command};
use sim::history::{Operation, Outcome, Step};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A node that can't be connected to within this time is passed over.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// How long a client that no node would serve waits before it tries again.
const BACK_OFF: Duration = Duration::from_millis(5);
/// How often an idempotent command is tried once the round is over.
const LAST_TRIES: u32 = 6;
const TRANSFER: &str = "local amount = tonumber(ARGV[1]) \
     if KEYS[1] == KEYS[2] or tonumber(redis.call('GET', KEYS[1])) < amount then return 0 end \
     redis.call('DECRBY', KEYS[1], amount) redis.call('INCRBY', KEYS[2], amount) return 1";
/// The same, of accounts that it does not declare: the cluster finds out where they are while it runs.
const TRANSFER_UNDECLARED: &str = "local amount = tonumber(ARGV[1]) \
     if ARGV[2] == ARGV[3] or tonumber(redis.call('GET', ARGV[2])) < amount then return 0 end \
     redis.call('DECRBY', ARGV[2], amount) redis.call('INCRBY', ARGV[3], amount) return 1";
/// Error replies that say that the command had no effect: the Redis protocol's own.
const REFUSALS: [&str; 9] = [
    "MISCONF",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "LOADING",
    "MASTERDOWN",
    "NOREPLICAS",
    "MOVED",
    "ASK",
    "EXECABORT",
];
/// The error reply that says that nobody knows whether the command takes effect.
const UNCERTAIN: &str = "ORDOUNKNOWN";

/// How a command ended.
enum Ended {
    /// With a reply, at this time.
    Replied(Answer, u64),
    /// It has had no effect.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// A client at work.
pub struct Worker<'a> {
    load: &'a Load,
    resume: &'a Resume,
    random: SplitMix,
    node: usize,
    connection: Option<Client>,
    client: u32,
    /// What it has seen so far.
    pub seen: Seen,
}

impl<'a> Worker<'a> {
    /// A client without a connection, which begins with a node.
    pub fn new(load: &'a Load, resume: &'a Resume, seed: u64, node: usize) -> Worker<'a> {
        Worker {
            load,
            resume,
            node,
            random: SplitMix::new(seed),
            connection: None,
            client: 0,
            seen: Seen::default(),
        }
    }

    /// Does one thing, or gives up because the round is over.
    pub fn work(&mut self) {
        if !self.connect() {
            return;
        }
        match self.random.below(16) {
            0..=5 => self.lists(),
            6..=8 => self.raise(),
            9..=11 if self.load.idempotent.load(Ordering::Relaxed) => self.raise_exactly(),
            9..=13 => self.transfer(),
            14 => self.audit(),
            _ => self.write(),
        }
    }

    /// Connects to the next node that lets us, if there is no connection. False if the round ends before.
    fn connect(&mut self) -> bool {
        let mut tries = 0;
        while self.connection.is_none() {
            let address = self.load.addresses()[self.node];
            match Client::open(&address.to_string(), CONNECT_PATIENCE) {
                Ok(client) => {
                    self.connection = Some(client);
                    self.client = self.load.next_client();
                }
                Err(_) => {
                    self.leave();
                    tries += 1;
                    if self.load.is_over() {
                        return false;
                    }
                    if tries % self.load.addresses().len() == 0 {
                        std::thread::sleep(BACK_OFF);
                    }
                }
            }
        }
        true
    }

    /// Gives up the connection, and the node.
    fn leave(&mut self) {
        self.connection = None;
        self.node = (self.node + 1) % self.load.addresses().len();
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        self.connection.as_mut().is_some_and(|client| client.send(bytes).is_ok())
    }

    /// Waits for one reply of what was sent.
    fn receive(&mut self) -> Ended {
        let answer = self.connection.as_mut().and_then(|client| client.answer().ok());
        let at_ns = self.load.now_ns();
        match answer {
            Some(Answer::Error(error)) => self.failed(&error),
            Some(answer) => {
                self.seen.answered += 1;
                Ended::Replied(answer, at_ns)
            }
            None => {
                self.seen.unknown += 1;
                Ended::Unknown
            }
        }
    }

    fn failed(&mut self, error: &str) -> Ended {
        let code = error.split(' ').next().unwrap_or_default();
        // A server by itself says so when its sync fails.
        let is_unknown = code == UNCERTAIN || error.contains("outcome of this write is unknown");
        if REFUSALS.contains(&code) && !is_unknown {
            self.seen.refused += 1;
            return Ended::Refused;
        }
        self.seen.unknown += 1;
        if !is_unknown {
            self.violation(format!("an error that no fault explains: {error}"));
        }
        Ended::Unknown
    }

    fn violation(&mut self, what: String) {
        self.seen.violations.push(what);
    }

    /// Sends one command and waits. The connection is given up unless there is a reply.
    fn call(&mut self, words: &[&str]) -> (Ended, u64) {
        let mut bytes = Vec::new();
        put_command(&mut bytes, words);
        let invoked_ns = self.load.now_ns();
        // What could not be sent whole may have arrived all the same.
        let ended = if self.send(&bytes) {
            self.receive()
        } else {
            self.seen.unknown += 1;
            Ended::Unknown
        };
        if !matches!(ended, Ended::Replied(..)) {
            self.leave();
        }
        if matches!(ended, Ended::Refused) {
            std::thread::sleep(BACK_OFF);
        }
        (ended, invoked_ns)
    }

    /// A write was acknowledged by the node of the connection.
    fn acknowledged(&mut self, invoked_ns: u64, completed_ns: u64) {
        self.seen.acknowledged_ns.push(completed_ns);
        self.resume.note(self.node, invoked_ns, completed_ns);
        self.load.count(self.node);
    }

    fn number(&mut self, command: &str, answer: &Answer) -> Option<u64> {
        let number = match answer {
            Answer::Text(text) => text.parse().ok(),
            _ => None,
        };
        if number.is_none() {
            self.violation(format!("{command} answered {answer:?}"));
        }
        number
    }

    fn raise(&mut self) {
        let counter = self.random.below(COUNTERS);
        let (ended, invoked_ns) = self.call(&["INCR", &counter_key(counter)]);
        match ended {
            Ended::Replied(answer, at_ns) => {
                self.acknowledged(invoked_ns, at_ns);
                if let Some(value) = self.number("INCR", &answer) {
                    self.seen.counters.entry(counter).or_default().replies.push(value);
                }
            }
            Ended::Refused => {}
            Ended::Unknown => self.seen.counters.entry(counter).or_default().unknown += 1,
        }
    }

    /// Raises a counter once, however often it takes to hear of it.
    fn raise_exactly(&mut self) {
        let counter = self.random.below(COUNTERS);
        let key = exact_key(counter);
        let id = format!("{:x}-{}", self.load.seed(), self.load.next_values(1));
        let mut last_tries = 0;
        // Whether any try may have taken effect.
        let mut sent = false;
        while last_tries < LAST_TRIES {
            if self.load.is_over() {
                last_tries += 1;
            }
            if !self.connect() {
                continue;
            }
            let mut bytes = Vec::new();
            put_command(&mut bytes, &["ORDO.IDEMPOTENT", &id, "INCR", &key]);
            let invoked_ns = self.load.now_ns();
            let ended = if self.send(&bytes) { self.receive_exactly() } else { Ended::Unknown };
            match ended {
                Ended::Replied(answer, at_ns) => {
                    if let Some(value) = self.number("ORDO.IDEMPOTENT INCR", &answer) {
                        self.acknowledged(invoked_ns, at_ns);
                        self.seen.exact.entry(counter).or_default().replies.push(value);
                    }
                    return;
                }
                Ended::Refused if !self.load.idempotent.load(Ordering::Relaxed) => return,
                Ended::Refused => std::thread::sleep(BACK_OFF),
                Ended::Unknown => sent = true,
            }
            self.leave();
        }
        if sent {
            self.seen.exact.entry(counter).or_default().unknown += 1;
        }
    }

    /// As [`Worker::receive`], for a server that may not know the command yet.
    fn receive_exactly(&mut self) -> Ended {
        let answer = self.connection.as_mut().and_then(|client| client.answer().ok());
        let at_ns = self.load.now_ns();
        match answer {
            Some(Answer::Error(error)) if error.starts_with("ERR unknown command") => {
                self.load.idempotent.store(false, Ordering::Relaxed);
                Ended::Refused
            }
            Some(Answer::Error(error)) => self.failed(&error),
            Some(answer) => {
                self.seen.answered += 1;
                Ended::Replied(answer, at_ns)
            }
            // It will be tried again, so its end is not unknown yet.
            None => Ended::Unknown,
        }
    }

    fn transfer(&mut self) {
        let (from, to) = (self.random.below(ACCOUNTS), self.random.below(ACCOUNTS));
        let (from, to) = (account_key(from), account_key(to));
        let amount = self.random.below(50);
        let words = amount.to_string();
        let (ended, invoked_ns) = match self.random.below(4) {
            0 => self.call(&["EVAL", TRANSFER_UNDECLARED, "0", &words, &from, &to]),
            1 => return self.transfer_watched(&from, &to, amount),
            _ => self.call(&["EVAL", TRANSFER, "2", &from, &to, &words]),
        };
        if let Ended::Replied(_, at_ns) = ended {
            self.acknowledged(invoked_ns, at_ns);
        }
    }

    /// Moves money in a block, unless somebody touches one of the accounts meanwhile.
    fn transfer_watched(&mut self, from: &str, to: &str, amount: u64) {
        let (Ended::Replied(..), _) = self.call(&["WATCH", from, to]) else {
            return;
        };
        let (Ended::Replied(balance, _), _) = self.call(&["GET", from]) else {
            return;
        };
        let balance = match &balance {
            Answer::Text(text) => text.parse::<u64>().ok(),
            _ => None,
        };
        let Some(balance) = balance else {
            return self.violation(format!("{from} is no account"));
        };
        if from == to || balance < amount {
            self.call(&["UNWATCH"]);
            return;
        }
        let amount = amount.to_string();
        let mut bytes = Vec::new();
        put_command(&mut bytes, &["MULTI"]);
        put_command(&mut bytes, &["DECRBY", from, &amount]);
        put_command(&mut bytes, &["INCRBY", to, &amount]);
        put_command(&mut bytes, &["EXEC"]);
        let invoked_ns = self.load.now_ns();
        let mut ended = match self.send(&bytes) {
            true => self.receive(),
            false => Ended::Unknown,
        };
        for _ in 0..3 {
            if !matches!(ended, Ended::Unknown) {
                ended = self.receive();
            }
        }
        match ended {
            Ended::Replied(Answer::List(_), at_ns) => self.acknowledged(invoked_ns, at_ns),
            // Somebody did: nothing is moved.
            Ended::Replied(Answer::Nil, _) => {}
            Ended::Replied(other, _) => self.violation(format!("EXEC replies {other:?}")),
            Ended::Refused | Ended::Unknown => self.leave(),
        }
    }

    fn audit(&mut self) {
        let keys: Vec<String> = (0..ACCOUNTS).map(account_key).collect();
        let mut words = vec!["MGET"];
        words.extend(keys.iter().map(String::as_str));
        if let (Ended::Replied(answer, _), _) = self.call(&words)
            && let Err(problem) = check_total(&answer)
        {
            self.violation(problem);
        }
    }

    /// A pipeline of SET to one key: the last one must win.
    fn write(&mut self) {
        let register = self.random.below(REGISTERS);
        let key = register_key(register);
        let count = 1 + self.random.below(6);
        let first = self.load.next_values(count);
        let mut bytes = Vec::new();
        for value in first..first + count {
            put_command(&mut bytes, &["SET", &key, &value.to_string()]);
        }
        let invoked_ns = self.load.now_ns();
        let mut lost = !self.send(&bytes);
        for value in first..first + count {
            let ended = if lost { Ended::Unknown } else { self.receive() };
            let written = self.seen.registers.entry(register).or_default();
            match ended {
                Ended::Replied(_, at_ns) => {
                    written.acknowledged.push((value, invoked_ns, at_ns));
                    self.acknowledged(invoked_ns, at_ns);
                }
                Ended::Refused => {}
                Ended::Unknown => {
                    written.unknown.push(value);
                    lost = true;
                }
            }
        }
        if lost {
            self.leave();
        }
    }

    /// Appends to lists and reads them: one command, or a block of several.
    fn lists(&mut self) {
        let count = if self.random.below(3) == 0 { 2 + self.random.below(2) } else { 1 };
        let mut steps = Vec::new();
        for _ in 0..count {
            let value = self.load.next_values(1);
            let key = value / GENERATION * LISTS + self.random.below(LISTS);
            steps.push(if self.random.below(2) == 0 {
                Step::Append { key, value }
            } else {
                Step::Read { key, values: Vec::new() }
            });
        }
        let mut bytes = Vec::new();
        let is_block = count > 1;
        if is_block {
            put_command(&mut bytes, &["MULTI"]);
        }
        for step in &steps {
            match step {
                Step::Append { key, value } => {
                    put_command(&mut bytes, &["APPEND", &list_key(*key), &item(*value)])
                }
                Step::Read { key, .. } => put_command(&mut bytes, &["GET", &list_key(*key)]),
            }
        }
        if is_block {
            put_command(&mut bytes, &["EXEC"]);
        }
        let client = self.client;
        let invoked_ns = self.load.now_ns();
        let mut ended = if self.send(&bytes) {
            Ended::Replied(Answer::Nil, invoked_ns)
        } else {
            self.seen.unknown += 1;
            Ended::Unknown
        };
        // The replies to MULTI and to what was queued say nothing but that there is a connection.
        let replies = if is_block { count + 2 } else { 1 };
        for _ in 0..replies {
            if !matches!(ended, Ended::Unknown) {
                ended = self.receive();
            }
        }
        let (outcome, completed_ns) = match ended {
            Ended::Replied(answer, at_ns) => {
                let answers = match answer {
                    Answer::List(answers) if is_block => answers,
                    answer => vec![answer],
                };
                if let Err(problem) = fill(&mut steps, &answers) {
                    self.violation(problem);
                    return;
                }
                if steps.iter().any(|step| matches!(step, Step::Append { .. })) {
                    self.acknowledged(invoked_ns, at_ns);
                }
                (Outcome::Committed, Some(at_ns))
            }
            Ended::Refused => {
                self.leave();
                std::thread::sleep(BACK_OFF);
                (Outcome::Aborted, Some(self.load.now_ns()))
            }
            Ended::Unknown => {
                self.leave();
                (Outcome::Unknown, None)
            }
        };
        self.seen.operations.push(Operation { client, invoked_ns, completed_ns, outcome, steps });
    }
}

/// Puts what was read into the steps.
fn fill(steps: &mut [Step], answers: &[Answer]) -> Result<(), String> {
    if steps.len() != answers.len() {
        return Err(format!("{} commands got {answers:?}", steps.len()));
    }
    for (step, answer) in steps.iter_mut().zip(answers) {
        match (step, answer) {
            (Step::Read { values, .. }, answer) => *values = items(answer)?,
            (Step::Append { .. }, Answer::Text(_)) => {}
            (Step::Append { .. }, other) => return Err(format!("APPEND answered {other:?}")),
        }
    }
    Ok(())
}
