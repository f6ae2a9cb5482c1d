//! The longest common subsequence of two strings, by the textbook's dynamic programme.

use super::options;
use super::strings::argument;
use crate::errors;
use crate::work;
use txn::{Blob, Key, Outcome, Reply, Stop, Tx, Value};

/// The most cells of the table: 4 bytes each. Redis refuses beyond 4 GB; a replica must not pay that per
/// command.
const CELLS_MAX: usize = 64 * 1024 * 1024;
/// Cells that count as a step of a script.
const CELLS_PER_STEP: usize = 2;

/// A run that both strings share: where it starts and ends (included) in each.
struct Run {
    a: (usize, usize),
    b: (usize, usize),
}

/// The table: `cells[i][j]` is the length of the longest common subsequence of the first `i` and `j` bytes.
struct Table {
    cells: Vec<u32>,
    width: usize,
}

impl Table {
    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }
}

async fn text(tx: &mut Tx, name: &Blob) -> Result<Result<Value, Reply>, Stop> {
    let value = tx.get(&Key::from(name)).await?;
    let value = value.unwrap_or(Value::String(Blob::EMPTY));
    let len = value.string_len();
    work::bytes(len.unwrap_or(0));
    Ok(len.map(|_| value).ok_or(errors::LCS_WRONG_TYPE))
}

/// LCS key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]
pub async fn lcs(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let a = argument!(text(tx, &args[0]).await?);
    let b = argument!(text(tx, &args[1]).await?);
    let (mut only_len, mut indexes, mut with_len, mut min_len) = (false, false, false, 0);
    let mut words = args[2..].iter();
    while let Some(word) = words.next() {
        if options::is(word, "LEN") {
            only_len = true;
        } else if options::is(word, "IDX") {
            indexes = true;
        } else if options::is(word, "WITHMATCHLEN") {
            with_len = true;
        } else if options::is(word, "MINMATCHLEN") {
            let Some(len) = words.next() else {
                return Ok(errors::SYNTAX);
            };
            min_len = usize::try_from(argument!(options::integer(len))).unwrap_or(0);
        } else {
            return Ok(errors::SYNTAX);
        }
    }
    if only_len && indexes {
        return Ok(errors::LCS_LEN_AND_IDX);
    }
    // Neither is put together before it is known to be short enough.
    let cells = |value: &Value| value.string_len().unwrap_or(0) + 1;
    if cells(&a).saturating_mul(cells(&b)) > CELLS_MAX {
        return Ok(errors::LCS_TOO_LONG);
    }
    let (Some(a), Some(b)) = (a.as_string(), b.as_string()) else {
        return Ok(errors::LCS_WRONG_TYPE);
    };
    work::steps((a.len() + 1) * (b.len() + 1) / CELLS_PER_STEP);
    if work::is_spent() {
        return Ok(Reply::Nil);
    }
    let Some(table) = fill(tx, &a, &b) else {
        return Err(Stop::Restart);
    };
    let len = Reply::Integer(i64::from(table.at(a.len(), b.len())));
    if only_len {
        return Ok(len);
    }
    let (common, runs) = walk_back(&table, &a, &b);
    if !indexes {
        return Ok(Reply::bulk(common));
    }
    let matches = runs.into_iter().filter(|run| run.a.1 - run.a.0 + 1 >= min_len).map(|run| {
        let pair = |(from, to)| Reply::Array(vec![Reply::Integer(from as i64), Reply::Integer(to as i64)]);
        let mut items = vec![pair(run.a), pair(run.b)];
        if with_len {
            items.push(Reply::Integer((run.a.1 - run.a.0 + 1) as i64));
        }
        Reply::Array(items)
    });
    let matches = Reply::Array(matches.collect());
    Ok(Reply::Map(vec![(Reply::bulk("matches"), matches), (Reply::bulk("len"), len)]))
}

/// Fills the table; `None` if the incarnation is doomed meanwhile.
fn fill(tx: &Tx, a: &[u8], b: &[u8]) -> Option<Table> {
    let width = b.len() + 1;
    let mut table = Table { cells: vec![0; (a.len() + 1) * width], width };
    for (i, byte) in a.iter().enumerate() {
        if i % 64 == 63 && tx.doomed() {
            return None;
        }
        let (above, below) = table.cells[i * width..(i + 2) * width].split_at_mut(width);
        for (j, other) in b.iter().enumerate() {
            below[j + 1] = if byte == other { above[j] + 1 } else { above[j + 1].max(below[j]) };
        }
    }
    Some(table)
}

/// The common subsequence, and its runs from the last to the first, as Redis lists them.
fn walk_back(table: &Table, a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<Run>) {
    let (mut i, mut j) = (a.len(), b.len());
    let mut common = Vec::with_capacity(table.at(i, j) as usize);
    let mut runs: Vec<Run> = Vec::new();
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            common.push(a[i]);
            match runs.last_mut() {
                Some(run) if run.a.0 == i + 1 && run.b.0 == j + 1 => (run.a.0, run.b.0) = (i, j),
                _ => runs.push(Run { a: (i, i), b: (j, j) }),
            }
        } else if table.at(i - 1, j) > table.at(i, j - 1) {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    common.reverse();
    (common, runs)
}
