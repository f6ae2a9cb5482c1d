//! Drawn systems whose clients use all partitions at each site, with lost and late messages and crashes. The
//! judge knows only what clients read and what logs committed, as the simulator's judge does; disks are lost
//! and sites are fenced only there.

use super::remote::group;
use super::{Group, WriteSet};
use crate::Answer;
use crate::pcsi::{Letter, Pcsi, Record, RemoteAccess, SiteEffects};
use std::collections::{BTreeMap, BTreeSet};
use txn::hash::mix;
use txn::mutant::{Mutant, with};
use txn::{Entry, Key, NodeId, RequestId};

const SEEDS: u64 = 40;
/// Clients begin transactions for so many ticks, and then all must end within as many again.
const TICKS: u64 = 1_500;
/// A client gives up after so many ticks without an answer.
const PATIENCE_TICKS: u64 = 150;

/// A transaction. It reads keys, and writes its number to all of them, or none.
#[derive(Debug, Default)]
struct Attempt {
    reads: BTreeMap<usize, u64>,
    writes: bool,
    /// The last acknowledged attempt of its session; 0 if there is none.
    previous: u64,
    is_acknowledged: bool,
    is_remote: bool,
}

/// A client of the site with its number modulo the number of sites.
struct Client {
    id: RequestId,
    /// The present attempt's number; 0 between attempts.
    attempt: u64,
    unread: Vec<usize>,
    reading: Option<usize>,
    since_tick: u64,
    previous: u64,
}

struct Drawn {
    draws: u64,
    group: Group,
    keys: Vec<Key>,
    clients: Vec<Client>,
    attempts: Vec<Attempt>,
    letters: Vec<(u64, u16, NodeId, Letter)>,
    /// When each site that is down comes back.
    down: BTreeMap<usize, u64>,
    tick: u64,
    lost_percent: u64,
    late_ticks: u64,
}

