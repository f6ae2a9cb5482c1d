//! Lists against vectors, and sets against ordered sets, by random programs.

use crate::memory::Memory;
use crate::render::render;
use ordo_redis::codec::inline;
use std::collections::{BTreeMap, BTreeSet};
use txn::Reply;

struct Draw(u64);

impl Draw {
    fn new() -> Draw {
        let seed = std::env::var("ORDO_SEED").ok();
        let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(7);
        println!("ORDO_SEED={seed}");
        Draw(seed)
    }
    fn below(&mut self, bound: usize) -> usize {
        self.0 = txn::hash::mix(self.0);
        (self.0 % bound as u64) as usize
    }
    /// A place of a list of `len`, or a little outside, from either end.
    fn index(&mut self, len: usize) -> i64 {
        let index = self.below(len + 3) as i64;
        if self.below(2) == 0 { index } else { -index }
    }
}

fn run(memory: &mut Memory, command: &str) -> Reply {
    memory.run(inline::split(command.as_bytes()).expect("balanced quotes"))
}

fn array(items: &[String]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| format!("\"{item}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

/// What a range with negative ends takes from a model.
fn slice(model: &[String], start: i64, stop: i64) -> Vec<String> {
    let len = model.len() as i64;
    let from_start = |at: i64| if at < 0 { len + at } else { at };
    let within = |at: &i64| (from_start(start)..=from_start(stop)).contains(at);
    let places = (0..len).filter(within);
    places.map(|place| model[place as usize].clone()).collect()
}

/// Removes up to `count` items (all if 0) that equal `item`, from the end if it is negative.
fn remove(model: &mut Vec<String>, count: i64, item: &str) -> usize {
    let mut places: Vec<usize> = (0..model.len()).filter(|&at| model[at] == item).collect();
    if count < 0 {
        places.reverse();
    }
    if count != 0 {
        places.truncate(count.unsigned_abs() as usize);
    }
    places.sort_unstable();
    for &place in places.iter().rev() {
        model.remove(place);
    }
    places.len()
}

#[test]
fn lists_are_vectors() {
    let mut draw = Draw::new();
    let mut memory = Memory::new();
    memory.late = 7;
    let mut model: Vec<String> = Vec::new();
    for step in 0..6_000 {
        let grows = draw.below(10) < if step / 1_000 % 2 == 0 { 8 } else { 3 };
        let item = draw.below(30).to_string();
        let len = model.len();
        let (command, want) = match (grows, draw.below(6)) {
            (true, 0..=1) => {
                model.insert(0, item.clone());
                (format!("lpush l {item}"), (len + 1).to_string())
            }
            (true, 2..=3) => {
                model.extend([item.clone(), item.clone()]);
                (format!("rpush l {item} {item}"), (len + 2).to_string())
            }
            (true, _) => {
                let pivot = draw.below(30).to_string();
                let found = model.iter().position(|other| *other == pivot);
                let (word, offset) = [("before", 0), ("after", 1)][draw.below(2)];
                if let Some(found) = found {
                    model.insert(found + offset, item.clone());
                }
                let want = match (len, found) {
                    (0, _) => String::from("0"),
                    (_, None) => String::from("-1"),
                    _ => (len + 1).to_string(),
                };
                (format!("linsert l {word} {pivot} {item}"), want)
            }
            (false, 0) => {
                let count = draw.below(4);
                let popped: Vec<String> = model.drain(..count.min(len)).collect();
                let want = if len == 0 { "nil*".into() } else { array(&popped) };
                (format!("lpop l {count}"), want)
            }
            (false, 1) => {
                let popped = model.pop().map(|last| format!("\"{last}\""));
                (String::from("rpop l"), popped.unwrap_or("nil".into()))
            }
            (false, 2) => {
                let count = draw.index(3);
                let removed = remove(&mut model, count, &item);
                (format!("lrem l {count} {item}"), removed.to_string())
            }
            (false, 3) if len > 0 => {
                let index = draw.index(len);
                let place = if index < 0 { len as i64 + index } else { index };
                let slot = usize::try_from(place).ok();
                let slot = slot.and_then(|place| model.get_mut(place));
                let want = match slot {
                    None => "! ERR index out of range".into(),
                    Some(slot) => {
                        *slot = item.clone();
                        "OK".into()
                    }
                };
                (format!("lset l {index} {item}"), want)
            }
            // Most of a long list stays, and little of some.
            (false, 4) if draw.below(8) == 0 => {
                let (start, stop) = match draw.below(4) {
                    0 => (draw.index(len), draw.index(len)),
                    _ => (draw.below(3) as i64, -1 - draw.below(3) as i64),
                };
                model = slice(&model, start, stop);
                (format!("ltrim l {start} {stop}"), String::from("OK"))
            }
            (false, _) => {
                let last = model.pop();
                model.splice(0..0, last.clone());
                let want = last.map_or("nil".into(), |last| format!("\"{last}\""));
                (String::from("rpoplpush l l"), want)
            }
        };
        assert_eq!(render(&run(&mut memory, &command)), want, "{command}");
        let (start, stop) = (draw.index(len), draw.index(len));
        let got = render(&run(&mut memory, &format!("lrange l {start} {stop}")));
        assert_eq!(got, array(&slice(&model, start, stop)), "after {command}");
        if step % 100 == 0 {
            let got = render(&run(&mut memory, "lrange l 0 -1"));
            assert_eq!(got, array(&model), "after {command}");
        }
        let exists = i64::from(!model.is_empty());
        assert_eq!(run(&mut memory, "exists l"), Reply::Integer(exists));
    }
}

type Model = BTreeMap<String, BTreeSet<String>>;

fn members(reply: &Reply) -> Vec<String> {
    let (Reply::Set(items) | Reply::Array(items)) = reply else { panic!("{reply:?}") };
    let text = |item: &Reply| match item {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    };
    items.iter().map(text).collect()
}

/// What the commands of algebra make of some sets.
fn combine(model: &Model, operation: &str, keys: &[String]) -> BTreeSet<String> {
    let sets = keys.iter();
    let mut sets = sets.map(|key| model.get(key).cloned().unwrap_or_default());
    let first = sets.next().expect("a key");
    sets.fold(first, |all, set| match operation {
        "sinter" => &all & &set,
        "sunion" => &all | &set,
        _ => &all - &set,
    })
}

/// Around the size at which a set changes its form, so that each operation takes each of its ways.
#[test]
fn sets_are_sets() {
    let mut draw = Draw::new();
    let mut memory = Memory::new();
    memory.late = 7;
    let mut model = Model::new();
    for step in 0..3_000 {
        let keys: Vec<String> = (0..draw.below(3) + 1).map(|_| format!("s{}", draw.below(5))).collect();
        let key = &keys[0];
        let old = model.get(key).cloned().unwrap_or_default();
        let some: Vec<String> = (0..draw.below(40) + 1)
            .map(|_| draw.below(if key == "s0" { 40 } else { 250 }).to_string())
            .collect();
        let list = some.join(" ");
        match draw.below(10) {
            0..=3 => {
                let set = model.entry(key.clone()).or_default();
                set.extend(some);
                let added = (set.len() - old.len()) as i64;
                let reply = run(&mut memory, &format!("sadd {key} {list}"));
                assert_eq!(reply, Reply::Integer(added));
            }
            4 => {
                let set = model.entry(key.clone()).or_default();
                set.retain(|member| !some.contains(member));
                let removed = (old.len() - set.len()) as i64;
                let reply = run(&mut memory, &format!("srem {key} {list}"));
                assert_eq!(reply, Reply::Integer(removed));
            }
            5 => {
                let count = draw.below(old.len() + 2);
                let picked = members(&run(&mut memory, &format!("srandmember {key} {count}")));
                let distinct: BTreeSet<String> = picked.iter().cloned().collect();
                assert_eq!(picked.len(), count.min(old.len()));
                assert!(distinct.len() == picked.len() && distinct.is_subset(&old));
                if step % 3 == 0 {
                    let popped = members(&run(&mut memory, &format!("spop {key} {count}")));
                    let set = model.entry(key.clone()).or_default();
                    assert_eq!(popped.len(), count.min(old.len()));
                    assert!(popped.iter().all(|member| set.remove(member)));
                }
            }
            6 => {
                let [from, to] = [&keys[0], keys.last().expect("a key")];
                let member = &some[0];
                let was_there = old.contains(member);
                if was_there {
                    model.entry(from.clone()).or_default().remove(member);
                    model.entry(to.clone()).or_default().insert(member.clone());
                }
                let reply = run(&mut memory, &format!("smove {from} {to} {member}"));
                assert_eq!(reply, Reply::Integer(i64::from(was_there)));
            }
            _ => {
                let operation = ["sinter", "sunion", "sdiff"][draw.below(3)];
                let want = combine(&model, operation, &keys);
                let names = keys.join(" ");
                let got = members(&run(&mut memory, &format!("{operation} {names}")));
                let distinct: BTreeSet<String> = got.iter().cloned().collect();
                assert!(distinct.len() == got.len() && distinct == want, "{operation} {names}");
                if operation == "sinter" {
                    let limit = draw.below(30);
                    let count = want.len().min(if limit == 0 { usize::MAX } else { limit });
                    let command = format!("sintercard {} {names} limit {limit}", keys.len());
                    let reply = run(&mut memory, &command);
                    assert_eq!(reply, Reply::Integer(count as i64), "{command}");
                }
                if step % 2 == 0 {
                    let to = format!("s{}", draw.below(5));
                    let reply = run(&mut memory, &format!("{operation}store {to} {names}"));
                    assert_eq!(reply, Reply::Integer(want.len() as i64));
                    model.insert(to, want);
                }
            }
        }
        for key in (0..5).map(|at| format!("s{at}")) {
            let want = model.get(&key).cloned().unwrap_or_default();
            let got = members(&run(&mut memory, &format!("smembers {key}")));
            assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), want, "step {step}");
            let exists = Reply::Integer(i64::from(!want.is_empty()));
            assert_eq!(run(&mut memory, &format!("exists {key}")), exists);
        }
    }
}

