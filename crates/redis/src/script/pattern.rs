//! Lua's patterns, with counted steps.
//!
//! Lua's own matcher backtracks without executing instructions, so that a short pattern over a long string
//! could run for ages between two ticks of the instruction counter. This one counts what it does and stops at
//! a budget. The grammar and its meaning are those of the Lua 5.1 reference manual, section 5.4.1, in the C
//! locale.

const CAPTURES_MAX: usize = 32;
/// Pattern items that may be open at once: each takes a frame of the thread's stack.
const DEPTH_MAX: usize = 200;
const ESCAPE: u8 = b'%';

/// Why a match ended without an answer. The texts are Lua's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternError {
    Malformed(&'static str),
    /// The budget of steps is used up.
    OutOfSteps,
}

/// What a capture holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capture {
    /// The bytes from the first to before the second offset.
    Span(usize, usize),
    /// A position, counted from 0.
    Position(usize),
}

#[derive(Clone, Copy)]
enum Slot {
    Open(usize),
    Closed(usize, usize),
    Position(usize),
}

/// A match: where it is, and its captures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub start: usize,
    pub end: usize,
    pub captures: Vec<Capture>,
}

/// A search for a pattern in a text.
pub(super) struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    slots: Vec<Slot>,
    depth: usize,
    /// Steps taken so far: items tried, twice where the match may have to go back to them, and bytes of sets
    /// looked at.
    pub steps: u64,
    /// Steps that it may take.
    pub steps_max: u64,
}

type Found = Result<Option<usize>, PatternError>;