impl Drawn {
    fn new(seed: u64, access: RemoteAccess) -> Drawn {
        let mut draws = mix(seed);
        let mut below = |bound: u64| {
            draws = draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(draws) % bound
        };
        let sites = 3 + below(3) as usize;
        let replicas: Vec<Vec<u16>> = (0..sites)
            .map(|partition| {
                let copies = 1 + below(3) as usize;
                (0..copies).map(|copy| ((partition + copy) % sites) as u16).collect()
            })
            .collect();
        let replicas: Vec<&[u16]> = replicas.iter().map(|sites| &sites[..]).collect();
        let mut group = group(sites, &replicas, access);
        group.options.session_horizon = 100_000;
        group.options.window = 5;
        (0..sites).for_each(|site| group.start(site));
        let clients = (0..2 * sites).map(|client| Client {
            id: group.session((client % sites) as u16),
            attempt: 0,
            unread: Vec::new(),
            reading: None,
            since_tick: 0,
            previous: 0,
        });
        let clients = clients.collect();
        let (lost_percent, late_ticks) = ([0, 0, 5, 20][below(4) as usize], [1, 3, 12][below(3) as usize]);
        let keys = (0..2 * sites).map(|key| Key::new(format!("k{key}").as_bytes())).collect();
        let (attempts, letters, down) = (Vec::new(), Vec::new(), BTreeMap::new());
        Drawn { draws, group, keys, clients, attempts, letters, down, tick: 0, lost_percent, late_ticks }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.draws = self.draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.draws) % bound
    }

    fn is_over(&self) -> bool {
        self.tick > TICKS
    }

    /// A site does something, if it runs.
    fn act(&mut self, site: usize, work: impl FnOnce(&mut Pcsi, &mut SiteEffects)) {
        let mut effects = SiteEffects::default();
        let Some(running) = self.group.sites[site].as_mut() else { return };
        work(running, &mut effects);
        running.check_invariants();
        self.group.logs[site].extend(effects.records);
        for (to, letter) in effects.messages {
            let is_lost = !self.is_over() && self.below(100) < self.lost_percent;
            let due = self.tick + 1 + self.below(self.late_ticks);
            if !is_lost {
                self.letters.push((due, site as u16, to, letter));
            }
        }
        effects.answers.into_iter().for_each(|(id, answer)| self.answered(id, answer));
    }

    fn site_of(&self, client: usize) -> usize {
        client % self.group.sites.len()
    }

    fn answered(&mut self, id: RequestId, answer: Answer) {
        let Some(client) = self.clients.iter().position(|of| of.id == id && of.attempt > 0) else { return };
        let of = &mut self.clients[client];
        let attempt = &mut self.attempts[of.attempt as usize - 1];
        match answer {
            Answer::Begun => self.go_on(client),
            Answer::Value(read) => {
                let text = read.entry.and_then(|entry| entry.value.as_string());
                let number = text.map_or(0, |text| String::from_utf8_lossy(&text).parse().expect("a number"));
                if let Some(key) = of.reading.take() {
                    attempt.reads.insert(key, number);
                    self.go_on(client);
                }
            }
            answer => {
                attempt.is_acknowledged = answer == Answer::Committed;
                if attempt.is_acknowledged {
                    of.previous = of.attempt;
                }
                of.attempt = 0;
            }
        }
    }

    /// A client's next step: a key, or the commit.
    fn go_on(&mut self, client: usize) {
        let site = self.site_of(client);
        let Client { id, attempt, .. } = self.clients[client];
        let Some(key) = self.clients[client].unread.pop() else {
            let mut writes = WriteSet::default();
            let Attempt { reads, writes: has_writes, .. } = &self.attempts[attempt as usize - 1];
            for key in reads.keys().filter(|_| *has_writes) {
                writes
                    .records
                    .insert(self.keys[*key].clone(), Some(Entry::new(attempt.to_string().as_str())));
            }
            return self.act(site, |site, effects| site.commit(id, writes, effects));
        };
        self.clients[client].reading = Some(key);
        let name = self.keys[key].clone();
        let mut is_remote = false;
        self.act(site, |site, effects| match site.has_partition_of(&name) {
            true => {
                let answer = site.look(id, &name).map_or_else(|answer| answer, Answer::Value);
                effects.answers.push((id, answer));
            }
            false => {
                is_remote = true;
                site.look_remote(id, name.clone(), effects);
            }
        });
        self.attempts[attempt as usize - 1].is_remote |= is_remote;
    }

    fn step(&mut self) {
        self.tick += 1;
        let due = |letter: &mut (u64, u16, NodeId, Letter)| letter.0 <= self.tick;
        for (_, from, to, letter) in self.letters.extract_if(.., due).collect::<Vec<_>>() {
            self.act(usize::from(to.0), |site, effects| site.receive(NodeId(from), letter, effects));
        }
        for site in 0..self.group.sites.len() {
            if self.down.get(&site).is_some_and(|&until| until <= self.tick || self.tick > TICKS) {
                self.down.remove(&site);
                self.group.start(site);
            } else if !self.is_over() && self.group.sites[site].is_some() && self.below(400) == 0 {
                self.group.sites[site] = None;
                let until = self.tick + 1 + self.below(100);
                self.down.insert(site, until);
            }
            self.act(site, Pcsi::tick);
        }
        for client in 0..self.clients.len() {
            let waits = self.clients[client].attempt > 0;
            if waits && self.tick - self.clients[client].since_tick > PATIENCE_TICKS {
                self.clients[client].attempt = 0;
            } else if !waits && !self.is_over() && self.below(8) == 0 {
                self.begin(client);
            }
        }
    }

    fn begin(&mut self, client: usize) {
        let count = 1 + self.below(3);
        let unread: BTreeSet<usize> =
            (0..count).map(|_| self.below(self.keys.len() as u64) as usize).collect();
        let writes = self.below(4) > 0;
        let of = &mut self.clients[client];
        self.attempts.push(Attempt { writes, previous: of.previous, ..Attempt::default() });
        of.id.sequence += 1;
        (of.unread, of.attempt) = (unread.into_iter().collect(), self.attempts.len() as u64);
        (of.reading, of.since_tick) = (None, self.tick);
        let (id, site) = (of.id, self.site_of(client));
        self.act(site, |site, effects| site.begin(id, effects));
    }

    /// # Errors
    /// What is wrong in the end.
    fn judge(&self) -> Result<(), String> {
        for (number, site) in self.group.sites.iter().flatten().enumerate() {
            if let Some(reason) = site.waits_for() {
                return Err(format!("site {number} waits: {reason}"));
            }
        }
        let updates = self.group.logs.iter().flatten().filter_map(|record| match record {
            Record::Committed { update, .. } | Record::Nulled { update } => Some(update),
            _ => None,
        });
        let (mut committed, mut stamps) = (BTreeSet::new(), BTreeSet::new());
        for update in updates {
            for (of, stamp) in &update.stamps {
                if !stamps.insert((of, stamp)) {
                    return Err(format!("two transactions have {stamp:?}"));
                }
            }
            let text = update.writes.values().flatten().find_map(|entry| entry.value.as_string());
            committed
                .extend(text.map(|text| String::from_utf8_lossy(&text).parse::<u64>().expect("a number")));
        }
        let attempt = |number: u64| &self.attempts[number as usize - 1];
        let mut next = BTreeMap::new();
        for &number in &committed {
            for (&key, &read) in &attempt(number).reads {
                if let Some(other) = next.insert((key, read), number) {
                    return Err(format!("attempts {other} and {number} both overwrote {read} of key {key}"));
                }
            }
        }
        let mut places = BTreeMap::new();
        for key in 0..self.keys.len() {
            let mut version = 0;
            for place in 0.. {
                places.insert((key, version), place);
                let Some(&later) = next.get(&(key, version)) else { break };
                version = later;
            }
            for site in
                self.group.sites.iter().flatten().filter(|site| site.has_partition_of(&self.keys[key]))
            {
                let text = site.newest(&self.keys[key]).entry.and_then(|entry| entry.value.as_string());
                let has = text.map_or(0, |text| String::from_utf8_lossy(&text).parse().expect("a number"));
                if has != version {
                    return Err(format!("a site has {has} of key {key}, not {version}"));
                }
            }
        }
        for (number, of) in (1..).zip(&self.attempts) {
            if of.is_acknowledged && of.writes && !committed.contains(&number) {
                return Err(format!("attempt {number} was acknowledged and is lost"));
            }
            if !of.is_acknowledged && !committed.contains(&number) {
                continue;
            }
            let mut past = BTreeSet::new();
            let mut found: Vec<u64> = of.reads.values().copied().chain([of.previous]).collect();
            while let Some(earlier) = found.pop().filter(|_| past.len() <= self.attempts.len()) {
                if earlier > 0 && past.insert(earlier) {
                    found.extend(attempt(earlier).reads.values().copied().chain([attempt(earlier).previous]));
                }
            }
            for &earlier in &past {
                for (&key, &read) in &of.reads {
                    let Some(&seen) = attempt(earlier).reads.get(&key) else { continue };
                    let lower = if committed.contains(&earlier) { earlier } else { seen };
                    if places.get(&(key, read)) < places.get(&(key, lower)) {
                        return Err(format!(
                            "attempt {number} read {read} of key {key}, and follows {lower} of {earlier}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Runs a drawn system. Returns the numbers of acknowledged attempts that used partitions of other sites, and
/// of all acknowledged attempts.
///
/// # Errors
/// What is wrong in the end.
fn run(seed: u64, access: RemoteAccess) -> Result<(usize, usize), String> {
    let mut drawn = Drawn::new(seed, access);
    (0..2 * TICKS).for_each(|_| drawn.step());
    drawn.judge()?;
    let acknowledged = || drawn.attempts.iter().filter(|attempt| attempt.is_acknowledged);
    Ok((acknowledged().filter(|attempt| attempt.is_remote).count(), acknowledged().count()))
}

/// The seeds of a test; `ORDO_SEED` gives another one back.
fn seeds() -> std::ops::Range<u64> {
    let seed = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok());
    seed.map_or(0..SEEDS, |seed| seed..seed + 1)
}

#[test]
fn snapshots_are_causal_and_no_update_is_lost_over_partitions_of_other_sites() {
    for access in [RemoteAccess::Ghosts, RemoteAccess::Grants] {
        let (mut remote, mut all) = (0, 0);
        for seed in seeds() {
            let result = run(seed, access);
            let Ok((some, of)) = result else { panic!("{access:?}, ORDO_SEED={seed}: {result:?}") };
            (remote, all) = (remote + some, all + of);
        }
        println!("{access:?}: {remote} of {all} acknowledged transactions used partitions of other sites");
        let is_one = seeds().count() == 1;
        assert!(is_one || 3 * remote >= all && all > 0, "{access:?}: {remote} of {all}");
    }
}

#[test]
fn drawn_systems_find_the_defects_of_remote_transactions() {
    for mutant in Mutant::OF_REMOTE_PCSI.into_iter().chain([Mutant::SkipConflictCheck]) {
        let find = |seed: &u64| {
            let result = std::panic::catch_unwind(|| with(mutant, || run(*seed, RemoteAccess::Grants)));
            !matches!(result, Ok(Ok(_)))
        };
        let found = (0..SEEDS).find(find);
        println!("{mutant:?}: seed {found:?}");
        assert!(found.is_some(), "{mutant:?}");
    }
}
