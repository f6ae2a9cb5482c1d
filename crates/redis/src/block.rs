//! MULTI/EXEC: several commands as one transaction.
//!
//! The arguments of the procedure `redis.block` are a header and the words of all commands in a row. The
//! header holds, as varints and length-prefixed bytes ([`txn::codec`]): the number of watched keys; for each
//! its name, the version that the connection saw, and whether it existed (one byte); the number of commands;
//! the number of words of each; and, unless it is 0, a last byte: 1 if the block was admitted while memory
//! was short, and 2 if no client has asked for a block (the server has gathered commands).
//!
//! Inside the transaction, the block first compares the watched keys: if one was written since, or expired,
//! nothing runs and the reply is the null array. Then the commands run in order. Errors are part of the array
//! of replies, and nothing rolls back, as in Redis.
//!
//! Commands that follow each other and do something to one key are executed as one operation on its record
//! ([`Turn`]): the first copies a collection, the others change the copy in place.
//!
//! A block of commands that do something to each of their keys by itself is declared as fragments, one for
//! each key ([`BlockPlan`]).
//!
//! The server also makes blocks of commands that a client sent one behind the other without MULTI.

mod plan;

use crate::acl::Actor;
use crate::errors;
use crate::execute::{Caller, Memory, Terms, execute};
use crate::idempotent;
use crate::script;
use crate::table::per_key::date_input;
use crate::table::{self, Command, Data, Flags, Run};
use crate::telling::{teller, telling};
use plan::BlockPlan;
use std::ops::Range;
use std::slice;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::fragments::{Done, InTurn, Operation};
use txn::hash::mix;
use txn::mutant::{Mutant, is_active};
use txn::request::KeySets;
use txn::tx::{Read, Touches};
use txn::{
    Args, Blob, Call, Entry, Footprint, FragmentContext, FragmentKind, FragmentValue, Fragments, Intent, Key,
    Note, Outcome, Position, Procedure, ProcedureFuture, Reply, Request, Tx, Weight, told,
};

/// The replies of a block take about so many bytes at most. From the first reply on that would exceed this,
/// the commands are executed, and get short replies only: a short block that reads a long string again and
/// again would take all memory.
const REPLY_BYTES_MAX: usize = 256 << 20;
/// There is always room for replies of so many bytes: what writes, or counts, says so.
const SHORT_REPLY_BYTES: usize = size_of::<Reply>() + 64;
/// And for errors of so many: a command that was not executed must not be said to be.
const SHORT_ERROR_BYTES: usize = size_of::<Reply>() + 1024;
const TOO_LONG: Reply = Reply::error(
    "ERR this command was executed, and its reply was left out: the replies of its block have more than \
     256 MiB. Read less in one block",
);

/// How much room the replies of a block have left.
struct ReplyRoom {
    bytes: usize,
}

impl ReplyRoom {
    fn new() -> ReplyRoom {
        ReplyRoom { bytes: REPLY_BYTES_MAX }
    }
    /// For commands that are no block to their client: the limits of each are those that it has alone.
    fn without_limit() -> ReplyRoom {
        ReplyRoom { bytes: usize::MAX }
    }

    /// The reply if it is short, or if there is room for it, and was for all before it.
    fn admit(&mut self, reply: Reply) -> Reply {
        if self.bytes == usize::MAX {
            return reply;
        }
        let bytes = reply.bytes();
        // Whether executed whole or in fragments, of which each has a part of such a reply.
        let has_no_room = reply == TOO_LONG || reply == errors::MGET_TOO_LONG;
        let is_short = bytes <= SHORT_REPLY_BYTES || reply.is_error() && bytes <= SHORT_ERROR_BYTES;
        if is_short && !has_no_room {
            return reply;
        }
        match self.bytes.checked_sub(bytes) {
            Some(left) if !has_no_room => {
                self.bytes = left;
                reply
            }
            _ => {
                self.bytes = 0;
                TOO_LONG
            }
        }
    }

    /// Whether the value of a step had no room.
    fn has_left_out(value: &FragmentValue) -> bool {
        matches!(value, FragmentValue::Reply(reply) if *reply == TOO_LONG)
    }
}

/// Bits of the last byte of the header: memory was short when the block was admitted; the block is gathered.
const SHORT: u8 = 1;
const GATHERED: u8 = 2;

/// A watched key as the connection saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The key.
    pub key: Key,
    /// The position of its last write or delete then; [`Position::NONE`] if there was none.
    pub version: Position,
    /// Whether it existed then. A key may vanish without a write: when it expires.
    pub present: bool,
}

