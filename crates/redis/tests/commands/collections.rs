//! Lists against vectors, by random programs.

use crate::memory::Memory;
use crate::render::render;
use ordo_redis::codec::inline;
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
                let want = if len == 0 {
                    "nil*".into()
                } else {
                    array(&popped)
                };
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
