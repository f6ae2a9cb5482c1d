//! Which commands a selector allows, and the rules that say it, shortest first, as Redis 7.0 finds them.

use super::RuleError;
use super::universe::{CommandId, category, universe};
use crate::table::CATEGORIES;
use std::collections::BTreeMap;
use txn::Blob;

/// The commands that a selector allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AllowedCommands {
    /// A bit for each command.
    bits: Vec<u64>,
    /// `+@all`, and nothing was taken away since: nothing need be looked up.
    all: bool,
    /// `+@all`, and perhaps things taken away since: commands that a later version brings are allowed.
    future: bool,
    /// First arguments with which commands are allowed that are forbidden otherwise.
    first_arguments: BTreeMap<CommandId, Vec<Blob>>,
}

impl AllowedCommands {
    /// Whether everything is allowed.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Whether a command is allowed, whatever its arguments.
    fn has(&self, id: CommandId) -> bool {
        let word = self.bits.get(id.0 / 64);
        word.is_some_and(|word| word & (1 << (id.0 % 64)) != 0)
    }

    /// Whether a command is allowed with the argument behind its name, if there is one.
    pub fn allows(&self, id: CommandId, argument: Option<&Blob>) -> bool {
        if self.all || self.has(id) {
            return true;
        }
        let (Some(allowed), Some(argument)) = (self.first_arguments.get(&id), argument) else {
            return false;
        };
        allowed.iter().any(|first| first.eq_ignore_ascii_case(argument))
    }

    fn set_bit(&mut self, id: CommandId, allow: bool) {
        let place = id.0 / 64;
        if self.bits.len() <= place {
            self.bits.resize(place + 1, 0);
        }
        let bit = 1 << (id.0 % 64);
        if allow {
            self.bits[place] |= bit;
        } else {
            self.bits[place] &= !bit;
            self.all = false;
        }
    }

    /// Allows or forbids a command, and its subcommands with it.
    fn set(&mut self, id: CommandId, allow: bool) {
        self.set_bit(id, allow);
        self.first_arguments.remove(&id);
        for &subcommand in &universe().get(id).subcommands {
            self.set_bit(subcommand, allow);
        }
    }

    /// Allows or forbids everything.
    pub fn set_all(&mut self, allow: bool) {
        let word = if allow { u64::MAX } else { 0 };
        self.bits = vec![word; universe().len().div_ceil(64)];
        self.all = allow;
        self.future = allow;
        self.first_arguments.clear();
    }

    fn set_category(&mut self, place: usize, allow: bool) {
        for id in universe().in_order() {
            if universe().is_in(id, place) {
                self.set(id, allow);
            }
        }
    }

    /// Applies `+@category`, `-command`, `+command|argument` and their like; `rule` is what stands behind the
    /// sign.
    pub fn apply(&mut self, allow: bool, rule: &[u8]) -> Result<(), RuleError> {
        let unknown = RuleError::UnknownCommand;
        if let [b'@', name @ ..] = rule {
            if name.eq_ignore_ascii_case(b"all") {
                self.set_all(allow);
            } else {
                self.set_category(category(name).ok_or(unknown)?, allow);
            }
            return Ok(());
        }
        let bar = rule.iter().rposition(|&byte| byte == b'|');
        let Some(bar) = bar.filter(|_| allow) else {
            self.set(universe().find(rule).ok_or(unknown)?, allow);
            return Ok(());
        };
        let (name, argument) = (&rule[..bar], &rule[bar + 1..]);
        let id = universe().find(name).ok_or(unknown)?;
        let known = universe().get(id);
        if known.container.is_some() {
            return Err(RuleError::ArgumentOfSubcommand);
        }
        if argument.is_empty() || super::has_spaces(argument) {
            return Err(RuleError::Syntax);
        }
        if !known.subcommands.is_empty() {
            self.set(universe().find(rule).ok_or(unknown)?, true);
            return Ok(());
        }
        let allowed = self.first_arguments.entry(id).or_default();
        if !allowed.iter().any(|first| first.eq_ignore_ascii_case(argument)) {
            allowed.push(Blob::new(argument));
        }
        Ok(())
    }

    /// The rules that make this out of nothing: `+@all` or `-@all`, then the categories that fit best, then
    /// what is left, command by command.
    pub fn rules(&self) -> Vec<Vec<u8>> {
        let additive = !self.future;
        let sign = |allow: bool| if allow { b'+' } else { b'-' };
        let rule = |allow: bool, name: &str| [&[sign(allow)], name.as_bytes()].concat();
        let mut rules = vec![rule(!additive, "@all")];
        // What the rules so far make, and what is left of the aim: each category that is applied is taken out
        // of it.
        let mut made = AllowedCommands::default();
        made.set_all(!additive);
        let mut rest = self.clone();
        let mut applied = vec![false; CATEGORIES.len()];
        while let Some(best) = best_category(&rest, &applied, additive) {
            rules.push(rule(additive, &format!("@{}", CATEGORIES[best])));
            made.set_category(best, additive);
            rest.set_category(best, !additive);
            applied[best] = true;
        }
        for id in universe().in_order() {
            let known = universe().get(id);
            let allowed = self.has(id);
            if allowed != made.has(id) {
                rules.push(rule(allowed, known.name));
                made.set(id, allowed);
            }
            if !allowed && let Some(arguments) = self.first_arguments.get(&id) {
                let with = |argument: &Blob| [b"+", known.name.as_bytes(), b"|", argument].concat();
                rules.extend(arguments.iter().map(with));
            }
        }
        rules
    }
}

/// The category that has more in common with what is left than not: the one with the fewest differences, and
/// of those the one that has the most in common.
fn best_category(rest: &AllowedCommands, applied: &[bool], additive: bool) -> Option<usize> {
    let mut best: Option<(usize, usize, usize)> = None;
    for place in (0..CATEGORIES.len()).filter(|&place| !applied[place]) {
        let members = universe().in_order().filter(|&id| universe().is_in(id, place));
        let (mut same, mut different) = (0, 0);
        for id in members {
            if rest.has(id) == additive {
                same += 1;
            } else {
                different += 1;
            }
        }
        let is_better =
            best.is_none_or(|(_, fewest, most)| different < fewest || (different == fewest && same > most));
        if same > different && is_better {
            best = Some((place, different, same));
        }
    }
    best.map(|(place, _, _)| place)
}