impl<'a> Matcher<'a> {
    pub fn new(text: &'a [u8], pattern: &'a [u8], steps_max: u64) -> Matcher<'a> {
        Matcher { text, pattern, slots: Vec::new(), depth: 0, steps: 0, steps_max }
    }

    /// The first match that starts at `from` or later; only there if `anchored` (the pattern's `^` is the
    /// caller's).
    pub fn search(
        &mut self,
        from: usize,
        pattern_start: usize,
        anchored: bool,
    ) -> Result<Option<Match>, PatternError> {
        for start in from..=self.text.len() {
            self.slots.clear();
            if let Some(end) = self.matches(start, pattern_start)? {
                return Ok(Some(Match { start, end, captures: self.captures()? }));
            }
            if anchored {
                break;
            }
        }
        Ok(None)
    }

    fn captures(&self) -> Result<Vec<Capture>, PatternError> {
        let capture = |slot: &Slot| match *slot {
            Slot::Closed(start, end) => Ok(Capture::Span(start, end)),
            Slot::Position(at) => Ok(Capture::Position(at)),
            Slot::Open(_) => Err(PatternError::Malformed("unfinished capture")),
        };
        self.slots.iter().map(capture).collect()
    }

    fn step(&mut self) -> Result<(), PatternError> {
        self.steps += 1;
        if self.steps > self.steps_max { Err(PatternError::OutOfSteps) } else { Ok(()) }
    }

    /// Matches the pattern from `p` on at `s`: the end of the match.
    fn matches(&mut self, s: usize, p: usize) -> Found {
        if self.depth >= DEPTH_MAX {
            return Err(PatternError::Malformed("pattern too complex"));
        }
        self.depth += 1;
        // Trying, and going back.
        self.steps += 1;
        let found = self.matches_here(s, p);
        self.depth -= 1;
        found
    }

    fn matches_here(&mut self, mut s: usize, mut p: usize) -> Found {
        loop {
            self.step()?;
            let Some(&item) = self.pattern.get(p) else {
                return Ok(Some(s));
            };
            match item {
                b'(' if self.pattern.get(p + 1) == Some(&b')') => {
                    return self.open(s, p + 2, Slot::Position(s));
                }
                b'(' => return self.open(s, p + 1, Slot::Open(s)),
                b')' => return self.close(s, p + 1),
                b'$' if p + 1 == self.pattern.len() => {
                    return Ok((s == self.text.len()).then_some(s));
                }
                ESCAPE => match self.pattern.get(p + 1) {
                    Some(b'b') => match self.balanced(s, p + 2)? {
                        Some(end) => {
                            s = end;
                            p += 4;
                            continue;
                        }
                        None => return Ok(None),
                    },
                    Some(b'f') => {
                        p += 2;
                        if self.pattern.get(p) != Some(&b'[') {
                            return Err(PatternError::Malformed("missing '[' after '%f' in pattern"));
                        }
                        let end = self.class_end(p)?;
                        self.steps += (end - p) as u64;
                        let before = if s == 0 { 0 } else { self.text[s - 1] };
                        let here = self.text.get(s).copied().unwrap_or(0);
                        if self.in_set(before, p, end - 1) || !self.in_set(here, p, end - 1) {
                            return Ok(None);
                        }
                        p = end;
                        continue;
                    }
                    Some(digit) if digit.is_ascii_digit() => match self.repeated_capture(s, *digit)? {
                        Some(end) => {
                            s = end;
                            p += 2;
                            continue;
                        }
                        None => return Ok(None),
                    },
                    _ => {}
                },
                _ => {}
            }
            let end = self.class_end(p)?;
            match self.pattern.get(end) {
                Some(b'?') => {
                    if self.single(s, p, end)
                        && let Some(found) = self.matches(s + 1, end + 1)?
                    {
                        return Ok(Some(found));
                    }
                    p = end + 1;
                }
                Some(b'*') => return self.longest(s, p, end),
                Some(b'+') => {
                    return if self.single(s, p, end) { self.longest(s + 1, p, end) } else { Ok(None) };
                }
                Some(b'-') => return self.shortest(s, p, end),
                _ => {
                    if !self.single(s, p, end) {
                        return Ok(None);
                    }
                    s += 1;
                    p = end;
                }
            }
        }
    }

    fn open(&mut self, s: usize, p: usize, slot: Slot) -> Found {
        if self.slots.len() >= CAPTURES_MAX {
            return Err(PatternError::Malformed("too many captures"));
        }
        let level = self.slots.len();
        self.slots.push(slot);
        let found = self.matches(s, p)?;
        if found.is_none() {
            self.slots.truncate(level);
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Found {
        let open = self.slots.iter().rposition(|slot| matches!(slot, Slot::Open(_)));
        let Some((level, Slot::Open(start))) = open.map(|level| (level, self.slots[level])) else {
            return Err(PatternError::Malformed("invalid pattern capture"));
        };
        self.slots[level] = Slot::Closed(start, s);
        let found = self.matches(s, p)?;
        if found.is_none() {
            self.slots[level] = Slot::Open(start);
        }
        Ok(found)
    }

    fn longest(&mut self, s: usize, p: usize, end: usize) -> Found {
        let mut count = 0;
        while self.single(s + count, p, end) {
            count += 1;
            self.step()?;
        }
        loop {
            if let Some(found) = self.matches(s + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Found {
        loop {
            if let Some(found) = self.matches(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.single(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn balanced(&mut self, s: usize, p: usize) -> Found {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err(PatternError::Malformed("unbalanced pattern"));
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut nesting = 1;
        for at in s + 1..self.text.len() {
            self.step()?;
            let byte = self.text[at];
            if byte == close {
                nesting -= 1;
                if nesting == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                nesting += 1;
            }
        }
        Ok(None)
    }

    fn repeated_capture(&mut self, s: usize, digit: u8) -> Found {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let Some(Slot::Closed(start, end)) = self.slots.get(index).copied() else {
            return Err(PatternError::Malformed("invalid capture index"));
        };
        self.steps += (end - start) as u64;
        Ok(self.text[s..].starts_with(&self.text[start..end]).then_some(s + end - start))
    }

    /// Where the single-character class that starts at `p` ends.
    fn class_end(&mut self, p: usize) -> Result<usize, PatternError> {
        match self.pattern.get(p) {
            Some(&ESCAPE) if p + 1 >= self.pattern.len() => {
                Err(PatternError::Malformed("malformed pattern (ends with '%')"))
            }
            Some(&ESCAPE) => Ok(p + 2),
            Some(b'[') => {
                let mut p = p + 1;
                if self.pattern.get(p) == Some(&b'^') {
                    p += 1;
                }
                // The first character of a set is never its end.
                let start = p;
                loop {
                    match self.pattern.get(p) {
                        None => {
                            self.steps += (p - start) as u64;
                            return Err(PatternError::Malformed("malformed pattern (missing ']')"));
                        }
                        Some(&ESCAPE) => p += 2,
                        Some(_) => p += 1,
                    }
                    if self.pattern.get(p) == Some(&b']') {
                        self.steps += (p - start) as u64;
                        return Ok(p + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    fn single(&mut self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(s) else {
            return false;
        };
        match self.pattern[p] {
            b'.' => true,
            ESCAPE => in_class(byte, self.pattern[p + 1]),
            b'[' => {
                self.steps += (end - p) as u64;
                self.in_set(byte, p, end - 1)
            }
            literal => literal == byte,
        }
    }

    /// Whether a byte is in the set from `[` at `p` to `]` at `last`.
    fn in_set(&self, byte: u8, p: usize, last: usize) -> bool {
        let mut p = p + 1;
        let negated = self.pattern[p] == b'^';
        if negated {
            p += 1;
        }
        while p < last {
            if self.pattern[p] == ESCAPE {
                if in_class(byte, self.pattern[p + 1]) {
                    return !negated;
                }
                p += 2;
            } else if p + 2 < last && self.pattern[p + 1] == b'-' {
                if (self.pattern[p]..=self.pattern[p + 2]).contains(&byte) {
                    return !negated;
                }
                p += 3;
            } else {
                if self.pattern[p] == byte {
                    return !negated;
                }
                p += 1;
            }
        }
        negated
    }
}

fn in_class(byte: u8, class: u8) -> bool {
    let belongs = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0B,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    belongs != class.is_ascii_uppercase()
}

/// Whether a pattern is a plain text.
pub(super) fn is_plain(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str, pattern: &str) -> String {
        let anchored = pattern.starts_with('^');
        let mut matcher = Matcher::new(text.as_bytes(), pattern.as_bytes(), 1_000_000);
        match matcher.search(0, usize::from(anchored), anchored) {
            Ok(None) => "none".to_owned(),
            Err(error) => format!("{error:?}"),
            Ok(Some(found)) => {
                let mut shown = text[found.start..found.end].to_owned();
                for capture in found.captures {
                    shown += &match capture {
                        Capture::Span(start, end) => format!("|{}", &text[start..end]),
                        Capture::Position(at) => format!("|@{at}"),
                    };
                }
                shown
            }
        }
    }

    #[test]
    fn patterns_match_as_in_lua() {
        for (text, pattern, shown) in [
            ("hello world", "o w", "o w"),
            ("hello", "l+", "ll"),
            ("hello", "l-o", "llo"),
            ("hello", "^ello", "none"),
            ("hello", "^h(.-)o$", "hello|ell"),
            ("key = value", "(%w+)%s*=%s*(%w+)", "key = value|key|value"),
            ("f(a(b)c)d", "%b()", "(a(b)c)"),
            ("THE (quick) fox", "%f[%a]%a+", "THE"),
            ("THE (quick) fox", "%f[%l]%l+", "quick"),
            ("abab", "(ab)%1", "abab|ab"),
            ("x", "()x()", "x|@0|@1"),
            ("a]b", "[]]", "]"),
            ("a-b", "[a%-]+", "a-"),
            ("0x1F", "%x+", "0"),
            ("abc", "[^a-b]", "c"),
            ("a.b", "a%.b", "a.b"),
            ("aaa", "a?a?a?a?", "aaa"),
            ("$", "$", ""),
            ("a$b", "a$b", "a$b"),
            ("x", "[a", r#"Malformed("malformed pattern (missing ']')")"#),
            ("x", "%", r#"Malformed("malformed pattern (ends with '%')")"#),
            ("x", "(x", r#"Malformed("unfinished capture")"#),
            ("x", "x)", r#"Malformed("invalid pattern capture")"#),
            ("x", "%1", r#"Malformed("invalid capture index")"#),
            ("x", "%f", r#"Malformed("missing '[' after '%f' in pattern")"#),
            ("x", "%bx", r#"Malformed("unbalanced pattern")"#),
            ("x", "[%", r#"Malformed("malformed pattern (missing ']')")"#),
        ] {
            assert_eq!(first(text, pattern), shown, "{pattern:?} in {text:?}");
        }
    }

    #[test]
    fn backtracking_is_counted() {
        let text = "a".repeat(200);
        assert_eq!(first(&text, ".-.-.-.-.-b"), "OutOfSteps");
        assert_eq!(first("x", &"(".repeat(40)), r#"Malformed("too many captures")"#);
        assert_eq!(first("x", &"a?".repeat(500)), "", "items that match nothing take no stack");
        assert_eq!(first(&"a".repeat(500), &"a?".repeat(500)), r#"Malformed("pattern too complex")"#);
    }
}
