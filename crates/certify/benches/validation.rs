//! How much sooner a leaf of hierarchical validation validates with two threads than with one.
//!
//! `cargo bench -p ordo-certify --bench validation`. Transactions of disjoint keys each read and write eight
//! records of 1,000 bytes at one leaf, as the paper's do at eight (IV-A). Their requests stand in the leaf's
//! log already: what is measured is [`Certifier::decided_all`]. Rounds with one thread and with two take
//! turns, and the result is the ratio of their medians, for several numbers of entries that come together:
//! threads are started for each time, so few entries are left to one thread ([`Workers::entries_min`]).
//!
//! On a machine that is busy with something else the threads wait for processors. So a third kind of round
//! counts the processor's time: it runs the jobs of two threads one after the other, and of jobs that could
//! run at the same time it counts the longest.

use ordo_certify::hierarchy::{Hierarchy, HierarchyOptions, Tree};
use ordo_certify::{
    Answer, Certifier, Effects, Job, Look, ReadSet, Threads, Workers, WriteSet, session_opened,
};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use txn::{Entry, Key, PartitionId, Position, RequestId};

const TRANSACTIONS: u16 = 8_192;
const KEYS_EACH: u64 = 8;
const VALUE_BYTES: usize = 1_000;
/// How many agreed entries a site is given at once. It is never given more than the last of these.
const TOGETHER: [usize; 4] = [16, 64, 256, 1_024];
const ROUNDS: usize = 15;
const LEAF: PartitionId = PartitionId(0);

/// The requests of one transaction of each session.
fn requests(site: &mut Hierarchy, sequence: u64) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    for number in 0..TRANSACTIONS {
        let id = RequestId { session: session_opened(Position::NONE, number), sequence, attempt: 0 };
        let mut effects = Effects::default();
        site.begin(id, false, &mut effects);
        let (mut reads, mut writes) = (ReadSet::default(), WriteSet::default());
        for place in 0..KEYS_EACH {
            let key = Key::new(format!("key:{}", u64::from(number) * KEYS_EACH + place).as_bytes());
            site.look(id, &Look::Key(key.clone()), &mut effects);
            let Some((_, Answer::Value(read))) = effects.answers.pop() else { panic!("{effects:?}") };
            reads.keys.insert(key.clone(), read.version);
            let value = vec![number as u8; VALUE_BYTES];
            writes.records.insert(key, Some(Entry::new(value.as_slice())));
        }
        site.commit(id, reads, writes, &mut effects);
        requests.extend(effects.proposals.into_iter().map(|(_, entry)| entry.to_vec()));
    }
    requests
}

/// Runs the jobs of so many threads one after the other.
#[derive(Debug, Default)]
struct Counted {
    threads: usize,
    /// What it could have saved, if the jobs had run at the same time.
    saved_ns: AtomicU64,
}

impl Workers for Counted {
    fn count(&self) -> usize {
        self.threads
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        let time = |job: Job<'_>| {
            let began_ns = processor_ns();
            job();
            processor_ns() - began_ns
        };
        let times: Vec<u64> = jobs.into_iter().map(time).collect();
        let longest = times.iter().max().copied().unwrap_or_default();
        self.saved_ns.fetch_add(times.iter().sum::<u64>() - longest, Ordering::Relaxed);
    }
}

/// What this thread has had of a processor.
fn processor_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The seconds of processor time until so many threads could have decided the requests.
fn counted_seconds(mut site: Hierarchy, requests: &[Vec<u8>], threads: usize, together: usize) -> f64 {
    let workers = Counted { threads, ..Counted::default() };
    let began_ns = processor_ns();
    decide(&mut site, requests, &workers, together);
    let ns = processor_ns() - began_ns - workers.saved_ns.load(Ordering::Relaxed);
    ns as f64 / 1e9
}

fn decide(site: &mut Hierarchy, requests: &[Vec<u8>], workers: &dyn Workers, together: usize) {
    let mut effects = Effects::default();
    let entries: Vec<&[u8]> = requests.iter().map(Vec::as_slice).collect();
    for together in entries.chunks(together) {
        site.decided_all(LEAF, together, workers, &mut effects).expect("entries");
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let options = HierarchyOptions { tree: Tree::leaf(), ..HierarchyOptions::default() };
    let mut client = Hierarchy::new(options.clone());
    let first: Vec<Vec<u8>> = requests(&mut client, 1);
    decide(&mut client, &first, &Threads { count: 1 }, TRANSACTIONS.into());
    let second = requests(&mut client, 2);
    let site = || {
        let mut site = Hierarchy::new(options.clone());
        decide(&mut site, &first, &Threads { count: 1 }, TRANSACTIONS.into());
        site
    };
    for together in TOGETHER {
        let (mut times, mut counted) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for _ in 0..ROUNDS {
            for threads in [1, 2] {
                let mut decides = site();
                let began_ns = nanoseconds(ClockId::Monotonic);
                decide(&mut decides, &second, &Threads { count: threads }, together);
                times[threads - 1].push((nanoseconds(ClockId::Monotonic) - began_ns) as f64 / 1e9);
                counted[threads - 1].push(counted_seconds(site(), &second, threads, together));
            }
        }
        for (name, times) in [("by the clock", times), ("by processor time", counted)] {
            let [one, two] = times.map(median);
            let rate = |seconds: f64| f64::from(TRANSACTIONS) / seconds;
            println!(
                "{together} entries at once, {name}: {:.0} transactions per second with one thread, {:.0} \
                 with two: {:.2} times as many",
                rate(one),
                rate(two),
                one / two
            );
        }
    }
}
