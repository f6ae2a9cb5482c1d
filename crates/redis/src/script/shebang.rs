//! The first line of scripts and libraries (`#!lua ...`), and the flags that both declare.

use super::convert::line;
use crate::codec::inline;
use txn::{Args, Reply};

/// What a script or a function says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScriptFlags(u8);

impl ScriptFlags {
    /// It does not write.
    pub const NO_WRITES: ScriptFlags = ScriptFlags(1);
    /// It may write while memory is short.
    pub const ALLOW_OOM: ScriptFlags = ScriptFlags(1 << 1);
    // Nothing here depends on the other three: a stale replica refuses by itself, and every key is in reach
    // everywhere.
    const NAMES: [&'static str; 5] =
        ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

    /// The flag of that name, in lower case.
    pub fn named(name: &[u8]) -> Option<ScriptFlags> {
        let place = Self::NAMES.iter().position(|known| known.as_bytes() == name)?;
        Some(ScriptFlags(1 << place))
    }
    /// The flags of both.
    pub fn with(self, other: ScriptFlags) -> ScriptFlags {
        ScriptFlags(self.0 | other.0)
    }
    /// Whether all flags of `other` are set.
    pub fn contains(self, other: ScriptFlags) -> bool {
        self.0 & other.0 == other.0
    }
    /// Whether it is run although memory is short.
    pub fn runs_when_short(self) -> bool {
        self.contains(Self::ALLOW_OOM) || self.contains(Self::NO_WRITES)
    }
    /// The names of the flags that are set, in Redis's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let is_set = move |place: &usize| self.0 & (1 << place) != 0;
        (0..Self::NAMES.len()).filter(is_set).map(|place| Self::NAMES[place])
    }
    /// As a record keeps them.
    pub fn to_bits(self) -> u8 {
        self.0
    }
    /// Those that a record keeps.
    pub fn from_bits(bits: u8) -> ScriptFlags {
        ScriptFlags(bits)
    }
}

/// What a script's first line declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shebang {
    /// There is such a line.
    pub declared: bool,
    pub flags: ScriptFlags,
}

/// The words of the first line, quoted as on an inline command, `None` if they make no sense; and what
/// follows, with the line's end, so that lines count the same.
pub(super) fn first_line(code: &[u8]) -> Option<(Option<Args>, &[u8])> {
    let end = code.iter().position(|&byte| byte == b'\n')?;
    Some((inline::split(&code[..end]), &code[end..]))
}

/// Reads a script's first line. Returns the source to compile.
pub(super) fn parse(body: &[u8]) -> Result<(Shebang, &[u8]), Reply> {
    if !body.starts_with(b"#!") {
        return Ok((Shebang::default(), body));
    }
    let error = |text: &str, word: &[u8]| Err(Reply::error_owned(format!("ERR {text}{}", line(word))));
    let Some((words, source)) = first_line(body) else {
        return error("Invalid script shebang", b"");
    };
    let words = words.unwrap_or_default();
    let Some((engine, options)) = words.split_first() else {
        return error("Invalid engine in script shebang", b"");
    };
    if engine.as_bytes() != b"#!lua" {
        return error("Unexpected engine in script shebang: ", engine);
    }
    let mut flags = ScriptFlags::default();
    for option in options {
        let Some(names) = option.strip_prefix(b"flags=") else {
            return error("Unknown lua shebang option: ", option);
        };
        if names.is_empty() {
            continue;
        }
        for name in names.split(|&byte| byte == b',') {
            match ScriptFlags::named(name) {
                Some(flag) => flags = flags.with(flag),
                None => return error("Unexpected flag in script shebang: ", name),
            }
        }
    }
    let shebang = Shebang { declared: true, flags };
    Ok((shebang, source))
}
