//! Commands as a server receives them.
//!
//! A command is an array of bulk strings (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`) or an inline line of words. The
//! decoder keeps the words of an unfinished command, so a byte is looked at once, but for the header line or
//! the bulk that is not complete yet: those stay in the caller's buffer. The words go straight into [`Args`].

use super::inline;
use crate::parse;
use txn::{Args, Blob};

/// The longest inline command, and the longest header line.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// The most words of a command.
pub const WORDS_MAX: i64 = i32::MAX as i64;
/// The most words of a command before authentication.
pub const UNAUTHENTICATED_WORDS_MAX: i64 = 10;
/// The longest word before authentication.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: i64 = 16_384;

/// What a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest word (`proto-max-bulk-len`).
    pub bulk_bytes_max: u64,
    /// The client must still authenticate: narrower limits hold, so that strangers can't take memory.
    pub unauthenticated: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { bulk_bytes_max: 512 * 1024 * 1024, unauthenticated: false }
    }
}

/// Why a client's bytes are no command. The reply is `-ERR Protocol error: ` and this text; then the
/// connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// An inline command without an end.
    #[error("too big inline request")]
    TooBigInline,
    /// An inline command whose quotes don't close.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// A number of words without an end.
    #[error("too big mbulk count string")]
    TooBigWordCount,
    /// A number of words that is none.
    #[error("invalid multibulk length")]
    InvalidWordCount,
    /// Too many words for a client that must authenticate.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedWordCount,
    /// A word's length without an end.
    #[error("too big bulk count string")]
    TooBigBulkLength,
    /// A word's length that is none, or is beyond the limit.
    #[error("invalid bulk length")]
    InvalidBulkLength,
    /// Too long a word for a client that must authenticate.
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// Something else where a word should start.
    #[error("expected '$', got '{}'", *.0 as char)]
    ExpectedBulk(u8),
}

impl ProtocolError {
    /// The error reply that precedes the end of the connection.
    pub fn reply(self) -> txn::Reply {
        txn::Reply::error_owned(format!("ERR Protocol error: {self}"))
    }
}

/// Decodes the commands of one connection.
///
/// ```text
/// between commands ──header──► words missing ──$length──► bulk open ──bytes──► words missing ──► ... ──► a command
/// ```
#[derive(Debug, Default)]
pub struct RequestDecoder {
    /// What the client may send; may change between commands (AUTH, CONFIG SET).
    pub limits: Limits,
    /// The words of the command so far.
    words: Args,
    /// How many words the command still misses; 0 between commands.
    missing: usize,
    /// The length of the word whose header was read.
    bulk_len: Option<usize>,
    /// Bytes that `words` hold.
    held_bytes: usize,
}

impl RequestDecoder {
    /// A decoder at the start of a connection.
    pub fn new(limits: Limits) -> RequestDecoder {
        RequestDecoder { limits, ..RequestDecoder::default() }
    }

    /// Bytes of an unfinished command that the decoder holds. Together with the caller's buffer, this is what
    /// `client-query-buffer-limit` bounds.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// How many bytes the input must hold before [`RequestDecoder::next`] gets further: worth reserving at
    /// once for a long word. 1 where the length is not known.
    pub fn wanted_bytes(&self) -> usize {
        self.bulk_len.map_or(1, |len| len + 2)
    }

    /// The next command of `input`, which is advanced past what was used; `None` if the rest is not a whole
    /// command. The caller keeps the rest and calls again with more behind it.
    ///
    /// Never returns an empty command. After an error the decoder must not be used again.
    #[inline]
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Args>, ProtocolError> {
        loop {
            if self.missing == 0 {
                match input.first() {
                    None => return Ok(None),
                    Some(b'*') => {
                        if !self.word_count(input)? {
                            return Ok(None);
                        }
                    }
                    Some(_) => match self.inline(input)? {
                        None => return Ok(None),
                        Some(words) if words.is_empty() => {}
                        Some(words) => return Ok(Some(words)),
                    },
                }
            } else {
                let complete = self.words(input);
                return match complete {
                    Ok(true) => {
                        self.held_bytes = 0;
                        Ok(Some(std::mem::take(&mut self.words)))
                    }
                    Ok(false) => Ok(None),
                    Err(error) => Err(error),
                };
            }
        }
    }

