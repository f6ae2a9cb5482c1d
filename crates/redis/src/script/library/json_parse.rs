//! JSON text becomes Lua values.

use super::super::run::{Host, Meter};
use super::arguments::fail;
use super::json::{BYTES_PER_STEP, JsonConfig, STEPS_PER_VALUE};
use mlua::{Lua, Table, Value};

#[derive(Clone, Debug, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    /// The name in error texts.
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(text) => text,
        }
    }
}

/// Bytes that are looked at between two charges.
const BYTES_PER_PORTION: usize = 4096;

/// What has begun and not ended: its table, and where the value that comes next belongs.
enum Open {
    Object(Table, Vec<u8>),
    Array(Table, usize),
}

/// Parses a text; the depth is limited by the configuration.
pub(super) struct Parser<'a> {
    lua: &'a Lua,
    meter: Meter<'a>,
    text: &'a [u8],
    config: JsonConfig,
    at: usize,
    /// Where the current token (or the error in it) is.
    token_at: usize,
    /// The bytes before it are charged.
    charged: usize,
}

impl<'a> Parser<'a> {
    pub fn new(lua: &'a Lua, host: &'a Host, text: &'a [u8], config: JsonConfig) -> Parser<'a> {
        Parser { lua, meter: Meter::new(host, lua), text, config, at: 0, token_at: 0, charged: 0 }
    }

    /// Parses the whole text as one value.
    pub fn document(mut self) -> mlua::Result<Value> {
        if self.text.len() >= 2 && (self.text[0] == 0 || self.text[1] == 0) {
            return Err(fail(self.lua, "JSON parser does not support UTF-16 or UTF-32"));
        }
        let token = self.next()?;
        let value = self.value(token)?;
        match self.next()? {
            Token::End => Ok(value),
            other => self.expected("the end", &other),
        }
    }

    fn expected<T>(&self, what: &str, found: &Token) -> mlua::Result<T> {
        let text = format!("Expected {what} but found {} at character {}", found.name(), self.token_at + 1);
        Err(fail(self.lua, &text))
    }

    /// The value that begins with a token. It takes no more stack for what is nested deeply.
    fn value(&mut self, mut token: Token) -> mlua::Result<Value> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            self.meter.spend(STEPS_PER_VALUE)?;
            let mut value = match token {
                Token::String(text) => Value::String(self.lua.create_string(&text)?),
                Token::Number(number) => Value::Number(number),
                Token::Boolean(value) => Value::Boolean(value),
                Token::Null => Value::NULL,
                Token::ObjectBegin => {
                    self.check_depth(open.len() + 1)?;
                    let table = self.lua.create_table()?;
                    match self.next()? {
                        Token::ObjectEnd => Value::Table(table),
                        first => {
                            open.push(Open::Object(table, self.key(first)?));
                            token = self.next()?;
                            continue;
                        }
                    }
                }
                Token::ArrayBegin => {
                    self.check_depth(open.len() + 1)?;
                    let table = self.lua.create_table()?;
                    match self.next()? {
                        Token::ArrayEnd => Value::Table(table),
                        first => {
                            open.push(Open::Array(table, 1));
                            token = first;
                            continue;
                        }
                    }
                }
                other => return self.expected("value", &other),
            };
            // What it ends may be the last of what it is in, and so on.
            token = loop {
                let Some(outer) = open.pop() else {
                    return Ok(value);
                };
                match outer {
                    Open::Object(table, key) => {
                        table.raw_set(self.lua.create_string(&key)?, value)?;
                        match self.next()? {
                            Token::ObjectEnd => value = Value::Table(table),
                            Token::Comma => {
                                let token = self.next()?;
                                open.push(Open::Object(table, self.key(token)?));
                                break self.next()?;
                            }
                            other => return self.expected("comma or object end", &other),
                        }
                    }
                    Open::Array(table, index) => {
                        table.raw_seti(index, value)?;
                        match self.next()? {
                            Token::ArrayEnd => value = Value::Table(table),
                            Token::Comma => {
                                open.push(Open::Array(table, index + 1));
                                break self.next()?;
                            }
                            other => return self.expected("comma or array end", &other),
                        }
                    }
                }
            };
        }
    }

    /// The key that a token is, up to the colon behind it.
    fn key(&mut self, token: Token) -> mlua::Result<Vec<u8>> {
        let key = match token {
            Token::String(key) => key,
            other => return self.expected("object key string", &other),
        };
        self.meter.spend(STEPS_PER_VALUE)?;
        match self.next()? {
            Token::Colon => Ok(key),
            other => self.expected("colon", &other),
        }
    }

    fn check_depth(&self, depth: usize) -> mlua::Result<()> {
        if depth <= self.config.decode_depth_max {
            return Ok(());
        }
        let text = format!("Found too many nested data structures ({depth}) at character {}", self.at);
        Err(fail(self.lua, &text))
    }

    /// Charges the bytes before `at` that are not charged yet.
    fn charge(&mut self, at: usize) -> mlua::Result<()> {
        let steps = at.saturating_sub(self.charged) / BYTES_PER_STEP;
        self.charged += steps * BYTES_PER_STEP;
        self.meter.spend(steps)
    }

    /// The same once for many bytes, in loops.
    fn charge_portion(&mut self, at: usize) -> mlua::Result<()> {
        if at - self.charged < BYTES_PER_PORTION {
            return Ok(());
        }
        self.charge(at)
    }

    /// The next token. What it looked at is charged, whatever the token is good for.
    fn next(&mut self) -> mlua::Result<Token> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
            self.charge_portion(self.at)?;
        }
        let token = self.token()?;
        self.charge(self.at)?;
        Ok(token)
    }

    fn token(&mut self) -> mlua::Result<Token> {
        self.token_at = self.at;
        let rest = &self.text[self.at..];
        let (token, length) = match rest.first() {
            None | Some(0) => (Token::End, 0),
            Some(b'{') => (Token::ObjectBegin, 1),
            Some(b'}') => (Token::ObjectEnd, 1),
            Some(b'[') => (Token::ArrayBegin, 1),
            Some(b']') => (Token::ArrayEnd, 1),
            Some(b':') => (Token::Colon, 1),
            Some(b',') => (Token::Comma, 1),
            Some(b'"') => return self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(rest),
            _ if rest.starts_with(b"true") => (Token::Boolean(true), 4),
            _ if rest.starts_with(b"false") => (Token::Boolean(false), 5),
            _ if rest.starts_with(b"null") => (Token::Null, 4),
            _ if self.config.decode_invalid_numbers && is_invalid_number(rest) => self.number(rest),
            _ => (Token::Error("invalid token"), 0),
        };
        self.at += length;
        Ok(token)
    }

    fn number(&self, rest: &[u8]) -> (Token, usize) {
        if !self.config.decode_invalid_numbers && is_invalid_number(rest) {
            return (Token::Error("invalid number"), 0);
        }
        match leading_number(rest) {
            Some((number, length)) => (Token::Number(number), length),
            None => (Token::Error("invalid number"), 0),
        }
    }

    /// An error in a string.
    fn broken(&mut self, at: usize, text: &'static str) -> mlua::Result<Token> {
        self.token_at = at;
        self.charge(at)?;
        Ok(Token::Error(text))
    }

    fn string(&mut self) -> mlua::Result<Token> {
        let mut out = Vec::new();
        let mut at = self.at + 1;
        loop {
            self.charge_portion(at)?;
            match self.text.get(at) {
                Some(b'"') => break,
                Some(b'\\') => match self.text.get(at + 1) {
                    Some(b'u') => match unicode_escape(&self.text[at..]) {
                        Some((character, length)) => {
                            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                            at += length;
                        }
                        None => return self.broken(at, "invalid unicode escape code"),
                    },
                    Some(escape) => {
                        out.push(match escape {
                            b'"' | b'\\' | b'/' => *escape,
                            b'b' => 0x08,
                            b'f' => 0x0C,
                            b'n' => b'\n',
                            b'r' => b'\r',
                            b't' => b'\t',
                            _ => return self.broken(at, "invalid escape code"),
                        });
                        at += 2;
                    }
                    None => return self.broken(at, "invalid escape code"),
                },
                None | Some(0) => return self.broken(at, "unexpected end of string"),
                Some(&byte) => {
                    out.push(byte);
                    at += 1;
                }
            }
        }
        self.at = at + 1;
        Ok(Token::String(out))
    }
}

