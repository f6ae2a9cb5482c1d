//! Who wants to be told of what others do: who listens to channels, who waits for a key, and who keeps copies
//! of what it has read.
//!
//! The runtime tells of each final-committed transaction, in the order of its partition
//! ([`crate::runtime::NewsListener`]). The hub looks up whom that concerns, and leaves a [`Delivery`] in the
//! mailbox of each one's thread. A delivery is an answer already made (a message, an invalidation), or word
//! that it is time to look again: who waits for an element pops it by an ordinary command, so that a client
//! that is gone swallows nothing.
//!
//! As long as nobody is interested ([`Hub::begin_interest`]), nothing is told and nothing is looked up:
//! commands cost what they did. When the last one has gone, that stays on for a while, for the next one.
//!
//! # Locks
//!
//! The state is behind one lock, which is taken while the runtime's is held that keeps the news in order, and
//! never the other way round: `interest` is the lock under which the hub calls the runtime.

mod channels;
mod lines;
mod notify;
mod push;
mod tracking;

pub use channels::{Channels, Kind};
pub use notify::NotifyFlags;
pub use push::{Encoded, Push, PushBudget, PushQueue};
pub use tracking::{Place, TrackingMode, TrackingOptions};

use crate::net::Mailbox;
use crate::runtime::{NewsItem, NewsListener, Runtime};
use lines::Lines;
use parking_lot::Mutex;
use redis_surface::telling::{Wanted, want};
use redis_surface::waiting::{Manner, may_serve};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use tracking::Tracking;
use txn::{Blob, Event, Key, Message, Reply, RequestId, SessionId};

/// A connection, as the hub knows it.
#[derive(Clone)]
pub struct Listener {
    /// Its session.
    pub session: SessionId,
    /// Where its thread looks.
    pub mailbox: Arc<Mailbox>,
    /// How much is on its way to it.
    pub pushes: Arc<PushQueue>,
}

impl Listener {
    /// Leaves something for it, unless it has not read too much that was left before: then it is closed.
    pub fn deliver(&self, delivery: Delivery) {
        if self.pushes.is_overrun() {
            return;
        }
        if self.pushes.admit(delivery.pushed_bytes(), delivery.is_shared()) {
            self.mailbox.deliver(self.session, delivery);
        } else {
            self.mailbox.announce_kill();
        }
    }
}

/// What reaches a connection from others.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A message, for who still listens when it arrives.
    Message {
        /// The push, as it is sent.
        push: Arc<Push>,
        /// What it was subscribed to: this, by this name.
        kind: Kind,
        /// See `kind`.
        name: Blob,
    },
    /// A line for who monitors.
    Monitored(Arc<Push>),
    /// Keys that were read were written since.
    Invalidate {
        /// Which; `None`: perhaps all.
        names: Option<Arc<[Blob]>>,
        /// By a request of the connection itself, which is to be answered first.
        behind: Option<u64>,
    },
    /// The connection that was to get the invalidations of this one is gone.
    RedirectionBroken(u64),
    /// Users have changed.
    Users,
    /// What it waits for may be there.
    Look,
    /// CLIENT UNBLOCK.
    Unblock {
        /// Which of its waits is meant: see [`crate::net::clients::Client::waits`].
        wait: u64,
        /// With an error rather than as if the time were up.
        with_error: bool,
    },
}

impl Delivery {
    /// Whether it is one allocation for all who get it, which counts for itself.
    pub fn is_shared(&self) -> bool {
        matches!(self, Delivery::Message { .. } | Delivery::Monitored(_))
    }

    /// The bytes that it counts for in its connection's [`PushQueue`].
    pub fn pushed_bytes(&self) -> usize {
        match self {
            Delivery::Message { push, .. } | Delivery::Monitored(push) => push.bytes(),
            Delivery::Invalidate { names: Some(names), .. } => {
                let each = names.iter().map(|name| name.len() + size_of::<Blob>());
                size_of::<Delivery>() + each.sum::<usize>()
            }
            Delivery::Invalidate { names: None, .. } => size_of::<Delivery>(),
            Delivery::RedirectionBroken(_) | Delivery::Users | Delivery::Look | Delivery::Unblock { .. } => 0,
        }
    }
}

/// See the module's head.
#[derive(Default)]
pub struct Hub {
    budget: Arc<PushBudget>,
    state: Mutex<State>,
    interest: Mutex<Interest>,
    notify: AtomicU16,
    /// By which version of the slots connections know where their keys are.
    slots_version: AtomicU32,
}

