//! Texts made fit to be shown: bounded, printable, cut to a width, and escaped for markup.

use super::TEXT_BYTES_MAX;
use std::fmt::Write;

/// Bytes as a text that tells them apart: printable UTF-8 stays, a backslash is doubled, all else becomes
/// `\x..`.
///
/// For labels and notes that show keys and values of a world.
pub fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let hex = |out: &mut String, bytes: &[u8]| {
        for byte in bytes {
            let _ = write!(out, "\\x{byte:02x}");
        }
    };
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => out.push_str("\\\\"),
                letter if is_hidden(letter) => {
                    hex(&mut out, letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                letter => out.push(letter),
            }
        }
        hex(&mut out, chunk.invalid());
    }
    out
}

/// The text, up to [`TEXT_BYTES_MAX`].
pub(super) fn bound(mut text: String) -> String {
    let bytes = text.len();
    if bytes > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        let cut = bytes - text.len();
        let _ = write!(text, "… ({cut} bytes more)");
    }
    text.shrink_to_fit();
    text
}

/// Whether a character has no picture of its own, changes the place of others, or is forbidden in XML.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}')
        || matches!(letter, '\u{fffe}' | '\u{ffff}')
}

/// The text in one line, with all that is hidden made visible. Backslashes stay: see [`printable`].
pub(super) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        let _ = match letter {
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            letter if !is_hidden(letter) => out.write_char(letter),
            letter if u32::from(letter) < 0x100 => write!(out, "\\x{:02x}", u32::from(letter)),
            letter => write!(out, "{}", letter.escape_unicode()),
        };
    }
    out
}

/// The lines of a text, each visible; at least one.
pub(super) fn lines(text: &str) -> Vec<String> {
    let text = text.trim_end_matches(['\r', '\n']);
    text.split('\n').map(|line| visible(line.strip_suffix('\r').unwrap_or(line))).collect()
}

/// How many columns of a fixed-width font a character takes, roughly: East Asian characters and pictures take
/// two.
fn width(letter: char) -> usize {
    match u32::from(letter) {
        0x300..=0x36f => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
        0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff => 2,
        0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// How many columns a visible text takes.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// A visible text, cut so that it takes at most `columns_max`, the ellipsis included.
pub(super) fn cut(text: &str, columns_max: usize) -> String {
    if columns(text) <= columns_max {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut taken = 1;
    for letter in text.chars() {
        taken += width(letter);
        if taken > columns_max {
            break;
        }
        out.push(letter);
    }
    if columns_max > 0 {
        out.push('…');
    }
    out
}

/// Lines of at most `columns_max` (at least 1), broken at spaces where there are some; what is beyond
/// `lines_max` lines (at least 1) is cut.
pub(super) fn wrap(text: &str, columns_max: usize, lines_max: usize) -> Vec<String> {
    let mut out = Vec::new();
    for line in lines(text) {
        let mut rest = line.as_str();
        loop {
            let end = fitting(rest, columns_max);
            out.push(rest[..end].to_owned());
            rest = rest[end..].trim_start();
            if rest.is_empty() {
                break;
            }
        }
    }
    if out.len() > lines_max {
        out.truncate(lines_max);
        if let Some(last) = out.last_mut() {
            *last = cut(&format!("{last} …"), columns_max);
        }
    }
    out
}

/// The byte where a line must be broken so that its first part takes at most `columns_max`: at least one
/// character.
fn fitting(line: &str, columns_max: usize) -> usize {
    let (mut taken, mut space) = (0, 0);
    let indent = line.len() - line.trim_start().len();
    for (index, letter) in line.char_indices() {
        if letter == ' ' && index > indent {
            space = index;
        }
        taken += width(letter);
        if taken > columns_max && index > 0 {
            return if space > 0 { space } else { index };
        }
    }
    line.len()
}

/// Appends a text to XML or HTML: as character data, or as an attribute's value in double quotes.
pub(super) fn escape(out: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter => out.push(letter),
        }
    }
}

/// Virtual time in milliseconds, with 3 decimals; what is below a microsecond is cut.
pub(super) fn milliseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000, ns / 1_000 % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_become_visible() {
        assert_eq!(printable(b"k\\\0\x1b\xff\xc3\xa9\r\n\"<"), "k\\\\\\x00\\x1b\\xffé\\x0d\\x0a\"<");
        assert_eq!(printable("\u{202e}a".as_bytes()), "\\xe2\\x80\\xaea");
        assert_eq!(
            visible("a\nb\t\0\u{7f}\u{85}\u{202e}\u{feff}\u{ffff}\\é→"),
            "a\\nb\\t\\x00\\x7f\\x85\\u{202e}\\u{feff}\\u{ffff}\\é→"
        );
        assert_eq!(lines("a\r\n b\x07\n\n"), ["a", " b\\x07"]);
        assert_eq!(lines(""), [""]);
    }

    #[test]
    fn cuts_count_columns_and_keep_characters_whole() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(cut("漢字漢字", 6), "漢字…");
        assert_eq!(cut("漢字漢字", 8), "漢字漢字");
        assert_eq!((cut("ab", 1), cut("ab", 0)), ("…".into(), "".into()));
        let long = bound("é".repeat(TEXT_BYTES_MAX));
        let shown = TEXT_BYTES_MAX / 2;
        assert_eq!(long, "é".repeat(shown) + &format!("… ({TEXT_BYTES_MAX} bytes more)"));
        assert_eq!(bound("short".into()), "short");
    }

    #[test]
    fn wrapping_loses_nothing_but_spaces() {
        assert_eq!(wrap("one two three\n  four five", 8, 9), ["one two", "three", "  four", "five"]);
        assert_eq!(wrap("abcdefgh", 3, 9), ["abc", "def", "gh"]);
        assert_eq!(wrap("    abc", 2, 9), ["  ", "ab", "c"]);
        assert_eq!(wrap("漢字", 1, 9), ["漢", "字"]);
        assert_eq!(wrap("a\nb\nc", 5, 2), ["a", "b …"]);
        assert_eq!(wrap("a\nbcdef\nc", 5, 2), ["a", "bcde…"]);
        assert_eq!(wrap("", 5, 2), [""]);
    }

    #[test]
    fn times_have_three_decimals() {
        assert_eq!(milliseconds(0), "0.000");
        assert_eq!(milliseconds(1_234_567), "1.234");
        assert_eq!(milliseconds(u64::MAX), "18446744073709.551");
    }
}
