//! Random Redis traffic: commands, MULTI/EXEC blocks with watched keys, and Lua scripts, over few keys.
//!
//! The oracle runs the same procedures as the engine: what is judged is not what a command means, but that
//! engines run it as one transaction at its place in the order: suspended, restarted and replayed as they
//! like.

use crate::draw::Draw;
use crate::oracle::Expected;
use crate::scenario::Source;
use redis_surface::{Action, Block, BlockProcedure, CommandTable, Involved, WatchProcedure, Watched};
use std::collections::VecDeque;
use std::sync::Arc;
use txn::{Args, Blob, Key, Procedure, Reply, Request, RequestId, SessionId, Slots};

/// Commands, their variable words marked: `%k` any key, `%s` a string's, `%c` a counter's, `%h` a hash's,
/// `%f` a field, `%v` a value, `%n` a small number, `%i` one of few ids, so that commands come again and ids
/// come with others.
const COMMANDS: &[&str] = &[
    "GET %k",
    "SET %s %v",
    "SET %s %v PX %n",
    "SET %s %v NX",
    "SET %k %v XX GET",
    "SET %s %v KEEPTTL",
    "GETSET %s %v",
    "GETDEL %k",
    "GETEX %s PX %n",
    "SETNX %s %v",
    "MSET %s %v %k %v",
    "MSETNX %s %v %s %v",
    "MGET %k %k %k",
    "APPEND %s %v",
    "STRLEN %s",
    "GETRANGE %s 0 %n",
    "SETRANGE %s %n %v",
    "INCR %c",
    "INCR %c",
    "INCRBY %c %n",
    "DECR %c",
    "INCRBYFLOAT %c 0.5",
    "DEL %k %k",
    "UNLINK %k",
    "EXISTS %k %k",
    "EXPIRE %k 1",
    "PEXPIRE %k %n",
    "TTL %k",
    "PTTL %k",
    "PERSIST %k",
    "TYPE %k",
    "RENAME %k %k",
    "RENAMENX %k %k",
    "COPY %k %k REPLACE",
    "KEYS *",
    "SCAN 0 COUNT %n",
    "DBSIZE",
    "FLUSHALL",
    "RANDOMKEY",
    "TIME",
    "HSET %h %f %v %f %v",
    "HGET %h %f",
    "HDEL %h %f %f",
    "HGETALL %h",
    "HINCRBY %h %f %n",
    "HLEN %h",
    "HMGET %h %f %f",
    "HSCAN %h 0",
    "HRANDFIELD %h 2",
    "TOUCH %k",
    "OBJECT ENCODING %k",
    "SCRIPT LOAD %l",
    "SCRIPT FLUSH",
    "SCRIPT EXISTS %d",
    "ORDO.IDEMPOTENT %i INCR %c",
    "ORDO.IDEMPOTENT %i INCR %c",
    "ORDO.IDEMPOTENT %i GETDEL %k",
    "ORDO.IDEMPOTENT %i HGETALL %h",
    "ORDO.IDEMPOTENT %i MSET %s %n %s %n",
];

const ENDLESS: &str = "local n = 0
         while redis.call('GET', 'pair') ~= redis.call('GET', 'riap') do n = n + 1 end
         return n";
/// The same, with an end: what tells a run over several partitions that its state never was may be a node
/// that is down, and with each of its operations a run that is suspended begins anew.
const PATIENT: &str = "local n = 0
         while redis.call('GET', 'pair') ~= redis.call('GET', 'riap') do
           n = n + 1
           if n == 50 then return 'impossible' end
         end
         return n";

