//! The slow log: calls that took longer than `slowlog-log-slower-than`.

use parking_lot::Mutex;
use redis_surface::acl::secrets::redacted;
use std::collections::VecDeque;
use txn::Blob;

/// How many words of a command are kept.
const WORDS_MAX: usize = 32;
/// How many bytes of a word are kept.
const WORD_BYTES_MAX: usize = 128;

/// A slow call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowEntry {
    /// Its number: one more than that of the slow call before it, also after SLOWLOG RESET.
    pub id: u64,
    /// When it ended, in seconds since 1970.
    pub at_s: u64,
    /// How long it took, in microseconds.
    pub us: u64,
    /// Its words, trimmed.
    pub words: Vec<Blob>,
    /// Where its client comes from. Empty if it was gone by then.
    pub address: String,
    /// The client's name, or nothing.
    pub client_name: String,
}

/// The newest slow calls.
#[derive(Default)]
pub struct SlowLog {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The newest first.
    entries: VecDeque<SlowEntry>,
    next_id: u64,
}

impl SlowLog {
    /// Keeps a call with these words; its number is given here. No more than `len_max` are kept.
    pub fn push(&self, mut entry: SlowEntry, len_max: usize) {
        entry.words = shown_words(&entry.words);
        let mut state = self.state.lock();
        entry.id = state.next_id;
        state.next_id += 1;
        state.entries.push_front(entry);
        state.entries.truncate(len_max);
    }

    /// The newest so many, the newest first.
    pub fn newest(&self, count: usize) -> Vec<SlowEntry> {
        self.state.lock().entries.iter().take(count).cloned().collect()
    }

    /// How many were ever pushed, also those that are not kept.
    pub fn pushed(&self) -> u64 {
        self.state.lock().next_id
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.state.lock().entries.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps no more than so many.
    pub fn truncate(&self, len_max: usize) {
        self.state.lock().entries.truncate(len_max);
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.state.lock().entries.clear();
    }
}

/// A command's words for operators: without secrets, and no more of them than the slow log keeps.
pub fn shown_words(words: &[Blob]) -> Vec<Blob> {
    trimmed(&redacted(words))
}

/// The words as Redis keeps them: the first ones, and of each one its beginning.
fn trimmed(words: &[Blob]) -> Vec<Blob> {
    let kept = match words.len() {
        len if len > WORDS_MAX => WORDS_MAX - 1,
        len => len,
    };
    let short = |word: &Blob| match word.len().checked_sub(WORD_BYTES_MAX) {
        None | Some(0) => word.clone(),
        Some(more) => {
            let more = format!("... ({more} more bytes)");
            Blob::from([&word[..WORD_BYTES_MAX], more.as_bytes()].concat())
        }
    };
    let mut shown: Vec<Blob> = words[..kept].iter().map(short).collect();
    if kept < words.len() {
        let more = words.len() - kept;
        shown.push(Blob::from(format!("... ({more} more arguments)")));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(words: Vec<Blob>) -> SlowEntry {
        SlowEntry { id: 0, at_s: 1, us: 2, words, address: String::new(), client_name: String::new() }
    }

    #[test]
    fn the_newest_are_kept_and_numbers_go_on() {
        let log = SlowLog::default();
        for _ in 0..5 {
            log.push(entry(Vec::new()), 3);
        }
        let ids = |count| log.newest(count).iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!((ids(2), ids(9)), (vec![4, 3], vec![4, 3, 2]));
        log.clear();
        assert!(log.is_empty());
        log.push(entry(Vec::new()), 3);
        assert_eq!(ids(9), [5]);
        log.push(entry(Vec::new()), 0);
        assert_eq!((log.len(), log.pushed()), (0, 7));
    }

    #[test]
    fn words_are_trimmed_as_redis_trims_them() {
        let words = |count: usize| (0..count).map(|n| Blob::from(n.to_string())).collect::<Vec<_>>();
        assert_eq!(trimmed(&words(32)), words(32));
        let shown = trimmed(&words(33));
        assert_eq!(shown[..31], words(31));
        assert_eq!(shown[31..], [Blob::from("... (2 more arguments)")]);
        let fits = Blob::from("A".repeat(128));
        assert_eq!(trimmed(std::slice::from_ref(&fits)), [fits]);
        let long = format!("{}... (1 more bytes)", "A".repeat(128));
        assert_eq!(trimmed(&[Blob::from("A".repeat(129))]), [Blob::from(long)]);
    }
}
