//! Glob patterns, as KEYS and SCAN take them.

use crate::work;

/// Whether `text` matches `pattern`: `*`, `?`, `[a-c]`, `[^x]`, and `\` before a byte that means itself.
///
/// Every part but `*` matches exactly one byte, so going back to the last `*` is enough: the time is at most
/// the product of the lengths. As in Redis, nothing matches a pattern in which more than a thousand times
/// something follows a `*`, if a text gets that far, and an empty text only an empty pattern.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    const STARS_MAX: usize = 1000;
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut pattern_rest, mut text_rest) = (pattern, text);
    let mut stars = 0;
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        work::steps(1);
        if let [b'*', after @ ..] = pattern_rest {
            if after.is_empty() {
                return true;
            }
            stars += usize::from(after[0] != b'*');
            if stars > STARS_MAX {
                return false;
            }
            retry = Some((after, text_rest));
            pattern_rest = after;
            continue;
        }
        match (text_rest, pattern_rest.is_empty()) {
            ([], true) => return true,
            ([byte, text_tail @ ..], false) => {
                if let Some(after) = part(pattern_rest, *byte) {
                    pattern_rest = after;
                    text_rest = text_tail;
                    continue;
                }
            }
            ([], false) => return false,
            (_, true) => {}
        }
        let Some((after, [_, shorter @ ..])) = retry.filter(|_| !work::is_spent()) else {
            return false;
        };
        retry = Some((after, shorter));
        (pattern_rest, text_rest) = (after, shorter);
    }
}

/// The pattern after its first part, if that matches `byte`.
fn part(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match *pattern {
        [b'?', ref after @ ..] => Some(after),
        [b'[', ref class @ ..] => {
            let (holds, after) = class_holds(class, byte);
            holds.then_some(after)
        }
        [b'\\', literal, ref after @ ..] => (literal == byte).then_some(after),
        [literal, ref after @ ..] => (literal == byte).then_some(after),
        [] => None,
    }
}

/// Whether a class holds `byte`, and the pattern after it. An open class ends with the pattern.
fn class_holds(class: &[u8], byte: u8) -> (bool, &[u8]) {
    /// Bytes of a class that take as long as a step.
    const BYTES_PER_STEP: usize = 2;
    let (holds, after) = look_into_class(class, byte);
    work::steps((class.len() - after.len()) / BYTES_PER_STEP);
    (holds, after)
}

fn look_into_class(class: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut holds = false;
    loop {
        rest = match *rest {
            [] => return (holds != negated, rest),
            [b']', ref after @ ..] => return (holds != negated, after),
            [b'\\', literal, ref after @ ..] => {
                holds |= literal == byte;
                after
            }
            [from, b'-', to, ref after @ ..] => {
                holds |= (from.min(to)..=from.max(to)).contains(&byte);
                after
            }
            [literal, ref after @ ..] => {
                holds |= literal == byte;
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, want) in [
            ("*", "", false),
            ("**", "", false),
            ("a**", "a", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h*llo", "hello!", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxcxxb", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hbllo", true),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("[a\\]]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a[bc", "ab", true),
            ("a\\", "a\\", true),
            ("**a", "ba", true),
            ("a*", "a", true),
            ("?", "", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), want, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(matches("*a".repeat(1000).as_bytes(), &[b'a'; 1000]));
        assert!(!matches("*a".repeat(1001).as_bytes(), &[b'a'; 1001]));
        assert!(matches(format!("{}*", "*?".repeat(1000)).as_bytes(), &[b'a'; 1001]));
        assert!(!matches("a*".repeat(1000).as_bytes(), &[b'a'; 999]));
        assert!(!matches(format!("{}b", "*a".repeat(100)).as_bytes(), &[b'a'; 2000]));
    }
}
