//! SUBSCRIBE and its kin, and what reaches the connection from others.

use super::{Session, ThreadContext};
use crate::hub::{Delivery, Kind, Listener};
use crate::net::clients::REDIRECTION_BROKEN;
use crate::shared::Shared;
use redis_surface::codec::Protocol;
use redis_surface::table::{Command, ConnectionCommand, PubSubCommand, Run};
use redis_surface::{errors, pattern};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use txn::{Args, Blob, Reply};

/// Where clients of RESP2 get the invalidations of others.
const INVALIDATE: &[u8] = b"__redis__:invalidate";

/// SSUBSCRIBE in a block, in Redis's words.
pub(super) const NO_SHARDS_IN_BLOCK: Reply =
    Reply::error("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");

/// What a connection listens to, by [`Kind`].
#[derive(Default)]
pub(super) struct Subscriptions {
    names: [BTreeSet<Blob>; 3],
    /// What they take, here and among the listeners of the node.
    bytes: usize,
}

/// What a subscription takes beside its name.
const SUBSCRIPTION_BYTES: usize = 256;

impl Subscriptions {
    fn of(&self, kind: Kind) -> &BTreeSet<Blob> {
        &self.names[kind as usize]
    }

    fn add(&mut self, kind: Kind, name: &Blob) -> bool {
        let is_new = self.names[kind as usize].insert(name.clone());
        if is_new {
            self.bytes += name.len() + SUBSCRIPTION_BYTES;
        }
        is_new
    }

    fn remove(&mut self, kind: Kind, name: &Blob) -> bool {
        let was_there = self.names[kind as usize].remove(name);
        if was_there {
            self.bytes -= name.len() + SUBSCRIPTION_BYTES;
        }
        was_there
    }

    /// What they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All names, each with whether it is a pattern.
    pub(super) fn names(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let kinds = [Kind::Channel, Kind::Pattern, Kind::Shard];
        kinds.into_iter().flat_map(|kind| {
            let names = self.of(kind).iter();
            names.map(move |name| (name.as_bytes(), kind == Kind::Pattern))
        })
    }

    /// How many there are of all kinds.
    pub(super) fn count(&self) -> usize {
        self.names.iter().map(BTreeSet::len).sum()
    }

    /// The number in the reply to a change: shard channels are counted for themselves.
    fn shown(&self, kind: Kind) -> i64 {
        let [channels, patterns, shards] = &self.names;
        match kind {
            Kind::Shard => shards.len() as i64,
            Kind::Channel | Kind::Pattern => (channels.len() + patterns.len()) as i64,
        }
    }
}

impl Session {
    /// The connection, as others find it.
    pub(super) fn listener(&self) -> Listener {
        Listener {
            session: self.id(),
            mailbox: self.client.mailbox.clone(),
            pushes: self.client.pushes.clone(),
        }
    }

    /// Whether the connection listens, and may do little else: in RESP2 its messages look like replies.
    pub(super) fn only_listens(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscriptions.count() > 0
    }

    /// SUBSCRIBE and its kin: what confirms them, once for each name. `None` if the command is none of them.
    pub(super) fn confirmations(
        &mut self,
        thread: &ThreadContext<'_>,
        command: ConnectionCommand,
        names: &[Blob],
    ) -> Option<Vec<Reply>> {
        use ConnectionCommand as C;
        Some(match command {
            C::Subscribe => self.subscribe(thread, Kind::Channel, names),
            C::PSubscribe => self.subscribe(thread, Kind::Pattern, names),
            C::SSubscribe => self.subscribe(thread, Kind::Shard, names),
            C::Unsubscribe => self.unsubscribe(thread, Kind::Channel, names),
            C::PUnsubscribe => self.unsubscribe(thread, Kind::Pattern, names),
            C::SUnsubscribe => self.unsubscribe(thread, Kind::Shard, names),
            _ => return None,
        })
    }

    /// SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE.
    fn subscribe(&mut self, thread: &ThreadContext<'_>, kind: Kind, names: &[Blob]) -> Vec<Reply> {
        let hub = &thread.shared.hub;
        if self.subscriptions.count() == 0 {
            hub.begin_interest(&thread.shared.runtime);
        }
        let word = match kind {
            Kind::Channel => "subscribe",
            Kind::Pattern => "psubscribe",
            Kind::Shard => "ssubscribe",
        };
        let mut confirmed = Vec::with_capacity(names.len());
        for name in names {
            if self.subscriptions.add(kind, name) {
                let listener = self.listener();
                hub.channels(|channels| {
                    channels.subscribe(kind, name.clone(), listener.session, listener);
                });
            }
            confirmed.push(self.confirmation(word, kind, Reply::Bulk(name.clone())));
        }
        self.show_subscriptions();
        confirmed
    }

    /// UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE: from these, or from all.
    fn unsubscribe(&mut self, thread: &ThreadContext<'_>, kind: Kind, names: &[Blob]) -> Vec<Reply> {
        let word = match kind {
            Kind::Channel => "unsubscribe",
            Kind::Pattern => "punsubscribe",
            Kind::Shard => "sunsubscribe",
        };
        let all: Vec<Blob> = match names {
            [] => self.subscriptions.of(kind).iter().cloned().collect(),
            names => names.to_vec(),
        };
        let mut confirmed = Vec::with_capacity(all.len());
        for name in &all {
            self.forget(thread.shared, kind, name);
            confirmed.push(self.confirmation(word, kind, Reply::Bulk(name.clone())));
        }
        if all.is_empty() {
            confirmed.push(self.confirmation(word, kind, Reply::Nil));
        }
        self.show_subscriptions();
        confirmed
    }

