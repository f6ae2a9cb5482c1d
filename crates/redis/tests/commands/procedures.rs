//! The procedures as a node sees them, and commands inside scripts.

use crate::memory::Memory;
use crate::render::render;
use ordo_redis::codec::inline;
use ordo_redis::table::{COMMANDS, Command, KeyPlaces, Run};
use ordo_redis::{Caller, CommandTable, EvictProcedure, ExpireProcedure, Terms, execute};
use std::collections::BTreeSet;
use std::sync::Arc;
use txn::{Args, Blob, FnProcedure, Key, Procedure, Registry, Reply, Weight};

fn words(command: &str) -> Args {
    inline::split(command.as_bytes()).expect("balanced quotes")
}

fn all_commands() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands()))
}

#[test]
fn every_procedure_registers_under_its_own_name() {
    let mut registry = Registry::new();
    ordo_redis::register(&mut registry).expect("no two procedures share an id");
    for command in all_commands() {
        if let Run::Data(_) = command.run {
            assert!(registry.by_name(&format!("redis.{}", command.name)).is_some(), "{}", command.name);
        }
    }
    for name in ["redis.block", "redis.evict", "redis.expire-due", "redis.watch", "redis.eval"] {
        assert!(registry.by_name(name).is_some(), "{name}");
    }
}

#[test]
fn every_command_is_found_by_its_name_in_any_case() {
    let names: BTreeSet<&str> = all_commands().map(|command| command.name).collect();
    assert_eq!(names.len(), all_commands().count(), "a name is taken twice");
    for command in COMMANDS {
        for name in [command.name.to_owned(), command.name.to_uppercase()] {
            let found = ordo_redis::table::find(name.as_bytes()).expect("a command of the table");
            assert_eq!(found.name, command.name);
        }
        assert!(
            ordo_redis::table::find(&command.name.as_bytes()[1..])
                .is_none_or(|other| other.name != command.name)
        );
    }
    for name in ["", "ge", "gett", "g\u{130}t", &"x".repeat(1000)] {
        assert!(ordo_redis::table::find(name.as_bytes()).is_none(), "{name}");
    }
}

#[test]
fn every_entry_is_consistent() {
    for command in all_commands() {
        let name = command.name;
        assert_eq!(name, name.to_lowercase());
        for spec in command.keys {
            let last = match spec.places {
                // May be empty.
                KeyPlaces::Range { first, last: -1, .. } => first - 1,
                KeyPlaces::Range { first, .. } => first,
                KeyPlaces::Counted { at } => at,
                KeyPlaces::Word { .. } | KeyPlaces::Patterns | KeyPlaces::SortStore => continue,
            };
            assert!(last < usize::from(command.arity.unsigned_abs()), "{name}: a key beyond the arity");
        }
        // Redis's PFCOUNT keeps its estimate in the key, and says so; ours writes nothing.
        let writes = command.keys.iter().any(|spec| spec.writes()) && name != "pfcount";
        let may_write = command.is(ordo_redis::table::Flags::WRITE) || matches!(command.run, Run::Script(_));
        assert!(!writes || may_write, "{name} writes keys but has no write flag");
        for category in command.acl_categories() {
            assert!(ordo_redis::table::CATEGORIES.contains(&category), "{name}: @{category}");
        }
    }
}

