//! CLIENT TRACKING: the connection is told when keys that it has read are written.

use super::{Completion, Reach, Session, ThreadContext, is_word};
use crate::hub::{Listener, TrackingMode, TrackingOptions};
use crate::net::clients::{BROADCAST, REDIRECTION_BROKEN, TRACKS};
use crate::shared::Shared;
use redis_surface::codec::Protocol;
use redis_surface::table::{Command, Flags, Run};
use redis_surface::{Involved, errors};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use txn::{Args, Blob, Footprint, Key, Reply, Weight};

/// Keys of which copies are old; `None`: perhaps all.
type Invalidated = Option<Arc<[Blob]>>;

/// Keys that are about to be read.
#[derive(Default)]
struct Reads {
    keys: Vec<Key>,
    /// By a script alone, which may read none of them.
    by_script: bool,
}

/// Whoever keeps copies by prefixes would keep old ones.
const BROADCAST_MISSES_KEYS: Reply = Reply::error(
    "ERR BCAST needs a node that is told of all keys, and in this cluster a node keeps only some of the \
     partitions: use CLIENT TRACKING ON without BCAST, which tells of the keys that were read, or give \
     every node all partitions",
);

/// How a connection is told.
#[derive(Default)]
pub(super) struct Tracks {
    options: TrackingOptions,
    /// CLIENT CACHING, for the next command or block.
    caching: Option<bool>,
    /// What the present command reads.
    reads: Option<Reads>,
    /// What is read by replies which are under way, with the last request that these wait for.
    under_way: VecDeque<(u64, Reads)>,
    /// What the connection's own requests have invalidated, with those: they are answered first.
    own: VecDeque<(u64, Invalidated)>,
}

/// The options of CLIENT TRACKING, as they stand there: OFF reads them too, and forgets them.
struct Asked {
    /// Without their mode.
    options: TrackingOptions,
    broadcasts: bool,
    opt_in: bool,
    opt_out: bool,
    prefixes: Vec<Blob>,
}

impl Asked {
    fn parse(thread: &ThreadContext<'_>, words: &[Blob]) -> Result<Asked, Reply> {
        let mut options = TrackingOptions::default();
        let (mut broadcasts, mut opt_in, mut opt_out) = (false, false, false);
        let mut prefixes: Vec<Blob> = Vec::new();
        let mut rest = words;
        while let [word, tail @ ..] = rest {
            rest = tail;
            match word {
                word if is_word(word, "bcast") => broadcasts = true,
                word if is_word(word, "optin") => opt_in = true,
                word if is_word(word, "optout") => opt_out = true,
                word if is_word(word, "noloop") => options.no_loop = true,
                word if is_word(word, "redirect") && !rest.is_empty() => {
                    if options.redirect.is_some() {
                        return Err(Reply::error("ERR A client can only redirect to a single other client"));
                    }
                    let id = redis_surface::parse::unsigned(&rest[0]).ok_or(errors::NOT_AN_INTEGER)?;
                    rest = &rest[1..];
                    let other = thread
                        .shared
                        .clients
                        .by_id(id)
                        .ok_or(Reply::error("ERR The client ID you want redirect to does not exist"))?;
                    let listener = Listener {
                        session: other.session,
                        mailbox: other.mailbox.clone(),
                        pushes: other.pushes.clone(),
                    };
                    options.redirect = Some((id, Some(listener)));
                }
                word if is_word(word, "prefix") && !rest.is_empty() => {
                    prefixes.push(rest[0].clone());
                    rest = &rest[1..];
                }
                _ => return Err(errors::SYNTAX),
            }
        }
        Ok(Asked { options, broadcasts, opt_in, opt_out, prefixes })
    }
}

impl Session {
    /// CLIENT TRACKING. `None` if it is answered later.
    pub(super) fn track(&mut self, thread: &mut ThreadContext<'_>, words: &[Blob]) -> Option<Reply> {
        let Some((mode, words)) = words.split_first() else {
            return Some(errors::SYNTAX);
        };
        let asked = match Asked::parse(thread, words) {
            Ok(asked) => asked,
            Err(error) => return Some(error),
        };
        if is_word(mode, "off") {
            self.track_no_more(thread.shared);
            return Some(Reply::OK);
        }
        if !is_word(mode, "on") {
            return Some(errors::SYNTAX);
        }
        let options = match self.tracking_options(thread, asked) {
            Ok(options) => options,
            Err(error) => return Some(error),
        };
        let is_new = self.tracks.is_none();
        let hub = &thread.shared.hub;
        if is_new {
            hub.begin_interest(&thread.shared.runtime);
        }
        let redirect = options.redirect.as_ref().map_or(0, |(id, _)| *id);
        let broadcasts = matches!(options.mode, TrackingMode::Broadcast(_));
        let shown = TRACKS | if broadcasts { BROADCAST } else { 0 };
        self.client.tracking.store(shown, Ordering::Relaxed);
        self.client.redirect.store(redirect, Ordering::Relaxed);
        hub.track(&self.listener(), &options);
        match &mut self.tracks {
            Some(tracks) => tracks.options = options,
            None => {
                self.tracks = Some(Box::new(Tracks { options, ..Tracks::default() }));
            }
        }
        if !is_new {
            return Some(Reply::OK);
        }
        // What was executed before anybody was interested, perhaps a moment ago, tells nothing when it is
        // committed: nothing is read before that has ended.
        let footprint = Footprint { keys: None, read_only: false, weight: Weight::Light };
        let procedure = thread.commands.watch.clone();
        let reach = Reach::of(Involved::Everything);
        let completion = Some(Completion::Answer(Reply::OK));
        self.transact(thread, procedure, Args::new(), footprint, reach, completion);
        None
    }