#[test]
fn random_members_are_drawn_evenly() {
    let mut memory = Memory::new();
    run(&mut memory, "sadd s 0 1 2 3 4 5 6 7 8 9");
    for (count, rounds) in [(-1_000, 1), (8, 250), (2, 1_000), (1, 2_000)] {
        let mut drawn = BTreeMap::<String, usize>::new();
        for _ in 0..rounds {
            for member in members(&run(&mut memory, &format!("srandmember s {count}"))) {
                *drawn.entry(member).or_default() += 1;
            }
        }
        let mean = drawn.values().sum::<usize>() / 10;
        // Six deviations of a binomial distribution with a chance of a tenth.
        let deviations = 6.0 * (mean as f64).sqrt();
        assert_eq!(drawn.len(), 10);
        for (member, &times) in &drawn {
            assert!(
                (times as f64 - mean as f64).abs() < deviations,
                "{member}: {times} of {mean} for {count}"
            );
        }
    }
}

/// The bounds at which Redis 7.2 changes a value's form.
#[test]
fn forms_have_the_names_that_redis_has_for_such_values() {
    let encoding = |command: &str, words: &dyn Fn(usize) -> String, count: usize| {
        let mut memory = Memory::new();
        let words: Vec<String> = (0..count).map(words).collect();
        run(&mut memory, &format!("{command} key {}", words.join(" ")));
        render(&run(&mut memory, "object encoding key"))
    };
    let field = |at: usize| format!("f{at} v");
    assert_eq!(encoding("hset", &field, 512), "\"listpack\"");
    assert_eq!(encoding("hset", &field, 513), "\"hashtable\"");
    let long_value = |_| format!("f {}", "v".repeat(65));
    assert_eq!(encoding("hset", &long_value, 1), "\"hashtable\"");
    let integer = |at: usize| at.to_string();
    assert_eq!(encoding("sadd", &integer, 512), "\"intset\"");
    assert_eq!(encoding("sadd", &integer, 513), "\"hashtable\"");
    let scored = |at: usize| format!("{at} m{at}");
    assert_eq!(encoding("zadd", &scored, 128), "\"listpack\"");
    assert_eq!(encoding("zadd", &scored, 129), "\"skiplist\"");
    let long_member = |_| format!("1 {}", "m".repeat(65));
    assert_eq!(encoding("zadd", &long_member, 1), "\"skiplist\"");
    let name = |at: usize| format!("m{at}");
    assert_eq!(encoding("sadd", &name, 128), "\"listpack\"");
    assert_eq!(encoding("sadd", &name, 129), "\"hashtable\"");
    assert_eq!(encoding("sadd", &|_| "m".repeat(64), 1), "\"listpack\"");
    assert_eq!(encoding("sadd", &|_| "m".repeat(65), 1), "\"hashtable\"");
    // A list is told by its bytes.
    let long = |_| "x".repeat(60);
    assert_eq!(encoding("rpush", &long, 129), "\"listpack\"");
    assert_eq!(encoding("rpush", &long, 133), "\"quicklist\"");
    assert_eq!(encoding("rpush", &integer, 2000), "\"listpack\"");
    assert_eq!(encoding("rpush", &integer, 3000), "\"quicklist\"");
}