/// Every data command with any number of arguments that its arity allows, whatever they are: a reply, and no
/// panic; and what its footprint calls read-only writes nothing (the store checks that).
#[test]
fn no_arguments_panic_a_command() {
    let seed = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11_u64);
    println!("ORDO_SEED={seed}");
    let mut state = seed;
    let mut draw = |bound: usize| {
        state = txn::hash::mix(state);
        (state % bound as u64) as usize
    };
    let pool = [
        "a",
        "b",
        "h",
        "l",
        "s",
        "",
        "0",
        "1",
        "-1",
        "5",
        "-5",
        "100",
        "9223372036854775807",
        "-9223372036854775808",
        "1.5",
        "inf",
        "nan",
        "nx",
        "xx",
        "gt",
        "lt",
        "get",
        "ex",
        "px",
        "exat",
        "keepttl",
        "persist",
        "match",
        "*",
        "[",
        "count",
        "type",
        "string",
        "withvalues",
        "replace",
        "db",
        "len",
        "idx",
        "minmatchlen",
        "withmatchlen",
        "samples",
        "left",
        "right",
        "before",
        "rank",
        "maxlen",
        "limit",
        "(1",
        "[a",
        "+",
        "-",
        "-inf",
        "rev",
        "byscore",
        "bylex",
        "withscore",
        "withscores",
        "weights",
        "aggregate",
        "min",
        "incr",
        "km",
        "fromlonlat",
        "frommember",
        "byradius",
        "bybox",
        "withcoord",
        "withdist",
        "any",
        "store",
        "storedist",
        "by",
        "nosort",
        "w_*->f",
        "alpha",
        "desc",
        "bit",
        "set",
        "incrby",
        "overflow",
        "sat",
        "i64",
        "u1",
        "#3",
        "not",
        "xor",
        "decode",
        "todense",
        "absttl",
        "freq",
        "\u{0}\u{1}a\n\u{0}",
        "\\",
        "^",
    ];
    let mut memory = Memory::new();
    memory.late = 5;
    for round in 0..60 {
        for command in all_commands().filter(|command| matches!(command.run, Run::Data(_) | Run::Pure(_))) {
            let arity = usize::from(command.arity.unsigned_abs());
            let argc = if command.arity < 0 { arity + draw(6) } else { arity };
            let name: Vec<&str> = command.name.split('|').collect();
            let mut argv: Args = name.iter().copied().collect();
            while argv.len() < argc {
                argv.0.push(pool[draw(pool.len())].into());
            }
            // Values of all types, so that commands get beyond the type check.
            memory.run(words(match round % 6 {
                0 => "set a 5",
                1 => "hset h a 1 b 2",
                2 => "rpush l a b 5 a",
                3 => "zadd b 1 a 5 b -1.5 h 4e15 1 inf 0",
                4 => "pfadd b x",
                _ => "sadd s a b 5",
            }));
            memory.run(argv);
            memory.now_ms += draw(3) as u64;
        }
    }
}

/// An engine that needs the keys before it runs a command gets all or none.
#[test]
fn keys_are_known_unless_a_pattern_names_them() {
    let keys = |line: &str| {
        let argv = words(line);
        let found = ordo_redis::table::find(&argv[0]).expect("a command of the table");
        let keys = found.footprint(&argv[1..]).keys?;
        let names = |keys: &[Key]| keys.iter().map(Key::to_blob).collect::<Vec<_>>();
        Some((names(&keys.reads), names(&keys.writes)))
    };
    let some = |reads: &[&str], writes: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|&name| Blob::from(name)).collect();
        Some((names(reads), names(writes)))
    };
    for (line, want) in [
        ("sort a", some(&["a"], &[])),
        ("sort a by nosort get # get x", some(&["a"], &[])),
        ("sort a limit store 1 store b desc", some(&["a"], &["b"])),
        ("sort a by store store get store b", some(&["a"], &["b"])),
        ("sort a store a", some(&[], &["a"])),
        ("sort a by w_*", None),
        ("sort a get w_*->f store b", None),
        ("sort_ro a get *", None),
        ("ordo.idempotent id sort a by w_*", None),
        ("pfcount a b", some(&["a", "b"], &[])),
        ("pfmerge a b", some(&["b"], &["a"])),
        ("bitop and a b c", some(&["b", "c"], &["a"])),
    ] {
        assert_eq!(keys(line), want, "{line}");
    }
}