    /// Reads `*count\r\n`. `false` if it is not complete.
    fn word_count(&mut self, input: &mut &[u8]) -> Result<bool, ProtocolError> {
        let (count, used) = match number_line(input) {
            NumberLine::Number(count, used) => (count, used),
            NumberLine::Incomplete => return Ok(false),
            NumberLine::TooLong => return Err(ProtocolError::TooBigWordCount),
            NumberLine::Invalid => return Err(ProtocolError::InvalidWordCount),
        };
        if count > WORDS_MAX {
            return Err(ProtocolError::InvalidWordCount);
        }
        if self.limits.unauthenticated && count > UNAUTHENTICATED_WORDS_MAX {
            return Err(ProtocolError::UnauthenticatedWordCount);
        }
        *input = &input[used..];
        self.missing = usize::try_from(count).unwrap_or(0);
        // A word takes at least four bytes, so a lying count reserves no more than a few times what was sent.
        if self.missing > 3 {
            self.words.0.reserve(self.missing.min(input.len() / 4 + 1));
        }
        Ok(true)
    }

    /// Reads the words that are missing. `false` if there are not all yet.
    fn words(&mut self, input: &mut &[u8]) -> Result<bool, ProtocolError> {
        while self.missing > 0 {
            let len = match self.bulk_len {
                Some(len) => len,
                None => {
                    let Some(&mark) = input.first() else {
                        return Ok(false);
                    };
                    let line = number_line(input);
                    if let NumberLine::Incomplete = line {
                        return Ok(false);
                    }
                    if let NumberLine::TooLong = line {
                        return Err(ProtocolError::TooBigBulkLength);
                    }
                    if mark != b'$' {
                        return Err(ProtocolError::ExpectedBulk(mark));
                    }
                    let NumberLine::Number(len, used) = line else {
                        return Err(ProtocolError::InvalidBulkLength);
                    };
                    let fits = u64::try_from(len).is_ok_and(|len| len <= self.limits.bulk_bytes_max);
                    if !fits {
                        return Err(ProtocolError::InvalidBulkLength);
                    }
                    if self.limits.unauthenticated && len > UNAUTHENTICATED_BULK_BYTES_MAX {
                        return Err(ProtocolError::UnauthenticatedBulkLength);
                    }
                    *input = &input[used..];
                    len as usize
                }
            };
            // The two bytes after a word are skipped unseen, as Redis does.
            let Some((bytes, rest)) = input.split_at_checked(len + 2) else {
                self.bulk_len = Some(len);
                return Ok(false);
            };
            self.words.0.push(Blob::new(&bytes[..len]));
            self.held_bytes += len + size_of::<Blob>();
            *input = rest;
            self.bulk_len = None;
            self.missing -= 1;
        }
        Ok(true)
    }

