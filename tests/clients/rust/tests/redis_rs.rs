//! redis-rs, unmodified, against a running server: `ORDO_PORT`, `ORDO_PORT_WITH_PASSWORD` (the password is
//! `secret`), and a cluster of three nodes at `ORDO_CLUSTER_PORTS`.

use redis::cluster::ClusterClient;
use redis::streams::{StreamAutoClaimOptions, StreamAutoClaimReply, StreamReadOptions, StreamReadReply};
use redis::{
    AsyncConnectionConfig, Client, Commands, Connection, ConnectionLike, Direction, ErrorKind, PushKind,
    RedisError, RedisResult, Script, ServerErrorKind, SetExpiry, SetOptions, Value,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const PROTOCOLS: [&str; 2] = ["resp2", "resp3"];
/// The tests share a server, and each begins with an empty one.
static SERVER: Mutex<()> = Mutex::new(());

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn cluster_ports() -> Vec<u16> {
    let ports = variable("ORDO_CLUSTER_PORTS");
    ports.split(' ').map(|port| port.parse().expect("a port")).collect()
}

fn client(protocol: &str) -> Client {
    let port = variable("ORDO_PORT");
    Client::open(format!("redis://127.0.0.1:{port}/?protocol={protocol}")).expect("an address")
}

fn connect(protocol: &str) -> Connection {
    let connection = client(protocol).get_connection().expect("a connection");
    connection.set_read_timeout(Some(PATIENCE)).expect("a socket");
    connection
}

/// Runs the test in both protocols.
fn in_both(test: impl Fn(&str, Connection) -> RedisResult<()>) {
    let _alone: MutexGuard<'_, ()> = SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for protocol in PROTOCOLS {
        let mut connection = connect(protocol);
        redis::cmd("FLUSHALL").exec(&mut connection).expect("emptied");
        test(protocol, connection).unwrap_or_else(|error| panic!("{protocol}: {error}"));
    }
}

fn refused<T: std::fmt::Debug>(result: RedisResult<T>, words: &str) -> RedisError {
    let error = result.expect_err("an error");
    assert!(error.to_string().contains(words), "{error}, not {words}");
    error
}

fn info(connection: &mut impl ConnectionLike, section: &str) -> String {
    redis::cmd("INFO").arg(section).query(connection).expect("INFO")
}

#[test]
fn commands() {
    in_both(|_, mut r| {
        let once = SetOptions::default()
            .conditional_set(redis::ExistenceCheck::NX)
            .with_expiration(SetExpiry::EX(100));
        assert_eq!(r.set_options::<_, _, Option<String>>("k", "v", once.clone())?, Some("OK".to_owned()));
        assert_eq!(r.set_options::<_, _, Option<String>>("k", "w", once)?, None);
        assert_eq!(r.get::<_, Option<String>>("none")?, None);
        assert_eq!(r.incr::<_, _, i64>("n", 7)?, 7);
        r.hset_multiple::<_, _, _, ()>("h", &[("f", 1), ("g", 2)])?;
        let hash: HashMap<String, i32> = r.hgetall("h")?;
        assert_eq!(hash, HashMap::from([("f".to_owned(), 1), ("g".to_owned(), 2)]));
        let values: Vec<Option<String>> = r.mget(&["k", "none"])?;
        assert_eq!(values, [Some("v".to_owned()), None]);
        assert_eq!(r.zadd_multiple::<_, _, _, i64>("z", &[(1.5, "a"), (2.0, "b")])?, 2);
        let scores: Vec<(String, f64)> = r.zrange_withscores("z", 0, -1)?;
        assert_eq!(scores, [("a".to_owned(), 1.5), ("b".to_owned(), 2.0)]);
        assert!(r.pfadd::<_, _, bool>("hll", &["a", "b"])?);
        assert!(info(&mut r, "server").contains("ordo_version"));
        let config: HashMap<String, String> =
            redis::cmd("CONFIG").arg("GET").arg("appendonly").query(&mut r)?;
        assert_eq!(config["appendonly"], "yes");
        Ok(())
    });
}

#[test]
fn a_pool_bounds_the_connections_of_many_threads() {
    in_both(|protocol, mut r| {
        let pool = r2d2::Pool::builder().max_size(4).build(client(protocol)).expect("a pool");
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let mut pooled = pool.get().expect("a connection");
                        pooled.incr::<_, _, i64>("pooled", 1).expect("incremented");
                    }
                });
            }
        });
        assert!(pool.state().connections <= 4);
        assert_eq!(r.get::<_, i64>("pooled")?, 800);
        Ok(())
    });
}