impl Watched {
    /// The state of a key as read by a transaction, or at a snapshot with the expiry looked at.
    pub fn of(key: Key, read: &Read) -> Watched {
        Watched { key, version: read.version, present: read.entry.is_some() }
    }
    /// Whether the key is still in that state.
    fn holds(&self, read: &Read) -> bool {
        self.version == read.version && self.present == read.entry.is_some()
    }
    pub(crate) fn to_reply(&self) -> Reply {
        Reply::Array(vec![Reply::Integer(self.version.0.cast_signed()), Reply::Boolean(self.present)])
    }
    /// The states of `keys` from the reply of [`crate::procedures::WatchProcedure`] to them.
    pub fn from_reply(keys: &[Key], reply: &Reply) -> Option<Vec<Watched>> {
        let Reply::Array(states) = reply else {
            return None;
        };
        let state = |(key, state): (&Key, &Reply)| match state {
            Reply::Array(state) => match state[..] {
                [Reply::Integer(version), Reply::Boolean(present)] => {
                    Some(Watched { key: key.clone(), version: Position(version.cast_unsigned()), present })
                }
                _ => None,
            },
            _ => None,
        };
        (states.len() == keys.len()).then(|| keys.iter().zip(states).map(state).collect()).flatten()
    }
}

/// A block: what a connection queues between MULTI and EXEC.
///
/// Commands of kind [`Run::Connection`] don't belong here: the connection runs them itself when the block's
/// replies arrive, and puts theirs in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The keys that must not have changed.
    pub watched: Vec<Watched>,
    /// The commands, their names first.
    pub commands: Vec<Args>,
    /// Whether there was memory for more when the block was admitted: its scripts depend on it.
    pub memory: Memory,
    /// The server has gathered commands that their client sent one behind the other: to the client they are
    /// no block.
    pub is_gathered: bool,
}

impl Block {
    /// The arguments of `redis.block`.
    pub fn to_args(&self) -> Args {
        let short = if self.memory == Memory::Short { SHORT } else { 0 };
        let gathered = if self.is_gathered { GATHERED } else { 0 };
        let counts = self.commands.iter().map(|command| command.len());
        let header = Block::header(&self.watched, counts, short | gathered);
        let words = self.commands.iter().flat_map(|command| command.iter().cloned());
        Args(std::iter::once(header).chain(words).collect())
    }

    /// The first argument of `redis.block` for commands that the server has gathered, which have this many
    /// words each, the name included. The words of all commands follow it.
    pub fn gathered_header(counts: &[usize]) -> Blob {
        Block::header(&[], counts.iter().copied(), GATHERED)
    }

    /// The first argument of `redis.block`: the watched keys, how many words each command has, and the bits
    /// of the last byte.
    fn header(watched: &[Watched], counts: impl ExactSizeIterator<Item = usize>, bits: u8) -> Blob {
        let mut header = Vec::with_capacity(3 + counts.len());
        put_varint(&mut header, watched.len() as u64);
        for watched in watched {
            put_bytes(&mut header, watched.key.as_bytes());
            put_varint(&mut header, watched.version.0);
            header.push(u8::from(watched.present));
        }
        put_varint(&mut header, counts.len() as u64);
        for count in counts {
            put_varint(&mut header, count as u64);
        }
        if bits != 0 {
            header.push(bits);
        }
        Blob::from(header)
    }

    /// The block that the arguments describe; `None` if they don't describe one.
    pub fn from_args(args: &[Blob]) -> Option<Block> {
        let (mut block, commands) = Block::decode(args)?;
        block.commands = commands.into_iter().map(|words| args[words].iter().cloned().collect()).collect();
        Some(block)
    }

    /// The same without the commands, and where among the arguments the words of each command are.
    fn decode(args: &[Blob]) -> Option<(Block, Vec<Range<usize>>)> {
        let mut header = Reader::new(args.first()?);
        let mut block = Block::default();
        for _ in 0..header.varint()? {
            let key = Key::new(header.bytes()?);
            let version = Position(header.varint()?);
            let present = match header.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            block.watched.push(Watched { key, version, present });
        }
        let mut commands = Vec::new();
        let mut from = 1;
        for _ in 0..header.varint()? {
            let to = usize::try_from(header.varint()?).ok()?.checked_add(from)?;
            args.get(from..to)?;
            commands.push(from..to);
            from = to;
        }
        if !header.is_empty() {
            let bits = header.u8().filter(|bits| (1..=SHORT | GATHERED).contains(bits))?;
            block.memory = if bits & SHORT != 0 { Memory::Short } else { Memory::Ample };
            block.is_gathered = bits & GATHERED != 0;
        }
        (header.is_empty() && from == args.len()).then_some((block, commands))
    }