#[test]
fn expired_entries_are_removed_and_others_stay() {
    let mut memory = Memory::new();
    for command in ["set a 1 px 100", "set b 1 px 500", "set c 1", "set d 1 px 100"] {
        memory.run(words(command));
    }
    memory.now_ms += 200;
    assert_eq!(render(&memory.run(words("dbsize"))), "4");
    let names: Args = ["a", "b", "c", "never", "d"].into_iter().collect();
    let reply = memory.call(Arc::new(ExpireProcedure), names).expect("no rollback");
    assert_eq!(render(&reply), "2");
    assert_eq!(render(&memory.run(words("dbsize"))), "2");
}

#[test]
fn what_was_written_since_it_was_looked_at_is_not_evicted() {
    let mut memory = Memory::new();
    for command in ["set a 1", "set b 1", "set c 1 px 100", "set d 1"] {
        memory.run(words(command));
    }
    let seen = ["a", "b", "c", "d"].map(|name| (Key::from(name), memory.version_of(name)));
    memory.run(words("set b 2"));
    memory.run(words("del d"));
    memory.now_ms += 200;
    let mut args: Vec<Blob> = Vec::new();
    for (key, version) in &seen {
        args.extend(EvictProcedure::words(key, *version));
    }
    let keys = EvictProcedure.footprint(&args.iter().cloned().collect());
    let keys = keys.keys.expect("declared keys");
    assert_eq!((keys.reads.len(), keys.writes.len()), (0, 4));
    args.push(Blob::new(b"a word too many"));
    let reply = memory.call(Arc::new(EvictProcedure), args.into_iter().collect()).expect("no rollback");
    // `a`, and `c`, which had expired.
    assert_eq!(render(&reply), "2");
    assert_eq!(render(&memory.run(words("mget a b c d"))), "[nil, \"2\", nil, nil]");
}

#[test]
fn scripts_may_not_call_everything() {
    let mut memory = Memory::new();
    for (command, read_only, want) in [
        ("get a", true, "nil"),
        ("set a 1", true, "! ERR Write commands are not allowed from read-only scripts."),
        ("set a 1", false, "OK"),
        ("ping", true, "PONG"),
        ("multi", false, "! ERR This Redis command is not allowed from script"),
        ("watch a", false, "! ERR This Redis command is not allowed from script"),
        ("eval x 0", false, "! ERR This Redis command is not allowed from script"),
        ("config get x", false, "! ERR This Redis command is not allowed from script"),
        ("info", false, "! ERR This Redis command is not allowed from script"),
        ("foo", false, "! ERR Unknown Redis command called from script"),
        ("config foo", false, "! ERR Unknown Redis command called from script"),
        (
            "debug",
            false,
            "! ERR Unknown Redis command called from script (Ordo does not have this command of Redis: \
             Redis's own innards. `ordo sim` and the tests do what these are for)",
        ),
        ("get", false, "! ERR Wrong number of args calling Redis command from script"),
        ("object encoding a", true, "\"int\""),
        ("publish a b", true, "! ERR Write commands are not allowed from read-only scripts."),
        ("publish a b", false, "0"),
    ] {
        let argv = words(command);
        let procedure = FnProcedure::new("test", move |tx, _| {
            execute(tx, argv.clone(), Caller::Script { read_only }, Terms::default())
        });
        let reply = memory.call(Arc::new(procedure), Args::new()).expect("no rollback");
        assert_eq!(render(&reply), want, "{command}");
    }
}