#[test]
fn pipelines() {
    in_both(|_, mut r| {
        let mut pipe = redis::pipe();
        for n in 0..1000 {
            pipe.set(format!("p{n}"), n).ignore().get(format!("p{n}"));
        }
        let values: Vec<usize> = pipe.query(&mut r)?;
        assert!(values.into_iter().eq(0..1000));
        let mut wrong = redis::pipe();
        wrong.set("s", "x").incr("s", 1).set("s", "y");
        refused(wrong.exec(&mut r), "value is not an integer or out of range");
        assert_eq!(r.get::<_, String>("s")?, "y");
        let (done, value): (bool, i64) = redis::pipe().atomic().set("a", 1).incr("a", 1).query(&mut r)?;
        assert!(done && value == 2);
        Ok(())
    });
}

fn increment(connection: &mut Connection, key: &str, times: usize) {
    for _ in 0..times {
        let done: RedisResult<()> = redis::transaction(connection, &[key], |connection, pipe| {
            let value: i64 = connection.get(key)?;
            pipe.set(key, value + 1).ignore().query(connection)
        });
        done.expect("incremented");
    }
}

#[test]
fn watch_races_lose_no_increment() {
    in_both(|protocol, mut r| {
        r.set::<_, _, ()>("counter", 0)?;
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| increment(&mut connect(protocol), "counter", 50));
            }
        });
        assert_eq!(r.get::<_, i64>("counter")?, 200);
        Ok(())
    });
}

#[test]
fn scripts_and_functions() {
    in_both(|_, mut r| {
        let script = Script::new("return redis.call('APPEND', KEYS[1], ARGV[1])");
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut r)?;
        let unknown =
            redis::cmd("EVALSHA").arg(script.get_hash()).arg(1).arg("text").arg("abc").query::<i64>(&mut r);
        assert_eq!(unknown.expect_err("unknown").kind(), ErrorKind::Server(ServerErrorKind::NoScript));
        // EVALSHA is answered NOSCRIPT, and SCRIPT LOAD and EVALSHA follow.
        assert_eq!(script.key("text").arg("abc").invoke::<i64>(&mut r)?, 3);
        assert_eq!(script.key("text").arg("x").invoke::<i64>(&mut r)?, 4);
        let reply: (i64, String, Vec<i64>, Option<i64>) =
            Script::new("return {1, 'two', {3}, false}").invoke(&mut r)?;
        assert_eq!(reply, (1, "two".to_owned(), vec![3], None));
        let library = "#!lua name=counters\nredis.register_function('raise', function(k, a) return \
                       redis.call('INCRBY', k[1], a[1]) end)";
        redis::cmd("FUNCTION").arg("FLUSH").exec(&mut r)?;
        assert_eq!(redis::cmd("FUNCTION").arg("LOAD").arg(library).query::<String>(&mut r)?, "counters");
        assert_eq!(redis::cmd("FCALL").arg("raise").arg(1).arg("n").arg(5).query::<i64>(&mut r)?, 5);
        redis::cmd("FUNCTION").arg("DELETE").arg("counters").exec(&mut r)?;
        refused(redis::cmd("FCALL").arg("raise").arg(1).arg("n").arg(5).exec(&mut r), "Function not found");
        Ok(())
    });
}

