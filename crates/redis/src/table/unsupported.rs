//! The commands that Redis 7 has and the table does not, so that whoever misses one is told that it is not a slip of theirs.

/// Names in lower case and in order, subcommands as `container|name`. A command that becomes an entry of the table leaves
/// this list: a test says so.
const NAMES: &str = "\
    acl|deluser acl|dryrun acl|genpass acl|getuser acl|help acl|list acl|load acl|log acl|save acl|setuser acl|users \
    debug failover hexpire hexpireat hexpiretime hpersist hpexpire hpexpireat hpexpiretime hpttl httl latency lolwut \
    memory|doctor memory|help memory|malloc-stats memory|purge memory|stats migrate module monitor move pfselftest \
    psync replconf replicaof restore-asking role script|debug slaveof slowlog swapdb sync waitaof";

/// Whether Redis has a command (or subcommand) of that name, in any case, which the table does not have.
pub(super) fn contains(name: &[u8]) -> bool {
    NAMES
        .split(' ')
        .any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::COMMANDS;

    #[test]
    fn the_list_is_in_order_and_holds_nothing_that_the_table_has() {
        let names: Vec<&str> = NAMES.split(' ').collect();
        assert!(names.is_sorted() && names.windows(2).all(|pair| pair[0] != pair[1]));
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
