//! Sorted sets against a model, of a few members and of many, and together with plain sets.

use crate::memory::Memory;
use crate::render::render;
use ordo_redis::codec::inline;
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::value::SetValue;
use txn::{Args, Blob, FnProcedure, Key, Reply};

fn run(memory: &mut Memory, command: &str) -> Reply {
    memory.run(inline::split(command.as_bytes()).expect("balanced quotes"))
}

fn ask(memory: &mut Memory, command: &str) -> String {
    render(&run(memory, command))
}

/// What a set has, in its order.
type Model = BTreeMap<String, i64>;

fn in_order(model: &Model) -> Vec<(i64, &String)> {
    let mut all: Vec<(i64, &String)> = model.iter().map(|(name, &score)| (score, name)).collect();
    all.sort();
    all
}

fn names<'a>(members: impl IntoIterator<Item = &'a (i64, &'a String)>) -> String {
    let all: Vec<String> = members.into_iter().map(|(_, name)| format!("\"{name}\"")).collect();
    format!("[{}]", all.join(", "))
}

fn pairs<'a>(members: impl IntoIterator<Item = &'a (i64, &'a String)>) -> String {
    let all: Vec<String> =
        members.into_iter().map(|(score, name)| format!("(\"{name}\", {:?})", *score as f64)).collect();
    format!("[{}]", all.join(", "))
}

pub struct Draw(u64);

impl Draw {
    pub fn new() -> Draw {
        let seed = std::env::var("ORDO_SEED").ok();
        let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(7);
        println!("ORDO_SEED={seed}");
        Draw(seed)
    }
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = txn::hash::mix(self.0);
        (self.0 % bound as u64) as usize
    }
}

#[test]
fn ranges_are_those_of_a_sorted_vector() {
    let mut draw = Draw::new();
    for members in [5, 60, 70, 1_000] {
        let (mut memory, mut model) = (Memory::new(), Model::new());
        for step in 0..2_500 {
            let name = format!("m{}", draw.below(members));
            let score = draw.below(30) as i64 - 15;
            match draw.below(16) {
                0..8 => {
                    run(&mut memory, &format!("zadd z {score} {name}"));
                    model.insert(name, score);
                }
                8 => {
                    run(&mut memory, &format!("zincrby z {score} {name}"));
                    *model.entry(name).or_default() += score;
                }
                9 => {
                    run(&mut memory, &format!("zrem z {name}"));
                    model.remove(&name);
                }
                10 => {
                    let taken = ask(&mut memory, "zpopmax z 2");
                    let all = in_order(&model);
                    assert_eq!(taken, pairs(all.iter().rev().take(2)));
                    let last: Vec<String> = all.iter().rev().take(2).map(|m| m.1.clone()).collect();
                    model.retain(|name, _| !last.contains(name));
                }
                11 if step % 40 == 0 => {
                    let max = score + 2;
                    let command = format!("zremrangebyscore z ({score} {max}");
                    let before = model.len();
                    model.retain(|_, other| !(*other > score && *other <= max));
                    let removed = (before - model.len()).to_string();
                    assert_eq!(ask(&mut memory, &command), removed);
                }
                _ => {
                    let all = in_order(&model);
                    let (start, end) = (draw.below(members), draw.below(members));
                    let kept = start.min(all.len())..(end + 1).clamp(start.min(all.len()), all.len());
                    let command = format!("zrange z {start} {end} withscores");
                    assert_eq!(ask(&mut memory, &command), pairs(&all[kept.clone()]));
                    let reversed: Vec<_> = all.iter().rev().copied().collect();
                    let command = format!("zrange z {start} {end} rev");
                    assert_eq!(ask(&mut memory, &command), names(&reversed[kept]));

                    let (max, offset, count) = (score + 5, draw.below(5), draw.below(20));
                    let within = |m: &&(i64, &String)| m.0 >= score && m.0 < max;
                    let found: Vec<_> = all.iter().filter(within).copied().collect();
                    let size = found.len().to_string();
                    assert_eq!(ask(&mut memory, &format!("zcount z {score} ({max}")), size);
                    let part: Vec<_> = found.iter().skip(offset).take(count).copied().collect();
                    let command = format!("zrangebyscore z {score} ({max} limit {offset} {count}");
                    assert_eq!(ask(&mut memory, &command), names(&part));
                    let back = found.iter().rev().skip(offset).take(count);
                    let part: Vec<_> = back.copied().collect();
                    let command = format!("zrevrangebyscore z ({max} {score} limit {offset} {count}");
                    assert_eq!(ask(&mut memory, &command), names(&part));

                    let rank = all.iter().position(|m| *m.1 == name);
                    let wanted = rank.map_or("nil".into(), |rank| rank.to_string());
                    assert_eq!(ask(&mut memory, &format!("zrank z {name}")), wanted);
                    let wanted = rank.map_or("nil".into(), |rank| (all.len() - 1 - rank).to_string());
                    assert_eq!(ask(&mut memory, &format!("zrevrank z {name}")), wanted);
                }
            }
            assert_eq!(ask(&mut memory, "zcard z"), model.len().to_string());
        }
    }
}