/// Scripts, with the number of keys that they declare. Some declare fewer than they use.
const SCRIPTS: &[(&str, usize)] = &[
    // A transfer.
    (
        "local a = tonumber(redis.call('GET', KEYS[1]) or '0')
         local n = tonumber(ARGV[1])
         if not a or a < n then return redis.error_reply('POOR') end
         redis.call('DECRBY', KEYS[1], n)
         return redis.call('INCRBY', KEYS[2], n)",
        2,
    ),
    // Keys that depend on values.
    (
        "local v = redis.call('GET', KEYS[1]) or ''
         local k = 's' .. (#v % 3)
         redis.call('APPEND', k, string.sub(v, 1, 3) .. ARGV[1])
         return redis.call('GET', k)",
        1,
    ),
    // An error keeps what was written before it.
    (
        "redis.call('SET', 's0', ARGV[1])
         local e = redis.pcall('INCR', 's0')
         redis.call('HSET', 'h0', 'e', type(e))
         return redis.call('INCR', 's0')",
        0,
    ),
    // Many reads and a write at the end.
    (
        "local t = 0
         for i = 0, 3 do
           local v = redis.call('GET', 'c' .. i)
           t = t + (tonumber(v) or 1)
         end
         redis.call('SET', KEYS[1], t)
         return tostring(t)",
        1,
    ),
    // Time and chance are the transaction's, whatever is suspended in between.
    (
        "local t = redis.call('TIME')
         local r = math.random(1000000)
         redis.call('GET', 'c0')
         local s = math.random(1000000)
         redis.call('SET', 's1', r .. ':' .. s .. ':' .. t[1])
         return {r, s, t[1], t[2]}",
        0,
    ),
    // An invariant: both are always written together.
    (
        "local a = redis.call('GET', 'pair')
         local b = redis.call('GET', 'riap')
         if a ~= b then error('impossible') end
         local n = (tonumber(a) or 0) + 1
         redis.call('SET', 'pair', n)
         redis.call('SET', 'riap', n)
         return n",
        0,
    ),
    // A loop whose end depends on what it reads: a doomed run may never see it.
    (ENDLESS, 0),
    // The whole key space.
    (
        "local k = redis.call('KEYS', '*')
         table.sort(k)
         return {redis.call('DBSIZE'), k}",
        0,
    ),
    // Structured replies.
    (
        "redis.call('HSET', 'h1', ARGV[1], 1)
         return cjson.encode({redis.call('HGETALL', 'h1'), redis.call('EXISTS', 's0')})",
        0,
    ),
];

/// Learned states of watched keys that wait for a block.
const WATCHED_MAX: usize = 6;

/// Random Redis traffic.
pub struct RedisSource {
    table: CommandTable,
    block: Arc<dyn Procedure>,
    watch: Arc<dyn Procedure>,
    partitions: u16,
    keys: u64,
    block_percent: u32,
    script_percent: u32,
    /// FLUSHALL, KEYS and their like are drawn again, mostly.
    tame_percent: u32,
    /// Footprints name the keys, where the command tells them.
    declare_percent: u32,
    watched: VecDeque<Watched>,
    /// Digests that SCRIPT LOAD replied.
    digests: Vec<Blob>,
}

impl RedisSource {
    /// Traffic of a drawn mix, over so many partitions of one key space.
    pub fn draw(draw: &mut Draw, partitions: u16) -> RedisSource {
        RedisSource {
            partitions,
            table: CommandTable::new(),
            block: Arc::new(BlockProcedure),
            watch: Arc::new(WatchProcedure),
            keys: draw.pick(&[1, 3, 10]),
            block_percent: draw.pick(&[0, 20, 60]),
            script_percent: draw.pick(&[0, 20, 60]),
            tame_percent: draw.pick(&[50, 90, 100]),
            declare_percent: draw.pick(&[0, 50, 100]),
            watched: VecDeque::new(),
            digests: Vec::new(),
        }
    }

    fn word(&self, mark: &str, draw: &mut Draw) -> Blob {
        let family = match mark {
            "%k" => draw.pick(&["s", "c", "h"]),
            "%s" => "s",
            "%c" => "c",
            "%h" => "h",
            "%f" => return Blob::from(format!("f{}", draw.below(4))),
            "%v" => {
                return Blob::from(if draw.percent(30) {
                    draw.below(50).to_string()
                } else {
                    format!("{:x}", draw.bits())
                });
            }
            "%i" => return Blob::from(format!("i{}", draw.below(6))),
            "%n" => return Blob::from(draw.between(1, 40).to_string()),
            "%l" => {
                return Blob::from(match SCRIPTS[draw.below(SCRIPTS.len() as u64) as usize].0 {
                    ENDLESS if self.partitions > 1 => PATIENT,
                    body => body,
                });
            }
            "%d" => {
                return self
                    .digests
                    .last()
                    .cloned()
                    .unwrap_or_else(|| Blob::from("0123456789012345678901234567890123456789"));
            }
            word => return Blob::from(word),
        };
        Blob::from(format!("{family}{}", draw.below(self.keys)))
    }

    fn command(&self, draw: &mut Draw) -> Args {
        loop {
            let template = draw.pick(COMMANDS);
            let wild = ["FLUSHALL", "KEYS *", "DBSIZE", "RANDOMKEY", "SCAN 0 COUNT %n", "SCRIPT FLUSH"]
                .contains(&template);
            if !(wild && draw.percent(self.tame_percent)) {
                return template.split(' ').map(|word| self.word(word, draw)).collect();
            }
        }
    }

    fn script(&self, draw: &mut Draw) -> Args {
        let (mut body, keys) = SCRIPTS[draw.below(SCRIPTS.len() as u64) as usize];
        if body == ENDLESS && self.partitions > 1 {
            body = PATIENT;
        }
        let mut words = if !self.digests.is_empty() && draw.percent(50) {
            // Any of the scripts: the numbers of keys may not fit, which is as good a call.
            vec![Blob::from("EVALSHA"), draw.pick(&self.digests.iter().collect::<Vec<_>>()).clone()]
        } else {
            // Those that only read may bypass the order.
            let reads_only = !["SET", "APPEND", "INCR"].iter().any(|name| body.contains(name));
            let name = if reads_only && draw.percent(60) { "EVAL_RO" } else { "EVAL" };
            vec![Blob::from(name), Blob::from(body)]
        };
        words.push(Blob::from(keys.to_string()));
        words.extend((0..keys).map(|_| self.word("%c", draw)));
        words.push(Blob::from(draw.between(1, 9).to_string()));
        words.into_iter().collect()
    }

    fn prepare(&self, argv: Args) -> (Arc<dyn Procedure>, Args, txn::Footprint) {
        let words = format!("{:?}", argv.0);
        match self.table.prepare(argv).map(|prepared| prepared.action) {
            Ok(Action::Transaction { procedure, args, footprint }) => (procedure, args, footprint),
            Ok(_) => panic!("{words} is no transaction: take it off the list"),
            Err(reply) => panic!("{words} is no command: {reply:?}"),
        }
    }
}

fn request_id(sequence: u64) -> RequestId {
    RequestId { session: SessionId(1 + sequence % 5), sequence, attempt: 0 }
}

impl Source for RedisSource {
    fn request(&mut self, sequence: u64, draw: &mut Draw) -> Arc<Request> {
        let id = request_id(sequence);
        let kind = draw.below(100) as u32;
        let involved;
        let (procedure, args, footprint) = if kind < self.block_percent {
            if draw.percent(30) && self.watched.len() < WATCHED_MAX {
                let names: Args = (0..draw.between(1, 2)).map(|_| self.word("%k", draw)).collect();
                let footprint = self.watch.footprint(&names);
                involved = Involved::Keys(names.iter().map(Key::from).collect());
                (self.watch.clone(), names, footprint)
            } else {
                let watched: Vec<Watched> =
                    if draw.percent(60) { self.watched.pop_front() } else { None }.into_iter().collect();
                let commands = (0..draw.between(1, 4)).map(|_| self.command(draw)).collect();
                let block = Block { watched, commands, ..Block::default() };
                let keys = block.watched.iter().map(|watched| watched.key.clone());
                let commands = block.commands.iter().map(|argv| redis_surface::involved(argv));
                involved = commands.fold(Involved::Keys(keys.collect()), Involved::with);
                let footprint = block.footprint(false);
                (self.block.clone(), block.to_args(), footprint)
            }
        } else if kind < self.block_percent + self.script_percent {
            let argv = self.script(draw);
            involved = redis_surface::involved(&argv);
            self.prepare(argv)
        } else {
            let argv = self.command(draw);
            involved = redis_surface::involved(&argv);
            self.prepare(argv)
        };
        let mut request = Request::new(id, procedure, args);
        if self.partitions > 1 {
            request.route = involved.route(&Slots::even(self.partitions));
        }
        if !draw.percent(self.declare_percent) {
            request.footprint = footprint;
        }
        Arc::new(request)
    }

    fn read_only(&mut self, sequence: u64, draw: &mut Draw) -> Arc<Request> {
        loop {
            let (procedure, args, footprint) = self.prepare(self.command(draw));
            if footprint.read_only {
                return Arc::new(Request::new(request_id(sequence), procedure, args));
            }
        }
    }

    fn answered(&mut self, request: &Request, expected: &Expected) {
        let Expected::Outcome(Ok(reply)) = expected else {
            return;
        };
        if request.procedure.name() == self.watch.name() {
            let keys: Vec<Key> = request.args.iter().map(Key::from).collect();
            self.watched.extend(Watched::from_reply(&keys, reply).into_iter().flatten());
        } else if request.procedure.name().ends_with("script|load")
            && let Reply::Bulk(digest) = reply
        {
            self.digests.push(digest.clone());
        }
    }

    fn keys(&self) -> Vec<Key> {
        let names = ["s", "c"]
            .into_iter()
            .flat_map(|family| (0..self.keys).map(move |index| format!("{family}{index}")));
        names.map(|name| Key::from(name.as_str())).collect()
    }

    fn describe(&self) -> String {
        format!(
            "Redis: {} keys of a kind, {} % blocks, {} % scripts, {} % tame, {} % declared",
            self.keys, self.block_percent, self.script_percent, self.tame_percent, self.declare_percent
        )
    }
}
