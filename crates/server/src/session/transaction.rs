//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! A block becomes one request: its commands, and the watched keys with the versions that WATCH saw. Whether
//! they are still the same is decided inside the ordered transaction, so a race has one outcome everywhere.

use super::sorts::{bulky_max, waits_for_writers};
use super::{Completion, Reach, Session, ThreadContext, config, is_word};
use crate::observe::Subject;
use redis_surface::acl::Deed;
use redis_surface::table::{self, CommandNumber, ConnectionCommand, Flags, Resolved, Run};
use redis_surface::{Involved, Watched, errors};
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;
use txn::{Args, Blob, Footprint, Key, Reply, Weight};

/// What a queued word takes beside its bytes.
const WORD_BYTES: usize = size_of::<Blob>();
/// What a watched key takes beside its bytes.
const WATCHED_BYTES: usize = 2 * size_of::<Key>() + size_of::<Watched>();
/// A block that would take too much memory.
const TOO_LONG: Reply =
    Reply::error("ERR the block is longer than client-query-buffer-limit: split it, or raise the limit");

/// The password may be one of the user `default`, and changing that is a transaction of its own.
const PASSWORD_IN_BLOCK: Reply = Reply::error(
    "ERR CONFIG SET requirepass is not allowed inside a transaction: it changes the user 'default'; send \
     it by itself, or use ACL SETUSER default",
);

/// What EXEC replies that is refused itself.
pub(super) fn aborted(error: Reply) -> Reply {
    match error {
        Reply::Error(text) if !text.starts_with("EXECABORT ") => Reply::error_owned(format!(
            "EXECABORT Transaction discarded because of: {}",
            text.strip_prefix("ERR ").unwrap_or(&text)
        )),
        other => other,
    }
}

/// A message that was published.
#[derive(Debug)]
pub struct Published {
    channel: Blob,
    is_sharded: bool,
}

impl Published {
    /// What the command `argv` (its name first) publishes.
    pub(super) fn of(argv: &Args) -> Option<Published> {
        let [name, channel, _] = &argv[..] else {
            return None;
        };
        let is_sharded = is_word(name, "spublish");
        (is_sharded || is_word(name, "publish")).then(|| Published { channel: channel.clone(), is_sharded })
    }

    /// The reply: how many connections of this node get it.
    fn counted(&self, thread: &ThreadContext<'_>, reply: Reply) -> Reply {
        match reply {
            Reply::Integer(_) => {
                let hub = &thread.shared.hub;
                Reply::Integer(hub.receivers(&self.channel, self.is_sharded) as i64)
            }
            other => other,
        }
    }
}

/// An open MULTI block.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// What was queued.
    commands: Vec<Args>,
    /// Which commands they are.
    numbers: Vec<CommandNumber>,
    /// Which of the commands are the connection's own business, in ascending order.
    own: Vec<usize>,
    /// The bytes of all commands.
    bytes: usize,
    /// A command was refused while it was queued.
    pub(super) faulty: bool,
    /// A command may take more memory.
    needs_memory: bool,
    /// A command waits for the end of CLIENT PAUSE WRITE.
    writes: bool,
}

/// Whether a block reads so many collections that another thread had better run it.
fn may_take_long(commands: &[Args]) -> bool {
    const LONG_READS_MAX: usize = 16;
    let is_long =
        |argv: &&Args| table::resolve(argv).is_ok_and(|resolved| bulky_max(resolved.command, argv).is_some());
    commands.iter().filter(is_long).take(LONG_READS_MAX + 1).count() > LONG_READS_MAX
}

impl Session {
    fn show_block(&self) {
        let shown = self.block.as_ref().map_or(0, |block| block.commands.len() + 1);
        let bytes = self.block.as_ref().map_or(0, |block| block.bytes);
        self.client.block.store(shown, Ordering::Relaxed);
        self.client.block_bytes.store(bytes, Ordering::Relaxed);
        self.client.watched.store(self.watched.len(), Ordering::Relaxed);
    }

    pub(super) fn multi(&mut self) -> Reply {
        if self.block.is_some() {
            return Reply::error("ERR MULTI calls can not be nested");
        }
        self.block = Some(Block::default());
        self.show_block();
        Reply::OK
    }

    pub(super) fn discard(&mut self) -> Reply {
        if self.block.is_none() {
            return Reply::error("ERR DISCARD without MULTI");
        }
        self.end_block();
        Reply::OK
    }