    /// What the block touches. Without the keys (`with_keys` false) it is cheap.
    pub fn footprint(&self, with_keys: bool) -> Footprint {
        let mut all = Footprint { keys: None, read_only: true, weight: Weight::Light };
        let mut sets = with_keys.then(|| KeySets {
            reads: self.watched.iter().map(|watched| watched.key.clone()).collect(),
            ..KeySets::default()
        });
        for argv in &self.commands {
            // A command that is none only replies an error.
            let Ok(table::Resolved { command, subplace, .. }) = table::resolve(argv) else {
                continue;
            };
            if matches!(command.run, Run::Pure(_) | Run::Connection(_) | Run::Container(_)) {
                continue;
            }
            let footprint = if let Run::Idempotent = command.run {
                match idempotent::footprint(&argv[1..], with_keys) {
                    Ok(footprint) => footprint,
                    Err(_) => continue,
                }
            } else if let Run::Script(script) = command.run {
                let skipped = 1 + usize::from(subplace.is_some());
                script::footprint(script, argv.get(skipped..).unwrap_or_default(), with_keys)
            } else if with_keys {
                command.footprint(&argv[1..])
            } else {
                command.footprint_without_keys(&argv[1..])
            };
            all.read_only &= footprint.read_only;
            if footprint.weight == Weight::Heavy || command.is(Flags::HEAVY) {
                all.weight = Weight::Heavy;
            }
            sets = match (sets, footprint.keys) {
                (Some(mut sets), Some(keys)) => {
                    let strays = [sets.may_stray, keys.may_stray].into_iter().flatten();
                    sets.may_stray = strays.reduce(|all, number| mix(all ^ number));
                    sets.reads.extend(keys.reads.iter().cloned());
                    sets.writes.extend(keys.writes.iter().cloned());
                    Some(sets)
                }
                _ => None,
            };
        }
        all.keys = sets.map(|mut sets| {
            table::normalize(&mut sets);
            sets.into()
        });
        all
    }
}

/// Runs a [`Block`].
pub struct BlockProcedure;

impl Procedure for BlockProcedure {
    fn name(&self) -> &str {
        "redis.block"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        Block::from_args(args).map_or_else(Footprint::unknown, |block| block.footprint(true))
    }
    fn fragments(&self, request: &Request) -> Option<Fragments> {
        BlockPlan::fragments(&request.args).map(|fragments| fragments.telling(teller("exec")))
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        telling("exec", Box::pin(run(tx, call)))
    }
}

async fn run(tx: Tx, call: Call) -> Outcome {
    let Some((block, commands)) = Block::decode(&call) else {
        return Ok(Reply::error("ERR malformed block: it was not made by this version's Block::to_args"));
    };
    let commands: Vec<&[Blob]> = commands.into_iter().map(|words| &call[words]).collect();
    let terms = Terms { actor: Actor::default(), memory: block.memory };
    run_commands(tx, &block, &commands, terms).await
}

/// Runs a block on somebody's behalf. Each command goes by the rights that the actor has when its turn comes:
/// one before it may have changed them.
pub(crate) async fn run_as(tx: Tx, block: Block, actor: Actor) -> Outcome {
    let commands: Vec<&[Blob]> = block.commands.iter().map(|words| &words[..]).collect();
    run_commands(tx, &block, &commands, Terms { actor, memory: block.memory }).await
}

/// Runs the commands of a block: these, wherever their words are.
async fn run_commands(mut tx: Tx, block: &Block, commands: &[&[Blob]], terms: Terms) -> Outcome {
    for watched in &block.watched {
        let read = tx.read(&watched.key, Intent::Read).await?;
        tx.hold(&watched.key);
        if !watched.holds(&read) && !is_active(Mutant::SkipWatch) {
            return Ok(Reply::NilArray);
        }
    }
    let mut replies = Vec::with_capacity(commands.len());
    let mut room = if block.is_gathered { ReplyRoom::without_limit() } else { ReplyRoom::new() };
    let mut steps = tx.expecting(Steps { commands: commands.iter(), may_all: terms.actor.may_all() });
    let mut at = 0;
    let mut step = steps.next().flatten();
    let mut turn = Turn::default();
    while let Some(argv) = commands.get(at) {
        let Some(first) = step else {
            let argv = argv.iter().cloned().collect();
            let terms = terms.looking(&mut tx).await?;
            replies.push(room.admit(execute(tx.clone(), argv, Caller::Block, terms).await?));
            at += 1;
            step = steps.next().flatten();
            continue;
        };
        turn.begin(first);
        loop {
            at += 1;
            step = steps.next().flatten();
            let Some(next) = step.take_if(|next| turn.takes(next)) else {
                break;
            };
            turn.add(next);
        }
        let offset_ms = date_input(&mut tx, turn.takes_date).await?;
        let found = tx.find_unnoted(&turn.key, turn.kind).await?;
        let reply = |reply| replies.push(room.admit(reply));
        let done = turn.execute(found, offset_ms.as_slice(), tx.now_ms(), reply);
        tx.write_done(&turn.key, done).await?;
    }
    Ok(Reply::Array(replies))
}