#[test]
fn streams_with_groups() {
    const ENTRIES: usize = 300;
    in_both(|protocol, mut r| {
        r.xgroup_create_mkstream::<_, _, _, ()>("events", "workers", "0")?;
        refused(r.xgroup_create::<_, _, _, ()>("events", "workers", "0"), "BUSYGROUP");
        let (seen, count) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut mine = connect(protocol);
                for n in 0..ENTRIES {
                    mine.xadd::<_, _, _, _, String>("events", "*", &[("number", n)]).expect("added");
                }
            });
            for name in ["a", "b", "c"] {
                let (seen, count) = (&seen, &count);
                scope.spawn(move || {
                    let mut mine = connect(protocol);
                    let options = StreamReadOptions::default().group("workers", name).count(7).block(100);
                    while count.load(Ordering::SeqCst) < ENTRIES {
                        let reply: Option<StreamReadReply> =
                            mine.xread_options(&["events"], &[">"], &options).expect("read");
                        for entry in
                            reply.into_iter().flat_map(|reply| reply.keys).flat_map(|stream| stream.ids)
                        {
                            seen.lock()
                                .expect("a list")
                                .push(entry.get::<usize>("number").expect("a number"));
                            assert_eq!(
                                mine.xack::<_, _, _, i64>("events", "workers", &[entry.id])
                                    .expect("confirmed"),
                                1
                            );
                            count.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        let mut seen = seen.into_inner().expect("a list");
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..ENTRIES));
        r.xadd::<_, _, _, _, String>("events", "*", &[("number", "lost")])?;
        let dies = StreamReadOptions::default().group("workers", "dies");
        r.xread_options::<_, _, Option<StreamReadReply>>(&["events"], &[">"], &dies)?;
        let claimed: StreamAutoClaimReply =
            r.xautoclaim_options("events", "workers", "heir", 0, "0", StreamAutoClaimOptions::default())?;
        assert_eq!(claimed.claimed[0].get::<String>("number").as_deref(), Some("lost"));
        Ok(())
    });
}

#[test]
fn who_waits_is_served_by_others() {
    in_both(|protocol, mut r| {
        thread::scope(|scope| {
            let left =
                scope.spawn(|| connect(protocol).blpop::<_, (String, String)>(&["none", "left"], 30.0));
            let moved = scope.spawn(|| {
                connect(protocol).blmove::<_, _, String>(
                    "source",
                    "target",
                    Direction::Left,
                    Direction::Right,
                    30.0,
                )
            });
            let least =
                scope.spawn(|| connect(protocol).bzpopmin::<_, (String, String, f64)>("scores", 30.0));
            let start = Instant::now();
            while !info(&mut r, "clients").contains("blocked_clients:3\r") {
                assert!(start.elapsed() < PATIENCE, "nobody waits");
            }
            r.rpush::<_, _, i64>("left", "a")?;
            r.rpush::<_, _, i64>("source", "b")?;
            r.zadd::<_, _, _, i64>("scores", "c", 1.5)?;
            assert_eq!(left.join().expect("served")?, ("left".to_owned(), "a".to_owned()));
            assert_eq!(moved.join().expect("served")?, "b");
            assert_eq!(least.join().expect("served")?, ("scores".to_owned(), "c".to_owned(), 1.5));
            Ok(())
        })
    });
}

#[test]
fn messages_to_channels_and_patterns() {
    in_both(|protocol, mut r| {
        let mut connection = connect(protocol);
        let mut listener = connection.as_pubsub();
        listener.subscribe("news")?;
        listener.psubscribe("n*")?;
        assert_eq!(r.publish::<_, _, i64>("news", "hello")?, 2);
        assert_eq!(r.publish::<_, _, i64>("nothing", "else")?, 1);
        for (pattern, channel, payload) in
            [(None, "news", "hello"), (Some("n*"), "news", "hello"), (Some("n*"), "nothing", "else")]
        {
            let message = listener.get_message()?;
            assert_eq!(message.get_pattern::<Option<String>>()?.as_deref(), pattern);
            assert_eq!(
                (message.get_channel_name(), message.get_payload::<String>()?.as_str()),
                (channel, payload)
            );
        }
        Ok(())
    });
}

#[test]
fn invalidations_are_pushed() {
    let _alone = SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (mut reader, mut writer) = (connect("resp3"), connect("resp2"));
    let (sender, receiver) = mpsc::channel();
    reader.set_push_sender(sender);
    redis::cmd("CLIENT").arg("TRACKING").arg("ON").exec(&mut reader).expect("tracked");
    writer.set::<_, _, ()>("kept", "old").expect("written");
    assert_eq!(reader.get::<_, String>("kept").expect("read"), "old");
    writer.set::<_, _, ()>("kept", "new").expect("written");
    let start = Instant::now();
    let told = loop {
        // What is pushed is looked at while a reply is waited for.
        redis::cmd("PING").exec(&mut reader).expect("a reply");
        match receiver.try_recv() {
            Ok(told) => break told,
            Err(_) => assert!(start.elapsed() < PATIENCE, "nothing was pushed"),
        }
    };
    assert_eq!(told.kind, PushKind::Invalidate);
    assert_eq!(told.data, [Value::Array(vec![Value::BulkString(b"kept".to_vec())])]);
}

#[test]
fn what_a_client_keeps_is_called_back() {
    let _alone = SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut writer = connect("resp2");
    writer.set::<_, _, ()>("kept", "old").expect("written");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let config = AsyncConnectionConfig::new().set_cache_config(redis::caching::CacheConfig::default());
        let mut keeping = client("resp3")
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .expect("a connection");
        let get = redis::cmd("GET").arg("kept").clone();
        for _ in 0..10 {
            assert_eq!(get.query_async::<String>(&mut keeping).await.expect("read"), "old");
        }
        assert_eq!(keeping.get_cache_statistics().expect("a cache").hit, 9);
        for n in 0..20 {
            let wanted = format!("new{n}");
            writer.set::<_, _, ()>("kept", &wanted).expect("written");
            let start = Instant::now();
            while get.query_async::<String>(&mut keeping).await.expect("read") != wanted {
                assert!(start.elapsed() < PATIENCE, "an old value is kept");
                tokio::task::yield_now().await;
            }
        }
    });
}

