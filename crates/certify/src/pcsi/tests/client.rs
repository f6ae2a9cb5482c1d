//! A client of a site: one transaction at a time. Where the client hears nothing, it asks again what became
//! of its attempt, or makes another attempt of the same transaction.

use super::world::{Attempt, Told, World, number};
use crate::{Answer, WriteSet, session_opened};
use txn::{Entry, RequestId};

/// Steps after which a client asks again.
const PATIENCE: u64 = 60;

#[derive(Default)]
pub struct Client {
    running: Option<Running>,
    /// The session's last request.
    last: Option<RequestId>,
    previous: Option<u64>,
}

struct Running {
    id: RequestId,
    /// The place of its attempt.
    place: usize,
    /// The keys that it has yet to read.
    left: Vec<usize>,
    /// What it wants to commit, and when it last said so.
    asked: Option<(WriteSet, u64)>,
}

impl Client {
    /// Only what has asked to commit can go on.
    pub fn lose_site(&mut self) {
        self.running = self.running.take().filter(|running| running.asked.is_some());
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    pub fn waits_for(&self, id: RequestId) -> bool {
        self.running.as_ref().is_some_and(|running| running.id == id)
    }

    /// What the answer says of an attempt.
    pub fn answered(&mut self, answer: &Answer, attempts: &[Attempt]) -> Option<(usize, Told)> {
        let told = match answer {
            Answer::Begun => return None,
            Answer::Committed => Told::Committed,
            Answer::Unknown => Told::Nothing,
            _ => Told::NoEffect,
        };
        let place = self.running.take()?.place;
        match told {
            Told::Committed => self.previous = Some(attempts[place].number),
            // Its next transaction is of another session.
            Told::Nothing => self.last = None,
            Told::NoEffect => {}
        }
        Some((place, told))
    }
}

impl World {
    /// A host's client begins, reads a key, commits, or waits.
    pub(super) fn run_client(&mut self, host: usize, client: usize, may_begin: bool) {
        // Transactions that are open for longer overlap with more others.
        if self.percent(40) {
            return;
        }
        let Some(mut running) = self.hosts[host].clients[client].running.take() else {
            if may_begin && self.percent(30) {
                self.begin(host, client);
            }
            return;
        };
        let id = running.id;
        let is_due = running.asked.as_ref().is_some_and(|(_, asked)| self.now > asked + PATIENCE);
        if is_due && may_begin && self.percent(50) {
            return self.begin_again(host, client, &running);
        }
        if let Some(key) = running.left.pop() {
            let site = self.hosts[host].site.as_mut().expect("it runs");
            // The site says that the snapshot is gone: the transaction has no effect.
            let Ok(entry) = site.look(id, &self.keys[key]) else { return };
            self.attempts[running.place].reads.insert(key, number(entry.as_ref()));
            if running.left.is_empty() {
                running.asked = Some((self.writes(running.place), self.now));
            }
        } else if is_due && let Some((_, asked)) = &mut running.asked {
            *asked = self.now;
        }
        let asked = running.asked.as_ref().filter(|(_, asked)| *asked == self.now);
        let writes = asked.map(|(writes, _)| writes.clone());
        self.hosts[host].clients[client].running = Some(running);
        if let Some(writes) = writes {
            self.on(host, |site, effects| site.commit(id, writes, effects));
        }
    }

    fn writes(&mut self, place: usize) -> WriteSet {
        let mut writes = WriteSet::default();
        if self.attempts[place].writes {
            let entry = Entry::new(self.attempts[place].number.to_string().as_str());
            for (key, read) in self.attempts[place].reads.clone() {
                // Logs tell attempts apart by what they write, so each attempt writes something.
                let deletes = read > 0 && self.is_deleted(key) && !writes.is_empty() && self.percent(50);
                writes.records.insert(self.keys[key].clone(), (!deletes).then(|| entry.clone()));
            }
        }
        writes
    }

    fn begin(&mut self, host: usize, client: usize) {
        let local: Vec<usize> = (0..self.keys.len())
            .filter(|&key| self.has(host, self.sites.partition_of(&self.keys[key])))
            .collect();
        if local.is_empty() {
            return;
        }
        let mut left = vec![];
        for _ in 0..1 + self.below(3) {
            left.push(local[self.below(local.len() as u64) as usize]);
        }
        left.sort_unstable();
        left.dedup();
        let number = self.attempts.len() as u64 + 1;
        let writes = self.percent(75);
        let last_commit = self.hosts[host].site.as_ref().expect("it runs").last_commit();
        let opens = self.percent(10);
        let last = self.hosts[host].clients[client].last.filter(|_| !opens);
        let id = match last {
            Some(last) => RequestId { sequence: last.sequence + 1, attempt: 0, ..last },
            None => {
                let session = session_opened(last_commit, number as u16);
                RequestId { session, sequence: 1, attempt: 0 }
            }
        };
        self.attempt(host, client, id, left, writes);
    }

    /// The next attempt of a transaction. What became of the one before it, the client does not learn.
    fn begin_again(&mut self, host: usize, client: usize, running: &Running) {
        let id = RequestId { attempt: running.id.attempt + 1, ..running.id };
        let attempt = &self.attempts[running.place];
        let (left, writes) = (attempt.reads.keys().copied().collect(), attempt.writes);
        self.attempt(host, client, id, left, writes);
    }

    fn attempt(&mut self, host: usize, client: usize, id: RequestId, left: Vec<usize>, writes: bool) {
        let place = self.attempts.len();
        let client = &mut self.hosts[host].clients[client];
        client.last = Some(id);
        client.running = Some(Running { id, place, left, asked: None });
        let (number, previous, told) = (place as u64 + 1, client.previous, Told::Nothing);
        self.attempts.push(Attempt { number, reads: Default::default(), writes, previous, told });
        self.on(host, |site, effects| site.begin(id, effects));
    }
}