#[derive(Default)]
struct State {
    channels: Channels<Listener>,
    lines: Lines,
    tracking: Tracking,
}

#[derive(Default)]
struct Interest {
    count: usize,
    /// Whether anybody was interested since the last look.
    was_there: bool,
    wanted: Option<Wanted>,
}

impl Hub {
    /// A hub whose messages count against a budget.
    pub fn new(budget: Arc<PushBudget>) -> Hub {
        Hub { budget, ..Hub::default() }
    }

    /// Somebody is interested. Whether nobody was before: then transactions that are under way tell nothing
    /// yet.
    pub fn begin_interest(self: &Arc<Hub>, runtime: &Runtime) -> bool {
        let mut interest = self.interest.lock();
        interest.count += 1;
        interest.was_there = true;
        let is_first = interest.wanted.is_none();
        if is_first {
            interest.wanted = Some(want());
            runtime.listen(self.clone());
        }
        is_first
    }

    /// As many are interested no more.
    pub fn end_interest(&self, count: usize) {
        self.interest.lock().count -= count;
    }

    /// Stops being told when nobody was interested for a while: called now and then.
    pub fn rest(&self, runtime: &Runtime) {
        let mut interest = self.interest.lock();
        if interest.count == 0 && !std::mem::take(&mut interest.was_there) && interest.wanted.take().is_some()
        {
            runtime.listen_no_more();
        }
    }

    /// Where slots have moved, other nodes may execute now what writes a key: who waits looks (and goes on
    /// looking every so often), and who has read what this node does not keep any more takes its copies for
    /// old. Called now and then.
    pub fn follow_routing(&self, runtime: &Runtime) {
        let version = runtime.slots_version();
        if self.slots_version.swap(version, Ordering::Relaxed) == version {
            return;
        }
        let mut state = self.state.lock();
        state.lines.rerouted();
        state.tracking.rerouted(|key| runtime.keeps(key));
    }

    /// Sets what of keys is published (`notify-keyspace-events`).
    pub fn set_notify(&self, flags: NotifyFlags) {
        self.notify.store(flags.0, Ordering::Relaxed);
    }

    /// Looks at, or changes, who listens to which channels.
    pub fn channels<R>(&self, act: impl FnOnce(&mut Channels<Listener>) -> R) -> R {
        act(&mut self.state.lock().channels)
    }

    /// How many connections get what is published on a channel.
    pub fn receivers(&self, channel: &[u8], is_sharded: bool) -> usize {
        let mut count = 0;
        let state = self.state.lock();
        state.channels.receivers(channel, is_sharded, |_, _| count += 1);
        count
    }

    /// A connection begins to wait for keys, behind all who wait for them.
    pub fn wait(&self, listener: &Listener, keys: &[Key], manner: &Manner) {
        self.state.lock().lines.enter(listener, keys, manner);
    }

    /// Whether nobody waits for a key before a connection, and in its manner. One that does not wait yet
    /// comes behind all.
    pub fn is_next(&self, session: SessionId, key: &Key, manner: &Manner) -> bool {
        self.state.lock().lines.is_next(session, key, manner)
    }

    /// For how many keys connections wait: see [`Lines::count`].
    pub fn waited_for(&self) -> (usize, usize) {
        self.state.lock().lines.count()
    }

    /// It waits no more. Who was behind it is told to look.
    pub fn leave(&self, session: SessionId, keys: &[Key], manner: &Manner) {
        self.state.lock().lines.leave(session, keys, manner);
    }

    /// A connection wants to be told when keys that it reads are written.
    pub fn track(&self, listener: &Listener, options: &TrackingOptions) {
        self.state.lock().tracking.begin(listener, options);
    }

    /// It does not any more.
    pub fn track_no_more(&self, session: SessionId) {
        self.state.lock().tracking.end(session);
    }

    /// A connection is gone.
    pub fn gone(&self, session: SessionId) {
        self.state.lock().tracking.gone(session);
    }

    /// A key may be written without a word of it reaching this node.
    pub fn written_unheard(&self, key: &Key) {
        let tracking = &mut self.state.lock().tracking;
        tracking.written(key, None, None);
        tracking.broadcast(None);
    }

    /// Replies to reads of these keys are on their way to it: of this script, which may have read none.
    pub fn has_read(&self, session: SessionId, keys: &[Key], script: Option<u64>) {
        self.state.lock().tracking.has_read(session, keys, script);
    }

