//! ORDO.IDEMPOTENT as a procedure: what it touches, and what is kept.

use crate::memory::Memory;
use crate::render::render;
use ordo_redis::codec::inline;
use ordo_redis::idempotent::record_key;
use ordo_redis::{Block, BlockProcedure, IdempotentProcedure};
use std::sync::Arc;
use txn::{Args, Blob, Key, Procedure, Stop, Weight};

fn words(command: &str) -> Args {
    inline::split(command.as_bytes()).expect("balanced quotes")
}

#[test]
fn the_footprint_is_the_commands_with_the_record_written() {
    let of = |command: &str| IdempotentProcedure.footprint(&words(command));
    let record = |key: &str| record_key(b"i", Some(&Key::from(key)));
    let sets = of("i get a").keys.expect("declared keys");
    assert_eq!(sets.reads, [Key::from("a")]);
    assert_eq!(sets.writes, [record("a")]);
    let sets = of("i rename b a").keys.expect("declared keys");
    assert_eq!(sets.reads, []);
    // In their order, as engines need them.
    assert_eq!(
        sets.writes,
        [Key::from("a"), Key::from("b"), record("b")],
        "the record is where the first key is"
    );
    let sets = of("i time").keys.expect("declared keys");
    assert_eq!(sets.writes, [record_key(b"i", None)]);
    for (command, weight) in [
        ("i get a", Weight::Light),
        ("i keys *", Weight::Heavy),
        ("i eval nobody-ran-this 1 a", Weight::Heavy),
        ("i script load x", Weight::Heavy),
        ("i function load x", Weight::Heavy),
    ] {
        let footprint = of(command);
        assert!(!footprint.read_only, "{command}: the record is written");
        assert_eq!(footprint.weight, weight, "{command}");
    }
    let sets = of("i eval x 1 a").keys.expect("a guess");
    assert_eq!((&sets.writes, sets.may_stray.is_some()), (&vec![Key::from("a"), record("a")], true));
    assert!(of("i nosuch").read_only, "it only replies an error");
    let block =
        Block { commands: vec![words("get b"), words("ordo.idempotent i get a")], ..Block::default() };
    let footprint = BlockProcedure.footprint(&block.to_args());
    let sets = footprint.keys.expect("declared keys");
    assert_eq!(sets.writes, [record("a")]);
    assert_eq!(sets.reads, [Key::from("a"), Key::from("b")]);
    assert!(!footprint.read_only && !block.footprint(false).read_only);
}

#[test]
fn a_procedure_that_is_parked_anywhere_applies_once() {
    for late in [0, 2, 3, 5] {
        let mut memory = Memory::new();
        memory.late = late;
        let block = |memory: &mut Memory| {
            let block = Block {
                commands: vec![
                    words("ordo.idempotent i incr c"),
                    words("incr c"),
                    words("ordo.idempotent i incr c"),
                    words("ordo.idempotent j eval \"return redis.call('incr', 'c')\" 0"),
                ],
                ..Block::default()
            };
            let reply = memory.call(Arc::new(BlockProcedure), block.to_args());
            render(&reply.expect("no rollback"))
        };
        assert_eq!(block(&mut memory), "[1, 2, 1, 3]");
        assert_eq!(block(&mut memory), "[1, 4, 1, 3]");
    }
}

#[test]
fn what_rolls_back_keeps_nothing() {
    let mut memory = Memory::new();
    let hog = "redis.call('incr', KEYS[1])
               if redis.call('exists', 'stop') == 1 then return 'done' end
               local t = {} for i = 1, 1e9 do t[i] = string.rep('x', 1e6) .. i end";
    let mut args = words("i eval");
    args.0.extend([hog, "1", "c"].map(Blob::from));
    let procedure: Arc<dyn Procedure> = Arc::new(IdempotentProcedure);
    let call = |memory: &mut Memory| memory.call(procedure.clone(), args.clone());
    assert!(matches!(call(&mut memory), Err(Stop::Abort(_))));
    memory.run(words("set stop 1"));
    let done = call(&mut memory).expect("it ends now");
    assert_eq!(render(&done), "\"done\"");
    memory.run(words("del stop"));
    assert_eq!(call(&mut memory), Ok(done));
}

#[test]
fn ids_have_a_length() {
    let mut memory = Memory::new();
    for (len, fits) in [(256, true), (257, false)] {
        let id = "i".repeat(len);
        let reply = render(&memory.run(words(&format!("ordo.idempotent {id} incr c"))));
        assert_eq!(reply == "1", fits, "{reply}");
    }
}
