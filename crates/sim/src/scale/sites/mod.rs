//! Sites of PCSI on a modelled test bed: how fast partially replicated sites of several regions are together.
//!
//! Every site of the model is a *real* [`certify::pcsi::Pcsi`]: snapshots, remote reads, votes, granted
//! numbers, propagation, vectors and conflicts are what they are there, and letters and records of logs are
//! encoded and decoded as bytes. The model supplies time:
//!
//! - **A site's thread.** One thread of a site does all of its protocol, as in `node::geo`: it runs one step
//!   after the other (a transaction's way from its beginning until it asks to commit, a letter with its
//!   decoding, a tick), and encodes what the step records and sends. A step takes what [`Price`] says: the
//!   processor time that this machine has just taken for the real step, or an assumed price. The letters of a
//!   step leave at its end. The node's other cores run clients and the network; they are never short.
//! - **Logs** cost their encoding. Nothing is written to a disk, and nobody waits for one.
//! - **Placement** (section VI-A of the paper). There are as many partitions as sites, in regions of
//!   [`SITES_OF_REGION`]. Each partition has three replicas: two in one region, and one in another. Each site
//!   has three partitions.
//! - **Clients** begin a transaction whenever the thread of their site has nothing else to do, unless all of
//!   them have one under way. So a site that has clients enough is as busy as can be, and its transactions do
//!   not wait for each other: its throughput is the peak. A client that is refused begins another
//!   transaction, and counts the first as aborted. A client whose site is full waits for a while
//!   ([`FULL_NS`]).
//! - **Transactions** ([`Load`]) read items of partitions of their site, and write items of these or of other
//!   partitions. Items are drawn uniformly, and none exists at the beginning: so a read finds nothing unless
//!   the run has written the item. The first transactions of a site write each remote partition once, if the
//!   load has remote writes: so vectors have their entries when the measured time begins.
//! - **Messages.** A node has a thread that sends and one that receives ([`Costs::message_ns`] for each
//!   message), a wire ([`Costs::byte_ns`]), and links that keep their order: [`Times::latency_ns`] within a
//!   region, [`SitesOptions::between_regions_ns`] between regions, each with some jitter.
//!
//! No site fails. With an assumed price the same options give the same run, to the digest of all answers.

mod load;
mod site;

pub use load::Load;

use super::network::{Links, Wire};
use super::node::percentile_ns;
use super::{Costs, Times};
use crate::draw::Draw;
use crate::world::queue::Queue;
use certify::pcsi::{RemoteAccess, SiteMap};
use load::Places;
use serde::Serialize;
use site::{Letter, Next, Site, Work};
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::hash::mix;
use txn::{NodeId, PartitionId};

/// Sites of a region, as in the paper.
pub const SITES_OF_REGION: u16 = 4;
/// Replicas of a partition.
pub const REPLICAS: usize = 3;
/// A client waits for so long where its site is full.
pub const FULL_NS: u64 = 10_000_000;
/// A tick of the sites' clocks.
const TICK_NS: u64 = 10_000_000;
/// The most periods for which a run that is judged goes on without new transactions.
const ENDING_PERIODS_MAX: u64 = 40;

/// The time that a step of a site takes.
#[derive(Clone, Copy, Debug)]
pub enum Price {
    /// So many nanoseconds for the step itself, and again for each record, letter and answer that it makes.
    /// Vectors cost nothing.
    Assumed(u64),
    /// The time that this machine takes, times a factor.
    Measured {
        /// The processor time of this thread in nanoseconds.
        clock: fn() -> u64,
        /// How much slower the modelled node's processors are than this machine's.
        factor: f64,
    },
}

/// A run of the model.
#[derive(Clone, Debug)]
pub struct SitesOptions {
    /// Sites and partitions: a multiple of [`SITES_OF_REGION`], and at least two regions.
    pub sites: u16,
    /// How transactions use partitions that their sites do not have.
    pub remote_access: RemoteAccess,
    /// Whether updates follow what their transactions have seen. No product leaves that out.
    pub is_causal: bool,
    /// The work of transactions.
    pub load: Load,
    /// The most transactions of a site that are under way.
    pub clients: u16,
    /// From one propagation of updates to the next.
    pub period_ns: u64,
    /// From a site to one of another region, one way.
    pub between_regions_ns: u64,
    /// `latency_ns`, `jitter_ns`, `warm_up_ns` and `measured_ns`; no other field counts here.
    pub times: Times,
    /// `message_ns` and `byte_ns`; no other field counts here.
    pub costs: Costs,
    /// The time that a step takes.
    pub price: Price,
    /// Of transactions and of the network.
    pub seed: u64,
    /// Whether the run ends with all replicas compared. For small runs.
    pub judged: bool,
}

