//! The commands that Redis 7 has and the table does not, with the reasons, so that whoever misses one is told that it is not a slip of
//! theirs.

/// Names in lower case, subcommands as `container|name`, with why they are absent and what to use instead. A command that becomes an
/// entry of the table leaves this list: a test says so.
pub const ABSENT: &[(&str, &str)] = &[
    (
        "debug",
        "Redis's own innards. `ordo sim` and the tests do what these are for",
    ),
    (
        "failover psync replconf replicaof role slaveof sync",
        "replicas are consensus groups: see `ordo cluster`, `ordo admin` and CLUSTER",
    ),
    (
        "hexpire hexpireat hexpiretime hpersist hpexpire hpexpireat hpexpiretime hpttl httl",
        "of Redis 7.4, not yet",
    ),
    (
        "migrate restore-asking",
        "slots move by ordered records: `ordo admin move-slots`, `ordo admin rebalance`",
    ),
    ("move swapdb", "there is one database"),
    (
        "module",
        "native procedures are Rust, in a program that embeds Ordo: see the README",
    ),
    ("script|debug", "not yet"),
];

/// Whether Redis has a command (or subcommand) of that name, in any case, which the table does not have.
pub(super) fn contains(name: &[u8]) -> bool {
    let mut names = ABSENT.iter().flat_map(|(names, _)| names.split(' '));
    names.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
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
        for command in COMMANDS
            .iter()
            .chain(COMMANDS.iter().flat_map(|command| command.subcommands()))
        {
            assert!(!names.contains(&command.name), "{}", command.name);
        }
        for name in &names {
            assert!(
                name.bytes()
                    .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'|' | b'-')),
                "{name}"
            );
            if let Some((container, _)) = name.split_once('|') {
                assert!(crate::table::find(container.as_bytes()).is_some(), "{name}");
            }
        }
    }
}