    fn tracking_options(&self, thread: &ThreadContext<'_>, asked: Asked) -> Result<TrackingOptions, Reply> {
        let Asked { mut options, broadcasts, opt_in, opt_out, prefixes } = asked;
        if !prefixes.is_empty() && !broadcasts {
            return Err(Reply::error("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        if broadcasts && thread.shared.runtime.is_spread() {
            return Err(BROADCAST_MISSES_KEYS);
        }
        if let Some(before) = &self.tracks {
            let broadcast_before = matches!(before.options.mode, TrackingMode::Broadcast(_));
            if broadcast_before != broadcasts {
                return Err(Reply::error(
                    "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
                     then re-enabling it with a different mode.",
                ));
            }
            let before = &before.options.mode;
            if opt_in && *before == TrackingMode::OptOut || opt_out && *before == TrackingMode::OptIn {
                return Err(Reply::error(
                    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
                     then re-enabling it with a different mode.",
                ));
            }
        }
        if broadcasts && (opt_in || opt_out) {
            return Err(Reply::error("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if opt_in && opt_out {
            return Err(Reply::error("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        options.mode = match (broadcasts, opt_in, opt_out) {
            (true, ..) => TrackingMode::Broadcast(self.prefixes(prefixes)?),
            (_, true, _) => TrackingMode::OptIn,
            (.., true) => TrackingMode::OptOut,
            _ => TrackingMode::Always,
        };
        Ok(options)
    }

    /// Prefixes with those that the connection has named before. None may be a beginning of another one.
    fn prefixes(&self, mut prefixes: Vec<Blob>) -> Result<Vec<Blob>, Reply> {
        if prefixes.is_empty() {
            prefixes.push(Blob::from(""));
        }
        let before = match self.tracks.as_ref().map(|tracks| &tracks.options.mode) {
            Some(TrackingMode::Broadcast(before)) => before.clone(),
            _ => Vec::new(),
        };
        for (place, prefix) in prefixes.iter().enumerate() {
            let others = before.iter().chain(&prefixes[place + 1..]);
            for other in others.filter(|&other| other != prefix) {
                if other.starts_with(prefix) || prefix.starts_with(other) {
                    let [one, other] = [prefix, other].map(|prefix| String::from_utf8_lossy(prefix));
                    return Err(Reply::error_owned(format!(
                        "ERR Prefix '{one}' overlaps with an existing prefix '{other}'. Prefixes for a \
                         single client must not overlap."
                    )));
                }
            }
        }
        prefixes.extend(before);
        prefixes.sort_unstable();
        prefixes.dedup();
        Ok(prefixes)
    }

    /// Is told no more.
    pub(super) fn track_no_more(&mut self, shared: &Shared) {
        if let Some(tracks) = self.tracks.take() {
            let session = self.client.session;
            shared.hub.track_no_more(session);
            // It may begin anew before these are answered, and then nobody would let go of their keys.
            let under_way = tracks.under_way.into_iter().map(|(_, reads)| reads);
            for reads in under_way.chain(tracks.reads) {
                shared.hub.has_read(session, &reads.keys, None);
            }
            shared.hub.end_interest(1);
            self.client.tracking.store(0, Ordering::Relaxed);
        }
    }

    /// CLIENT CACHING.
    pub(super) fn caching(&mut self, word: &Blob) -> Reply {
        const NOT_NOW: Reply = Reply::error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
             OPTOUT mode enabled",
        );
        let Some(tracks) = &mut self.tracks else {
            return NOT_NOW;
        };
        match (&tracks.options.mode, word) {
            (TrackingMode::OptIn, word) if is_word(word, "yes") => tracks.caching = Some(true),
            (TrackingMode::OptOut, word) if is_word(word, "no") => tracks.caching = Some(false),
            (_, word) if is_word(word, "yes") => {
                return Reply::error(
                    "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
                );
            }
            (_, word) if is_word(word, "no") => {
                return Reply::error(
                    "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
                );
            }
            _ => return errors::SYNTAX,
        }
        Reply::OK
    }

    /// CLIENT GETREDIR.
    pub(super) fn redirection(&self) -> Reply {
        Reply::Integer(match &self.tracks {
            None => -1,
            Some(tracks) => {
                let redirect = tracks.options.redirect.as_ref();
                redirect.map_or(0, |(id, _)| id.cast_signed())
            }
        })
    }

    /// CLIENT TRACKINGINFO.
    pub(super) fn tracking_info(&self) -> Reply {
        let mut flags = Vec::new();
        let mut prefixes = Vec::new();
        match &self.tracks {
            None => flags.push("off"),
            Some(tracks) => {
                flags.push("on");
                match &tracks.options.mode {
                    TrackingMode::Always => {}
                    TrackingMode::OptIn => flags.push("optin"),
                    TrackingMode::OptOut => flags.push("optout"),
                    TrackingMode::Broadcast(names) => {
                        flags.push("bcast");
                        prefixes.clone_from(names);
                    }
                }
                match tracks.caching {
                    Some(true) => flags.push("caching-yes"),
                    Some(false) => flags.push("caching-no"),
                    None => {}
                }
                if tracks.options.no_loop {
                    flags.push("noloop");
                }
                if self.client.tracking.load(Ordering::Relaxed) & REDIRECTION_BROKEN != 0 {
                    flags.push("broken_redirect");
                }
            }
        }
        prefixes.sort_unstable();
        Reply::Map(vec![
            (Reply::bulk("flags"), Reply::Set(flags.into_iter().map(Reply::bulk).collect())),
            (Reply::bulk("redirect"), self.redirection()),
            (Reply::bulk("prefixes"), Reply::Array(prefixes.into_iter().map(Reply::Bulk).collect())),
        ])
    }

    /// Has it remembered what a command, alone or in a block, is about to read, if it is to be.
    pub(super) fn note_reads(
        &mut self,
        thread: &ThreadContext<'_>,
        command: &Command,
        argv: &Args,
        is_alone: bool,
    ) {
        let Some(tracks) = &mut self.tracks else {
            return;
        };
        let is_remembered = match &tracks.options.mode {
            TrackingMode::Always => true,
            TrackingMode::OptIn => tracks.caching == Some(true),
            TrackingMode::OptOut => tracks.caching != Some(false),
            TrackingMode::Broadcast(_) => false,
        };
        // An invalidation that nobody would get is none.
        let is_heard = self.protocol == Protocol::Resp3 || tracks.options.redirect.is_some();
        let reads = command.is(Flags::READONLY) || matches!(command.run, Run::Script(_));
        if !is_remembered || !is_heard || !reads {
            return;
        }
        if let Involved::Keys(keys) = redis_surface::involved(argv) {
            let keys_max = thread.config.tracking_table_max_keys;
            let session = self.client.session;
            let runtime = &thread.shared.runtime;
            let reads = keys.iter().map(|key| (key.clone(), runtime.end_for(key)));
            thread.shared.hub.reads(session, reads, keys_max);
            if runtime.is_spread() {
                // Nobody would tell of a later write.
                let others = keys.iter().filter(|&key| !runtime.keeps(key));
                others.for_each(|key| thread.shared.hub.written_unheard(key));
            }
            let reads = tracks.reads.get_or_insert_default();
            reads.by_script = is_alone && matches!(command.run, Run::Script(_));
            reads.keys.extend(keys);
        }
    }

    /// Whether a request of this connection is not answered yet.
    pub(super) fn is_early(&self, request: Option<u64>) -> bool {
        request.is_some_and(|sequence| sequence >= self.replies.first_sequence())
    }

    /// Has the connection told of its own write once that is answered.
    pub(super) fn tell_behind(&mut self, names: Invalidated, request: Option<u64>) {
        if let (Some(tracks), Some(sequence)) = (&mut self.tracks, request) {
            tracks.own.push_back((sequence, names));
        }
    }

    /// What the connection is told of its own writes now that these are answered.
    pub(super) fn told_of_own(&mut self) -> Option<Invalidated> {
        let first = self.replies.first_sequence();
        let own = &mut self.tracks.as_mut()?.own;
        let place = own.iter().position(|(sequence, _)| *sequence < first)?;
        own.remove(place).map(|(_, names)| names)
    }

    /// A command has begun, or replies are on their way to the client.
    pub(super) fn note_progress(&mut self, shared: &Shared) {
        let Some(tracks) = &mut self.tracks else {
            return;
        };
        if let Some(reads) = tracks.reads.take() {
            let last = self.replies.next_sequence() - 1;
            tracks.under_way.push_back((last, reads));
        }
        while let Some((last, reads)) =
            tracks.under_way.pop_front_if(|(last, _)| *last < self.replies.first_sequence())
        {
            let script = reads.by_script.then_some(last);
            let session = self.client.session;
            shared.hub.has_read(session, &reads.keys, script);
        }
    }

    /// CLIENT CACHING was for the command that has begun.
    pub(super) fn forget_caching(&mut self) {
        if let Some(tracks) = &mut self.tracks {
            tracks.caching = None;
        }
    }
}