/// What a run found. Counts are those of the measured time and of all sites.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SitesReport {
    /// The measured time.
    pub measured_ns: u64,
    /// Transactions that committed.
    pub committed: u64,
    /// Those of them that wrote remote partitions.
    pub committed_remote: u64,
    /// Transactions that were refused, by cause.
    pub aborted: BTreeMap<&'static str, u64>,
    /// Those of them that would have written remote partitions.
    pub aborted_remote: u64,
    /// Clients that found their site full.
    pub full: u64,
    /// The share of the time for which the sites' threads were busy.
    pub busy: f64,
    /// Processor time of the sites' threads, by step: of transactions, ticks, and letters by their kind.
    pub busy_ns: BTreeMap<&'static str, u64>,
    /// From call to answer, of committed transactions: the mean.
    pub response_mean_ns: u64,
    /// Half of them took at most this.
    pub response_p50_ns: u64,
    /// 99 of 100 took at most this.
    pub response_p99_ns: u64,
    /// From asking other sites for their votes until the answer, of committed transactions: the mean.
    pub votes_mean_ns: u64,
    /// From an update's arrival at a site until the site applies it: the mean.
    pub update_delay_mean_ns: u64,
    /// Updates that sites have applied of others.
    pub applied: u64,
    /// The letters, and their bytes.
    pub letters: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of records of the logs.
    pub log_bytes: u64,
    /// Bytes of an update on its way, on average.
    pub update_bytes: f64,
    /// Those of them that are vectors: its stamps and dependencies.
    pub vector_bytes: f64,
    /// The granted numbers that are not counted yet at the end, of a site on average.
    pub grants_out: f64,
    /// The updates that wait at a site for others at the end, on average.
    pub waiting: f64,
    /// The hash of all answers, and when they were.
    pub digest: u64,
}

impl SitesReport {
    /// Transactions that committed in a second.
    pub fn throughput_per_s(&self) -> f64 {
        self.committed as f64 * 1e9 / self.measured_ns.max(1) as f64
    }
    /// The percentage of transactions that committed.
    pub fn commit_rate_percent(&self) -> f64 {
        percent(self.committed, self.aborted.values().sum())
    }
    /// The same of those with remote writes; 0 if there are none.
    pub fn commit_rate_of_remote_percent(&self) -> f64 {
        percent(self.committed_remote, self.aborted_remote)
    }
    /// Of 100 transactions that ended, those with remote writes.
    pub fn remote_percent(&self) -> f64 {
        let remote = self.committed_remote + self.aborted_remote;
        let ended = self.committed + self.aborted.values().sum::<u64>();
        remote as f64 * 100.0 / ended.max(1) as f64
    }
    /// Processor time of sites' threads for a committed transaction, in microseconds.
    pub fn thread_us(&self) -> f64 {
        let all: u64 = self.busy_ns.values().sum();
        all as f64 / 1e3 / self.committed.max(1) as f64
    }
}

/// How many of 100 committed.
fn percent(committed: u64, aborted: u64) -> f64 {
    committed as f64 * 100.0 / (committed + aborted).max(1) as f64
}

enum Event {
    /// A site's clock.
    Tick(usize),
    /// A site's thread has done a step.
    Done(usize),
    /// A message has come.
    Arrived(Box<Letter>),
    /// The receiving thread has taken it.
    Taken(Box<Letter>),
    /// A client calls.
    Call { at: usize, client: u16 },
}

struct Run<'a> {
    options: &'a SitesOptions,
    sites: Vec<Site>,
    wires: Vec<Wire>,
    queue: Queue<Event>,
    links: Links,
    digest: u64,
    is_ending: bool,
}

/// Runs the model.
///
/// # Errors
/// The options contradict each other; or the run was judged, and sites do not come to rest or replicas
/// differ.
pub fn run(options: &SitesOptions) -> Result<SitesReport, String> {
    let SitesOptions { sites, ref load, clients, period_ns, .. } = *options;
    if sites < 2 * SITES_OF_REGION || !sites.is_multiple_of(SITES_OF_REGION) {
        return Err(format!("{sites} sites are not at least two regions of {SITES_OF_REGION}"));
    }
    if clients == 0 || period_ns < TICK_NS || !load.is_possible() {
        return Err("a model needs clients, a period of 10 ms, and transactions that fit".to_owned());
    }
    if load.remote_percent > 0 && options.remote_access == RemoteAccess::Refused {
        return Err("remote writes need remote access".to_owned());
    }
    let map = SiteMap::new((0..sites).map(|of| replicas(of, sites)).collect()).ok_or("no sites")?;
    let map = map.with_remote_access(options.remote_access);
    let map = Arc::new(if options.is_causal { map } else { map.without_causality() });
    let places = Arc::new(Places::new(&map, load));
    let site = |at| Site::new(options, NodeId(at), Arc::clone(&map), Arc::clone(&places));
    let run = Run {
        options,
        sites: (0..sites).map(site).collect(),
        wires: (0..sites).map(|_| Wire::new(options.costs)).collect(),
        queue: Queue::new(),
        links: Links::new(options.seed),
        digest: 1,
        is_ending: false,
    };
    run.run()
}

