//! Counting replies in a stream of RESP bytes, without building them.

/// How many replies, errors and zeros a stretch of bytes held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Complete top-level replies.
    pub replies: u64,
    /// Top-level replies that are errors.
    pub errors: u64,
    /// Top-level replies that are the integer 0: how the benchmarks' scripts say that they declined.
    pub zeros: u64,
}

/// What the bytes are instead of RESP.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the server sent a byte that starts no RESP reply: {0:#04x}")]
pub struct NotResp(pub u8);

/// Walks over replies that may arrive in pieces.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Elements that the current top-level reply still lacks; 0 between replies.
    missing: u64,
}

impl Scanner {
    /// Counts the complete replies at the front of `bytes`, and says how many bytes they (and complete
    /// elements of the next one) took. The rest must be offered again with what follows it. The text of the
    /// first error goes to `error`.
    pub fn scan(&mut self, bytes: &[u8], error: &mut Option<String>) -> Result<(usize, Tally), NotResp> {
        let mut tally = Tally::default();
        let mut at = 0;
        while let Some((next, kind, number)) = element(&bytes[at..])? {
            let top = self.missing == 0;
            if top {
                self.missing = 1;
                tally.zeros += u64::from(kind == b':' && number == 0);
                if kind == b'-' {
                    tally.errors += 1;
                    error.get_or_insert_with(|| {
                        String::from_utf8_lossy(&bytes[at + 1..at + next - 2]).into_owned()
                    });
                }
            }
            self.missing -= 1;
            self.missing += match kind {
                b'*' | b'~' | b'>' => u64::try_from(number).unwrap_or(0),
                b'%' => u64::try_from(number).unwrap_or(0) * 2,
                _ => 0,
            };
            tally.replies += u64::from(self.missing == 0);
            at += next;
        }
        Ok((at, tally))
    }
}

/// The first element: its length (a bulk string with its body), its kind, and the number of its first line.
#[inline]
fn element(bytes: &[u8]) -> Result<Option<(usize, u8, i64)>, NotResp> {
    let Some(&kind) = bytes.first() else {
        return Ok(None);
    };
    if !b"+-:$*_,#(!=%~>".contains(&kind) {
        return Err(NotResp(kind));
    }
    let Some(line) = bytes.iter().position(|&byte| byte == b'\n') else {
        return Ok(None);
    };
    let number = match kind {
        b':' | b'$' | b'*' | b'!' | b'=' | b'%' | b'~' | b'>' => integer(&bytes[1..line]),
        _ => 0,
    };
    let mut end = line + 1;
    if matches!(kind, b'$' | b'!' | b'=') && number >= 0 {
        end += usize::try_from(number).unwrap_or(usize::MAX / 2) + 2;
        if bytes.len() < end {
            return Ok(None);
        }
    }
    Ok(Some((end, kind, number)))
}

fn integer(line: &[u8]) -> i64 {
    let mut value = 0i64;
    for &byte in line {
        if byte.is_ascii_digit() {
            value = value.wrapping_mul(10).wrapping_add(i64::from(byte - b'0'));
        }
    }
    if line.first() == Some(&b'-') { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"+OK\r\n$5\r\na\r\nbc\r\n$-1\r\n:0\r\n:10\r\n-ERR no\r\n*2\r\n*1\r\n:1\r\n\
                            $0\r\n\r\n*0\r\n%1\r\n+a\r\n_\r\n*-1\r\n";

    #[test]
    fn counts_replies_in_any_pieces() {
        for piece in 1..STREAM.len() {
            let (mut scanner, mut error, mut total) = (Scanner::default(), None, Tally::default());
            let mut held = Vec::new();
            for bytes in STREAM.chunks(piece) {
                held.extend_from_slice(bytes);
                let (used, tally) = scanner.scan(&held, &mut error).unwrap();
                held.drain(..used);
                total.replies += tally.replies;
                total.errors += tally.errors;
                total.zeros += tally.zeros;
            }
            assert_eq!(total, Tally { replies: 10, errors: 1, zeros: 1 }, "in pieces of {piece}");
            assert_eq!(error.as_deref(), Some("ERR no"));
            assert!(held.is_empty());
        }
    }

    #[test]
    fn refuses_what_is_not_resp() {
        assert_eq!(Scanner::default().scan(b"HTTP/1.1 400\r\n", &mut None), Err(NotResp(b'H')));
    }
}
