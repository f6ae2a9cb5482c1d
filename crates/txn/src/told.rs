//! What others are told of a transaction once it is final: which keys it wrote, and which messages it
//! published.
//!
//! While a procedure runs, its [`Tx`](crate::Tx) takes [`Note`]s if whoever polls it wants them ([`noting`]).
//! What they come to, as [`Event`]s, travels with the reply ([`Reply::Told`]), so that engines know nothing
//! of it (but for one that executes fragments, and carries their notes to whoever makes the reply): what was
//! noted by an incarnation that is thrown away goes with it, and what is told is told in the order of the
//! positions. Whoever takes outcomes out of an engine takes the events off the replies.

use crate::{Blob, Entry, Key, Reply, Space};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};

/// What a procedure did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A part of it begins, of this name: a command. What follows is its doing.
    Began(&'static str),
    /// The next write is to be told under this name.
    Named(Cow<'static, str>),
    /// It found a key of the user's space expired.
    Expired(Key),
    /// It wrote a key of the user's space.
    Wrote {
        /// Which.
        key: Key,
        /// Whether it exists now.
        is_present: bool,
        /// Whether it has a time to live.
        expires: bool,
    },
    /// A script runs a command that reads. Among the notes of a block's fragment: the next step begins.
    Read,
    /// It removed every key of the user's space.
    Cleared,
    /// It published a message.
    Published(Message),
}

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where.
    pub channel: Blob,
    /// What.
    pub payload: Blob,
    /// Whether the channel is one of shards (SPUBLISH).
    pub is_sharded: bool,
}

/// Something that others may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A key changed.
    Key {
        /// Which.
        key: Key,
        /// Redis's letter for the class of the event (`notify-keyspace-events`): `l` for lists, say.
        class: u8,
        /// Redis's name of the event; empty if Redis has none.
        name: Cow<'static, str>,
    },
    /// All keys are gone.
    Cleared,
    /// A message was published.
    Message(Message),
    /// A script ran that had keys to read, and read none: its client has learnt nothing of them.
    ReadNothing,
}

/// A reply with what others are told.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The reply: not itself one of this kind.
    pub reply: Reply,
    /// What others are told, in the order in which it happened.
    pub events: Vec<Event>,
}

#[cfg(feature = "shuttle")]
shuttle::thread_local! {
    static NOTES: RefCell<Option<Vec<Note>>> = RefCell::new(None);
    static IS_NOTING: Cell<bool> = Cell::new(false);
}
#[cfg(not(feature = "shuttle"))]
thread_local! {
    static NOTES: RefCell<Option<Vec<Note>>> = const { RefCell::new(None) };
    /// Whether there are `NOTES`: what every operation asks costs one load.
    static IS_NOTING: Cell<bool> = const { Cell::new(false) };
}

/// Runs one poll of a procedure, adds what it notes, and gives all notes back.
pub fn noting<R>(notes: Vec<Note>, poll: impl FnOnce() -> R) -> (Vec<Note>, R) {
    let mut outer = Outer(Some(exchange(Some(notes))));
    let result = poll();
    let notes = outer.put_back();
    (notes.unwrap_or_default(), result)
}

/// What this thread had in the place of its notes before [`noting`], until that is back in place. It is put
/// back also where the procedure panics: else the thread would take notes from then on, and nobody would take
/// them off it.
struct Outer(Option<Option<Vec<Note>>>);

impl Outer {
    /// Gives the notes that were taken since.
    fn put_back(&mut self) -> Option<Vec<Note>> {
        exchange(self.0.take()?)
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        self.put_back();
    }
}

fn exchange(notes: Option<Vec<Note>>) -> Option<Vec<Note>> {
    IS_NOTING.with(|is_noting| is_noting.set(notes.is_some()));
    NOTES.with(|noted| std::mem::replace(&mut *noted.borrow_mut(), notes))
}

/// Whether notes are wanted.
#[inline]
fn is_noting() -> bool {
    IS_NOTING.with(Cell::get)
}

/// Takes a note, if they are wanted.
#[inline]
pub fn note(note: impl FnOnce() -> Note) {
    if is_noting() {
        take(note());
    }
}

#[cold]
fn take(note: Note) {
    NOTES.with(|noted| {
        if let Some(notes) = &mut *noted.borrow_mut() {
            notes.push(note);
        }
    });
}

/// Runs a part of a procedure, and gives what it notes instead of taking it: nothing if no notes are wanted.
pub(crate) fn kept_apart<R>(part: impl FnOnce() -> R) -> (Vec<Note>, R) {
    match is_noting() {
        true => noting(Vec::new(), part),
        false => (Vec::new(), part()),
    }
}

/// Takes notes that were [`kept_apart`].
pub(crate) fn note_all(notes: Vec<Note>) {
    for taken in notes {
        note(|| taken);
    }
}

/// Notes that the procedure found a key expired.
pub(crate) fn note_expired(key: &Key) {
    if key.space() == Space::User {
        note(|| Note::Expired(key.clone()));
    }
}

/// Notes that the procedure wrote a key.
pub(crate) fn note_write(key: &Key, entry: Option<&Entry>) {
    if key.space() == Space::User {
        let expires = entry.is_some_and(|entry| entry.expires_at_ms != 0);
        note(|| Note::Wrote { key: key.clone(), is_present: entry.is_some(), expires });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_ends_the_notes_of_its_own_procedure_only() {
        let panics = || {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                noting(vec![Note::Cleared], || {
                    note(|| Note::Read);
                    panic!("a procedure panics");
                })
            }));
            assert!(panicked.is_err());
        };
        panics();
        assert!(!is_noting(), "nobody wants notes on this thread");
        let (notes, ()) = noting(vec![Note::Began("first")], || {
            panics();
            note(|| Note::Read);
        });
        assert_eq!(notes, [Note::Began("first"), Note::Read]);
        assert!(!is_noting());
    }
}
