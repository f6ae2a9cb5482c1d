//! Strings of which parts were written: whatever is asked, they answer as one does that was set whole.

use crate::memory::Memory;
use crate::render::render;
use crate::sorted_sets::Draw;
use ordo_redis::codec::inline;
use txn::value::LongString;
use txn::{Blob, Value};

fn ask(memory: &mut Memory, command: &str) -> String {
    render(&memory.run(inline::split(command.as_bytes()).expect("balanced quotes")))
}

fn write(memory: &mut Memory, model: &mut Vec<u8>, draw: &mut Draw) {
    let byte = b'a' + draw.below(26) as u8;
    let patch = vec![byte; draw.below(2) * draw.below(6000) + draw.below(4)];
    let at = draw.below(LongString::BYTES_MIN * 3);
    let to = |len: usize, model: &mut Vec<u8>| model.resize(model.len().max(len), 0);
    let text = String::from_utf8_lossy(&patch).into_owned();
    match draw.below(4) {
        0 => {
            ask(memory, &format!("append part \"{text}\""));
            model.extend(patch);
        }
        1 => {
            ask(memory, &format!("setrange part {at} \"{text}\""));
            if !patch.is_empty() {
                to(at + patch.len(), model);
                model[at..at + patch.len()].copy_from_slice(&patch);
            }
        }
        2 => {
            let (bit, on) = (draw.below(8), draw.below(2));
            ask(memory, &format!("setbit part {} {on}", at * 8 + bit));
            to(at + 1, model);
            model[at] = model[at] & !(0x80 >> bit) | ((on as u8) << (7 - bit));
        }
        _ => {
            // Across a byte's end, and now and then a chunk's.
            ask(memory, &format!("bitfield part set u16 {} 65535", at * 8 + 4));
            to(at + 3, model);
            model[at] |= 0x0f;
            model[at + 1] = 0xff;
            model[at + 2] |= 0xf0;
        }
    }
}

#[test]
fn parts_are_read_as_of_a_plain_string() {
    let mut draw = Draw::new();
    for _ in 0..12 {
        let mut memory = Memory::new();
        let mut model = Vec::new();
        for _ in 0..draw.below(30) + 1 {
            write(&mut memory, &mut model, &mut draw);
            let words = [b"set", &b"plain"[..], &model].map(Blob::new);
            memory.run(words.into_iter().collect());
            let len = model.len();
            let mut place = || draw.below(len + 3) as i64 - draw.below(2) as i64 * (len as i64 + 2);
            let (a, b) = (place(), place());
            for asks in [
                format!("getrange KEY {a} {b}"),
                format!("getbit KEY {}", a.unsigned_abs()),
                format!("bitcount KEY {a} {b}"),
                format!("bitcount KEY {a} {b} bit"),
                "bitcount KEY".to_owned(),
                format!("bitpos KEY 1 {a}"),
                format!("bitpos KEY 1 {a} {b}"),
                format!("bitpos KEY 0 {a} {b} bit"),
                format!("bitfield KEY get u8 {} get i64 {}", a.unsigned_abs(), b.unsigned_abs()),
                "strlen KEY".to_owned(),
                "get KEY".to_owned(),
                "mget KEY".to_owned(),
                "dump KEY".to_owned(),
                "memory usage KEY".to_owned(),
                "object encoding KEY".to_owned(),
                "lpush KEY x".to_owned(),
                "sort KEY".to_owned(),
                "type KEY".to_owned(),
                "incr KEY".to_owned(),
                "bitop not turned KEY".to_owned(),
                "get turned".to_owned(),
                "set KEY x nx get".to_owned(),
                "getex KEY".to_owned(),
            ] {
                let [part, plain] = ["part", "plain"].map(|key| ask(&mut memory, &asks.replace("KEY", key)));
                assert_eq!(part, plain, "{asks} of {len} bytes");
            }
        }
        ask(&mut memory, "copy part copied");
        assert_eq!(ask(&mut memory, "get copied"), ask(&mut memory, "get plain"));
        let value = memory.value_of("part");
        let is_long = matches!(value, Some(Value::LongString(_)));
        assert_eq!(is_long, model.len() >= LongString::BYTES_MIN);
    }
}
