//! How much sooner a leaf of hierarchical validation validates with two threads than with one.
//!
//! `cargo bench -p ordo-certify --bench validation`. Transactions of disjoint keys each read and write eight
//! records of 1,000 bytes at one leaf, as the paper's do at eight (IV-A). Their requests stand in the leaf's log
//! already: what is measured is [`Certifier::decided_all`]. Rounds with one thread and with two take turns, and
//! the result is the ratio of their medians.

use ordo_certify::hierarchy::{Hierarchy, HierarchyOptions, Tree};
use ordo_certify::{Answer, Certifier, Effects, Look, ReadSet, Threads, WriteSet, session_opened};
use std::time::Instant;
use txn::{Entry, Key, PartitionId, Position, RequestId};

const TRANSACTIONS: u16 = 8_192;
const KEYS_EACH: u64 = 8;
const VALUE_BYTES: usize = 1_000;
/// A site is given so many agreed entries at once, at most.
const TOGETHER: usize = 1_024;
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

fn decide(site: &mut Hierarchy, requests: &[Vec<u8>], threads: usize) -> Effects {
    let mut effects = Effects::default();
    let entries: Vec<&[u8]> = requests.iter().map(Vec::as_slice).collect();
    for together in entries.chunks(TOGETHER) {
        site.decided_all(LEAF, together, &Threads { count: threads }, &mut effects).expect("entries");
    }
    effects
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let options = HierarchyOptions { tree: Tree::leaf(), ..HierarchyOptions::default() };
    let mut client = Hierarchy::new(options.clone());
    let first: Vec<Vec<u8>> = requests(&mut client, 1);
    decide(&mut client, &first, 1);
    let second = requests(&mut client, 2);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for threads in [1, 2] {
            let mut site = Hierarchy::new(options.clone());
            decide(&mut site, &first, 1);
            let began = Instant::now();
            decide(&mut site, &second, threads);
            times[threads - 1].push(began.elapsed().as_secs_f64());
        }
    }
    let [one, two] = times.map(median);
    let rate = |seconds: f64| f64::from(TRANSACTIONS) / seconds;
    println!(
        "{:.0} transactions per second with one thread, {:.0} with two: {:.2} times as many",
        rate(one),
        rate(two),
        one / two
    );
}
