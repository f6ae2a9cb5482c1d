//! Sites, their logs, a bad network and clients, in steps of virtual time. All choices come from a seed.

use crate::pcsi::{Message, Pcsi, Record, SiteEffects, SiteMap, SiteOptions};
use crate::{Answer, WriteSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::hash::mix;
use txn::{Entry, Key, NodeId, PartitionId, RequestId, SessionId};

/// Clients of a site.
const CLIENTS: usize = 4;
/// Steps with faults and clients, and steps in which all must finish after that.
const STEPS: u64 = 600;
const STEPS_TO_SETTLE: u64 = 1_500;

/// A transaction of a client. It reads keys, and overwrites all of them with its number, or none.
pub struct Attempt {
    /// From 1.
    pub number: u64,
    pub reads: BTreeMap<usize, u64>,
    pub writes: bool,
    /// The session's last acknowledged one, all of them at one site.
    pub previous: Option<u64>,
    pub is_acknowledged: bool,
}

struct Host {
    site: Option<Pcsi>,
    /// Durable records, then those that a crash loses, with what waits for them.
    log: Vec<Record>,
    unsynced: Vec<SiteEffects>,
    clients: [Client; CLIENTS],
}

/// It runs one transaction at a time.
#[derive(Default)]
struct Client {
    /// The place of its attempt, and the keys that it has yet to read.
    running: Option<(usize, Vec<usize>)>,
    previous: Option<u64>,
}

pub struct World {
    draws: u64,
    now: u64,
    hosts: Vec<Host>,
    sites: Arc<SiteMap>,
    keys: Vec<Key>,
    flying: Vec<(u64, NodeId, NodeId, Message)>,
    /// Pairs of sites, lower first, whose messages are lost until a step.
    cuts: BTreeMap<(u16, u16), u64>,
    delay_max: u64,
    pub attempts: Vec<Attempt>,
}

/// The attempt that wrote an entry.
pub fn number(entry: Option<&Entry>) -> u64 {
    let Some(entry) = entry else { return 0 };
    let text = format!("{:?}", entry.value);
    text.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

impl World {
    /// Runs a seed until all has settled.
    ///
    /// # Errors
    /// Something waits for ever.
    pub fn run(seed: u64) -> Result<World, String> {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step(true);
        }
        world.cuts.clear();
        for host in 0..world.hosts.len() {
            world.restart(host);
        }
        for _ in 0..STEPS_TO_SETTLE {
            world.step(false);
            if world.has_settled() {
                return Ok(world);
            }
        }
        Err("a site waits for ever".into())
    }

    fn new(seed: u64) -> World {
        let mut world = World {
            draws: mix(seed ^ 0x7063_7369),
            now: 0,
            hosts: Vec::new(),
            sites: Arc::new(SiteMap::new(vec![vec![NodeId(0)]]).expect("a site")),
            keys: Vec::new(),
            flying: Vec::new(),
            cuts: BTreeMap::new(),
            delay_max: 0,
            attempts: Vec::new(),
        };
        let hosts = 2 + world.below(4);
        let partitions = 1 + world.below(4);
        let mut replicas = Vec::new();
        for partition in 0..partitions {
            let copies = (1 + world.below(3)).min(hosts);
            replicas.push((0..copies).map(|copy| NodeId(((partition + copy) % hosts) as u16)).collect());
        }
        world.sites = Arc::new(SiteMap::new(replicas).expect("each partition has sites"));
        world.delay_max = [2, 10, 40][world.below(3) as usize];
        let keys = 2 + world.below(6);
        world.keys = (0..keys).map(|key| Key::new(format!("k{key}").as_bytes())).collect();
        for _ in 0..hosts {
            let clients = Default::default();
            let host = Host { site: None, log: Vec::new(), unsynced: Vec::new(), clients };
            world.hosts.push(host);
        }
        (0..world.hosts.len()).for_each(|host| world.restart(host));
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.draws = self.draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.draws) % bound
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn restart(&mut self, host: usize) {
        if self.hosts[host].site.is_some() {
            return;
        }
        let options = SiteOptions {
            me: NodeId(host as u16),
            sites: Arc::clone(&self.sites),
            propagation_ticks: 3,
            vote_ticks_max: 100,
            open_ticks_max: 50,
            open_max: 8,
            window: 5,
            retained_max: 40,
        };
        let mut effects = SiteEffects::default();
        let site = Pcsi::start(options, &self.hosts[host].log, &mut effects);
        self.hosts[host].site = Some(site);
        self.hosts[host].unsynced.push(effects);
    }

    fn crash(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        host.site = None;
        host.clients.iter_mut().for_each(|client| client.running = None);
        host.unsynced.clear();
    }

    fn step(&mut self, is_faulty: bool) {
        self.now += 1;
        let hosts = self.hosts.len() as u64;
        if is_faulty && self.below(1_000) < 15 {
            let host = self.below(hosts) as usize;
            self.crash(host);
        }
        if is_faulty && self.below(1_000) < 10 {
            let (one, other) = (self.below(hosts) as u16, self.below(hosts) as u16);
            let until = self.now + self.below(100);
            self.cuts.insert((one.min(other), one.max(other)), until);
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].site.is_none() {
                if self.percent(5) {
                    self.restart(host);
                }
                continue;
            }
            self.on(host, |site, effects| site.tick(effects));
            (0..CLIENTS).for_each(|client| self.client(host, client, is_faulty));
            if self.percent(60) {
                self.sync(host);
            }
        }
        self.deliver(is_faulty);
    }

    fn on(&mut self, host: usize, work: impl FnOnce(&mut Pcsi, &mut SiteEffects)) {
        let mut effects = SiteEffects::default();
        let site = self.hosts[host].site.as_mut().expect("it runs");
        work(site, &mut effects);
        site.check_invariants();
        self.hosts[host].unsynced.push(effects);
    }

    /// All records become durable, and what waited for them leaves.
    fn sync(&mut self, host: usize) {
        for effects in std::mem::take(&mut self.hosts[host].unsynced) {
            self.hosts[host].log.extend(effects.records);
            for (to, message) in effects.messages {
                let copies = 1 + u64::from(self.percent(5));
                for _ in 0..copies {
                    let at = self.now + 1 + self.below(self.delay_max);
                    self.flying.push((at, NodeId(host as u16), to, message.clone()));
                }
            }
            for (id, answer) in effects.answers {
                let place = id.session.0 as usize;
                let mut clients = self.hosts[host].clients.iter_mut();
                let runs = |client: &&mut Client| client.running.as_ref().is_some_and(|(of, _)| *of == place);
                let Some(client) = clients.find(runs).filter(|_| answer != Answer::Begun) else { continue };
                client.running = None;
                if answer == Answer::Committed {
                    self.attempts[place].is_acknowledged = true;
                    client.previous = Some(self.attempts[place].number);
                }
            }
        }
    }

    fn deliver(&mut self, is_faulty: bool) {
        let (now, cuts) = (self.now, self.cuts.clone());
        let (due, flying) = std::mem::take(&mut self.flying).into_iter().partition(|(at, ..)| *at <= now);
        self.flying = flying;
        let due: Vec<(u64, NodeId, NodeId, Message)> = due;
        for (_, from, to, message) in due {
            let pair = (from.0.min(to.0), from.0.max(to.0));
            let is_cut = cuts.get(&pair).is_some_and(|&until| until > now);
            let host = usize::from(to.0);
            let is_lost = is_cut || (is_faulty && self.percent(3)) || self.hosts[host].site.is_none();
            if !is_lost {
                self.on(host, |site, effects| site.receive(from, message, effects));
            }
        }
    }

    /// A host's client begins, reads a key, or commits.
    fn client(&mut self, host: usize, client: usize, may_begin: bool) {
        let Some((place, mut left)) = self.hosts[host].clients[client].running.take() else {
            if may_begin && self.percent(30) {
                self.begin(host, client);
            }
            return;
        };
        let id = RequestId { session: SessionId(place as u64), sequence: 1, attempt: 0 };
        let Some(key) = left.pop() else {
            self.hosts[host].clients[client].running = Some((place, left));
            return;
        };
        let name = self.keys[key].clone();
        let site = self.hosts[host].site.as_mut().expect("it runs");
        let Ok(entry) = site.look(id, &name) else { return };
        self.attempts[place].reads.insert(key, number(entry.as_ref()));
        let is_last = left.is_empty();
        self.hosts[host].clients[client].running = Some((place, left));
        if is_last {
            let attempt = &self.attempts[place];
            let entry = Entry::new(attempt.number.to_string().as_str());
            let mut writes = WriteSet::default();
            if attempt.writes {
                let keys = attempt.reads.keys().map(|&key| self.keys[key].clone());
                writes.records = keys.map(|key| (key, Some(entry.clone()))).collect();
            }
            self.on(host, |site, effects| site.commit(id, writes, effects));
        }
    }

    fn begin(&mut self, host: usize, client: usize) {
        let local: Vec<usize> = (0..self.keys.len())
            .filter(|&key| self.has(host, self.sites.partition_of(&self.keys[key])))
            .collect();
        if local.is_empty() {
            return;
        }
        let mut keys = vec![];
        for _ in 0..1 + self.below(3) {
            keys.push(local[self.below(local.len() as u64) as usize]);
        }
        keys.sort_unstable();
        keys.dedup();
        let place = self.attempts.len();
        let (writes, previous) = (self.percent(75), self.hosts[host].clients[client].previous);
        let number = place as u64 + 1;
        self.attempts.push(Attempt {
            number,
            reads: BTreeMap::new(),
            writes,
            previous,
            is_acknowledged: false,
        });
        let id = RequestId { session: SessionId(place as u64), sequence: 1, attempt: 0 };
        self.hosts[host].clients[client].running = Some((place, keys));
        self.on(host, |site, effects| site.begin(id, effects));
    }

    fn has_settled(&self) -> bool {
        self.hosts.iter().all(|host| {
            host.clients.iter().all(|client| client.running.is_none())
                && host.unsynced.is_empty()
                && host.site.as_ref().is_some_and(Pcsi::is_idle)
        })
    }

    /// The durable records of each site.
    pub fn logs(&self) -> impl Iterator<Item = &[Record]> {
        self.hosts.iter().map(|host| &host.log[..])
    }

    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    pub fn has(&self, host: usize, partition: PartitionId) -> bool {
        self.sites.sites(partition).contains(&NodeId(host as u16))
    }

    /// What each site with a replica has of a key.
    pub fn values(&self, key: usize) -> Vec<(usize, u64)> {
        let partition = self.sites.partition_of(&self.keys[key]);
        let with_replica = self.hosts.iter().enumerate().filter(|(host, _)| self.has(*host, partition));
        let value =
            |host: &Host| number(host.site.as_ref().and_then(|site| site.newest(&self.keys[key])).as_ref());
        with_replica.map(|(place, host)| (place, value(host))).collect()
    }
}
