//! What a thread lends its sessions for the length of a round, and what they leave there.

use super::gathering::{Gathering, ShortCommands};
use super::transaction::Published;
use crate::clock::Clocks;
use crate::config::Config;
use crate::observe::{Books, Tally};
use crate::runtime::{Port, Routing};
use crate::shared::{MemoryState, Shared, ThreadCounters};
use redis_surface::{CommandTable, Involved, Memory};
use std::collections::BTreeSet;
use std::sync::Arc;
use txn::hash::FixedMap;
use txn::hash::{hash_bytes, mix};
use txn::{Args, PartitionId, Procedure, Reply, Request, RequestId};

/// What a session needs while it handles commands: its thread's, lent for the length of a round.
pub struct ThreadContext<'a> {
    /// What all threads share.
    pub shared: &'a Arc<Shared>,
    /// Where this thread's requests are answered.
    pub port: &'a Port,
    /// The settings.
    pub config: &'a Config,
    /// The commands with their procedures.
    pub commands: &'a Commands,
    /// This thread's counters.
    pub counters: &'a ThreadCounters,
    /// This thread's calls.
    pub tally: &'a Tally,
    /// What this round submits.
    pub submissions: &'a mut Submissions,
    /// What is known of this thread's scripts.
    pub strays: &'a mut Strays,
    /// What a session reads where the time of the round is too old.
    pub clocks: &'a Clocks,
    /// The steady time when the round began, in milliseconds since 1970.
    pub now_ms: u64,
}

impl ThreadContext<'_> {
    /// Counts the calls that have ended.
    #[inline]
    pub fn settle(&self) {
        self.tally.settle(&Books { counts: &self.counters.calls, shared: self.shared, config: self.config });
    }

    /// Whether there is memory for more.
    pub(super) fn memory(&self) -> Memory {
        match self.shared.memory() {
            MemoryState::Short => Memory::Short,
            MemoryState::Ample | MemoryState::Evicting => Memory::Ample,
        }
    }

    /// What commands reach, together: looked at only where it decides something.
    pub(super) fn reach(&self, commands: &[Args]) -> Reach {
        if self.shared.runtime.partitions_count() == 1 {
            return Reach::of(Involved::Nothing);
        }
        let is_spread = self.shared.runtime.is_spread();
        let each = commands.iter().map(|argv| match redis_surface::involved(argv) {
            // Each node tells its own connections.
            _ if is_spread && Published::of(argv).is_some() => Involved::Everything,
            involved => involved,
        });
        let straying = commands.iter().filter_map(|argv| redis_surface::straying(argv));
        let words = straying.flat_map(|argv| argv.iter().take(2)).map(|word| hash_bytes(word));
        Reach {
            involved: each.fold(Involved::Nothing, Involved::with),
            strays: words.reduce(|all, word| mix(all ^ word)),
            watched: None,
        }
    }
}

/// What a transaction touches, as its words tell.
#[derive(Clone)]
pub(super) struct Reach {
    pub(super) involved: Involved,
    /// It may touch what they do not tell: a number that calls of the same script share.
    pub(super) strays: Option<u64>,
    /// If its connection watches keys: by which slots it was routed when it saw the first of them.
    pub(super) watched: Option<u32>,
}

impl Reach {
    /// This, and nothing else.
    pub(super) fn of(involved: Involved) -> Reach {
        Reach { involved, strays: None, watched: None }
    }

    /// Whether slots have moved since WATCH: a key's versions are those of one partition, and say nothing
    /// elsewhere.
    pub(super) fn has_lost_sight(&self, routing: &Routing) -> bool {
        self.watched.is_some_and(|version| version != routing.version)
    }
}

/// Scripts that have touched keys of partitions that their words did not tell. Their next calls go there,
/// too, at once, rather than to those that they name first, in vain.
#[derive(Default)]
pub struct Strays(FixedMap<u64, Strayed>);

/// A script that has strayed.
#[derive(Default)]
struct Strayed {
    /// How many calls were made since the last that strayed.
    calls: u32,
    to: Beyond,
}

/// Where a call goes beyond what its words tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Beyond {
    /// Also to these partitions.
    These(BTreeSet<PartitionId>),
    Everywhere,
}

impl Default for Beyond {
    fn default() -> Beyond {
        Beyond::These(BTreeSet::new())
    }
}

/// How many scripts are remembered, at most. When one more strays, the others are forgotten.
const STRAYS_MAX: usize = 1024;
/// After so many calls one goes where its words tell: the script may have strayed once only.
const CALLS_BEYOND: u32 = 64;
/// A script that strays to more partitions strays anywhere.
const STRAYED_TO_MAX: usize = 3;

impl Strays {
    /// A call of this script has strayed, to this partition if that is known.
    pub(super) fn note(&mut self, script: u64, missing: Option<PartitionId>) {
        if self.0.len() >= STRAYS_MAX && !self.0.contains_key(&script) {
            self.0.clear();
        }
        let strayed = self.0.entry(script).or_default();
        strayed.calls = 0;
        let Beyond::These(known) = &mut strayed.to else {
            return;
        };
        known.extend(missing);
        if missing.is_none() || known.len() > STRAYED_TO_MAX {
            strayed.to = Beyond::Everywhere;
        }
    }

    /// Where the next call of this script goes beyond what its words tell, if anywhere.
    pub(super) fn beyond(&mut self, script: u64) -> Option<Beyond> {
        let strayed = self.0.get_mut(&script)?;
        strayed.calls += 1;
        if strayed.calls > CALLS_BEYOND {
            self.0.remove(&script);
            return None;
        }
        Some(strayed.to.clone())
    }
}