#[test]
fn iterators_give_all() {
    const COUNT: usize = 700;
    in_both(|_, mut r| {
        let mut pipe = redis::pipe();
        for n in 0..COUNT {
            pipe.set(format!("key:{n}"), n).hset("hash", n, n).sadd("set", n);
        }
        pipe.exec(&mut r)?;
        let keys: BTreeSet<String> = r.scan_match::<_, String>("key:*")?.collect::<RedisResult<_>>()?;
        assert_eq!(keys.len(), COUNT);
        let fields: BTreeSet<(usize, usize)> =
            r.hscan::<_, (usize, usize)>("hash")?.collect::<RedisResult<_>>()?;
        assert_eq!(fields.len(), COUNT);
        let members: BTreeSet<usize> = r.sscan::<_, usize>("set")?.collect::<RedisResult<_>>()?;
        assert_eq!(members.len(), COUNT);
        Ok(())
    });
}

#[test]
fn errors() {
    in_both(|_, mut r| {
        r.set::<_, _, ()>("k", "text")?;
        let error = refused(r.incr::<_, _, i64>("k", 1), "value is not an integer or out of range");
        assert_eq!(error.code(), Some("ERR"));
        let error = refused(r.lpush::<_, _, i64>("k", "x"), "wrong kind of value");
        assert_eq!(error.code(), Some("WRONGTYPE"));
        refused(redis::cmd("NOSUCHCOMMAND").exec(&mut r), "unknown command");
        assert_eq!(r.get::<_, String>("k")?, "text");
        Ok(())
    });
}

#[test]
fn a_password_is_needed_and_enough() {
    let port = variable("ORDO_PORT_WITH_PASSWORD");
    for protocol in PROTOCOLS {
        let ping = |login: &str| {
            let client = Client::open(format!("redis://{login}127.0.0.1:{port}/?protocol={protocol}"))?;
            redis::cmd("PING").query::<String>(&mut client.get_connection()?)
        };
        refused(ping(""), "NOAUTH");
        ping(":wrong@").expect_err("a wrong password");
        assert_eq!(ping(":secret@").expect("the password"), "PONG");
    }
}

#[test]
fn a_client_for_clusters_is_never_sent_elsewhere() {
    let ports = cluster_ports();
    for (protocol, version) in
        [("resp2", redis::ProtocolVersion::RESP2), ("resp3", redis::ProtocolVersion::RESP3)]
    {
        let nodes = ports.iter().map(|port| format!("redis://127.0.0.1:{port}"));
        let client = ClusterClient::builder(nodes).use_protocol(version).build().expect("addresses");
        let mut cluster = client.get_connection().expect("a connection");
        let one =
            Client::open(format!("redis://127.0.0.1:{}/?protocol={protocol}", ports[1])).expect("an address");
        let mut r = one.get_connection().expect("a connection");
        redis::cmd("FLUSHALL").exec(&mut r).expect("emptied");
        for n in 0..300 {
            cluster.set::<_, _, ()>(format!("k{n}"), n).expect("written");
        }
        for n in 0..300 {
            assert_eq!(cluster.get::<_, i32>(format!("k{n}")).expect("read"), n);
        }
        // Any node has all keys, and any command takes all of them.
        assert_eq!(redis::cmd("DBSIZE").query::<usize>(&mut r).expect("a size"), 300);
        assert_eq!(r.mget::<_, Vec<i32>>(&["k1", "k2", "k3"]).expect("read"), [1, 2, 3]);
        assert_eq!(cluster.mget::<_, Vec<i32>>(&["k1", "k2", "k3"]).expect("read"), [1, 2, 3]);
        let mut pipe = redis::cluster::cluster_pipe();
        pipe.incr("k1", 1).incr("k2", 1);
        assert_eq!(pipe.query::<Vec<i32>>(&mut cluster).expect("incremented"), [2, 3]);
        let script = Script::new("return redis.call('INCR', KEYS[1])");
        assert_eq!(script.key("k3").invoke::<i32>(&mut cluster).expect("run"), 4);
        r.set::<_, _, ()>("counter", 0).expect("written");
        thread::scope(|scope| {
            for port in &ports {
                scope.spawn(move || {
                    let own = Client::open(format!("redis://127.0.0.1:{port}/?protocol={protocol}"))
                        .expect("an address");
                    increment(&mut own.get_connection().expect("a connection"), "counter", 20);
                });
            }
        });
        assert_eq!(cluster.get::<_, i32>("counter").expect("read"), 60);
        let errors = info(&mut r, "errorstats");
        assert!(!errors.contains("MOVED") && !errors.contains("CROSSSLOT"), "{errors}");
    }
}
