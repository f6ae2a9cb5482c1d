//! A look at the commands that a client has sent ahead, before any of them is decoded.

use super::request::{NumberLine, number_line};
use crate::table;
use txn::Key;

/// Takes the next word, in RESP's form, off `input`. `None` if it is not there as a whole.
fn word<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (b'$', NumberLine::Number(len, used)) = (*input.first()?, number_line(input)) else {
        return None;
    };
    let rest = &input[used..];
    let (word, rest) = rest.split_at_checked(usize::try_from(len).ok()?.checked_add(2)?)?;
    *input = rest;
    Some(&word[..word.len() - 2])
}

/// The hash of the key that the next command of `input` reads, which is taken off `input`. The key is its
/// first word behind the name, and the only one. `None` if the next command does anything else, is not in
/// RESP's form, or is not there as a whole.
fn next_read(input: &mut &[u8]) -> Option<u64> {
    let (b'*', NumberLine::Number(words @ 2.., used)) = (*input.first()?, number_line(input)) else {
        return None;
    };
    *input = &input[used..];
    table::find(word(input)?).filter(|command| command.reads_first_word())?;
    let hash = Key::new(word(input)?).hash64();
    for _ in 2..words {
        word(input)?;
    }
    Some(hash)
}

/// The hashes of the keys that the first commands of `input` read, as long as each reads one record and does
/// nothing else. The number of those that were found is the result; the others stay as they are.
pub fn reads_ahead(mut input: &[u8], hashes: &mut [u64]) -> usize {
    let reads = std::iter::from_fn(|| next_read(&mut input));
    hashes.iter_mut().zip(reads).map(|(place, hash)| *place = hash).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, keys: &[&str]) {
        let mut hashes = [0; 3];
        let found = reads_ahead(input.as_bytes(), &mut hashes);
        let wanted: Vec<u64> = keys.iter().map(|key| Key::from(*key).hash64()).collect();
        assert_eq!(hashes[..found], wanted, "{}", input.escape_debug());
    }

    #[test]
    fn reads_are_seen_up_to_the_first_command_that_is_none() {
        const GET_K: &str = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        const HGET_H: &str = "*3\r\n$4\r\nhget\r\n$2\r\nhh\r\n$1\r\nf\r\n";
        const SET_K: &str = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
        check("", &[]);
        check(GET_K, &["k"]);
        check(&format!("{GET_K}{HGET_H}{SET_K}{GET_K}"), &["k", "hh"]);
        check(&GET_K.repeat(5), &["k", "k", "k"]);
        check(&format!("{GET_K}GET k\r\n"), &["k"]);
        check(&format!("{GET_K}{}", GET_K.strip_suffix("\n").unwrap()), &["k"]);
        for input in
            [SET_K, "*1\r\n$4\r\nPING\r\n", "*2\r\n$3\r\nXXX\r\n$1\r\nk\r\n", "*2\r\n$3\r\nGET\r\n:1\r\n"]
        {
            check(input, &[]);
        }
        for input in [
            "*-1\r\n",
            "*2\r\n$-3\r\n",
            "*2\r\n$99999999999999\r\nGET",
            "*2\r\n$3\r\nGET\r\n$9223372036854775807\r\n",
        ] {
            check(input, &[]);
        }
    }
}