/// A command that does something to one key, and needs nothing else.
struct Step<'a> {
    key: Key,
    command: &'static Command,
    operation: Operation<'a>,
    takes_date: bool,
}

impl<'a> Step<'a> {
    /// The step of a command, if it is such a command.
    fn of(words: &'a [Blob]) -> Option<Step<'a>> {
        let command = table::resolve(words).ok()?.command;
        let (Run::Data(Data::PerKey(per_key)), [keys]) = (&command.run, command.keys) else {
            return None;
        };
        let args = &words[1..];
        let key = per_key.only_key(keys, args)?;
        let plan = (per_key.plan)(args).ok()?;
        let operation = per_key.operation(plan, args, 0);
        Some(Step { key, command, operation, takes_date: plan.takes_date })
    }
}

/// The commands of a block as steps; `None` for those that are none.
struct Steps<'c, 'w> {
    commands: slice::Iter<'c, &'w [Blob]>,
    /// Who asks for the block may do everything.
    may_all: bool,
}

impl<'w> Iterator for Steps<'_, 'w> {
    type Item = Option<Step<'w>>;

    fn next(&mut self) -> Option<Option<Step<'w>>> {
        let words = self.commands.next()?;
        Some(if self.may_all { Step::of(words) } else { None })
    }
}

impl Touches for Step<'_> {
    fn hash(&self) -> Option<u64> {
        self.key.hash()
    }
}

/// The engine is asked anew after so many commands of a turn: it may have reason to stop them.
const TURN_MAX: usize = 256;

/// Commands of a block that follow each other and do something to the same key: the record is looked up and
/// written once.
///
/// A block uses one for all of its turns, so that it allocates room for commands once.
struct Turn<'a> {
    key: Key,
    kind: FragmentKind,
    takes_date: bool,
    commands: Vec<(&'static Command, Operation<'a>)>,
}

impl Default for Turn<'_> {
    fn default() -> Self {
        Turn { key: Key::new(b""), kind: FragmentKind::Read, takes_date: false, commands: Vec::new() }
    }
}

impl<'a> Turn<'a> {
    /// Becomes the turn that begins with a step.
    fn begin(&mut self, Step { key, command, operation, takes_date }: Step<'a>) {
        (self.key, self.kind, self.takes_date) = (key, operation.kind, takes_date);
        self.commands.clear();
        self.commands.push((command, operation));
    }

    /// Whether the next step belongs to the turn.
    fn takes(&self, next: &Step<'a>) -> bool {
        self.key == next.key && self.commands.len() < TURN_MAX
    }

    /// Adds a step that belongs to the turn.
    fn add(&mut self, Step { command, operation, takes_date, .. }: Step<'a>) {
        self.takes_date |= takes_date;
        if operation.kind != self.kind {
            self.kind = FragmentKind::Update;
        }
        self.commands.push((command, operation));
    }

    /// Executes the commands on what was found, or had expired, and gives each reply as it comes. The input
    /// is the clock's offset, if a command takes a date.
    fn execute(
        &self,
        (found, has_expired): (Option<Entry>, bool),
        inputs: &[FragmentValue],
        now_ms: u64,
        mut reply: impl FnMut(Reply),
    ) -> Done {
        let found = found.as_ref();
        let context = FragmentContext { place: 0, found, own: None, has_expired, inputs, now_ms };
        if let [(command, operation)] = self.commands[..] {
            told::note(|| Note::Began(command.name));
            let Done { write, value, .. } = operation.execute(&self.key, context);
            reply(operation.reply(value));
            return Done { write, ..Done::read(FragmentValue::NIL) };
        }
        let mut in_turn = InTurn::new(&self.key, context);
        for (command, operation) in &self.commands {
            told::note(|| Note::Began(command.name));
            let value = in_turn.execute(*operation);
            reply(operation.reply(value));
        }
        in_turn.done(FragmentValue::NIL)
    }
}
