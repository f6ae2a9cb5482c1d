//! A user: whether it may come, with which passwords, and what it may do.

use super::RuleError;
use super::password::PasswordHash;
use super::selector::{Selector, among};
use crate::codec::inline;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::{Blob, Reply};

/// The name of the user that every new connection has.
pub const DEFAULT_USER: &[u8] = b"default";

fn hash_named(word: &[u8]) -> Result<PasswordHash, RuleError> {
    PasswordHash::from_digits(word).ok_or(RuleError::BadHash)
}

/// What was said about the payload of RESTORE, which is always checked here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sanitize {
    #[default]
    Unsaid,
    Skip,
    Always,
}

/// A user, without its name. Invariant: `selectors` has at least one, the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    enabled: bool,
    no_password: bool,
    sanitize: Sanitize,
    passwords: Vec<PasswordHash>,
    pub(super) selectors: Vec<Selector>,
}

impl User {
    /// A new user: it may not come, and may do nothing, but on all channels perhaps.
    pub fn new(all_channels: bool) -> User {
        User {
            enabled: false,
            no_password: false,
            sanitize: Sanitize::Unsaid,
            passwords: Vec::new(),
            selectors: vec![Selector::new(all_channels)],
        }
    }

    /// The user `default` as long as nobody changes it: it may do everything, without a password or with this
    /// one.
    pub fn default_user(password: Option<PasswordHash>) -> User {
        let mut user = User::new(true);
        user.enabled = true;
        user.no_password = password.is_none();
        user.passwords = password.into_iter().collect();
        let own = &mut user.selectors[0];
        own.commands.set_all(true);
        own.apply(b"allkeys").ok();
        user
    }

    /// Whether it may do everything.
    pub fn is_all_permitting(&self) -> bool {
        self.selectors.iter().any(Selector::is_all)
    }
    /// Whether it may read every key.
    pub fn reads_all_keys(&self) -> bool {
        self.selectors.iter().any(Selector::reads_all_keys)
    }
    /// Whether it may come.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }
    /// Whether it may come, with any password.
    pub fn is_open(&self) -> bool {
        self.enabled && self.no_password
    }
    /// Whether any password will do, if it may come.
    pub fn needs_no_password(&self) -> bool {
        self.no_password
    }

    /// Whether it may come with the password of this hash. The time does not tell which of its passwords that
    /// is like.
    pub fn accepts(&self, password: &PasswordHash) -> bool {
        let is_known = self.passwords.iter().fold(false, |found, known| found | (known == password));
        self.enabled && (self.no_password || is_known)
    }

    /// Applies rules, all or none. `all_channels` says whether new selectors have all channels. Selectors may
    /// stand in several words.
    pub fn apply_all(&mut self, words: &[Blob], all_channels: bool) -> Result<(), RulesError> {
        let mut changed = self.clone();
        for rule in merge_selectors(words).map_err(RulesError::Unmatched)? {
            changed.apply(&rule, all_channels).map_err(|error| RulesError::Rule(rule, error))?;
        }
        *self = changed;
        Ok(())
    }