    /// Reads a line of words. `None` if it is not complete.
    #[cold]
    fn inline(&mut self, input: &mut &[u8]) -> Result<Option<Args>, ProtocolError> {
        let Some(end) = input.iter().take(LINE_BYTES_MAX + 1).position(|&b| b == b'\n') else {
            return if input.len() > LINE_BYTES_MAX { Err(ProtocolError::TooBigInline) } else { Ok(None) };
        };
        let line = &input[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let words = inline::split(line).ok_or(ProtocolError::UnbalancedQuotes)?;
        *input = &input[end + 1..];
        Ok(Some(words))
    }
}

pub(super) enum NumberLine {
    /// A number and the bytes of its line, the mark before it and the line end included.
    Number(i64, usize),
    Incomplete,
    TooLong,
    Invalid,
}

/// Reads a mark, a number and `\r\n` from the front of `input`.
#[inline]
pub(super) fn number_line(input: &[u8]) -> NumberLine {
    // One or two digits are nearly all that is ever sent.
    if let [_, d @ b'1'..=b'9', b'\r', _, ..] = *input {
        return NumberLine::Number(i64::from(d - b'0'), 4);
    }
    if let [_, d @ b'1'..=b'9', e @ b'0'..=b'9', b'\r', _, ..] = *input {
        return NumberLine::Number(i64::from(d - b'0') * 10 + i64::from(e - b'0'), 5);
    }
    any_number_line(input)
}

fn any_number_line(input: &[u8]) -> NumberLine {
    let Some(end) = input.iter().take(LINE_BYTES_MAX + 1).position(|&b| b == b'\r') else {
        return if input.len() > LINE_BYTES_MAX { NumberLine::TooLong } else { NumberLine::Incomplete };
    };
    if input.len() < end + 2 {
        return NumberLine::Incomplete;
    }
    match input.get(1..end).and_then(parse::integer) {
        Some(number) => NumberLine::Number(number, end + 2),
        None => NumberLine::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_in(limits: Limits, input: &[u8], want: Result<&[&[&str]], &str>) {
        let pieces = if input.len() < 4096 { [1, 2, 3, 7] } else { [1000, 1001, 4096, 9999] };
        for piece in pieces.into_iter().chain([input.len().max(1)]) {
            let (commands, error) = crate::codec::decode_in_pieces(input, piece, limits);
            let shown: Vec<Vec<String>> = commands
                .iter()
                .map(|c| c.iter().map(|w| String::from_utf8_lossy(w).into_owned()).collect())
                .collect();
            match want {
                Ok(want) => {
                    assert_eq!(error, None, "{}", input.escape_ascii());
                    assert_eq!(shown, want, "{}", input.escape_ascii());
                }
                Err(want) => {
                    let error = error.map(|error| error.to_string());
                    assert_eq!(error.as_deref(), Some(want), "{}", input.escape_ascii());
                }
            }
        }
    }

    fn check(input: &str, want: Result<&[&[&str]], &str>) {
        check_in(Limits::default(), input.as_bytes(), want);
    }

    #[test]
    fn commands_decode() {
        check("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", Ok(&[&["GET", "k"]]));
        check("*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n", Ok(&[&["PING"], &["PING"]]));
        check("*0\r\n*-1\r\n\r\n*1\r\n$0\r\n\r\n", Ok(&[&[""]]));
        check("*2\r\n$3\r\nGET\r\n$1\r\n", Ok(&[]));
        check("*1\r\n$12\r\nabcdefghijkl\r\n*1\r\n$3\r\n\r\nx\r\n", Ok(&[&["abcdefghijkl"], &["\r\nx"]]));
        check("PING\r\nSET  k 'a b'\nGET k\r\n", Ok(&[&["PING"], &["SET", "k", "a b"], &["GET", "k"]]));
        let many: Vec<String> = (0..300).map(|i| i.to_string()).collect();
        let mut input = format!("*{}\r\n", many.len());
        for word in &many {
            input.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        check(&input, Ok(&[&many.iter().map(String::as_str).collect::<Vec<_>>()]));
    }

    #[test]
    fn what_is_no_command_is_refused_in_redis_words() {
        check("*a\r\n", Err("invalid multibulk length"));
        check("*\r\n", Err("invalid multibulk length"));
        check("*2147483648\r\n", Err("invalid multibulk length"));
        check("*1\r\n:1\r\n", Err("expected '$', got ':'"));
        check("*1\r\n$-1\r\n", Err("invalid bulk length"));
        check("*1\r\n$01\r\n", Err("invalid bulk length"));
        check("*1\r\n$536870913\r\n", Err("invalid bulk length"));
        check("*1\r\n$99999999999999999999\r\n", Err("invalid bulk length"));
        check("SET k 'a\r\n", Err("unbalanced quotes in request"));
        check("SET k \"a\"b\r\n", Err("unbalanced quotes in request"));
        check(&"x".repeat(LINE_BYTES_MAX + 1), Err("too big inline request"));
        check(&format!("*{}", "1".repeat(LINE_BYTES_MAX)), Err("too big mbulk count string"));
        check(&format!("*1\r\n${}", "1".repeat(LINE_BYTES_MAX)), Err("too big bulk count string"));
        let stranger = Limits { unauthenticated: true, ..Limits::default() };
        check_in(stranger, b"*11\r\n", Err("unauthenticated multibulk length"));
        check_in(stranger, b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", Err("unauthenticated bulk length"));
        check_in(stranger, b"*1\r\n$4\r\nPING\r\n", Ok(&[&["PING"]]));
    }

    #[test]
    fn a_lying_count_reserves_little() {
        let mut decoder = RequestDecoder::new(Limits::default());
        let mut input: &[u8] = b"*2000000000\r\n$1\r\na\r\n";
        assert_eq!(decoder.next(&mut input), Ok(None));
        assert!(decoder.words.0.capacity() < 16);
        assert_eq!(decoder.held_bytes(), 25);
    }

    #[test]
    fn an_open_bulk_tells_how_much_it_wants() {
        let mut decoder = RequestDecoder::new(Limits::default());
        let mut input: &[u8] = b"*1\r\n$1000000\r\nabc";
        assert_eq!(decoder.next(&mut input), Ok(None));
        assert_eq!((input, decoder.wanted_bytes()), (&b"abc"[..], 1_000_002));
    }

    #[test]
    fn any_pieces_of_any_bytes_give_the_same_commands() {
        let seed =
            std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_121_u64);
        println!("ORDO_SEED={seed}");
        let mut state = seed;
        let mut draw = |bound: usize| {
            state = txn::hash::mix(state);
            (state % bound as u64) as usize
        };
        let parts: [&[u8]; 16] = [
            b"*", b"$", b"\r\n", b"\r", b"\n", b"1", b"2", b"3", b"-1", b"GET", b"k", b"'", b"\"", b" ",
            b"\\x41", b"\0",
        ];
        for _ in 0..20_000 {
            let mut bytes = vec![draw(256) as u8];
            for _ in 0..draw(40) {
                match draw(10) {
                    0 => bytes.push(draw(256) as u8),
                    1 => bytes.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$2\r\nkk\r\n"),
                    _ => bytes.extend_from_slice(parts[draw(parts.len())]),
                }
            }
            crate::codec::fuzz_resp_decoder(&bytes);
        }
    }
}
