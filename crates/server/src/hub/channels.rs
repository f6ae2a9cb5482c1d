//! Who listens to which channels, and to which patterns of them.

use redis_surface::pattern;
use std::collections::BTreeMap;
use txn::{Blob, SessionId};

/// What a subscription names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A channel (SUBSCRIBE).
    Channel,
    /// All channels whose names match a pattern (PSUBSCRIBE).
    Pattern,
    /// A shard channel (SSUBSCRIBE).
    Shard,
}

/// Listeners by the names that they gave.
type Book<L> = BTreeMap<Blob, BTreeMap<SessionId, L>>;

/// All subscriptions. No name without a listener is kept.
#[derive(Debug)]
pub struct Channels<L> {
    channels: Book<L>,
    patterns: Book<L>,
    shards: Book<L>,
}

impl<L> Default for Channels<L> {
    fn default() -> Channels<L> {
        Channels { channels: BTreeMap::new(), patterns: BTreeMap::new(), shards: BTreeMap::new() }
    }
}

impl<L> Channels<L> {
    fn book(&self, kind: Kind) -> &Book<L> {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Shard => &self.shards,
        }
    }

    fn book_mut(&mut self, kind: Kind) -> &mut Book<L> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }

    /// A connection listens.
    pub fn subscribe(&mut self, kind: Kind, name: Blob, session: SessionId, listener: L) {
        let of_name = self.book_mut(kind).entry(name).or_default();
        of_name.insert(session, listener);
    }

    /// It listens no more.
    pub fn unsubscribe(&mut self, kind: Kind, name: &Blob, session: SessionId) {
        let book = self.book_mut(kind);
        if let Some(of_name) = book.get_mut(name) {
            of_name.remove(&session);
            if of_name.is_empty() {
                book.remove(name);
            }
        }
    }

    /// Calls `with` for each delivery of a message: a listener, and the pattern by which the message is its,
    /// if it is by one.
    pub fn receivers<'a>(
        &'a self,
        channel: &[u8],
        is_sharded: bool,
        mut with: impl FnMut(&L, Option<&'a Blob>),
    ) {
        let kind = if is_sharded { Kind::Shard } else { Kind::Channel };
        if let Some(of_name) = self.book(kind).get(channel) {
            of_name.values().for_each(|listener| with(listener, None));
        }
        if is_sharded {
            return;
        }
        for (name, of_name) in &self.patterns {
            if pattern::matches(name, channel) {
                of_name.values().for_each(|listener| with(listener, Some(name)));
            }
        }
    }

    /// The names that somebody gave, with how many.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = (&Blob, usize)> {
        self.book(kind).iter().map(|(name, of_name)| (name, of_name.len()))
    }

    /// How many listen under a name.
    pub fn count(&self, kind: Kind, name: &[u8]) -> usize {
        self.book(kind).get(name).map_or(0, BTreeMap::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reaches_who_named_its_channel_and_who_named_a_pattern_of_it() {
        let mut channels = Channels::default();
        channels.subscribe(Kind::Channel, Blob::from("news"), SessionId(1), 1);
        channels.subscribe(Kind::Pattern, Blob::from("n*"), SessionId(1), 1);
        channels.subscribe(Kind::Pattern, Blob::from("x*"), SessionId(2), 2);
        channels.subscribe(Kind::Shard, Blob::from("news"), SessionId(3), 3);
        let of = |channels: &Channels<i32>, is_sharded| {
            let mut found = Vec::new();
            channels.receivers(b"news", is_sharded, |&listener, pattern| {
                found.push((listener, pattern.is_some()));
            });
            found
        };
        assert_eq!(of(&channels, false), [(1, false), (1, true)]);
        assert_eq!(of(&channels, true), [(3, false)]);
        channels.unsubscribe(Kind::Channel, &Blob::from("news"), SessionId(1));
        assert_eq!(of(&channels, false), [(1, true)]);
        assert_eq!(channels.names(Kind::Channel).count(), 0);
        assert_eq!(channels.count(Kind::Pattern, b"n*"), 1);
    }
}
