//! Holds text to 110 columns: code and comments of Rust, TOML, and the prose of the pages.
//!
//! Some lines cannot be broken, and may be longer: rows of tables, blocks of code, definitions of links, a
//! single word, an inline table of TOML, and a line that begins inside a string literal. The test does not
//! read scripts, C, Lua and other languages, and no page that a program writes.

mod files;

use files::{files, root};
use std::collections::BTreeSet;

/// `max_width` of `rustfmt.toml`.
const COLUMNS_MAX: usize = 110;

/// The pages that a program writes, and tests compare with what the program would write.
const GENERATED: &[&str] = &["docs/redis-compatibility.md"];

fn is_long(line: &str) -> bool {
    line.chars().count() > COLUMNS_MAX
}

/// Whether a line of prose, without the sign of its comment, has a place where it can be broken.
fn is_prose(line: &str) -> bool {
    let words = line.trim_start_matches(['-', '*', '>', ' ']);
    let is_definition = words.starts_with('[') && words.contains("]: ");
    words.contains(' ') && !words.starts_with(['|', '<']) && !is_definition
}

fn is_fence(line: &str) -> bool {
    line.starts_with("```")
}

/// The number of bytes of the first token of `rest`, and whether the token is a string literal. Spaces, signs
/// and the letters of char literals are tokens of one character each.
fn token(rest: &str) -> (usize, bool) {
    let until = |from: usize, end: &str| match rest[from..].find(end) {
        Some(at) => from + at + end.len(),
        None => rest.len(),
    };
    let word = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    if matches!(&rest[..word], "r" | "br" | "cr") {
        let hashes = rest[word..].len() - rest[word..].trim_start_matches('#').len();
        if rest[word + hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            return (until(word + hashes + 1, &end), true);
        }
    }
    if word > 0 {
        return (word, false);
    }
    if rest.starts_with("//") {
        return (until(2, "\n"), false);
    }
    if let Some(quote) = ["'\"'", "'\\\"'", "'\\''"].iter().find(|quote| rest.starts_with(**quote)) {
        return (quote.len(), false);
    }
    if !rest.starts_with('"') {
        return (rest.chars().next().map_or(0, char::len_utf8), false);
    }
    let mut is_escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            '"' if !is_escaped => return (at + 1, true),
            _ => is_escaped = letter == '\\' && !is_escaped,
        }
    }
    (rest.len(), true)
}

/// The lines, counted from 0, that begin inside a string literal of Rust.
fn lines_inside_strings(text: &str) -> BTreeSet<usize> {
    let mut inside = BTreeSet::new();
    let (mut rest, mut line) = (text, 0);
    while !rest.is_empty() {
        let (bytes, is_string) = token(rest);
        let breaks = rest[..bytes].matches('\n').count();
        if is_string {
            inside.extend(line + 1..=line + breaks);
        }
        line += breaks;
        rest = &rest[bytes..];
    }
    inside
}

/// The lines of a source that are too long, counted from 0, and what to do about each.
fn long_in_rust(text: &str) -> Vec<(usize, &'static str)> {
    let inside = lines_inside_strings(text);
    let mut found = Vec::new();
    let mut in_code_block = false;
    for (number, line) in text.lines().enumerate().filter(|(number, _)| !inside.contains(number)) {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            in_code_block = false;
            if is_long(line) {
                found.push((
                    number,
                    "run `cargo fmt`, or break the string with a backslash at the line's end",
                ));
            }
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        in_code_block ^= is_fence(comment);
        if is_long(line) && !in_code_block && is_prose(comment) {
            found.push((number, "wrap the comment"));
        }
    }
    found
}

/// As [`long_in_rust`], of a file of TOML.
fn long_in_toml(text: &str) -> Vec<(usize, &'static str)> {
    let lines = text.lines().enumerate().filter(|(_, line)| is_long(line));
    let found = lines.filter_map(|(number, line)| match line.trim_start().chars().next() {
        Some('{') => None,
        Some('#') => is_prose(line.trim_start_matches(['#', ' '])).then_some((number, "wrap the comment")),
        _ => Some((number, "break the value")),
    });
    found.collect()
}

/// As [`long_in_rust`], of a page. Four spaces make a block of code.
fn long_in_markdown(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut in_code_block = false;
    for (number, line) in text.lines().enumerate() {
        in_code_block ^= is_fence(line.trim_start());
        let is_code = in_code_block || line.starts_with("    ");
        if is_long(line) && !is_code && !line.starts_with('#') && is_prose(line) {
            found.push((number, "wrap the paragraph"));
        }
    }
    found
}

#[test]
fn no_line_is_longer_than_110_columns() {
    let mut long = Vec::new();
    for path in files(root()) {
        let name = path.strip_prefix(root()).expect("a file below the root").to_string_lossy().into_owned();
        let check = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => long_in_rust,
            Some("toml") => long_in_toml,
            Some("md") if !GENERATED.contains(&name.as_str()) => long_in_markdown,
            _ => continue,
        };
        let text = std::fs::read_to_string(&path).expect("a text");
        long.extend(check(&text).into_iter().map(|(line, advice)| format!("{name}:{}: {advice}", line + 1)));
    }
    assert!(long.is_empty(), "longer than {COLUMNS_MAX} columns:\n{}", long.join("\n"));
}

#[test]
fn long_lines_are_noticed_where_they_can_be_broken() {
    let words = "word ".repeat(25);
    let word = "w".repeat(125);
    let lines = |found: Vec<(usize, &str)>| found.into_iter().map(|(line, _)| line).collect::<Vec<usize>>();
    let rust = [
        format!("/// {words}"),
        format!("// https://{word}"),
        format!("//! | {words} |"),
        "/// ```text".to_owned(),
        format!("/// {words}"),
        "/// ```".to_owned(),
        format!("let quotes = ['\"', '\\'', b'\"']; // {words}"),
        "let text = \"// \\\" not the end".to_owned(),
        format!("{words}\";"),
        "let raw = r#\" \" ".to_owned(),
        format!("{words}\"#;"),
        format!("call({word});"),
    ];
    assert_eq!(lines(long_in_rust(&rust.join("\n"))), [0, 6, 11]);
    let toml = [format!("# {words}"), format!("    {{ id = \"{words}\" }},"), format!("key = \"{words}\"")];
    assert_eq!(lines(long_in_toml(&toml.join("\n"))), [0, 2]);
    let page = [
        format!("# {words}"),
        format!("- {words}"),
        format!("    {words}"),
        format!("[name]: {words}"),
        format!("| {words} |"),
        "```".to_owned(),
        words.clone(),
        "```".to_owned(),
        words,
    ];
    assert_eq!(lines(long_in_markdown(&page.join("\n"))), [1, 8]);
}