#[test]
fn walks_over_many_keys_meet_each_once() {
    let mut memory = Memory::new();
    let names: BTreeSet<String> = (0..3000).map(|i| format!("key:{i}")).collect();
    for name in &names {
        memory.run(["set", name, "1"].into_iter().collect());
        memory.run(["hset", "hash", name, "1"].into_iter().collect());
        memory.run(["sadd", "set", name].into_iter().collect());
        memory.run(["zadd", "sorted", "1", name].into_iter().collect());
    }
    let text = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    };
    for (walk, per_item) in [
        ("scan CURSOR match key:* count 100", 1),
        ("hscan hash CURSOR count 100", 2),
        ("sscan set CURSOR count 100", 1),
        ("zscan sorted CURSOR count 100", 2),
    ] {
        let (mut seen, mut cursor) = (Vec::new(), String::from("0"));
        loop {
            let reply = memory.run(words(&walk.replace("CURSOR", &cursor)));
            let Reply::Array(parts) = reply else { panic!("{walk}") };
            let Reply::Array(items) = &parts[1] else { panic!("{walk}") };
            assert!(items.len() <= 110 * per_item);
            seen.extend(items.iter().step_by(per_item).map(text));
            cursor = text(&parts[0]);
            let number: u64 = cursor.parse().expect("a cursor is a number");
            assert!(number < 1 << 53, "a double has it exactly");
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen.len(), names.len());
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names);
    }
    let Reply::Array(all) = memory.run(words("keys key:*")) else { panic!() };
    assert_eq!(all.iter().map(text).collect::<BTreeSet<_>>(), names);
    for _ in 0..20 {
        for command in ["hrandfield hash", "srandmember set"] {
            assert!(names.contains(&text(&memory.run(words(command)))));
            let Reply::Array(some) = memory.run(words(&format!("{command} 50"))) else { panic!("{command}") };
            assert_eq!(some.iter().map(text).collect::<BTreeSet<_>>().len(), 50);
        }
    }
    let random: BTreeSet<String> = (0..20).map(|_| text(&memory.run(words("randomkey")))).collect();
    assert!(random.len() > 10, "chance differs from transaction to transaction");
}

/// Whatever their hashes are.
#[test]
fn few_keys_are_as_likely_at_random() {
    const DRAWS: usize = 3000;
    let mut memory = Memory::new();
    for name in ["a", "b", "c"] {
        memory.run(["set", name, "1"].into_iter().collect());
    }
    let mut drawn = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..DRAWS {
        *drawn.entry(render(&memory.run(words("randomkey")))).or_default() += 1;
    }
    assert_eq!(drawn.len(), 3);
    for (name, times) in drawn {
        // Six deviations of a binomial distribution with a chance of a third.
        let mean = DRAWS as f64 / 3.0;
        let deviations = 6.0 * (mean * 2.0 / 3.0).sqrt();
        assert!((times as f64 - mean).abs() < deviations, "{name}: {times}");
    }
}

#[test]
fn weights_and_order_follow_the_flags() {
    let table = CommandTable::new();
    for (command, read_only, weight) in [
        ("get a", true, Weight::Light),
        ("sinter a b", true, Weight::Light),
        ("set a 1", false, Weight::Light),
        ("keys *", true, Weight::Heavy),
        ("scan 0", true, Weight::Light),
        // Replies that depend on the present or on chance go through the order.
        ("ttl a", false, Weight::Light),
        ("randomkey", false, Weight::Light),
        ("srandmember s 5", false, Weight::Light),
        ("zrandmember a", false, Weight::Light),
        ("time", false, Weight::Light),
    ] {
        let prepared = table.prepare(words(command)).unwrap_or_else(|error| panic!("{command}: {error:?}"));
        let ordo_redis::Action::Transaction { footprint, .. } = prepared.action else { panic!("{command}") };
        assert_eq!((footprint.read_only, footprint.weight), (read_only, weight), "{command}");
    }
}

#[test]
fn calls_that_read_one_record_are_known_and_others_are_not() {
    let is_one_read = |line: &str| {
        let argv = words(line);
        let command = ordo_redis::table::find(&argv[0]).expect("a command of the table");
        let read = command.one_read(&argv[1..]);
        let is_known = read.is_some();
        assert!(read.is_none_or(|(key, _)| key == Key::from("k")), "{line}");
        is_known
    };
    for line in ["GET k", "HGET k f", "EXISTS k", "MGET k", "STRLEN k", "TTL k", "SISMEMBER k m"] {
        assert!(is_one_read(line), "{line}: without this its reads have a future each");
    }
    let others = ["MGET k k2", "EXISTS k k2", "SET k v", "SET k v EX x", "EXPIRETIME k", "GETDEL k", "DEL k"];
    for line in others {
        assert!(!is_one_read(line), "{line}");
    }
}