fn hex4(text: &[u8]) -> Option<u32> {
    let digits = text.get(..4)?;
    digits.iter().try_fold(0, |value, &digit| Some(value * 16 + char::from(digit).to_digit(16)?))
}

/// The character of an escape that starts with a backslash and `u`, surrogate pairs included, and its length.
fn unicode_escape(text: &[u8]) -> Option<(char, usize)> {
    let high = hex4(text.get(2..)?)?;
    if high & 0xF800 != 0xD800 {
        return Some((char::from_u32(high)?, 6));
    }
    if high & 0x400 != 0 || text.get(6..8)? != b"\\u" {
        return None;
    }
    let low = hex4(text.get(8..)?)?;
    if low & 0xFC00 != 0xDC00 {
        return None;
    }
    Some((char::from_u32(0x1_0000 + ((high & 0x3FF) << 10) + (low & 0x3FF))?, 12))
}

/// Whether a number is one that JSON doesn't allow: a plus sign, leading zeros, hexadecimal, infinity, NaN.
fn is_invalid_number(text: &[u8]) -> bool {
    let unsigned = match text.first() {
        Some(b'+') => return true,
        Some(b'-') => &text[1..],
        _ => text,
    };
    match unsigned.first() {
        Some(b'0') => matches!(unsigned.get(1), Some(b'x' | b'X' | b'0'..=b'9')),
        Some(&byte) if byte <= b'9' => false,
        _ => starts_with_word(unsigned, b"inf") || starts_with_word(unsigned, b"nan"),
    }
}

fn starts_with_word(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// The number at the start of `text`, and its length, as C's `strtod` reads it.
fn leading_number(text: &[u8]) -> Option<(f64, usize)> {
    let signed = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let sign = if text.first() == Some(&b'-') { -1.0 } else { 1.0 };
    let rest = &text[signed..];
    if starts_with_word(rest, b"infinity") {
        return Some((sign * f64::INFINITY, signed + 8));
    }
    if starts_with_word(rest, b"inf") {
        return Some((sign * f64::INFINITY, signed + 3));
    }
    if starts_with_word(rest, b"nan") {
        return Some((f64::NAN, signed + 3));
    }
    if starts_with_word(rest, b"0x") && rest.get(2).is_some_and(u8::is_ascii_hexdigit) {
        let digits = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let value = rest[2..2 + digits]
            .iter()
            .fold(0.0, |value, &digit| value * 16.0 + f64::from(char::from(digit).to_digit(16).unwrap_or(0)));
        return Some((sign * value, signed + 2 + digits));
    }
    let count = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = count(0);
    let mut end = whole;
    let mut digits = whole;
    if rest.get(end) == Some(&b'.') {
        let fraction = count(end + 1);
        digits += fraction;
        end += 1 + fraction;
    }
    if digits == 0 {
        return None;
    }
    if matches!(rest.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
        let exponent = if end + 1 + sign <= rest.len() { count(end + 1 + sign) } else { 0 };
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    let value: f64 = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((sign * value, signed + end))
}
