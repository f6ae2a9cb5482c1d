//! Sites, their logs, a bad network and clients, in steps of virtual time. All choices come from a seed.

use super::client::Client;
use crate::Answer;
use crate::pcsi::{
    Fencing, Incarnation, Letter, Message, Pcsi, Record, ReplicaState, SiteEffects, SiteMap, SiteOptions,
    TransactionName, Update,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use txn::hash::mix;
use txn::{Entry, Key, NodeId, PartitionId, RequestId};

/// Clients of a site.
pub const CLIENTS: usize = 4;
/// Steps with faults and clients, and steps in which all must finish after that.
const STEPS: u64 = 600;
const STEPS_TO_SETTLE: u64 = 6_000;
const STEPS_BETWEEN_CHECKS: u64 = 20;

/// What became of an attempt, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Nothing,
    Committed,
    NoEffect,
}

/// A transaction of a client. It reads keys, and writes its number to all of them, or none, but deletes some.
pub struct Attempt {
    /// From 1.
    pub number: u64,
    pub reads: BTreeMap<usize, u64>,
    pub writes: bool,
    /// The session's last acknowledged one, all of them at one site.
    pub previous: Option<u64>,
    pub told: Told,
}

impl Attempt {
    pub fn is_acknowledged(&self) -> bool {
        self.told == Told::Committed
    }
}

pub(super) struct Host {
    pub site: Option<Pcsi>,
    /// The durable records, in order, and their bytes.
    log: Vec<Record>,
    bytes: Vec<Vec<u8>>,
    /// Effects whose records are not durable, then effects that have not left.
    appended: Vec<SiteEffects>,
    leaving: VecDeque<SiteEffects>,
    /// The logs that it has lost, or that a fence made void.
    pub old_logs: Vec<Vec<Record>>,
    /// The updates in the partitions that it got from others when it began without a log.
    pub fetched: BTreeSet<TransactionName>,
    /// Its incarnation when it last lost its disk, or an operator fenced it; until the next one is open.
    out: Option<Incarnation>,
    pub clients: [Client; CLIENTS],
}