    fn confirmation(&self, word: &'static str, kind: Kind, name: Reply) -> Reply {
        let count = Reply::Integer(self.subscriptions.shown(kind));
        Reply::Push(vec![Reply::bulk(word), name, count])
    }

    fn forget(&mut self, shared: &Shared, kind: Kind, name: &Blob) {
        let hub = &shared.hub;
        if self.subscriptions.remove(kind, name) {
            hub.channels(|channels| channels.unsubscribe(kind, name, self.client.session));
            if self.subscriptions.count() == 0 {
                hub.end_interest(1);
            }
        }
    }

    /// Listens to nothing any more.
    pub(super) fn unsubscribe_from_all(&mut self, shared: &Shared) {
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for name in self.subscriptions.of(kind).clone() {
                self.forget(shared, kind, &name);
            }
        }
        self.show_subscriptions();
    }

    fn show_subscriptions(&self) {
        for (shown, names) in self.client.subscriptions.iter().zip(&self.subscriptions.names) {
            shown.store(names.len(), Ordering::Relaxed);
        }
    }

    /// PING of a connection that only listens.
    pub(super) fn pong(argv: &Args) -> Reply {
        let word = match &argv[1..] {
            [] => Reply::bulk(""),
            [word] => Reply::Bulk(word.clone()),
            _ => return errors::wrong_arity_of("ping"),
        };
        Reply::Array(vec![Reply::bulk("pong"), word])
    }

    /// The error of a command that a connection cannot run while it listens.
    pub(super) fn refuses_while_listening(&self, command: &Command) -> Option<Reply> {
        use ConnectionCommand as C;
        let is_allowed = command.name == "ping"
            || matches!(
                command.run,
                Run::Connection(
                    C::Subscribe
                        | C::Unsubscribe
                        | C::PSubscribe
                        | C::PUnsubscribe
                        | C::SSubscribe
                        | C::SUnsubscribe
                        | C::Quit
                        | C::Reset
                )
            );
        (self.only_listens() && !is_allowed).then(|| {
            Reply::error_owned(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context",
                command.name
            ))
        })
    }

    /// Takes what others have for the connection.
    pub fn delivered(&mut self, thread: &mut ThreadContext<'_>, delivery: Delivery) {
        match delivery {
            Delivery::Message { push, kind, name } => {
                // Behind the end of the subscription it would pass for a reply (RESP2).
                if self.subscriptions.of(kind).contains(&name) {
                    self.replies.share_at_once(&push, self.protocol);
                }
            }
            Delivery::Monitored(line) => {
                // What was on its way when it stopped to monitor is of no use.
                if self.monitors() {
                    self.replies.share_at_once(&line, self.protocol);
                }
            }
            Delivery::Invalidate { names, behind } if self.is_early(behind) => {
                self.tell_behind(names, behind);
            }
            Delivery::Invalidate { names, .. } => {
                let names = names.map_or(Reply::Nil, |names| {
                    Reply::Array(names.iter().cloned().map(Reply::Bulk).collect())
                });
                let push = match self.protocol {
                    Protocol::Resp3 => vec![Reply::bulk("invalidate"), names],
                    Protocol::Resp2 if self.subscriptions.of(Kind::Channel).contains(INVALIDATE) => {
                        vec![Reply::bulk("message"), Reply::bulk(INVALIDATE), names]
                    }
                    Protocol::Resp2 => return,
                };
                self.replies.push_at_once(&Reply::Push(push), self.protocol);
            }
            Delivery::RedirectionBroken(id) => {
                self.client.tracking.fetch_or(REDIRECTION_BROKEN, Ordering::Relaxed);
                if self.protocol == Protocol::Resp3 {
                    let push = vec![Reply::bulk("tracking-redir-broken"), Reply::Integer(id.cast_signed())];
                    self.replies.push_at_once(&Reply::Push(push), self.protocol);
                }
            }
            Delivery::Users => self.users_changed(thread),
            Delivery::Look => self.look_again(thread),
            Delivery::Unblock { wait, with_error } => self.unblocked(thread, wait, with_error),
        }
    }

    /// PUBSUB and its subcommands.
    pub(super) fn pubsub(thread: &ThreadContext<'_>, command: PubSubCommand, argv: &Args) -> Reply {
        let names = argv.get(2..).unwrap_or_default();
        let lists = matches!(command, PubSubCommand::Channels | PubSubCommand::ShardChannels);
        if lists && names.len() > 1 {
            return errors::subcommand_syntax("PUBSUB", &argv[1]);
        }
        let list = |kind: Kind| {
            thread.shared.hub.channels(|channels| {
                let shown = channels.names(kind).map(|(name, _)| name);
                let matching = shown.filter(|name| match names {
                    [wanted, ..] => pattern::matches(wanted, name),
                    [] => true,
                });
                Reply::Array(matching.cloned().map(Reply::Bulk).collect())
            })
        };
        let count = |kind: Kind| {
            thread.shared.hub.channels(|channels| {
                let count = |name: &Blob| Reply::Integer(channels.count(kind, name) as i64);
                let pairs = names.iter().map(|name| (Reply::Bulk(name.clone()), count(name)));
                Reply::Array(pairs.flat_map(|(name, count)| [name, count]).collect())
            })
        };
        match command {
            PubSubCommand::Channels => list(Kind::Channel),
            PubSubCommand::ShardChannels => list(Kind::Shard),
            PubSubCommand::NumSub => count(Kind::Channel),
            PubSubCommand::ShardNumSub => count(Kind::Shard),
            PubSubCommand::NumPat => {
                let hub = &thread.shared.hub;
                let patterns = hub.channels(|channels| channels.names(Kind::Pattern).count());
                Reply::Integer(patterns as i64)
            }
        }
    }
}
