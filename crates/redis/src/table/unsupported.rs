//! The commands that Redis 7 has and the table does not, with the reasons, so that whoever misses one is told
//! that it is not a slip of theirs.

/// Names in lower case, subcommands as `container|name`, with why they are absent and what to use instead. A
/// command that becomes an entry of the table leaves this list: a test says so.
pub const ABSENT: &[(&str, &str)] = &[
    ("debug", "Redis's own innards. `ordo sim` and the tests do what these are for"),
    (
        "failover psync replconf replicaof slaveof sync",
        "replicas are consensus groups: see `ordo cluster`, `ordo admin` and CLUSTER",
    ),
    (
        "hexpire hexpireat hexpiretime hpersist hpexpire hpexpireat hpexpiretime hpttl httl",
        "of Redis 7.4: keep what expires by itself in a key of its own",
    ),
    (
        "migrate restore-asking",
        "slots move by ordered records: `ordo admin move-slots`, `ordo admin rebalance`",
    ),
    ("move swapdb", "there is one database"),
    (
        "module|load module|loadex module|unload",
        "native procedures are Rust, in a program that embeds Ordo: see the README",
    ),
    (
        "script|debug",
        "scripts run beside each other: see what one does with `redis.log`, and try it with EVAL_RO",
    ),
];

/// Why there is no command (or subcommand) of that name, in any case, and what to use instead, if Redis has
/// it.
pub(super) fn reason(name: &[u8]) -> Option<&'static str> {
    let is_named = |names: &str| {
        let mut names = names.split(' ');
        names.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
    };
    let found = ABSENT.iter().find(|(names, _)| is_named(names));
    found.map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::COMMANDS;

    #[test]
    fn the_list_holds_nothing_that_the_table_has_and_nothing_twice() {
        let names = ABSENT.iter().flat_map(|(names, _)| names.split(' '));
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        for command in COMMANDS.iter().chain(COMMANDS.iter().flat_map(|command| command.subcommands())) {
            assert!(!names.contains(&command.name), "{}", command.name);
        }
        for name in &names {
            assert!(
                name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'|' | b'-')),
                "{name}"
            );
            if let Some((container, _)) = name.split_once('|') {
                assert!(crate::table::find(container.as_bytes()).is_some(), "{name}");
            }
        }
    }
}
