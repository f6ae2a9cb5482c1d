//! Bytes as text, in lower-case hexadecimal digits.

/// The text of some bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a text; `None` if it is none of [`encode`].
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_back_and_nothing_else_does() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
        assert_eq!(encode(&[0, 10, 255]), "000aff");
        for text in ["0", "000", "0g", "0A", " 00", "0\u{e9}"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
