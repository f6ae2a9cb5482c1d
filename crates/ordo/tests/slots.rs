//! Slots that move between the partitions of a real cluster under load: no client sees an error, and nothing
//! is lost.
#![allow(clippy::disallowed_methods, reason = "what watches processes has threads, a clock and pauses")]

use crate::nodes::{Build, CLIENTS, Cluster, NAMES, PATIENCE, PAUSE_MAX, Writer, wait_for_steps};
use server::client::{Answer, Client};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Accounts whose sum stays what it is.
const ACCOUNTS: u64 = 40;
const BALANCE: i64 = 1_000;

/// A client that moves money between accounts of all slots, in turn by a script that finds the accounts while
/// it runs, and by a block that watches them.
struct Bank {
    done: Arc<AtomicU64>,
    thread: JoinHandle<u64>,
}

const TRANSFER: &str = "local from, to = 'account:' .. ARGV[1], 'account:' .. ARGV[2] \
     redis.call('DECRBY', from, ARGV[3]) redis.call('INCRBY', to, ARGV[3]) return 'done'";

impl Bank {
    /// The thread gives how many blocks were given up because of what they watched.
    fn start(number: u64, address: String, stop: Arc<AtomicBool>) -> Bank {
        let done = Arc::new(AtomicU64::new(0));
        let counted = done.clone();
        let thread = std::thread::spawn(move || {
            let mut client = Client::open(&address, PATIENCE).expect("a connection");
            let mut call = |words: &[&str]| client.call(words).expect("a reply");
            let (mut state, mut given_up) = (number + 1, 0);
            while !stop.load(Ordering::Relaxed) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let from = (state >> 33) % ACCOUNTS;
                let to = (from + 1 + (state >> 50) % (ACCOUNTS - 1)) % ACCOUNTS;
                let (from, to) = (from.to_string(), to.to_string());
                if state & 1 << 40 == 0 {
                    let answer = call(&["EVAL", TRANSFER, "0", &from, &to, "7"]);
                    assert_eq!(answer, Answer::Text("done".to_owned()));
                } else {
                    let (from, to) = (format!("account:{from}"), format!("account:{to}"));
                    assert_eq!(call(&["WATCH", &from, &to]), Answer::Text("OK".to_owned()));
                    let read = |answer| match answer {
                        Answer::Text(text) => text.parse::<i64>().expect("a balance"),
                        other => panic!("{other:?}"),
                    };
                    let (left, right) = (read(call(&["GET", &from])), read(call(&["GET", &to])));
                    let (left, right) = ((left - 3).to_string(), (right + 3).to_string());
                    assert_eq!(call(&["MULTI"]), Answer::Text("OK".to_owned()));
                    for words in [["SET", &from, &left], ["SET", &to, &right]] {
                        assert_eq!(call(&words), Answer::Text("QUEUED".to_owned()));
                    }
                    match call(&["EXEC"]) {
                        Answer::Nil => given_up += 1,
                        Answer::List(replies) => assert_eq!(replies.len(), 2),
                        other => panic!("{other:?}"),
                    }
                }
                counted.fetch_add(1, Ordering::Relaxed);
            }
            given_up
        });
        Bank { done, thread }
    }
}

/// How many slots each partition has.
fn shares(cluster: &Cluster) -> Vec<u32> {
    let partitions = cluster.status(0).partitions.into_iter();
    let counts = partitions.map(|partition| {
        let ranges = partition.slots.into_iter();
        ranges.map(|(first, last)| u32::from(last - first) + 1).sum()
    });
    counts.collect()
}