    pub(super) fn unwatch(&mut self) -> Reply {
        self.watched.clear();
        self.watched_bytes = 0;
        self.show_block();
        Reply::OK
    }

    /// Forgets the block and the watched keys.
    pub(super) fn end_block(&mut self) {
        self.block = None;
        self.watched.clear();
        self.watched_bytes = 0;
        self.show_block();
    }

    /// Whether EXEC would run nothing.
    pub(super) fn runs_no_block(&self) -> bool {
        let block = self.block.as_ref();
        block.is_none_or(|block| block.faulty || block.commands.is_empty())
    }

    /// Whether a command of the open block may take more memory.
    pub(super) fn needs_memory(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.needs_memory)
    }

    /// Whether CLIENT PAUSE WRITE holds the open block.
    pub(super) fn block_writes(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.writes)
    }

    /// Queues a command in the open block.
    pub(super) fn queue(&mut self, thread: &mut ThreadContext<'_>, resolved: Resolved, argv: Args) {
        if resolved.command.is(Flags::NO_MULTI) {
            return self.reject(thread, Some(resolved.number()), errors::NOT_IN_BLOCK);
        }
        if config::names(&argv, "requirepass")
            && matches!(resolved.command.run, Run::Connection(ConnectionCommand::ConfigSet))
        {
            return self.reject(thread, Some(resolved.number()), PASSWORD_IN_BLOCK);
        }
        if let Some(block) = &mut self.block {
            block.bytes += argv.iter().map(|word| WORD_BYTES + word.len()).sum::<usize>();
            if block.bytes as u64 > thread.config.client_query_buffer_limit {
                // What is refused anyway need not be kept.
                *block = Block::default();
                return self.reject(thread, Some(resolved.number()), TOO_LONG);
            }
            block.needs_memory |= resolved.command.is(Flags::DENYOOM);
            block.writes |= waits_for_writers(resolved.command);
            if matches!(resolved.command.run, Run::Connection(_)) {
                block.own.push(block.commands.len());
            }
            block.numbers.push(resolved.number());
            block.commands.push(argv);
        }
        self.show_block();
        self.answer(thread, &Reply::Status("QUEUED".into()));
    }

    pub(super) fn exec(&mut self, thread: &mut ThreadContext<'_>) -> Option<Reply> {
        let Some(block) = &self.block else {
            return Some(Reply::error("ERR EXEC without MULTI"));
        };
        if block.faulty {
            self.end_block();
            return Some(Reply::error("EXECABORT Transaction discarded because of previous errors."));
        }
        let mut block = self.block.take().unwrap_or_default();
        let watched = std::mem::take(&mut self.watched);
        self.watched_bytes = 0;
        self.show_block();
        if block.commands.is_empty() && watched.is_empty() {
            return Some(Reply::Array(Vec::new()));
        }
        if !thread.shared.monitors.is_empty() && !block.commands.is_empty() {
            self.show_block_to_monitors(thread, &block.numbers, &block.commands);
        }
        let numbers = std::mem::take(&mut block.numbers);
        self.call_is_about(|| Subject::Block(numbers.into()));
        let mut own = Vec::new();
        let mut ordered = Vec::new();
        let mut own_places = block.own.iter().copied().peekable();
        for (place, argv) in block.commands.into_iter().enumerate() {
            let is_own = own_places.next_if_eq(&place).is_some();
            if let Ok(resolved) = table::resolve(&argv) {
                match resolved.command.run {
                    // It is for what the block reads behind it; its reply comes with the others.
                    Run::Connection(ConnectionCommand::ClientCaching) => {
                        self.caching(&argv[2]);
                    }
                    _ if is_own => {}
                    _ => self.note_reads(thread, resolved.command, &argv, false),
                }
            }
            match is_own {
                true => own.push((place, argv)),
                false => ordered.push(argv),
            }
        }
        let found = ordered.iter().enumerate();
        let published =
            found.filter_map(|(place, argv)| Some((place, Published::of(argv)?))).collect::<Vec<_>>();
        let mut reach = thread.reach(&ordered);
        if !watched.is_empty() {
            let keys = Involved::Keys(watched.keys().cloned().collect());
            reach.involved = reach.involved.with(keys);
            reach.watched = Some(self.watched_by);
        }
        let watched = watched.into_values().collect();
        let block = redis_surface::Block {
            watched,
            commands: ordered,
            // What the scripts among them will write shows only while they run.
            memory: thread.memory(),
            is_gathered: false,
        };
        let is_of_users = |argv: &Args| {
            table::resolve(argv).is_ok_and(|resolved| matches!(resolved.command.run, Run::Acl(_)))
        };
        let acts = self.is_restricted() || block.commands.iter().any(is_of_users);
        let mut footprint = block.footprint(false);
        if footprint.read_only && may_take_long(&block.commands) {
            footprint.weight = Weight::Heavy;
        }
        let completion =
            (!own.is_empty() || !published.is_empty()).then_some(Completion::Exec { own, published });
        self.forget_caching();
        if acts {
            self.act(thread, Deed::Block(block), reach, completion);
            return None;
        }
        self.transact(thread, thread.commands.block.clone(), block.to_args(), footprint, reach, completion);
        None
    }

    pub(super) fn watch(&mut self, thread: &mut ThreadContext<'_>, argv: &Args) -> Option<Reply> {
        if self.block.is_some() {
            return Some(Reply::error("ERR WATCH inside MULTI is not allowed"));
        }
        let keys: Vec<Key> = argv[1..].iter().map(|word| Key::new(word)).collect();
        let args = Args(argv[1..].iter().cloned().collect());
        let reach = Reach::of(Involved::Keys(keys.clone()));
        let completion = Some(Completion::Watch(keys));
        self.transact(thread, thread.commands.watch.clone(), args, Footprint::read_only(), reach, completion);
        None
    }

    /// Runs a command of the connection itself that was queued, if its user may run it still. What it replies
    /// is appended: SUBSCRIBE and its kin confirm each name.
    fn own_command_of_block(
        &mut self,
        thread: &mut ThreadContext<'_>,
        argv: &Args,
        replies: &mut Vec<Reply>,
    ) {
        let resolved = table::resolve(argv).ok();
        let Some((resolved, command)) = resolved.and_then(|resolved| match resolved.command.run {
            Run::Connection(command) => Some((resolved, command)),
            _ => None,
        }) else {
            return replies.push(errors::NOT_IN_BLOCK);
        };
        if let Some(error) = self.denied_by_now(thread, &resolved, argv) {
            return replies.push(error);
        }
        let listens = command != ConnectionCommand::SSubscribe;
        match listens.then(|| self.confirmations(thread, command, &argv[1..])) {
            Some(Some(confirmed)) => replies.extend(confirmed),
            _ => replies.push(self.value_command(thread, command, argv)),
        }
    }

    /// Completes a transaction command with the reply of its request, and gives the reply that its client
    /// gets. `None` if there is none yet.
    pub(super) fn complete(
        &mut self,
        thread: &mut ThreadContext<'_>,
        completion: Completion,
        reply: Reply,
    ) -> Option<Reply> {
        Some(match completion {
            Completion::Acted(then) => {
                let reply = self.acted(thread, reply);
                return match then {
                    Some(then) => self.complete(thread, *then, reply),
                    None => Some(reply),
                };
            }
            Completion::Attempt => return self.attempted(thread, reply),
            Completion::StreamEnds => return self.ends_are_known(thread, reply),
            Completion::Answer(answer) => match reply {
                Reply::Error(_) => reply,
                _ => answer,
            },
            Completion::Publish(published) => published.counted(thread, reply),
            Completion::Watch(keys) => {
                let Some(states) = Watched::from_reply(&keys, &reply) else {
                    return Some(reply);
                };
                if self.watched.is_empty() {
                    self.watched_by = self.routing.version;
                }
                for watched in states {
                    // The first version that was seen counts: a change between two WATCHes is a change.
                    if let Entry::Vacant(place) = self.watched.entry(watched.key.clone()) {
                        self.watched_bytes += watched.key.heap_bytes() + WATCHED_BYTES;
                        place.insert(watched);
                    }
                }
                self.show_block();
                Reply::OK
            }
            Completion::Exec { own, published } => {
                let Reply::Array(mut ordered) = reply else {
                    return Some(reply);
                };
                for (place, published) in published {
                    if let Some(reply) = ordered.get_mut(place) {
                        *reply = published.counted(thread, std::mem::replace(reply, Reply::Nil));
                    }
                }
                let mut replies = Vec::with_capacity(ordered.len() + own.len());
                let mut ordered = ordered.into_iter();
                let mut commands = 0;
                for (place, argv) in own {
                    replies.extend(ordered.by_ref().take(place - commands));
                    self.own_command_of_block(thread, &argv, &mut replies);
                    commands = place + 1;
                }
                replies.extend(ordered);
                // One in the block was for the block.
                self.forget_caching();
                Reply::Array(replies)
            }
        })
    }
}