/// Requests that will be submitted together.
pub struct Submissions {
    /// In the order in which they were made.
    pub requests: Vec<Arc<Request>>,
    /// The bytes of their arguments.
    pub bytes: usize,
    /// Reads that must ask how far they have to go, with their partitions.
    pub strict: Vec<(RequestId, PartitionId)>,
    /// The last requests, as long as others may join them.
    pub(super) gathering: Gathering,
    /// What a gathering becomes a request of.
    pub(super) block: Arc<dyn Procedure>,
}

impl Default for Submissions {
    fn default() -> Submissions {
        Submissions {
            requests: Vec::new(),
            bytes: 0,
            strict: Vec::new(),
            gathering: Gathering::default(),
            block: Arc::new(redis_surface::BlockProcedure),
        }
    }
}

impl Submissions {
    /// Whether there is nothing to submit.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.strict.is_empty() && !self.gathers()
    }

    /// Adds a request.
    pub(super) fn add(&mut self, request: Arc<Request>) {
        self.end_gathering();
        self.requests.push(request);
    }

    /// Whether to submit now rather than to collect more.
    pub fn is_large(&self) -> bool {
        self.requests.len() >= SUBMITTED_REQUESTS_MAX || self.bytes >= SUBMITTED_BYTES_MAX
    }
}

/// About how many requests are submitted together at most.
const SUBMITTED_REQUESTS_MAX: usize = 8192;
/// About how many bytes are submitted together at most.
const SUBMITTED_BYTES_MAX: usize = 32 << 20;
/// What a word takes in the log beside its bytes, at most: its length.
const WORD_BYTES: usize = 4;
/// What the words of one request may have in a cluster: it travels in one frame, beside a batch of others.
pub(super) const REPLICATED_BYTES_MAX: usize = 32 << 20;
/// What they may have where there are no other nodes: a record of the log holds that, and what others have
/// sent meanwhile.
const LOGGED_BYTES_MAX: usize = 900 << 20;

/// The error of a request that cannot travel to other nodes of a cluster, or that the log cannot hold.
pub(super) fn too_long(args: &Args, is_member: bool) -> Option<Reply> {
    let (who, word_bytes, bytes_max) = match is_member {
        true => ("a cluster", 0, REPLICATED_BYTES_MAX),
        false => ("the log", WORD_BYTES, LOGGED_BYTES_MAX),
    };
    let bytes: usize = args.iter().map(|word| word.len() + word_bytes).sum();
    (bytes > bytes_max).then(|| {
        Reply::error_owned(format!(
            "ERR this command, or this MULTI block, has {bytes} bytes, and {who} takes at most {bytes_max} \
             in one: split the value, or send fewer words at a time"
        ))
    })
}

/// The procedures of commands, blocks and scripts, at hand for a thread.
pub struct Commands {
    pub(super) table: CommandTable,
    pub(super) short: ShortCommands,
    pub(super) acting: Arc<dyn Procedure>,
    pub(super) block: Arc<dyn Procedure>,
    pub(super) watch: Arc<dyn Procedure>,
    pub(super) stream_ends: Arc<dyn Procedure>,
    pub(super) retry: Arc<dyn Procedure>,
    pub(super) behind: Arc<dyn Procedure>,
}

impl Default for Commands {
    fn default() -> Commands {
        Commands {
            table: CommandTable::new(),
            short: ShortCommands::default(),
            acting: Arc::new(redis_surface::acl::ActingProcedure),
            block: Arc::new(redis_surface::BlockProcedure),
            watch: Arc::new(redis_surface::WatchProcedure),
            stream_ends: Arc::new(redis_surface::StreamEndsProcedure),
            retry: Arc::new(redis_surface::waiting::RetryProcedure),
            behind: Arc::new(redis_surface::waiting::BehindProcedure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_goes_where_it_has_strayed_to_until_it_is_tried_again() {
        let these = |all: &[u16]| Some(Beyond::These(all.iter().copied().map(PartitionId).collect()));
        let mut strays = Strays::default();
        assert_eq!(strays.beyond(1), None);
        strays.note(1, Some(PartitionId(4)));
        for _ in 0..CALLS_BEYOND {
            assert_eq!((strays.beyond(1), strays.beyond(2)), (these(&[4]), None));
        }
        assert_eq!(strays.beyond(1), None, "it may not stray any more");
        assert_eq!(strays.beyond(1), None, "nobody says that it did");
        for (missing, known) in [(4, &[4][..]), (2, &[2, 4]), (2, &[2, 4]), (9, &[2, 4, 9])] {
            strays.note(1, Some(PartitionId(missing)));
            assert_eq!(strays.beyond(1), these(known));
        }
        strays.note(1, Some(PartitionId(3)));
        assert_eq!(strays.beyond(1), Some(Beyond::Everywhere), "it strays anywhere");
        strays.note(2, Some(PartitionId(3)));
        strays.note(2, None);
        assert_eq!(strays.beyond(2), Some(Beyond::Everywhere));
        for script in 0..10 * STRAYS_MAX as u64 {
            strays.note(script, None);
        }
        assert!(strays.0.len() <= STRAYS_MAX);
        assert_eq!(strays.beyond(10 * STRAYS_MAX as u64 - 1), Some(Beyond::Everywhere));
    }
}