#[test]
fn slots_move_under_load_and_nobody_sees_an_error() {
    let mut cluster = Cluster::start(Build::own(&[]));
    let mut client = cluster.open(0);
    for account in 0..ACCOUNTS {
        let words = ["SET", &format!("account:{account}"), &BALANCE.to_string()];
        assert_eq!(client.call(&words).expect("a reply"), Answer::Text("OK".to_owned()));
    }
    let once = ["ORDO.IDEMPOTENT", "an id", "INCR", "once"];
    assert_eq!(client.call(&once).expect("a reply"), Answer::Text("1".to_owned()));
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<Writer> =
        (0..CLIENTS).map(|number| Writer::start(number, cluster.addresses(), stop.clone())).collect();
    let banks: Vec<Bank> = (0..NAMES.len())
        .map(|place| Bank::start(place as u64, cluster.nodes[place].client.clone(), stop.clone()))
        .collect();
    wait_for_steps(&cluster, &writers);

    // Everything becomes one partition's, and is dealt to all again; and so for another one.
    for all in [2_u16, 0] {
        for partition in (0..3).filter(|&partition| partition != all) {
            let status = cluster.status(0);
            for &(first, last) in &status.partitions[usize::from(partition)].slots {
                let words = [first, last, all].map(|number| number.to_string());
                let said = cluster.admin(1, &["move-slots", &words[0], &words[1], &words[2]]);
                assert!(said.starts_with("OK: the slots"), "{said}");
            }
        }
        let mut expected = vec![0; 3];
        expected[usize::from(all)] = 16_384;
        // The node that is asked may hear of it later than the one that was told to do it.
        cluster.until(0, "all slots have moved", || (shares(&cluster) == expected).then_some(()));
        wait_for_steps(&cluster, &writers);
        let said = cluster.admin(1, &["rebalance"]);
        assert!(said.ends_with("done\n"), "{said}");
        cluster.until(0, "all partitions have their share", || {
            let shares = shares(&cluster);
            let is_fair = |slots: &u32| (4_000..7_000).contains(slots);
            shares.iter().all(is_fair).then_some(())
        });
        wait_for_steps(&cluster, &writers);
    }
    stop.store(true, Ordering::Relaxed);

    let mut steps = Vec::new();
    for writer in writers {
        let written = writer.thread.join().expect("no wrong reply");
        println!("a client's longest pause: {:?}", written.pause);
        assert_eq!(written.moves, 0, "it was never answered with an error");
        assert!(written.pause < PAUSE_MAX, "{:?}", written.pause);
        steps.push(writer.done.load(Ordering::Relaxed));
    }
    for bank in banks {
        let given_up = bank.thread.join().expect("no wrong reply");
        let done = bank.done.load(Ordering::Relaxed);
        println!("{done} transfers, {given_up} given up because of what they watched");
        assert!(done > 50 && given_up < done);
    }
    // One of the nodes has only what its log tells.
    cluster.stop(1);
    cluster.run(1);
    cluster.call(1, &["PING"]);
    for (place, name) in NAMES.iter().enumerate() {
        let mut client = cluster.open(place);
        let mut call = |words: &[&str]| client.call(words).expect("a reply");
        let mut sum = 0;
        for account in 0..ACCOUNTS {
            match call(&["GET", &format!("account:{account}")]) {
                Answer::Text(text) => sum += text.parse::<i64>().expect("a balance"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(sum, BALANCE * ACCOUNTS as i64, "at {name}");
        // What was done before the slots moved is known where they are.
        assert_eq!(call(&once), Answer::Text("1".to_owned()));
        for (number, &done) in steps.iter().enumerate() {
            let counter = call(&["GET", &format!("counter:{number}")]);
            assert_eq!(counter, Answer::Text(done.to_string()));
            for step in (1..=done).filter(|step| step % 3 == place as u64) {
                let key = format!("key:{number}:{step}");
                assert_eq!(call(&["GET", &key]), Answer::Text(key));
            }
        }
        let keys = ACCOUNTS + 1 + steps.iter().map(|steps| steps + 1).sum::<u64>();
        assert_eq!(call(&["DBSIZE"]), Answer::Text(keys.to_string()));
        // Of all partitions that the node keeps, not of its first alone.
        let info = format!("{:?}", call(&["INFO", "keyspace"]));
        assert!(info.contains(&format!("db0:keys={keys},expires=0")), "{info}");
    }
}
