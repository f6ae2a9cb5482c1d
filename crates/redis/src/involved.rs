//! What a command involves, as far as its words tell: where it is executed in a cluster of several partitions
//! follows from it.

use crate::idempotent;
use crate::introspect;
use crate::past;
use crate::table::{self, AclCommand, Command, Flags, Run};
use txn::{Blob, Key, PartitionId, PartitionRoute, Reply, Slots};

/// What a command, a block or a script involves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Involved {
    /// No key that its words tell: it may run anywhere.
    Nothing,
    /// These keys, and none else unless it is [`straying`].
    Keys(Vec<Key>),
    /// Every partition does the same for itself: FLUSHALL, SCRIPT LOAD.
    Everything,
    /// It walks over all keys, or its words make no sense.
    Unknown,
}

impl Involved {
    /// What two commands of one transaction involve.
    pub fn with(self, other: Involved) -> Involved {
        match (self, other) {
            (Involved::Nothing, involved) | (involved, Involved::Nothing) => involved,
            (Involved::Keys(mut keys), Involved::Keys(more)) => {
                keys.extend(more);
                Involved::Keys(keys)
            }
            _ => Involved::Unknown,
        }
    }

    /// Where a transaction that involves this is executed.
    pub fn route(&self, slots: &Slots) -> PartitionRoute {
        match self {
            Involved::Nothing => PartitionRoute::one_of(PartitionId(0), slots),
            Involved::Everything | Involved::Unknown => PartitionRoute::everywhere(slots),
            Involved::Keys(keys) => PartitionRoute::of_keys(keys, slots),
        }
    }
}

/// The command inside a command (ORDO.IDEMPOTENT, ORDO.AT), by the words of the outer one: its words, its
/// name first, or the error that is the reply. `None` for a command that has none inside.
pub(crate) fn inner_of<'a>(command: &Command, argv: &'a [Blob]) -> Option<Result<&'a [Blob], Reply>> {
    match command.run {
        Run::Idempotent => Some(idempotent::inner(&argv[1..])),
        Run::Past => Some(past::inner(&argv[1..])),
        _ => None,
    }
}

/// What the command `argv` (its name first) involves.
pub fn involved(argv: &[Blob]) -> Involved {
    let Ok(resolved) = table::resolve(argv) else {
        // It is an error, whoever finds that out.
        return Involved::Nothing;
    };
    let command = resolved.command;
    if let Some(inner) = inner_of(command, argv) {
        return match inner.map(involved) {
            Ok(Involved::Everything) => Involved::Unknown,
            Ok(involved) => involved,
            Err(_) => Involved::Nothing,
        };
    }
    match command.run {
        Run::Script(command) if command.is_everywhere() => Involved::Everything,
        Run::Acl(AclCommand::SetUser | AclCommand::DelUser) => Involved::Everything,
        _ if matches!(command.name, "flushall" | "flushdb") => Involved::Everything,
        _ if command.keys.is_empty() => {
            if command.is(Flags::READONLY) || command.is(Flags::WRITE) {
                Involved::Unknown
            } else {
                Involved::Nothing
            }
        }
        _ => match introspect::keys_of(argv) {
            Ok(keys) if keys.is_empty() => Involved::Nothing,
            Ok(keys) => Involved::Keys(keys.into_iter().map(|(key, _)| Key::from(key)).collect()),
            Err(_) => Involved::Nothing,
        },
    }
}

/// The words of the command in `argv` (its name first) if it may touch keys that they do not tell: a script,
/// or SORT with a pattern.
pub fn straying(argv: &[Blob]) -> Option<&[Blob]> {
    let command = table::resolve(argv).ok()?.command;
    if let Some(inner) = inner_of(command, argv) {
        return straying(inner.ok()?);
    }
    let strays = match command.run {
        Run::Script(command) => command.runs_code(),
        _ => command.strays(&argv[1..]),
    };
    strays.then_some(argv)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Involved {
        let argv: Vec<Blob> = line.split(' ').map(Blob::from).collect();
        involved(&argv)
    }

    fn keys(names: &[&str]) -> Involved {
        Involved::Keys(names.iter().map(|&name| Key::from(name)).collect())
    }

    #[test]
    fn words_tell_what_is_involved() {
        for (line, expected) in [
            ("GET a", keys(&["a"])),
            ("MSET a 1 b 2", keys(&["a", "b"])),
            ("EVAL body 2 a b x", keys(&["a", "b"])),
            ("ZUNIONSTORE a 2 b c", keys(&["a", "b", "c"])),
            ("GEORADIUS a 0 0 1 km STORE b", keys(&["a", "b"])),
            ("GEORADIUS a 0 0 1 km STORE STOREDIST", keys(&["a", "STOREDIST"])),
            ("EVAL body 0 x", Involved::Nothing),
            ("EVALSHA digest 1 k", keys(&["k"])),
            ("ORDO.IDEMPOTENT id INCR n", keys(&["n"])),
            ("ORDO.IDEMPOTENT id FLUSHALL", Involved::Unknown),
            ("ORDO.AT -5 MGET a b", keys(&["a", "b"])),
            ("ORDO.AT -5 SET a b", Involved::Nothing),
            ("SCRIPT LOAD body", Involved::Everything),
            ("ACL SETUSER alice on", Involved::Everything),
            ("ACL LIST", Involved::Nothing),
            ("FUNCTION LOAD code", Involved::Everything),
            ("FUNCTION DELETE library", Involved::Everything),
            ("FUNCTION LIST", Involved::Nothing),
            ("FCALL f 2 a b x", keys(&["a", "b"])),
            ("FCALL_RO f 0", Involved::Nothing),
            ("FLUSHALL", Involved::Everything),
            ("DBSIZE", Involved::Unknown),
            ("KEYS *", Involved::Unknown),
            ("RANDOMKEY", Involved::Unknown),
            ("TIME", Involved::Nothing),
            ("NOSUCH a b", Involved::Nothing),
            ("SORT a BY w_* GET # STORE b", keys(&["a", "b"])),
            ("SORT_RO a GET w_*", keys(&["a"])),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
        for (line, strays) in [
            ("EVAL body 1 a", true),
            ("ORDO.IDEMPOTENT id EVAL body 1 a", true),
            ("SCRIPT LOAD body", false),
            ("FCALL f 0", true),
            ("FUNCTION LOAD code", false),
            ("MSET a 1 b 2", false),
            ("SORT a BY w_*", true),
            ("SORT a GET # GET w_*->f STORE b", true),
            ("SORT_RO a GET w_*", true),
            ("ORDO.IDEMPOTENT id SORT a BY w_*", true),
            ("SORT a BY nosort GET # STORE b", false),
            ("SORT a STORE w_*", false),
            ("SORT w_* LIMIT 0 10", false),
            ("SORT a BY w_* nonsense", false),
        ] {
            let argv: Vec<Blob> = line.split(' ').map(Blob::from).collect();
            let found = straying(&argv);
            assert_eq!(found.is_some(), strays, "{line}");
            assert!(found.is_none_or(|words| *words[0] != *b"ORDO.IDEMPOTENT"), "{line}");
        }
        assert_eq!(of("GET a").with(of("SET b 1")), keys(&["a", "b"]));
        assert_eq!(of("GET a").with(of("FLUSHALL")), Involved::Unknown);
        assert_eq!(of("TIME").with(of("GET a")), keys(&["a"]));
    }
}