#[test]
fn ranges_of_names_are_those_of_a_sorted_vector() {
    let mut draw = Draw::new();
    for members in [5, 70, 1_000] {
        let (mut memory, mut model) = (Memory::new(), Model::new());
        for _ in 0..members {
            let name = format!("m{}", draw.below(members * 2));
            run(&mut memory, &format!("zadd z 3 {name}"));
            model.insert(name, 3);
        }
        for _ in 0..300 {
            let (min, max) = (draw.below(members * 2), draw.below(members * 2));
            let (min, max) = (format!("m{min}"), format!("m{max}"));
            let all = in_order(&model);
            let within = |m: &&(i64, &String)| *m.1 > min && *m.1 <= max;
            let found: Vec<_> = all.iter().filter(within).copied().collect();
            let command = format!("zrangebylex z ({min} [{max}");
            assert_eq!(ask(&mut memory, &command), names(&found));
            let command = format!("zlexcount z ({min} [{max}");
            assert_eq!(ask(&mut memory, &command), found.len().to_string());
            if draw.below(20) == 0 {
                run(&mut memory, &format!("zremrangebylex z ({min} [{max}"));
                model.retain(|name, _| !(*name > min && *name <= max));
            }
        }
    }
}

#[test]
fn combinations_are_those_of_maps() {
    let mut draw = Draw::new();
    for sizes in [[3, 5, 4], [300, 2, 3], [40, 200, 500], [100, 100, 0]] {
        let mut memory = Memory::new();
        let mut models = Vec::new();
        for (key, size) in ["a", "b", "c"].iter().zip(sizes) {
            let mut model = Model::new();
            for _ in 0..size {
                let (name, score) = (format!("m{}", draw.below(400)), draw.below(9) as i64);
                run(&mut memory, &format!("zadd {key} {score} {name}"));
                model.insert(name, score);
            }
            models.push(model);
        }
        let [a, b, c] = &models[..] else { panic!() };
        let mut union = Model::new();
        for (model, weight) in [(a, 1), (b, 2), (c, 3)] {
            for (name, score) in model {
                *union.entry(name.clone()).or_default() += weight * score;
            }
        }
        let mut common = union.clone();
        common.retain(|name, _| models.iter().all(|model| model.contains_key(name)));
        let mut alone = a.clone();
        alone.retain(|name, _| !b.contains_key(name) && !c.contains_key(name));
        for (operation, options, wanted) in
            [("union", "weights 1 2 3", &union), ("inter", "weights 1 2 3", &common), ("diff", "", &alone)]
        {
            let command = format!("z{operation} 3 a b c {options} withscores");
            assert_eq!(ask(&mut memory, &command), pairs(&in_order(wanted)), "{operation}");
            let command = format!("z{operation}store d 3 a b c {options}");
            assert_eq!(ask(&mut memory, &command), wanted.len().to_string());
            let stored = ask(&mut memory, "zrange d 0 -1 withscores");
            assert_eq!(stored, pairs(&in_order(wanted)), "{operation}");
            let encoded = ask(&mut memory, "exists d");
            assert_eq!(encoded, i32::from(!wanted.is_empty()).to_string());
        }
        let limit = common.len() / 2;
        let wanted = if limit == 0 { common.len() } else { limit };
        let command = format!("zintercard 3 a b c limit {limit}");
        assert_eq!(ask(&mut memory, &command), wanted.to_string());
    }
}

#[test]
fn members_of_plain_sets_have_the_score_1() {
    let mut memory = Memory::new();
    let procedure = FnProcedure::new("test", |mut tx: txn::Tx, _| {
        Box::pin(async move {
            let set: SetValue = ["a", "b", "c"].into_iter().map(Blob::from).collect();
            tx.put(&Key::from("s"), set).await?;
            Ok(Reply::OK)
        })
    });
    memory.call(Arc::new(procedure), Args::new()).expect("no rollback");
    for (command, wanted) in [
        ("zadd z 1 b 2 c 3 d", "3"),
        ("zunion 2 s z weights 2 3 withscores", r#"[("a", 2.0), ("b", 5.0), ("c", 8.0), ("d", 9.0)]"#),
        ("zinter 2 s z weights 2 3 withscores", r#"[("b", 5.0), ("c", 8.0)]"#),
        ("zdiff 2 s z withscores", r#"[("a", 1.0)]"#),
        ("zdiff 2 z s withscores", r#"[("d", 3.0)]"#),
        ("zintercard 2 s z", "2"),
        ("zunion 1 s withscores", r#"[("a", 1.0), ("b", 1.0), ("c", 1.0)]"#),
        ("zdiffstore s 1 s", "3"),
        ("type s", "zset"),
    ] {
        assert_eq!(ask(&mut memory, command), wanted, "{command}");
    }
}

#[test]
fn random_members_are_members() {
    let mut memory = Memory::new();
    for i in 0..500 {
        run(&mut memory, &format!("zadd z {} m{i}", i % 7));
    }
    let Reply::Array(some) = run(&mut memory, "zrandmember z 50") else { panic!() };
    let mut seen: Vec<String> = some.iter().map(render).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 50);
    let Reply::Pairs(some) = run(&mut memory, "zrandmember z -600 withscores") else { panic!() };
    assert_eq!(some.len(), 600);
    for (name, score) in &some {
        let name = render(name);
        let number: u32 = name.trim_matches(['"', 'm']).parse().expect("a member");
        assert_eq!(*score, Reply::Double(f64::from(number % 7)));
    }
}
