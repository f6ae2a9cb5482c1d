//! A selector: commands, keys and channels that belong together. A user has one of its own, and may have
//! more.

use super::RuleError;
use super::commands::AllowedCommands;
use crate::{pattern, table::KeySpec};
use txn::Blob;

/// What is done with a key: reading its value, changing it, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyAccess {
    /// Its value is read.
    pub reads: bool,
    /// Its value is changed.
    pub writes: bool,
}

impl KeyAccess {
    pub(super) const READ: KeyAccess = KeyAccess { reads: true, writes: false };
    const WRITE: KeyAccess = KeyAccess { reads: false, writes: true };
    pub(super) const BOTH: KeyAccess = KeyAccess { reads: true, writes: true };

    /// What a key specification tells. One that tells neither (EXISTS) is content with either.
    pub(super) fn of_spec(spec: &KeySpec) -> KeyAccess {
        let has = |flag: &str| spec.flags.contains(&flag);
        KeyAccess { reads: has("access"), writes: has("insert") || has("delete") || has("update") }
    }

    fn covers(self, other: KeyAccess) -> bool {
        (self.reads || !other.reads) && (self.writes || !other.writes)
    }
}

/// Some keys, and what may be done with them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Blob,
    access: KeyAccess,
}

/// What one selector allows. It allows nothing when it is made, but for channels perhaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    pub(super) commands: AllowedCommands,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    pub(super) channels: Vec<Blob>,
}

impl Selector {
    /// A new selector, for all channels or for none.
    pub(super) fn new(all_channels: bool) -> Selector {
        let mut selector = Selector { all_channels, ..Selector::default() };
        selector.commands.set_all(false);
        selector
    }

    /// Whether it allows everything.
    pub(super) fn is_all(&self) -> bool {
        self.commands.is_all() && self.all_keys && self.all_channels
    }
    /// Whether it allows every key.
    pub(super) fn has_all_keys(&self) -> bool {
        self.all_keys
    }
    /// Whether it allows every channel.
    pub(super) fn has_all_channels(&self) -> bool {
        self.all_channels
    }

    /// Applies a rule about commands, keys or channels.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || is("~*") => {
                self.all_keys = true;
                self.keys.clear();
            }
            _ if is("resetkeys") => {
                self.all_keys = false;
                self.keys.clear();
            }
            _ if is("allchannels") || is("&*") => {
                self.all_channels = true;
                self.channels.clear();
            }
            _ if is("resetchannels") => {
                self.all_channels = false;
                self.channels.clear();
            }
            _ if is("allcommands") => self.commands.set_all(true),
            _ if is("nocommands") => self.commands.set_all(false),
            [b'~' | b'%', ..] => self.add_keys(rule)?,
            [b'&', pattern @ ..] => {
                if self.all_channels {
                    return Err(RuleError::ChannelAfterAll);
                }
                if super::has_spaces(pattern) {
                    return Err(RuleError::Syntax);
                }
                if !self.channels.iter().any(|known| known.as_bytes() == pattern) {
                    self.channels.push(Blob::new(pattern));
                }
            }
            [b'+', rest @ ..] => self.commands.apply(true, rest)?,
            [b'-', rest @ ..] => self.commands.apply(false, rest)?,
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    /// `~pattern`, `%R~pattern`, `%W~pattern`, `%RW~pattern`.
    fn add_keys(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::KeyAfterAll);
        }
        let (access, pattern) = match rule {
            [b'~', pattern @ ..] => (KeyAccess::BOTH, pattern),
            _ => {
                let mut access = KeyAccess::default();
                let mut rest = &rule[1..];
                loop {
                    rest = match rest {
                        [b'r' | b'R', rest @ ..] if !access.reads => {
                            access.reads = true;
                            rest
                        }
                        [b'w' | b'W', rest @ ..] if !access.writes => {
                            access.writes = true;
                            rest
                        }
                        // Without either it would be a pattern for nothing, which no rule can say.
                        [b'~', rest @ ..] if access != KeyAccess::default() => {
                            break (access, rest);
                        }
                        _ => return Err(RuleError::Syntax),
                    }
                }
            }
        };
        if super::has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| known.pattern.as_bytes() == pattern) {
            Some(known) => {
                known.access.reads |= access.reads;
                known.access.writes |= access.writes;
            }
            None => self.keys.push(KeyPattern { pattern: Blob::new(pattern), access }),
        }
        Ok(())
    }

    /// Whether something may be done with a key.
    pub(super) fn allows_key(&self, key: &[u8], access: KeyAccess) -> bool {
        let fits = |known: &KeyPattern| known.access.covers(access) && pattern::matches(&known.pattern, key);
        self.all_keys || self.keys.iter().any(fits)
    }

    /// Whether every key may be read.
    pub(super) fn reads_all_keys(&self) -> bool {
        let is_all = |known: &KeyPattern| known.access.reads && known.pattern.as_bytes() == b"*";
        self.all_keys || self.keys.iter().any(is_all)
    }

    /// Whether a channel is allowed; a pattern of channels must be one of the selector's own, letter by
    /// letter.
    pub(super) fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.all_channels || among(&self.channels, channel, is_pattern)
    }

    pub(super) fn key_rules(&self) -> Vec<Vec<u8>> {
        if self.all_keys {
            return vec![b"~*".to_vec()];
        }
        let rule = |known: &KeyPattern| {
            let sign: &[u8] = match known.access {
                KeyAccess::READ => b"%R~",
                KeyAccess::WRITE => b"%W~",
                _ => b"~",
            };
            [sign, &known.pattern].concat()
        };
        self.keys.iter().map(rule).collect()
    }

    pub(super) fn channel_rules(&self) -> Vec<Vec<u8>> {
        if self.all_channels {
            return vec![b"&*".to_vec()];
        }
        let rule = |channel: &Blob| [b"&", channel.as_bytes()].concat();
        self.channels.iter().map(rule).collect()
    }

    /// The rules that make this selector out of a new one.
    pub(super) fn rules(&self) -> Vec<Vec<u8>> {
        let mut rules = self.key_rules();
        if !self.all_channels {
            rules.push(b"resetchannels".to_vec());
        }
        rules.extend(self.channel_rules());
        rules.extend(self.commands.rules());
        rules
    }
}

/// Whether a channel is among some patterns, or a pattern is one of them, letter by letter.
pub(super) fn among(patterns: &[Blob], channel: &[u8], is_pattern: bool) -> bool {
    patterns.iter().any(|known| match is_pattern {
        true => known.as_bytes() == channel,
        false => pattern::matches(known, channel),
    })
}
