//! The words of an inline command, quoted as in Redis.

use txn::{Args, Blob};

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn hex(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

/// Splits a line into words. `"..."` knows `\n \r \t \b \a \xHH` and takes any other escaped byte for itself;
/// `'...'` knows `\'` only. `None` if a quote does not close, or closes in the middle of a word.
pub fn split(line: &[u8]) -> Option<Args> {
    // A zero byte ends the line, as in C.
    let mut rest = &line[..line.iter().position(|&b| b == 0).unwrap_or(line.len())];
    let mut words = Args::new();
    loop {
        while let [space, tail @ ..] = rest
            && is_space(*space)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let (word, tail) = word(rest)?;
        words.0.push(Blob::from(word));
        rest = tail;
    }
}

fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match *rest {
            [b'"', ref tail @ ..] => {
                rest = double_quoted(tail, &mut word)?;
                return closed(rest).then_some((word, rest));
            }
            [b'\'', ref tail @ ..] => {
                rest = single_quoted(tail, &mut word)?;
                return closed(rest).then_some((word, rest));
            }
            [byte, ref tail @ ..] if !is_space(byte) => {
                word.push(byte);
                rest = tail;
            }
            _ => return Some((word, rest)),
        }
    }
}

/// A closing quote must end the word.
fn closed(rest: &[u8]) -> bool {
    rest.first().is_none_or(|&byte| is_space(byte))
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match *rest {
            [b'"', ref tail @ ..] => return Some(tail),
            [b'\\', b'x', high, low, ref tail @ ..] if hex(high).is_some() && hex(low).is_some() => {
                word.push(hex(high)? << 4 | hex(low)?);
                rest = tail;
            }
            [b'\\', escaped, ref tail @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => other,
                });
                rest = tail;
            }
            [byte, ref tail @ ..] => {
                word.push(byte);
                rest = tail;
            }
            [] => return None,
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match *rest {
            [b'\'', ref tail @ ..] => return Some(tail),
            [b'\\', b'\'', ref tail @ ..] => {
                word.push(b'\'');
                rest = tail;
            }
            [byte, ref tail @ ..] => {
                word.push(byte);
                rest = tail;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_in_redis() {
        for (line, want) in [
            (&b"  a  bc "[..], Some(&[&b"a"[..], b"bc"][..])),
            (b"", Some(&[])),
            (br#""a\x41\n\q" '\x41\'' b"#, Some(&[b"aA\nq", b"\\x41'", b"b"])),
            (br#""\xZZ" """#, Some(&[b"xZZ", b""])),
            (br#"a"b""#, Some(&[b"ab"])),
            (br#""a"b"#, None),
            (br#"'a'b"#, None),
            (br#""a"#, None),
            (br#"'a"#, None),
            (br#""a\"#, None),
            (b"a\0b c", Some(&[b"a"])),
        ] {
            let words = split(line);
            let shown: Option<Vec<&[u8]>> =
                words.as_ref().map(|words| words.iter().map(|w| w.as_bytes()).collect());
            assert_eq!(shown.as_deref(), want, "{}", line.escape_ascii());
        }
    }
}
