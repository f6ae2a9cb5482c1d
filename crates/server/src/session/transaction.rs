//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! A block becomes one request: its commands, and the watched keys with the versions that WATCH saw. Whether they are
//! still the same is decided inside the ordered transaction, so a race has one outcome everywhere.

use super::{Completion, Desk, Session};
use redis_surface::table::{Flags, Resolved, Run};
use redis_surface::{Watched, errors};
use std::sync::atomic::Ordering;
use txn::{Args, Footprint, Key, Reply};

/// An open MULTI block.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// What was queued.
    commands: Vec<Args>,
    /// Which of the commands are the connection's own business.
    own: Vec<usize>,
    /// A command was refused while it was queued.
    pub(super) faulty: bool,
}

impl Session {
    fn show_block(&self) {
        let shown = self
            .block
            .as_ref()
            .map_or(0, |block| block.commands.len() + 1);
        self.client.block.store(shown, Ordering::Relaxed);
        self.client
            .watched
            .store(self.watched.len(), Ordering::Relaxed);
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
        self.show_block();
        Reply::OK
    }

    /// Forgets the block and the watched keys.
    pub(super) fn end_block(&mut self) {
        self.block = None;
        self.watched.clear();
        self.show_block();
    }

    /// Queues a command in the open block.
    pub(super) fn queue(&mut self, desk: &mut Desk<'_>, resolved: Resolved, argv: Args) {
        if resolved.command.is(Flags::NO_MULTI) {
            return self.reject(desk, errors::NOT_IN_BLOCK);
        }
        if let Some(block) = &mut self.block {
            if matches!(resolved.command.run, Run::Connection(_)) {
                block.own.push(block.commands.len());
            }
            block.commands.push(argv);
        }
        self.show_block();
        self.answer(desk, &Reply::Status("QUEUED".into()));
    }

    pub(super) fn exec(&mut self, desk: &mut Desk<'_>) -> Option<Reply> {
        let Some(block) = &self.block else {
            return Some(Reply::error("ERR EXEC without MULTI"));
        };
        if block.faulty {
            self.end_block();
            return Some(Reply::error(
                "EXECABORT Transaction discarded because of previous errors.",
            ));
        }
        let block = self.block.take().unwrap_or_default();
        let watched = std::mem::take(&mut self.watched);
        self.show_block();
        if block.commands.is_empty() && watched.is_empty() {
            return Some(Reply::Array(Vec::new()));
        }
        let mut own = Vec::new();
        let mut ordered = Vec::new();
        for (place, argv) in block.commands.into_iter().enumerate() {
            if block.own.contains(&place) {
                own.push((place, argv));
            } else {
                ordered.push(argv);
            }
        }
        let block = redis_surface::Block {
            watched,
            commands: ordered,
        };
        let footprint = block.footprint(false);
        let completion = if own.is_empty() {
            None
        } else {
            Some(Completion::Exec(own))
        };
        self.transact(
            desk,
            desk.commands.block.clone(),
            block.to_args(),
            footprint,
            completion,
        );
        None
    }

    pub(super) fn watch(&mut self, desk: &mut Desk<'_>, argv: &Args) -> Option<Reply> {
        if self.block.is_some() {
            return Some(Reply::error("ERR WATCH inside MULTI is not allowed"));
        }
        let keys: Vec<Key> = argv[1..].iter().map(|word| Key::new(word)).collect();
        let args = Args(argv[1..].iter().cloned().collect());
        let completion = Some(Completion::Watch(keys));
        self.transact(
            desk,
            desk.commands.watch.clone(),
            args,
            Footprint::read_only(),
            completion,
        );
        None
    }

    /// Completes a transaction command with the reply of its request, and gives the reply that its client gets.
    pub(super) fn complete(
        &mut self,
        desk: &mut Desk<'_>,
        completion: Completion,
        reply: Reply,
    ) -> Reply {
        match completion {
            Completion::Watch(keys) => {
                let Some(states) = Watched::from_reply(&keys, &reply) else {
                    return reply;
                };
                for watched in states {
                    // The first version that was seen counts: a change between two WATCHes is a change.
                    if !self.watched.iter().any(|known| known.key == watched.key) {
                        self.watched.push(watched);
                    }
                }
                self.show_block();
                Reply::OK
            }
            Completion::Exec(own) => {
                let Reply::Array(mut replies) = reply else {
                    return reply;
                };
                for (place, argv) in own {
                    let reply = match redis_surface::table::resolve(&argv)
                        .map(|resolved| resolved.command.run)
                    {
                        Ok(Run::Connection(command)) => self.value_command(desk, command, &argv),
                        _ => errors::NOT_IN_BLOCK,
                    };
                    replies.insert(place.min(replies.len()), reply);
                }
                Reply::Array(replies)
            }
        }
    }
}