/// The sites of a partition: two in its region, and one in another region, which depends on its place in its
/// region. So each site has three partitions.
fn replicas(partition: u16, sites: u16) -> Vec<NodeId> {
    let (region, place) = (partition / SITES_OF_REGION, partition % SITES_OF_REGION);
    let regions = sites / SITES_OF_REGION;
    let beside = region * SITES_OF_REGION + (place + 1) % SITES_OF_REGION;
    let further = 1 + place * (regions - 1) / SITES_OF_REGION;
    let far = (region + further) % regions * SITES_OF_REGION + place;
    [partition, beside, far].map(NodeId).to_vec()
}

impl Run<'_> {
    fn run(mut self) -> Result<SitesReport, String> {
        let mut draw = Draw::new(mix(self.options.seed ^ 0x7469_636B));
        let clients = self.options.clients;
        for at in 0..self.sites.len() {
            self.queue.add(draw.below(TICK_NS), Event::Tick(at));
            // A site's ticks until its first propagation are drawn, too.
            let first_ns = draw.below(self.options.period_ns);
            self.sites[at].skip_ticks(first_ns / TICK_NS);
            (0..clients).for_each(|client| self.queue.add(draw.below(TICK_NS), Event::Call { at, client }));
        }
        let Times { warm_up_ns, measured_ns, .. } = self.options.times;
        self.go_on_until(warm_up_ns);
        self.sites.iter_mut().for_each(Site::begin_to_count);
        self.go_on_until(warm_up_ns + measured_ns);
        let report = self.report(measured_ns);
        if self.options.judged {
            let seed = self.options.seed;
            self.end(warm_up_ns + measured_ns).map_err(|wrong| format!("seed {seed}: {wrong}"))?;
        }
        Ok(report)
    }

    fn go_on_until(&mut self, until_ns: u64) {
        while self.queue.next_at_ns().is_some_and(|at_ns| at_ns < until_ns) {
            if let Some((now_ns, event)) = self.queue.next() {
                self.handle(event, now_ns);
            }
        }
    }

    fn handle(&mut self, event: Event, now_ns: u64) {
        match event {
            Event::Tick(at) => {
                self.queue.add(now_ns + TICK_NS, Event::Tick(at));
                self.give(at, Work::Tick, now_ns);
            }
            Event::Call { at, client } if !self.is_ending => self.give(at, Work::Call(client), now_ns),
            Event::Call { .. } => {}
            Event::Arrived(letter) => {
                let taken_ns = self.wires[usize::from(letter.to.0)].taken_ns(0, now_ns);
                self.queue.add(taken_ns, Event::Taken(letter));
            }
            Event::Taken(letter) => {
                let at = usize::from(letter.to.0);
                self.give(at, Work::Letter(letter), now_ns);
            }
            Event::Done(at) => self.done(at, now_ns),
        }
    }

    /// A site's thread has something more to do.
    fn give(&mut self, at: usize, work: Work, now_ns: u64) {
        if let Some(done_ns) = self.sites[at].give(work, now_ns) {
            self.queue.add(done_ns, Event::Done(at));
        }
    }

    /// A site's step ends: what it sends leaves, and clients hear.
    fn done(&mut self, at: usize, now_ns: u64) {
        let (letters, answered) = self.sites[at].take_done(now_ns);
        for (client, next) in answered {
            self.digest = mix(self.digest ^ mix(at as u64) ^ u64::from(client) ^ now_ns);
            match next {
                Next::Call => self.queue.add(now_ns, Event::Call { at, client }),
                Next::Wait => self.queue.add(now_ns + FULL_NS, Event::Call { at, client }),
                Next::GoOn => self.sites[at].put(Work::GoOn(client)),
            }
        }
        let mut sender_ns = now_ns;
        for letter in letters {
            let left_ns = self.wires[at].send(0, letter.bytes.len() as u64, &mut sender_ns);
            let (from, to) = (letter.from.0, letter.to.0);
            let Times { latency_ns, jitter_ns, .. } = self.options.times;
            let way = match from / SITES_OF_REGION == to / SITES_OF_REGION {
                true => (latency_ns, jitter_ns),
                false => (self.options.between_regions_ns, self.options.between_regions_ns / 20),
            };
            let link = (PartitionId(from), PartitionId(to));
            let arrives_ns = self.links.arrives_ns(link, left_ns, way);
            self.queue.add(arrives_ns, Event::Arrived(Box::new(letter)));
        }
        if let Some(done_ns) = self.sites[at].go_on(now_ns) {
            self.queue.add(done_ns, Event::Done(at));
        }
    }

    fn report(&mut self, measured_ns: u64) -> SitesReport {
        let mut report = SitesReport { measured_ns, digest: self.digest, ..SitesReport::default() };
        let mut sums = site::Counts::default();
        self.sites.iter_mut().for_each(|site| sums.add(site.take_counts()));
        let mean = |sum: u64, count: u64| sum / count.max(1);
        sums.responses_ns.sort_unstable();
        let sites = self.sites.len() as f64;
        report.busy = sums.busy_ns.values().sum::<u64>() as f64 / (measured_ns as f64 * sites);
        report.response_mean_ns = mean(sums.responses_ns.iter().sum(), sums.responses_ns.len() as u64);
        report.response_p50_ns = percentile_ns(&sums.responses_ns, 50);
        report.response_p99_ns = percentile_ns(&sums.responses_ns, 99);
        report.votes_mean_ns = mean(sums.votes_ns, sums.votes);
        report.update_delay_mean_ns = mean(sums.update_delays_ns, sums.applied);
        report.update_bytes = sums.update_bytes as f64 / sums.sampled.max(1) as f64;
        report.vector_bytes = sums.vector_bytes as f64 / sums.sampled.max(1) as f64;
        report.grants_out = self.sites.iter().map(|site| site.site().grants().0 as f64).sum::<f64>() / sites;
        report.waiting = self.sites.iter().map(|site| site.waiting() as f64).sum::<f64>() / sites;
        SitesReport {
            committed: sums.responses_ns.len() as u64,
            committed_remote: sums.committed_remote,
            aborted: sums.aborted,
            aborted_remote: sums.aborted_remote,
            full: sums.full,
            busy_ns: sums.busy_ns,
            applied: sums.applied,
            letters: sums.letters,
            bytes: sums.bytes,
            log_bytes: sums.log_bytes,
            ..report
        }
    }

    /// Goes on without new transactions until all sites are idle, and compares replicas.
    fn end(mut self, mut until_ns: u64) -> Result<(), String> {
        self.is_ending = true;
        self.sites.iter_mut().for_each(Site::stop_clients);
        for _ in 0..ENDING_PERIODS_MAX {
            // No whole number of ticks: else a site whose tick is due now would never be found idle.
            until_ns += self.options.period_ns + TICK_NS / 7;
            self.go_on_until(until_ns);
            if self.sites.iter().all(Site::is_idle) {
                return self.compare();
            }
        }
        let waits = self.sites.iter().find_map(|site| site.site().waits_for());
        Err(format!("something waits for ever: {}", waits.unwrap_or("a step")))
    }

    /// All replicas of a partition count the same, and have the same.
    fn compare(&self) -> Result<(), String> {
        let sites = self.sites.len() as u16;
        let written: Vec<&txn::Key> = self.sites.iter().flat_map(|site| &site.written).collect();
        self.sites.iter().for_each(|site| site.site().check_invariants());
        for partition in 0..sites {
            let having: Vec<&Site> =
                replicas(partition, sites).iter().map(|site| &self.sites[usize::from(site.0)]).collect();
            let views: Vec<_> = having.iter().map(|site| site.site().view(PartitionId(partition))).collect();
            if views.iter().any(|view| view.is_none() || *view != views[0]) {
                return Err(format!("the replicas of partition {partition} count {views:?}"));
            }
            for key in written.iter().filter(|key| self.sites[0].partition_of(key).0 == partition) {
                let values: Vec<_> = having.iter().map(|site| site.site().newest(key)).collect();
                if values[0].entry.is_none() || values.iter().any(|value| *value != values[0]) {
                    return Err(format!("{key:?} has {values:?}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_site_has_three_partitions_and_each_partition_two_sites_of_one_region() {
        for sites in [8, 16, 20, 40, 64] {
            let mut of_site = vec![0; usize::from(sites)];
            for partition in 0..sites {
                let having = replicas(partition, sites);
                assert_eq!(having.len(), REPLICAS);
                let regions: Vec<u16> = having.iter().map(|site| site.0 / SITES_OF_REGION).collect();
                assert!(regions[0] == regions[1] && regions[2] != regions[0], "{partition} of {sites}");
                having.iter().for_each(|site| of_site[usize::from(site.0)] += 1);
            }
            assert!(of_site.iter().all(|&partitions| partitions == REPLICAS), "{sites}: {of_site:?}");
        }
    }
}
