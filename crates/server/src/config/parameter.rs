//! The text forms of setting values.

use super::Kind;
use crate::hub::NotifyFlags;
use execute::EngineKind;
use node::FsyncPolicy;
use txn::{Blob, RequestName};

/// A value of a setting.
pub trait Parameter: Sized {
    /// Its text form, which [`Parameter::from_text`] reads back.
    fn to_text(&self) -> String;
    /// Reads a text form; `now` is the present value, which a text may leave in part.
    fn from_text(text: &str, kind: &Kind, now: &Self) -> Result<Self, String>;
}

fn refusal(text: &str, kind: &Kind) -> String {
    match kind {
        Kind::Fixed(_, why) => format!("'{text}' is not possible: {why}"),
        _ => format!("'{text}' is not {}", kind.expectation()),
    }
}

/// Reads a number of bytes with Redis's units.
pub(super) fn bytes_from_text(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

impl Parameter for u64 {
    fn to_text(&self) -> String {
        self.to_string()
    }
    fn from_text(text: &str, kind: &Kind, _now: &u64) -> Result<u64, String> {
        let (value, min, max) = match *kind {
            Kind::Bytes(min, max) => (bytes_from_text(text), min, max),
            Kind::Number(min, max) => (text.parse().ok(), min, max),
            Kind::Fixed(only, _) if text == only => (text.parse().ok(), 0, u64::MAX),
            _ => (None, 0, 0),
        };
        value.filter(|value| (min..=max).contains(value)).ok_or_else(|| refusal(text, kind))
    }
}

impl Parameter for i64 {
    fn to_text(&self) -> String {
        self.to_string()
    }
    fn from_text(text: &str, kind: &Kind, _now: &i64) -> Result<i64, String> {
        let Kind::Integer(min, max) = *kind else {
            return Err(refusal(text, kind));
        };
        text.parse().ok().filter(|value| (min..=max).contains(value)).ok_or_else(|| refusal(text, kind))
    }
}

impl Parameter for bool {
    fn to_text(&self) -> String {
        if *self { "yes" } else { "no" }.to_owned()
    }
    fn from_text(text: &str, kind: &Kind, _now: &bool) -> Result<bool, String> {
        let value = match text.to_ascii_lowercase().as_str() {
            "yes" => true,
            "no" => false,
            _ => return Err(refusal(text, kind)),
        };
        match kind {
            Kind::Fixed(only, _) if value.to_text() != *only => Err(refusal(text, kind)),
            _ => Ok(value),
        }
    }
}

impl Parameter for String {
    fn to_text(&self) -> String {
        self.clone()
    }
    fn from_text(text: &str, kind: &Kind, _now: &String) -> Result<String, String> {
        match kind {
            Kind::Choice(words) if !words.contains(&text) => Err(refusal(text, kind)),
            Kind::Fixed(only, _) if text != *only => Err(refusal(text, kind)),
            _ => Ok(text.to_owned()),
        }
    }
}

/// A number of bytes, or a share of `maxmemory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths.
    Percent(u64),
}

impl Default for Share {
    fn default() -> Share {
        Share::Bytes(0)
    }
}

impl Share {
    /// The bytes of it. A share of no limit is no limit: 0.
    pub fn bytes(self, maxmemory: u64) -> u64 {
        match self {
            Share::Bytes(bytes) => bytes,
            Share::Percent(percent) => maxmemory / 100 * percent,
        }
    }
}

impl Parameter for Share {
    fn to_text(&self) -> String {
        match self {
            Share::Bytes(bytes) => bytes.to_string(),
            Share::Percent(percent) => format!("{percent}%"),
        }
    }
    fn from_text(text: &str, kind: &Kind, _now: &Share) -> Result<Share, String> {
        let share = match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().filter(|&percent| percent <= 100).map(Share::Percent),
            None => bytes_from_text(text).map(Share::Bytes),
        };
        share.ok_or_else(|| refusal(text, kind))
    }
}

impl Parameter for EngineKind {
    fn to_text(&self) -> String {
        self.to_string()
    }
    fn from_text(text: &str, _kind: &Kind, _now: &EngineKind) -> Result<EngineKind, String> {
        EngineKind::correct_of(text).map_err(|error| error.to_string())
    }
}

/// Users with their rules, as settings name them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Users(pub Vec<String>);

impl Parameter for Users {
    fn to_text(&self) -> String {
        self.0.join("\n")
    }
    /// A user comes to those that are there.
    fn from_text(text: &str, _kind: &Kind, now: &Users) -> Result<Users, String> {
        let more = text.lines().filter(|line| !line.trim().is_empty());
        Ok(Users(now.0.iter().cloned().chain(more.map(without_passwords)).collect()))
    }
}

/// A user's name and rules, with hashes instead of passwords. What cannot be read stays, to be refused.
fn without_passwords(line: &str) -> String {
    let Some(words) = redis_surface::codec::inline::split(line.as_bytes()) else {
        return line.to_owned();
    };
    let Some((name, rules)) = words.split_first() else {
        return line.to_owned();
    };
    let has_password = |rule: &Blob| rule.iter().any(|byte| matches!(byte, b'<' | b'>'));
    if !rules.iter().any(has_password) {
        return line.to_owned();
    }
    let rules = redis_surface::acl::secrets::hashed_rules(rules);
    let words = std::iter::once(name.as_bytes()).chain(rules.iter().map(Blob::as_bytes));
    let words: Vec<String> = words.map(quoted).collect();
    words.join(" ")
}