    /// Applies one rule.
    pub(super) fn apply(&mut self, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.enabled = true,
            _ if is("off") => self.enabled = false,
            _ if is("skip-sanitize-payload") => self.sanitize = Sanitize::Skip,
            _ if is("sanitize-payload") => self.sanitize = Sanitize::Always,
            _ if is("nopass") => {
                self.no_password = true;
                self.passwords.clear();
            }
            _ if is("resetpass") => {
                self.no_password = false;
                self.passwords.clear();
            }
            [b'>', password @ ..] => self.add_password(PasswordHash::of(password)),
            [b'#', hash @ ..] => self.add_password(hash_named(hash)?),
            [b'<', password @ ..] => self.remove_password(PasswordHash::of(password))?,
            [b'!', hash @ ..] => self.remove_password(hash_named(hash)?)?,
            [b'(', inner @ .., b')'] => {
                let mut selector = Selector::new(all_channels);
                // Redis takes a selector with an open quote for an empty one.
                let words = inline::split(inner).ok_or(RuleError::Syntax)?;
                for word in words.iter() {
                    selector.apply(word)?;
                }
                self.selectors.push(selector);
            }
            _ if is("clearselectors") => self.selectors.truncate(1),
            _ if is("reset") => {
                *self = User::new(all_channels);
                self.sanitize = Sanitize::Always;
            }
            _ => self.selectors[0].apply(rule)?,
        }
        Ok(())
    }

    /// It may come with this password only.
    pub fn set_password(&mut self, password: PasswordHash) {
        self.passwords.clear();
        self.add_password(password);
    }

    fn add_password(&mut self, hash: PasswordHash) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.no_password = false;
    }

    fn remove_password(&mut self, hash: PasswordHash) -> Result<(), RuleError> {
        let place = self.passwords.iter().position(|known| *known == hash);
        self.passwords.remove(place.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        if self.no_password {
            flags.push("nopass");
        }
        match self.sanitize {
            Sanitize::Unsaid => {}
            Sanitize::Skip => flags.push("skip-sanitize-payload"),
            Sanitize::Always => flags.push("sanitize-payload"),
        }
        flags
    }

    /// The rules of the user's own, and those of its other selectors.
    fn rules(&self) -> Vec<Vec<Vec<u8>>> {
        let mut own: Vec<Vec<u8>> = self.flags().iter().map(|flag| flag.as_bytes().to_vec()).collect();
        let hashes = self.passwords.iter();
        own.extend(hashes.map(|hash| hash.behind(b'#')));
        let mut all: Vec<_> = self.selectors.iter().map(Selector::rules).collect();
        own.append(&mut all[0]);
        all[0] = own;
        all
    }

    /// The user as ACL LIST and the ACL file have it, without its name.
    pub fn description(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (place, rules) in self.rules().iter().enumerate() {
            let rules = rules.join(&b' ');
            match place {
                0 => text.extend_from_slice(&rules),
                _ => text.extend_from_slice(&[b" (", &rules[..], b")"].concat()),
            }
        }
        text
    }

    /// The user as the store keeps it: [`User::decode`] reads it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let all = self.rules();
        put_varint(&mut bytes, all.len() as u64);
        for rules in all {
            put_varint(&mut bytes, rules.len() as u64);
            rules.iter().for_each(|rule| put_bytes(&mut bytes, rule));
        }
        bytes
    }

    /// Reads what [`User::encode`] wrote; `None` if it did not, or if it names commands that this version
    /// does not know.
    pub fn decode(bytes: &[u8]) -> Option<User> {
        let mut reader = Reader::new(bytes);
        let mut user = User::new(true);
        for place in 0..reader.varint()? {
            if place > 0 {
                user.selectors.push(Selector::new(true));
            }
            for _ in 0..reader.varint()? {
                let rule = reader.bytes()?;
                match place {
                    0 => user.apply(rule, true),
                    _ => user.selectors.last_mut()?.apply(rule),
                }
                .ok()?;
            }
        }
        reader.is_empty().then_some(user)
    }

    /// ACL GETUSER's reply.
    pub fn to_reply(&self) -> Reply {
        let text = |rules: Vec<Vec<u8>>| Reply::bulk(rules.join(&b' '));
        let of = |selector: &Selector| {
            vec![
                (Reply::bulk("commands"), text(selector.commands.rules())),
                (Reply::bulk("keys"), text(selector.key_rules())),
                (Reply::bulk("channels"), text(selector.channel_rules())),
            ]
        };
        let flags = self.flags().into_iter().map(Reply::bulk).collect();
        let passwords = self.passwords.iter().map(|hash| Reply::bulk(hash.digits())).collect();
        let mut fields = vec![
            (Reply::bulk("flags"), Reply::Set(flags)),
            (Reply::bulk("passwords"), Reply::Array(passwords)),
        ];
        fields.extend(of(&self.selectors[0]));
        let others = self.selectors[1..].iter().map(of).map(Reply::Map).collect();
        fields.push((Reply::bulk("selectors"), Reply::Array(others)));
        Reply::Map(fields)
    }

    /// Whether a subscriber that this user admitted as `before` is still admitted to its channels and
    /// patterns.
    pub fn keeps_subscriber<'a>(
        &self,
        before: &User,
        channels: impl IntoIterator<Item = (&'a [u8], bool)>,
    ) -> bool {
        if self.selectors.iter().any(Selector::has_all_channels) {
            return true;
        }
        let now: Vec<Blob> = self.selectors.iter().flat_map(|selector| selector.channels.clone()).collect();
        let kept = |selector: &Selector| {
            !selector.has_all_channels() && selector.channels.iter().all(|channel| now.contains(channel))
        };
        before.selectors.iter().all(kept)
            || channels.into_iter().all(|(channel, is_pattern)| among(&now, channel, is_pattern))
    }
}

/// Why rules are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesError {
    /// A selector that is opened in this word does not end.
    Unmatched(Vec<u8>),
    /// A rule.
    Rule(Vec<u8>, RuleError),
}

impl RulesError {
    /// ACL SETUSER's error.
    pub fn reply(&self) -> Reply {
        let mut text = String::from("ERR ");
        match self {
            RulesError::Unmatched(word) => {
                text.push_str("Unmatched parenthesis in acl selector starting at '");
                crate::errors::push_line(&mut text, word);
                text.push_str("'.");
            }
            RulesError::Rule(rule, error) => {
                text.push_str("Error in ACL SETUSER modifier '");
                crate::errors::push_line(&mut text, rule);
                text.push_str("': ");
                text.push_str(error.text());
            }
        }
        Reply::error_owned(text)
    }
}

/// Puts selectors that stand in several words together. The error is the word in which a selector begins that
/// does not end.
pub(super) fn merge_selectors(words: &[Blob]) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut rules = Vec::new();
    let mut open: Option<(&Blob, Vec<u8>)> = None;
    for word in words {
        let closes = word.ends_with(b")");
        match &mut open {
            Some((_, selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
            }
            None if word.starts_with(b"(") && !closes => open = Some((word, word.to_vec())),
            None => rules.push(word.to_vec()),
        }
        if closes && let Some((_, selector)) = open.take() {
            rules.push(selector);
        }
    }
    match open {
        Some((word, _)) => Err(word.to_vec()),
        None => Ok(rules),
    }
}