pub struct World {
    draws: u64,
    pub(super) now: u64,
    pub(super) hosts: Vec<Host>,
    options: SiteOptions,
    pub(super) sites: Arc<SiteMap>,
    /// Those that clients only overwrite, then those that clients also delete.
    pub(super) keys: Vec<Key>,
    overwritten: usize,
    flying: Vec<(u64, NodeId, NodeId, Vec<u8>)>,
    /// Pairs of sites, lower first, whose messages are lost until a step.
    cuts: BTreeMap<(u16, u16), u64>,
    /// The most steps that a message takes, by the lower and the higher site.
    delays: BTreeMap<(u16, u16), u64>,
    pub attempts: Vec<Attempt>,
    /// In how many steps of a thousand a disk is lost, or an operator fences a site.
    fences_per_mille: u64,
    /// The partitions that sites have sent to sites without a log, each with the updates that it contains.
    given: Vec<(PartitionId, Arc<ReplicaState>, BTreeSet<TransactionName>)>,
    /// The processes that have been started.
    starts: u64,
    /// The updates that were in the logs of lost disks only.
    pub lost: BTreeSet<TransactionName>,
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
        World::new(seed).run_until_settled()
    }

    /// As [`World::run`], with so many fences and lost disks that they overlap.
    ///
    /// # Errors
    /// Something waits for ever.
    pub fn run_with_many_fences(seed: u64) -> Result<World, String> {
        let mut world = World::new(seed);
        world.fences_per_mille = 20;
        world.run_until_settled()
    }

    fn run_until_settled(self) -> Result<World, String> {
        let mut world = self;
        for _ in 0..STEPS {
            world.step(true);
        }
        world.cuts.clear();
        let was_fenced = world.hosts.iter().any(|host| host.out.is_some() || !host.old_logs.is_empty());
        if world.hosts.len() > 2 && !was_fenced && world.percent(50) {
            world.settle_without_one()?;
        }
        (0..world.hosts.len()).for_each(|host| world.restart(host));
        for _ in 0..STEPS_TO_SETTLE {
            world.step(false);
            if world.has_settled() {
                world.find_lost();
                return Ok(world);
            }
        }
        let reason = |host: &Host| host.site.as_ref().map(|site| (site.waits_for(), site.is_fenced()));
        let reasons: Vec<_> = world.hosts.iter().map(reason).collect();
        Err(format!("a site waits for ever: {reasons:?}"))
    }

    fn new(seed: u64) -> World {
        let sites = Arc::new(SiteMap::new(vec![vec![NodeId(0)]]).expect("a site"));
        let options = SiteOptions {
            me: NodeId(0),
            sites: Arc::clone(&sites),
            propagation_ticks: 3,
            vote_ticks_max: 300,
            open_ticks_max: 50,
            open_max: 8,
            window: 5,
            retained_max: 40,
            silent_ticks_max: 60,
            session_horizon: 1_000,
        };
        let mut world = World {
            draws: mix(seed ^ 0x7063_7369),
            now: 0,
            hosts: Vec::new(),
            options,
            sites,
            keys: Vec::new(),
            overwritten: 0,
            flying: Vec::new(),
            cuts: BTreeMap::new(),
            delays: BTreeMap::new(),
            attempts: Vec::new(),
            fences_per_mille: if mix(seed ^ 0x6665_6E63) % 5 < 2 { 5 } else { 0 },
            given: Vec::new(),
            starts: 0,
            lost: BTreeSet::new(),
        };
        let hosts = 2 + world.below(4);
        let partitions = 1 + world.below(4);
        let mut replicas = Vec::new();
        for partition in 0..partitions {
            let copies = (1 + world.below(3)).min(hosts);
            replicas.push((0..copies).map(|copy| NodeId(((partition + copy) % hosts) as u16)).collect());
        }
        world.sites = Arc::new(SiteMap::new(replicas).expect("each partition has sites"));
        world.draw_options();
        for (one, other) in (0..hosts as u16).flat_map(|other| (0..other).map(move |one| (one, other))) {
            let delay_max = [2, 10, 40, 120][world.below(4) as usize];
            world.delays.insert((one, other), delay_max);
        }
        world.overwritten = 2 + world.below(6) as usize;
        let overwritten = (0..world.overwritten).map(|key| Key::new(format!("k{key}").as_bytes()));
        let deleted = (0..2).map(|key| Key::new(format!("d{key}").as_bytes()));
        world.keys = overwritten.chain(deleted).collect();
        for _ in 0..hosts {
            let clients = Default::default();
            world.hosts.push(Host {
                site: None,
                log: vec![Record::Founded],
                bytes: vec![Record::Founded.encode()],
                appended: Vec::new(),
                leaving: VecDeque::new(),
                old_logs: Vec::new(),
                fetched: BTreeSet::new(),
                out: None,
                clients,
            });
        }
        (0..world.hosts.len()).for_each(|host| world.restart(host));
        world
    }

    /// In some seeds, bounds are so low that sites reach them.
    fn draw_options(&mut self) {
        self.options.sites = Arc::clone(&self.sites);
        if self.percent(30) {
            self.options.retained_max = 2 + self.below(6) as usize;
            self.options.window = 1 + self.below(3);
            self.options.open_max = 2 + self.below(4) as usize;
            self.options.session_horizon = 5 + self.below(40);
            self.options.vote_ticks_max = 20 + self.below(280);
            self.options.open_ticks_max = 10 + self.below(40);
        }
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.draws = self.draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.draws) % bound
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn restart(&mut self, host: usize) {
        if self.hosts[host].site.is_some() {
            return;
        }
        let options = SiteOptions { me: NodeId(host as u16), ..self.options.clone() };
        let mut effects = SiteEffects::default();
        self.starts += 1;
        let read = |bytes: &Vec<u8>| Record::decode(bytes, &self.sites).expect("the site has written it");
        let records: Vec<Record> = self.hosts[host].bytes.iter().map(read).collect();
        assert_eq!(records, self.hosts[host].log);
        let site = Pcsi::start(options, &records, self.starts, &mut effects);
        site.check_invariants();
        self.hosts[host].site = Some(site);
        self.hosts[host].appended.push(effects);
    }

    /// Of what the site has appended, a part is durable, and nothing of the rest leaves.
    fn crash(&mut self, host: usize) {
        let appended: usize = self.hosts[host].appended.iter().map(|effects| effects.records.len()).sum();
        let durable = self.below(appended as u64 + 1) as usize;
        let place = host;
        let host = &mut self.hosts[host];
        host.site = None;
        host.clients.iter_mut().for_each(Client::lose_site);
        let records = std::mem::take(&mut host.appended).into_iter().flat_map(|effects| effects.records);
        let records = records.take(durable).collect();
        host.leaving.clear();
        self.log(place, records);
    }

    /// Records are durable.
    fn log(&mut self, host: usize, records: Vec<Record>) {
        for record in &records {
            let Record::Installed(installed) = record else { continue };
            let names = |of: &PartitionId| {
                let replica = installed.replicas().get(of)?;
                let is_it = |(given, state, _): &&(PartitionId, Arc<ReplicaState>, _)| {
                    given == of && state.replica() == replica
                };
                Some(self.given.iter().rev().find(is_it).map(|(.., names)| names))
            };
            let is_fetched = |update: &Arc<Update>| {
                let mut own = update.stamps.keys().filter_map(names).peekable();
                own.peek().is_some()
                    && own.all(|names| names.is_some_and(|names| names.contains(&update.name)))
            };
            let updates = self.updates();
            let fetched = updates.values().filter(|update| is_fetched(update));
            self.hosts[host].fetched = fetched.map(|update| update.name).collect();
        }
        self.hosts[host].bytes.extend(records.iter().map(Record::encode));
        self.hosts[host].log.extend(records);
    }

    /// A partition leaves for a site without a log. What the partition contains is durable at its sender.
    fn note_given(&mut self, host: usize, message: &Message) {
        let Message::Fencing(Fencing::Fetched { partition, state: Some(state), .. }) = message else {
            return;
        };
        let view = &state.replica().view;
        let mut names = self.hosts[host].fetched.clone();
        for record in &self.hosts[host].log {
            if let Record::Committed { update, .. } | Record::Applied { update } = record
                && update.stamps.get(partition).is_some_and(|&stamp| view.sees(stamp))
            {
                names.insert(update.name);
            }
        }
        self.given.push((*partition, Arc::clone(state), names));
    }

    /// Whether an update is in a host's log, or in the partitions that the host got from others.
    pub fn has_update(&self, host: usize, update: &Update) -> bool {
        let is_it = |record: &Record| match record {
            Record::Committed { update: other, .. } | Record::Applied { update: other } => {
                other.name == update.name
            }
            _ => false,
        };
        let host = &self.hosts[host];
        host.fetched.contains(&update.name) || host.log.iter().any(is_it)
    }

    /// All updates that any log has or had.
    pub fn updates(&self) -> BTreeMap<TransactionName, Arc<Update>> {
        let mut updates = BTreeMap::new();
        let logs = self.hosts.iter().flat_map(|host| host.old_logs.iter().chain([&host.log]));
        for record in logs.flatten() {
            if let Record::Committed { update, .. } | Record::Applied { update } = record {
                updates.insert(update.name, Arc::clone(update));
            }
        }
        updates
    }

    /// Lost are the updates that no host has any more. What waited at a host when the others were lost may
    /// remain.
    fn find_lost(&mut self) {
        for record in self.hosts.iter().flat_map(|host| &host.log) {
            if let Record::Committed { update, .. } | Record::Applied { update } = record {
                self.lost.remove(&update.name);
            }
        }
        for name in self.hosts.iter().flat_map(|host| &host.fetched) {
            self.lost.remove(name);
        }
        let updates = self.updates();
        let is_lost =
            |update: &&Arc<Update>| !(0..self.hosts.len()).any(|host| self.has_update(host, update));
        let lost: Vec<TransactionName> = updates.values().filter(is_lost).map(|update| update.name).collect();
        self.lost.extend(lost);
    }

    /// A host loses its disk.
    fn lose_disk(&mut self, host: usize) {
        self.crash(host);
        self.find_lost();
        let log = std::mem::take(&mut self.hosts[host].log);
        self.hosts[host].bytes.clear();
        self.hosts[host].old_logs.push(log);
        self.hosts[host].fetched.clear();
        self.find_lost();
    }

    /// A disk is lost, or an operator fences a site; but each partition remains somewhere.
    fn lose_or_fence(&mut self) {
        let host = self.below(self.hosts.len() as u64) as usize;
        let is_in = |other: &usize| *other != host && self.hosts[*other].out.is_none();
        let others: Vec<usize> = (0..self.hosts.len()).filter(is_in).collect();
        let remains = |of: PartitionId| others.iter().any(|&other| self.has(other, of));
        let own: Vec<PartitionId> = self.sites.partitions().filter(|&of| self.has(host, of)).collect();
        let is_safe = !own.is_empty() && own.into_iter().all(remains);
        if !is_safe || self.hosts[host].out.is_some() {
            return;
        }
        let incarnation = self.incarnation_in_log(host);
        if self.percent(50) {
            self.hosts[host].out = Some(incarnation);
            return self.lose_disk(host);
        }
        let leaders: Vec<usize> =
            others.into_iter().filter(|&other| self.hosts[other].site.is_some()).collect();
        if !leaders.is_empty() {
            let leader = leaders[self.below(leaders.len() as u64) as usize];
            self.hosts[host].out = Some(incarnation);
            self.on(leader, |site, effects| site.fence(NodeId(host as u16), effects));
        }
    }

    fn incarnation_in_log(&self, host: usize) -> Incarnation {
        let installed = self.hosts[host].log.iter().rev().find_map(|record| match record {
            Record::Installed(installed) => Some(installed.incarnation()),
            _ => None,
        });
        installed.unwrap_or_default()
    }

    /// A host that hears of a fence begins without its log. One that is open again counts.
    fn follow_fences(&mut self, host: usize) {
        let Some(site) = &self.hosts[host].site else { return };
        if site.is_fenced() {
            self.hosts[host].out.get_or_insert_default();
            self.lose_disk(host);
        } else if site.is_open() && self.hosts[host].out.is_some_and(|out| out < site.incarnation()) {
            self.hosts[host].out = None;
        }
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
            let steps = [20, 100, 400][self.below(3) as usize];
            let until = self.now + self.below(steps);
            self.cuts.insert((one.min(other), one.max(other)), until);
        }
        if is_faulty && self.fences_per_mille > 0 && self.below(1_000) < self.fences_per_mille {
            self.lose_or_fence();
        }
        for host in 0..self.hosts.len() {
            self.follow_fences(host);
            if self.hosts[host].site.is_none() && (!is_faulty || self.percent(5)) {
                self.restart(host);
            }
            self.run_host(host, is_faulty);
        }
        self.deliver(is_faulty);
    }

    fn run_host(&mut self, host: usize, is_faulty: bool) {
        if self.hosts[host].site.is_none() {
            return;
        }
        self.on(host, |site, effects| site.tick(effects));
        (0..CLIENTS).for_each(|client| self.run_client(host, client, is_faulty));
        if self.percent(60) {
            let appended = self.hosts[host].appended.len() as u64;
            let durable = self.below(appended + 1) as usize;
            self.sync(host, if is_faulty { durable } else { appended as usize });
        }
        if self.percent(60) {
            self.leave(host, is_faulty);
        }
    }

    pub(super) fn on(&mut self, host: usize, work: impl FnOnce(&mut Pcsi, &mut SiteEffects)) {
        let mut effects = SiteEffects::default();
        let site = self.hosts[host].site.as_mut().expect("it runs");
        work(site, &mut effects);
        site.check_invariants();
        self.hosts[host].appended.push(effects);
    }

    /// The records of the first effects become durable.
    fn sync(&mut self, host: usize, durable: usize) {
        let appended: Vec<SiteEffects> = self.hosts[host].appended.drain(..durable).collect();
        for mut effects in appended {
            self.log(host, std::mem::take(&mut effects.records));
            self.hosts[host].leaving.push_back(effects);
        }
    }

    /// What waited for records that are durable leaves.
    fn leave(&mut self, host: usize, is_faulty: bool) {
        for effects in std::mem::take(&mut self.hosts[host].leaving) {
            for (to, message) in effects.messages {
                self.note_given(host, &message.message);
                let copies = 1 + u64::from(self.percent(5));
                for _ in 0..copies {
                    let pair = (to.0.min(host as u16), to.0.max(host as u16));
                    let at = self.now + 1 + self.below(self.delays[&pair]);
                    self.flying.push((at, NodeId(host as u16), to, message.encode()));
                }
            }
            for (id, answer) in effects.answers {
                if !(is_faulty && self.percent(5)) {
                    self.answer(host, id, answer);
                }
            }
        }
    }

    fn answer(&mut self, host: usize, id: RequestId, answer: Answer) {
        let mut clients = self.hosts[host].clients.iter_mut();
        let Some(client) = clients.find(|client| client.waits_for(id)) else { return };
        let Some((place, told)) = client.answered(&answer, &self.attempts) else { return };
        self.attempts[place].told = told;
    }

    fn deliver(&mut self, is_faulty: bool) {
        let (now, cuts) = (self.now, self.cuts.clone());
        let (due, flying) = std::mem::take(&mut self.flying).into_iter().partition(|(at, ..)| *at <= now);
        self.flying = flying;
        let due: Vec<(u64, NodeId, NodeId, Vec<u8>)> = due;
        for (_, from, to, message) in due {
            let pair = (from.0.min(to.0), from.0.max(to.0));
            let is_cut = cuts.get(&pair).is_some_and(|&until| until > now);
            let host = usize::from(to.0);
            let is_lost = is_cut || (is_faulty && self.percent(3)) || self.hosts[host].site.is_none();
            if !is_lost {
                let letter = Letter::decode(&message, &self.sites).expect("a site has sent it");
                self.on(host, |site, effects| site.receive(from, letter, effects));
            }
        }
    }

    /// One site stays away. Nevertheless each other site applies what it may and one of them has.
    fn settle_without_one(&mut self) -> Result<(), String> {
        let away = self.below(self.hosts.len() as u64) as usize;
        let others = (0..self.hosts.len()).filter(|&host| host != away);
        others.for_each(|host| self.restart(host));
        self.crash(away);
        for _ in 0..STEPS_TO_SETTLE / STEPS_BETWEEN_CHECKS {
            for _ in 0..STEPS_BETWEEN_CHECKS {
                self.now += 1;
                (0..self.hosts.len()).for_each(|host| self.run_host(host, false));
                self.deliver(false);
            }
            if self.has_all_applicable() {
                return Ok(());
            }
        }
        Err("sites wait for the updates of one that is away, and others have them".into())
    }

    /// Whether no running site may apply an update that another running site has and it has not.
    fn has_all_applicable(&self) -> bool {
        let running = || self.hosts.iter().filter(|host| host.site.is_some());
        let is_applicable = |record: &Record| {
            let (Record::Committed { update, .. } | Record::Applied { update }) = record else {
                return false;
            };
            let mut sites = running().filter_map(|host| host.site.as_ref());
            sites.any(|site| !site.has_applied(update) && site.may_apply(update))
        };
        running().all(|host| {
            let appended = host.appended.iter().flat_map(|effects| &effects.records);
            host.clients.iter().all(Client::is_idle)
                && !host.log.iter().chain(appended).rev().any(is_applicable)
        })
    }

    fn has_settled(&self) -> bool {
        self.hosts.iter().all(|host| {
            host.clients.iter().all(Client::is_idle)
                && host.appended.iter().all(|effects| effects.records.is_empty())
                && host.leaving.iter().all(|effects| effects.answers.is_empty())
                && host.site.as_ref().is_some_and(Pcsi::is_idle)
        })
    }

    /// The durable records of each site.
    pub fn logs(&self) -> impl Iterator<Item = &[Record]> {
        self.hosts.iter().map(|host| &host.log[..])
    }

    /// The durable records of each site, also those of logs that are lost.
    pub fn all_logs(&self) -> impl Iterator<Item = (usize, &[Record])> {
        let logs = self.hosts.iter().map(move |host| host.old_logs.iter().chain([&host.log]));
        logs.enumerate().flat_map(|(host, logs)| logs.map(move |log| (host, &log[..])))
    }

    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Whether clients delete a key.
    pub fn is_deleted(&self, key: usize) -> bool {
        key >= self.overwritten
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

    /// What a site keeps, and the number of keys that it has.
    pub fn kept(&self, host: usize) -> ((usize, usize), usize) {
        let Some(site) = &self.hosts[host].site else { return ((0, 0), 0) };
        (site.kept(), self.keys.iter().filter(|key| site.newest(key).is_some()).count())
    }
}