    /// A script of a connection has read nothing of what it was about to read.
    pub fn read_nothing(&self, id: RequestId) {
        self.state.lock().tracking.read_nothing(id);
    }

    /// It is about to read these keys, and sees all that was committed up to a place.
    pub fn reads(&self, session: SessionId, keys: impl Iterator<Item = (Key, Option<Place>)>, keys_max: u64) {
        let keys_max = limit(keys_max);
        self.state.lock().tracking.reads(session, keys, keys_max);
    }

    /// Sets how many keys are tracked at most (`tracking-table-max-keys`).
    pub fn set_tracked_max(&self, keys_max: u64) {
        self.state.lock().tracking.limit(limit(keys_max));
    }

    /// How many keys are tracked, and how many copies of them there may be, and how many prefixes.
    pub fn tracked(&self) -> (usize, usize, usize) {
        self.state.lock().tracking.counts()
    }

    fn notify_of(&self, state: &State, key: &Key, class: u8, name: &str) {
        let flags = NotifyFlags(self.notify.load(Ordering::Relaxed));
        if name.is_empty() || !flags.has_class(class) {
            return;
        }
        let name = Blob::from(name);
        let of_key = Blob::from(key.as_bytes());
        if flags.has_keyspace() {
            let channel = [b"__keyspace@0__:", key.as_bytes()].concat();
            self.publish(state, &Blob::from(channel), &name, false);
        }
        if flags.has_keyevent() {
            let channel = [b"__keyevent@0__:", name.as_bytes()].concat();
            self.publish(state, &Blob::from(channel), &of_key, false);
        }
    }

    /// Sends a message to whoever listens.
    fn publish(&self, state: &State, channel: &Blob, payload: &Blob, is_sharded: bool) {
        let mut plain = None;
        let (exact, word) = match is_sharded {
            true => (Kind::Shard, "smessage"),
            false => (Kind::Channel, "message"),
        };
        let push = |word, pattern| message(word, pattern, channel, payload, &self.budget);
        let mut by_pattern: Option<(&Blob, Arc<Push>)> = None;
        state.channels.receivers(channel, is_sharded, |listener, pattern| {
            let (push, kind, name) = match pattern {
                None => {
                    let push = plain.get_or_insert_with(|| push(word, None));
                    (push.clone(), exact, channel)
                }
                Some(pattern) => {
                    let known = by_pattern.as_ref().filter(|(known, _)| *known == pattern);
                    let push = match known {
                        Some((_, push)) => push.clone(),
                        None => push("pmessage", Some(pattern)),
                    };
                    by_pattern = Some((pattern, push.clone()));
                    (push, Kind::Pattern, pattern)
                }
            };
            let name = name.clone();
            listener.deliver(Delivery::Message { push, kind, name });
        });
    }
}

impl NewsListener for Hub {
    fn told(&self, item: NewsItem) {
        let mut state = self.state.lock();
        for event in item.events {
            match event {
                Event::Message(Message { channel, payload, is_sharded }) => {
                    self.publish(&state, &channel, &payload, is_sharded)
                }
                Event::Cleared => {
                    state.tracking.cleared(item.id);
                    state.lines.cleared();
                }
                Event::ReadNothing => state.tracking.read_nothing(item.id),
                Event::Key { key, class, name } => {
                    state.tracking.written(&key, Some(item.id), Some(item.at));
                    if may_serve(&name) {
                        state.lines.written(&key);
                    }
                    self.notify_of(&state, &key, class, &name);
                }
            }
        }
        state.tracking.broadcast(Some(item.id));
    }
}

/// How many a setting allows, of which 0 means any number.
fn limit(max: u64) -> usize {
    match max {
        0 => usize::MAX,
        max => usize::try_from(max).unwrap_or(usize::MAX),
    }
}

fn message(
    kind: &'static str,
    pattern: Option<&Blob>,
    channel: &Blob,
    payload: &Blob,
    budget: &Arc<PushBudget>,
) -> Arc<Push> {
    let words = [Some(channel), Some(payload)];
    let words = std::iter::once(pattern).chain(words).flatten();
    let text_bytes = words.clone().map(|word| word.len()).sum();
    let words = words.map(|word| Reply::Bulk(word.clone()));
    let reply = Reply::Push(std::iter::once(Reply::bulk(kind)).chain(words).collect());
    Arc::new(Push::new(reply, text_bytes, budget))
}
