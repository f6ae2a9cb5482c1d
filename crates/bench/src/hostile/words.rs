//! The words of hostile commands.

use super::attack::Known;
use crate::redis::template::SplitMix;

/// Keys that hostile clients use. Few, so that each has seen all types.
const KEYS: u64 = 48;

/// Numbers at limits, and what is none.
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "10",
    "100",
    "1000",
    "65536",
    "1048576",
    "2147483647",
    "-2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "0.1",
    "1e308",
    "-1e309",
    "inf",
    "-inf",
    "nan",
    "0x10",
    " 1",
    "1 ",
    "+1",
    "",
    "$",
    ">",
    "*",
    "-",
    "+",
    "(1",
    "[a",
    "(inf",
];

/// Options of all commands.
const OPTIONS: &[&str] = &[
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "GET",
    "WITHSCORES",
    "WITHSCORE",
    "WITHVALUES",
    "LIMIT",
    "COUNT",
    "MATCH",
    "TYPE",
    "BYSCORE",
    "BYLEX",
    "REV",
    "STORE",
    "STOREDIST",
    "STREAMS",
    "BLOCK",
    "NOACK",
    "GROUP",
    "MAXLEN",
    "MINID",
    "~",
    "=",
    "NOMKSTREAM",
    "ASC",
    "DESC",
    "ALPHA",
    "BY",
    "m",
    "km",
    "FROMMEMBER",
    "FROMLONLAT",
    "BYRADIUS",
    "BYBOX",
    "WITHCOORD",
    "WITHDIST",
    "WITHHASH",
    "ANY",
    "AND",
    "OR",
    "XOR",
    "NOT",
    "BYTE",
    "BIT",
    "u8",
    "i64",
    "u63",
    "#1",
    "OVERFLOW",
    "SAT",
    "WRAP",
    "FAIL",
    "REPLACE",
    "ABSTTL",
    "IDLETIME",
    "FREQ",
    "DB",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "AFTER",
    "RANK",
    "AGGREGATE",
    "SUM",
    "MIN",
    "MAX",
    "WEIGHTS",
    "IDX",
    "LEN",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "FULL",
    "CREATE",
    "MKSTREAM",
    "JUSTID",
    "FORCE",
    "IDLE",
    "RETRYCOUNT",
    "ENTRIESREAD",
    "ASYNC",
    "SYNC",
    "ON",
    "OFF",
    "BCAST",
    "PREFIX",
    "OPTIN",
    "NOLOOP",
    "FIELDS",
];

/// Programs of EVAL. `%` stands for a number.
const SCRIPTS: &[&str] = &[
    "return #ARGV",
    "return redis.call('SET', KEYS[1], ARGV[1])",
    "for i = 1, % do redis.call('RPUSH', KEYS[1], i) end return redis.call('LLEN', KEYS[1])",
    "local t = {} for i = 1, % do t[i] = i end return t",
    "local t = {} for i = 1, % do t['k' .. i] = {i} end return cjson.encode(t)",
    "return string.rep('x', %)",
    "local s = '' for i = 1, 200 do s = s .. i end return s",
    "return redis.pcall('LRANGE', KEYS[1], 0, -1)",
    "return redis.pcall('KEYS', '*')",
    "return {redis.pcall(ARGV[1], KEYS[1], ARGV[2]), redis.error_reply('x'), false, 1.5}",
    "local function f(n) return n == 0 and 0 or 1 + f(n - 1) end return f(%)",
    "return cmsgpack.unpack(cmsgpack.pack({1, {2, {3}}, 'x'}))",
    "return string.find(string.rep('a', %), 'a-b')",
    "return struct.pack('>I2hs', 1, 2, 'three')",
    "error({err = 'MINE ' .. ARGV[1]})",
    "return redis.call('ZADD', KEYS[1], %, ARGV[1])",
    "redis.setresp(3) return redis.pcall('HGETALL', KEYS[1])",
    "table.sort(ARGV) return table.concat(ARGV, ',')",
    "return load(ARGV[1])",
    "if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('TYPE', KEYS[1]) end return nil",
    "local t = {} for i = 1, 100 do t = {t} end return t",
];

/// Settings that a hostile client with all rights changes and that leave other clients' promises as they are.
const SETTINGS: &[&str] = &[
    "latency-monitor-threshold",
    "notify-keyspace-events",
    "tracking-table-max-keys",
    "lfu-log-factor",
    "hash-max-listpack-entries",
    "latency-tracking",
    "nonsense",
];

/// Draws commands.
pub(super) struct Words<'a> {
    known: &'a [Known],
    random: SplitMix,
}

