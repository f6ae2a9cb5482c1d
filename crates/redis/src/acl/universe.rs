//! Every command that a rule may name, numbered: those of the table, and those of Redis that the table does
//! not have.

use super::absent::ABSENT;
use crate::table::{CATEGORIES, COMMANDS, Command, Resolved};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The number of a command among all that rules may name. Not kept anywhere: it differs from version to
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CommandId(pub usize);

/// A command that rules may name.
pub(super) struct Known {
    /// In lower case; a subcommand's is `container|subcommand`.
    pub name: &'static str,
    /// Its container, if it is a subcommand.
    pub container: Option<CommandId>,
    /// Its subcommands, if it is a container.
    pub subcommands: Vec<CommandId>,
    /// A bit for each of [`CATEGORIES`].
    categories: u32,
}

/// All of them.
pub(super) struct Universe {
    known: Vec<Known>,
    by_name: BTreeMap<&'static str, CommandId>,
    /// The number of each entry of [`COMMANDS`]; those of its subcommands follow it.
    places: Vec<usize>,
}

static UNIVERSE: LazyLock<Universe> = LazyLock::new(Universe::new);

/// All commands that rules may name.
pub(super) fn universe() -> &'static Universe {
    &UNIVERSE
}

/// The place of a category in [`CATEGORIES`].
pub(super) fn category(name: &[u8]) -> Option<usize> {
    CATEGORIES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

impl Universe {
    fn new() -> Universe {
        let mut all = Universe { known: Vec::new(), by_name: BTreeMap::new(), places: Vec::new() };
        let of = |command: &Command| command.acl_categories();
        for command in COMMANDS {
            all.places.push(all.known.len());
            all.add(command.name, of(command));
            for subcommand in command.subcommands() {
                all.add(subcommand.name, of(subcommand));
            }
        }
        for line in ABSENT.lines() {
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default();
            if !all.by_name.contains_key(name) {
                all.add(name, words.collect());
            }
        }
        all
    }

    fn add(&mut self, name: &'static str, categories: Vec<&'static str>) {
        let id = CommandId(self.known.len());
        let container = name.split_once('|').and_then(|(container, _)| self.by_name.get(container).copied());
        if let Some(CommandId(container)) = container {
            self.known[container].subcommands.push(id);
        }
        let bits = categories.into_iter().filter_map(|name| category(name.as_bytes()));
        self.known.push(Known {
            name,
            container,
            subcommands: Vec::new(),
            categories: bits.fold(0, |bits, place| bits | 1 << place),
        });
        self.by_name.insert(name, id);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// What is known of one.
    pub fn get(&self, id: CommandId) -> &Known {
        &self.known[id.0]
    }

    /// The one with a name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<CommandId> {
        let name = name.to_ascii_lowercase();
        self.by_name.get(std::str::from_utf8(&name).ok()?).copied()
    }

    /// The one that words were found to name.
    pub fn of(&self, resolved: &Resolved) -> CommandId {
        let after = resolved.subplace.map_or(0, |subplace| subplace + 1);
        CommandId(self.places[resolved.place] + after)
    }

    /// All, each container before its subcommands.
    pub fn in_order(&self) -> impl Iterator<Item = CommandId> {
        let tops = (0..self.len()).filter(|&id| self.known[id].container.is_none());
        tops.flat_map(|id| std::iter::once(CommandId(id)).chain(self.known[id].subcommands.iter().copied()))
    }

    /// Whether a command is in the category at this place of [`CATEGORIES`].
    pub fn is_in(&self, id: CommandId, category: usize) -> bool {
        self.known[id.0].categories & (1 << category) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;
    use txn::Blob;

    #[test]
    fn every_command_of_the_table_is_found_by_its_words_and_by_its_name() {
        let all = universe();
        assert_eq!(all.in_order().count(), all.len());
        for words in ["get k", "Client KILL x", "acl whoami", "xinfo stream k"] {
            let argv: Vec<Blob> = words.split(' ').map(Blob::from).collect();
            let Ok(resolved) = table::resolve(&argv) else { panic!("{words}") };
            let id = all.of(&resolved);
            assert_eq!(all.get(id).name, resolved.command.name);
            assert_eq!(all.find(resolved.command.name.as_bytes()), Some(id));
        }
    }

    #[test]
    fn what_the_table_lacks_has_its_place_beside_what_it_has() {
        let all = universe();
        let id = |name: &str| all.find(name.as_bytes()).expect(name);
        assert_eq!(all.get(id("memory|doctor")).container, Some(id("memory")));
        assert!(all.get(id("function")).subcommands.contains(&id("function|list")));
        assert!(all.get(id("debug")).subcommands.is_empty());
        for line in ABSENT.lines() {
            for word in line.split(' ').skip(1) {
                assert!(category(word.as_bytes()).is_some(), "{line}");
            }
        }
        assert!(all.find(b"nosuch").is_none() && all.find(b"get|x").is_none());
    }
}