/// A word as [`redis_surface::codec::inline::split`] reads it back.
fn quoted(word: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    if !word.is_empty() && word.iter().all(is_plain) {
        return String::from_utf8_lossy(word).into_owned();
    }
    let escaped: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{escaped}\"")
}

/// Requests of the order, by their names.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Requests(pub Vec<RequestName>);

impl Parameter for Requests {
    fn to_text(&self) -> String {
        let names: Vec<String> = self.0.iter().map(RequestName::to_string).collect();
        names.join(" ")
    }
    /// A request comes to those that are there.
    fn from_text(text: &str, _kind: &Kind, now: &Requests) -> Result<Requests, String> {
        let mut all = now.clone();
        for word in text.split_whitespace() {
            let name = word.parse().map_err(|error: txn::ids::NoRequestName| error.to_string())?;
            if !all.0.contains(&name) {
                all.0.push(name);
            }
        }
        Ok(all)
    }
}

/// Percentiles, each from 0 to 100.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Percentiles(pub Vec<f64>);

/// None of them is NaN.
impl Eq for Percentiles {}

impl Parameter for Percentiles {
    fn to_text(&self) -> String {
        let shown: Vec<String> = self.0.iter().map(f64::to_string).collect();
        shown.join(" ")
    }
    fn from_text(text: &str, kind: &Kind, _now: &Percentiles) -> Result<Percentiles, String> {
        let percentile = |word: &str| {
            let percentile = word.parse().ok();
            percentile.filter(|percentile| (0.0..=100.0).contains(percentile))
        };
        let all: Option<Vec<f64>> = text.split_whitespace().map(percentile).collect();
        all.map(Percentiles).ok_or_else(|| refusal(text, kind))
    }
}

impl Parameter for Vec<String> {
    fn to_text(&self) -> String {
        self.join(" ")
    }
    fn from_text(text: &str, _kind: &Kind, _now: &Vec<String>) -> Result<Vec<String>, String> {
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }
}

macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            /// The words that stand for the choices.
            pub const WORDS: &'static [&'static str] = &[$($word,)*];
        }

        impl Parameter for $name {
            fn to_text(&self) -> String {
                match self { $($name::$variant => $word,)* }.to_owned()
            }
            fn from_text(text: &str, kind: &Kind, _now: &$name) -> Result<$name, String> {
                match text.to_ascii_lowercase().as_str() {
                    $($word => Ok($name::$variant),)*
                    _ => Err(refusal(text, kind)),
                }
            }
        }
    };
}

impl Parameter for FsyncPolicy {
    fn to_text(&self) -> String {
        self.name().to_owned()
    }
    fn from_text(text: &str, kind: &Kind, _now: &FsyncPolicy) -> Result<FsyncPolicy, String> {
        text.parse().map_err(|_| refusal(text, kind))
    }
}

choice! {
    /// How much is said on standard error.
    LogLevel {
        /// Everything.
        Debug = "debug",
        /// What an operator may want to know now and then.
        Verbose = "verbose",
        /// What an operator wants to know.
        #[default]
        Notice = "notice",
        /// What an operator must know.
        Warning = "warning",
    }
}

choice! {
    /// How the log is written.
    LogFormat {
        /// Lines for people.
        #[default]
        Text = "text",
        /// An object of JSON in each line.
        Json = "json",
    }
}

/// How far one class of clients may fall behind in reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// Unread bytes beyond which the client is closed at once; 0 for no limit.
    pub hard_bytes: u64,
    /// Unread bytes beyond which the client is closed after [`OutputLimit::soft_seconds`]; 0 for no limit.
    pub soft_bytes: u64,
    /// How long a client may stay beyond the soft limit.
    pub soft_seconds: u64,
}

/// The output limits of all classes of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OutputLimits {
    /// Ordinary clients.
    pub normal: OutputLimit,
    /// Replicas.
    pub slave: OutputLimit,
    /// Subscribers.
    pub pubsub: OutputLimit,
}

impl Parameter for NotifyFlags {
    fn to_text(&self) -> String {
        self.text()
    }
    fn from_text(text: &str, kind: &Kind, _now: &NotifyFlags) -> Result<NotifyFlags, String> {
        NotifyFlags::parse(text).ok_or_else(|| refusal(text, kind))
    }
}

impl Parameter for OutputLimits {
    fn to_text(&self) -> String {
        [("normal", self.normal), ("slave", self.slave), ("pubsub", self.pubsub)]
            .map(|(class, limit)| {
                format!("{class} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_seconds)
            })
            .join(" ")
    }
    fn from_text(text: &str, kind: &Kind, now: &OutputLimits) -> Result<OutputLimits, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut limits = *now;
        let (groups, rest) = words.as_chunks::<4>();
        if groups.is_empty() || !rest.is_empty() {
            return Err(refusal(text, kind));
        }
        for [class, hard, soft, seconds] in groups {
            let limit = match class.to_ascii_lowercase().as_str() {
                "normal" => &mut limits.normal,
                "slave" | "replica" => &mut limits.slave,
                "pubsub" => &mut limits.pubsub,
                _ => return Err(refusal(text, kind)),
            };
            let parsed = (bytes_from_text(hard), bytes_from_text(soft), seconds.parse().ok());
            let (Some(hard_bytes), Some(soft_bytes), Some(soft_seconds)) = parsed else {
                return Err(refusal(text, kind));
            };
            *limit = OutputLimit { hard_bytes, soft_bytes, soft_seconds };
        }
        Ok(limits)
    }
}