impl<'a> Words<'a> {
    pub(super) fn new(known: &'a [Known], seed: u64) -> Words<'a> {
        Words { known, random: SplitMix::new(seed) }
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len() as u64) as usize]
    }

    fn key(&mut self) -> String {
        format!("h:{}", self.random.below(KEYS))
    }

    fn number(&mut self) -> String {
        match self.random.below(3) {
            0 => self.pick(NUMBERS).to_owned(),
            1 => self.random.below(200).to_string(),
            _ => (self.random.below(1_000_000) as i64 - 500_000).to_string(),
        }
    }

    /// A text, seldom a long one.
    fn text(&mut self) -> String {
        let length = match self.random.below(1000) {
            0 => self.random.below(2 << 20),
            1..10 => self.random.below(100_000),
            10..100 => self.random.below(2000),
            _ => self.random.below(30),
        };
        let first = self.random.next();
        (0..length).map(|place| char::from(b'a' + ((first >> (place % 50)) % 26) as u8)).collect()
    }

    fn word(&mut self) -> String {
        match self.random.below(10) {
            0..3 => self.key(),
            3..6 => self.number(),
            6..8 => self.pick(OPTIONS).to_owned(),
            _ => self.text(),
        }
    }

    /// Any command, block-free.
    pub(super) fn any(&mut self) -> Vec<String> {
        match self.random.below(100) {
            0..40 => self.command(),
            40..80 => self.likely(),
            80..92 => self.script(),
            92..96 => self.waiting(),
            96..98 => self.administrative(),
            _ => self.long_reply(),
        }
    }

    /// A command of the server's list with words that may fit.
    pub(super) fn command(&mut self) -> Vec<String> {
        let known = &self.known[self.random.below(self.known.len() as u64) as usize];
        if matches!(
            known.name.as_str(),
            "client" | "config" | "acl" | "script" | "function" | "cluster" | "memory"
        ) {
            return self.administrative();
        }
        let mut words = vec![known.name.clone()];
        let least = known.arity.unsigned_abs() as usize;
        let more = match known.arity < 0 {
            true => self.random.below(6) as usize,
            // Seldom too many or too few.
            false => usize::from(self.random.below(50) == 0),
        };
        for place in 1..least + more {
            words.push(match place as i64 == known.first_key {
                true => self.key(),
                false => self.word(),
            });
        }
        words
    }

    /// A command that is well formed, and makes collections large.
    fn likely(&mut self) -> Vec<String> {
        let key = self.key();
        let other = self.key();
        let number = self.number();
        let small = self.random.below(1000).to_string();
        let text = self.text();
        let words: Vec<&str> = match self.random.below(30) {
            0 => vec!["SET", &key, &text],
            1 => vec!["APPEND", &key, &text],
            2 => vec!["SETRANGE", &key, &small, &text],
            3 => vec!["GETRANGE", &key, &number, "-1"],
            4 => vec!["INCRBY", &key, &number],
            5 => vec!["RPUSH", &key, &text, &number, &small],
            6 => vec!["LPOP", &key, &small],
            7 => vec!["LINSERT", &key, "BEFORE", &small, &text],
            8 => vec!["SADD", &key, &text, &number, &small],
            9 => vec!["SUNIONSTORE", &key, &other, &key],
            10 => vec!["SRANDMEMBER", &key, &number],
            11 => vec!["HSET", &key, &text, &number, &small, &text],
            12 => vec!["HRANDFIELD", &key, &number, "WITHVALUES"],
            13 => vec!["ZADD", &key, &small, &text],
            14 => vec!["ZRANGE", &key, &number, &small, "BYSCORE", "LIMIT", "0", &number],
            15 => vec!["ZUNIONSTORE", &key, "2", &other, &key],
            16 => vec!["XADD", &key, "MAXLEN", "~", &small, "*", "f", &text],
            17 => vec!["XRANGE", &key, "-", "+", "COUNT", &small],
            18 => vec!["XGROUP", "CREATE", &key, "g", "0", "MKSTREAM"],
            19 => vec!["XREADGROUP", "GROUP", "g", "c", "COUNT", &small, "STREAMS", &key, ">"],
            20 => vec!["PFADD", &key, &text, &number],
            21 => vec!["GEOADD", &key, "13.36", "38.11", &text],
            22 => vec!["SETBIT", &key, &small, "1"],
            23 => vec!["BITFIELD", &key, "INCRBY", "u8", &small, &number],
            24 => vec!["SORT", &key, "ALPHA", "LIMIT", "0", &small],
            25 => vec!["EXPIRE", &key, &small],
            26 => vec!["DEL", &key, &other],
            27 => vec!["COPY", &key, &other, "REPLACE"],
            28 => vec!["DUMP", &key],
            _ => vec!["PUBLISH", "news", &text],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    fn script(&mut self) -> Vec<String> {
        let name = self.pick(&["EVAL", "EVAL", "EVAL_RO"]).to_owned();
        // A script that runs to its limit holds up writers for as long as that lasts: the limit is what
        // bounds it, and is tried elsewhere.
        let number = self.random.below(2000).to_string();
        let script = self.pick(SCRIPTS).replace('%', &number);
        let mut words = vec![name, script, "1".to_owned(), self.key()];
        for _ in 0..self.random.below(4) {
            words.push(self.word());
        }
        words
    }

    fn waiting(&mut self) -> Vec<String> {
        let (key, other) = (self.key(), self.key());
        let seconds = self.pick(&["0.001", "0.01", "0.05", "-1", "nan"]);
        let words: Vec<&str> = match self.random.below(5) {
            0 => vec!["BLPOP", &key, &other, seconds],
            1 => vec!["BLMOVE", &key, &other, "LEFT", "RIGHT", seconds],
            2 => vec!["BZPOPMIN", &key, &other, seconds],
            3 => vec!["XREAD", "BLOCK", "10", "STREAMS", &key, "$"],
            _ => vec!["BLMPOP", seconds, "2", &key, &other, "LEFT", "COUNT", "10"],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    fn administrative(&mut self) -> Vec<String> {
        let (key, number, text) = (self.key(), self.number(), self.text());
        let setting = self.pick(SETTINGS);
        let user = format!("user{}", self.random.below(5));
        let words: Vec<&str> = match self.random.below(30) {
            0 => vec!["CLIENT", "LIST"],
            1 => vec!["CLIENT", "SETNAME", &text],
            2 => vec!["CLIENT", "TRACKING", "ON", "BCAST"],
            3 => vec!["CLIENT", "TRACKING", "OFF"],
            4 => vec!["CLIENT", "REPLY", "SKIP"],
            5 => vec!["CLIENT", "UNBLOCK", &number],
            6 => vec!["CLIENT", "NO-EVICT", "ON"],
            7 => vec!["CLIENT", "INFO"],
            8 => vec!["CLIENT", "KILL", "ID", &number, "SKIPME", "yes", "LADDR", "1.2.3.4:5"],
            9 => vec!["CONFIG", "GET", "*"],
            10 => vec!["CONFIG", "SET", setting, &number],
            11 => vec!["CONFIG", "RESETSTAT"],
            12 => vec!["ACL", "SETUSER", &user, "on", ">secret", "~h:*", "+@all"],
            13 => vec!["ACL", "DELUSER", &user],
            14 => vec!["ACL", "LIST"],
            15 => vec!["ACL", "DRYRUN", &user, "GET", &key],
            16 => vec!["SCRIPT", "LOAD", "return 1"],
            17 => vec!["SCRIPT", "FLUSH"],
            18 => vec!["SCRIPT", "EXISTS", &text],
            19 => vec![
                "FUNCTION",
                "LOAD",
                "REPLACE",
                "#!lua name=l\nredis.register_function('f', function(k, a) return a end)",
            ],
            20 => vec!["FCALL", "f", "1", &key, &text],
            21 => vec!["FUNCTION", "DUMP"],
            22 => vec!["MEMORY", "USAGE", &key],
            23 => vec!["INFO", "everything"],
            24 => vec!["SLOWLOG", "GET", &number],
            25 => vec!["LATENCY", "LATEST"],
            26 => vec!["COMMAND", "DOCS"],
            27 => vec!["OBJECT", "ENCODING", &key],
            28 => vec!["WATCH", &key],
            _ => vec!["RESET"],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// A command whose reply may be long.
    pub(super) fn long_reply(&mut self) -> Vec<String> {
        let key = self.key();
        let words: Vec<&str> = match self.random.below(9) {
            0 => vec!["LRANGE", &key, "0", "-1"],
            1 => vec!["SMEMBERS", &key],
            2 => vec!["HGETALL", &key],
            3 => vec!["ZRANGE", &key, "0", "-1", "WITHSCORES"],
            4 => vec!["XRANGE", &key, "-", "+"],
            5 => vec!["GET", &key],
            6 => vec!["KEYS", "*"],
            7 => vec!["SRANDMEMBER", &key, "-10000"],
            _ => vec!["COMMAND"],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// A command after which others' doings are told.
    pub(super) fn listen(&mut self) -> Vec<String> {
        let words: Vec<&str> = match self.random.below(6) {
            0 => vec!["SUBSCRIBE", "news"],
            1 => vec!["PSUBSCRIBE", "*"],
            2 => vec!["SSUBSCRIBE", "news"],
            3 => vec!["HELLO", "3"],
            4 => vec!["CLIENT", "TRACKING", "ON", "BCAST"],
            _ => vec!["MONITOR"],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// Bytes that are no whole command.
    pub(super) fn fragment(&mut self) -> Vec<u8> {
        let number = self.number();
        let text = self.text();
        let fragment = match self.random.below(10) {
            0 => format!("*{number}\r\n"),
            1 => format!("*1000000\r\n$3\r\nDEL\r\n{}", "$1\r\nk\r\n".repeat(1000)),
            2 => "*2\r\n$3\r\nGET\r\n$536870912\r\nxyz".to_owned(),
            3 => format!("*2\r\n$3\r\nGET\r\n${number}\r\n{text}\r\n"),
            4 => format!("GET '{text}\r\n"),
            5 => text,
            6 => "*1\r\n".repeat(5000),
            7 => format!("*2147483647\r\n$4\r\nPING\r\n${number}\r\n"),
            8 => "\r\n".repeat(10_000),
            _ => format!("{}\0{}", self.number(), self.text()),
        };
        fragment.into_bytes()
    }
}
