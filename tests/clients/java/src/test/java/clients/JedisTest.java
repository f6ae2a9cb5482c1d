package clients;

import static clients.Server.CLUSTER_PORTS;
import static clients.Server.PORT;
import static clients.Server.PORT_WITH_PASSWORD;
import static clients.Server.together;
import static clients.Server.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.exceptions.JedisAccessControlException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.XAutoClaimParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.resps.StreamEntry;

/** Jedis, unmodified. */
class JedisTest {
    private static RedisClient connect(RedisProtocol protocol, int port, int connections, String name, String password) {
        var pool = new ConnectionPoolConfig();
        pool.setMaxTotal(connections);
        var config = DefaultJedisClientConfig.builder().protocol(protocol).clientName(name).password(password).build();
        return RedisClient.builder().hostAndPort("127.0.0.1", port).clientConfig(config).poolConfig(pool).build();
    }

    private static RedisClient connect(RedisProtocol protocol) {
        return connect(protocol, PORT, 8, null, null);
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void commands(RedisProtocol protocol) {
        try (var r = connect(protocol)) {
            assertEquals("OK", r.flushAll());
            assertEquals("OK", r.set("k", "v", SetParams.setParams().nx().ex(100)));
            assertNull(r.set("k", "w", SetParams.setParams().nx()));
            assertEquals("v", r.get("k"));
            assertNull(r.get("none"));
            assertEquals(7, r.incrBy("n", 7));
            assertEquals(2, r.hset("h", Map.of("f", "1", "g", "2")));
            assertEquals(Map.of("f", "1", "g", "2"), r.hgetAll("h"));
            assertEquals(java.util.Arrays.asList("v", null), r.mget("k", "none"));
            assertEquals(2, r.zadd("z", Map.of("a", 1.5, "b", 2.0)));
            assertEquals("[[a,1.5], [b,2.0]]", r.zrangeWithScores("z", 0, -1).toString());
            assertEquals(1.5, r.zscore("z", "a"));
            assertEquals("zset", r.type("z"));
            assertTrue(r.info("server").contains("ordo_version"));
            assertEquals(1, r.pfadd("hll", "a", "b"));
            assertEquals(1, r.geoadd("geo", 13.361389, 38.115556, "Palermo"));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void aPoolBoundsTheConnectionsOfManyThreads(RedisProtocol protocol) throws Exception {
        try (var r = connect(protocol, PORT, 4, "pooled", null)) {
            r.del("pooled");
            Callable<Void> work = () -> {
                for (int n = 0; n < 100; n++) {
                    r.incr("pooled");
                }
                return null;
            };
            together(Collections.nCopies(16, work));
            assertEquals("1600", r.get("pooled"));
            var lines = new String((byte[]) r.sendCommand(redis.clients.jedis.Protocol.Command.CLIENT, "LIST")).lines();
            var count = lines.filter(line -> line.contains(" name=pooled ")).count();
            assertTrue(count >= 1 && count <= 4, String.valueOf(count));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void pipelines(RedisProtocol protocol) {
        try (var r = connect(protocol); var pipe = r.pipelined()) {
            r.flushAll();
            var values = new ArrayList<Response<String>>();
            for (int n = 0; n < 1000; n++) {
                pipe.set("p" + n, String.valueOf(n));
                values.add(pipe.get("p" + n));
            }
            pipe.sync();
            for (int n = 0; n < 1000; n++) {
                assertEquals(String.valueOf(n), values.get(n).get());
            }
            pipe.set("s", "x");
            var wrong = pipe.incr("s");
            var right = pipe.get("s");
            pipe.sync();
            assertTrue(assertThrows(JedisDataException.class, wrong::get).getMessage().startsWith("ERR value is not an integer"));
            assertEquals("x", right.get());
        }
    }

    private static Void increment(UnifiedJedis mine, String key, int times) {
        for (int done = 0; done < times; ) {
            try (var block = mine.transaction(false)) {
                block.watch(key);
                int value = Integer.parseInt(mine.get(key));
                block.multi();
                block.set(key, String.valueOf(value + 1));
                if (block.exec() != null) {
                    done++;
                }
            }
        }
        return null;
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void watchRacesLoseNoIncrement(RedisProtocol protocol) throws Exception {
        try (var r = connect(protocol)) {
            r.set("counter", "0");
            together(Collections.nCopies(4, (Callable<Void>) () -> {
                try (var mine = connect(protocol)) {
                    return increment(mine, "counter", 50);
                }
            }));
            assertEquals("200", r.get("counter"));
            try (var block = r.multi()) {
                block.set("a", "text");
                block.incr("a");
                block.get("a");
                var replies = block.exec();
                assertEquals("OK", replies.get(0));
                assertTrue(replies.get(1) instanceof JedisDataException);
                assertEquals("text", replies.get(2));
            }
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void scriptsAndFunctions(RedisProtocol protocol) {
        try (var r = connect(protocol)) {
            r.flushAll();
            var script = "return redis.call('APPEND', KEYS[1], ARGV[1])";
            var sha = r.scriptLoad(script);
            r.scriptFlush();
            assertThrows(JedisNoScriptException.class, () -> r.evalsha(sha, 1, "text", "abc"));
            assertEquals(3L, r.eval(script, 1, "text", "abc"));
            assertEquals(4L, r.evalsha(sha, 1, "text", "x"));
            assertEquals(java.util.Arrays.asList(1L, "two", List.of(3L), null), r.eval("return {1, 'two', {3}, false}"));
            r.functionFlush();
            assertEquals("counters", r.functionLoad(Server.LIBRARY));
            assertThrows(JedisDataException.class, () -> r.functionLoad(Server.LIBRARY));
            assertEquals(5L, r.fcall("raise", List.of("n"), List.of("5")));
            assertEquals("5", r.fcallReadonly("look", List.of("n"), List.of()));
            assertEquals(2, r.functionList().get(0).getFunctions().size());
            var dump = r.functionDump();
            r.functionDelete("counters");
            assertThrows(JedisDataException.class, () -> r.fcall("raise", List.of("n"), List.of("5")));
            assertEquals("OK", r.functionRestore(dump));
            assertEquals(10L, r.fcall("raise", List.of("n"), List.of("5")));
            r.functionFlush();
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void streamsWithGroups(RedisProtocol protocol) throws Exception {
        final int entries = 300;
        try (var r = connect(protocol)) {
            r.flushAll();
            r.xgroupCreate("events", "workers", new StreamEntryID("0-0"), true);
            assertThrows(JedisDataException.class, () -> r.xgroupCreate("events", "workers", null, false));
            var seen = Collections.synchronizedList(new ArrayList<Integer>());
            var works = new ArrayList<Callable<Void>>();
            works.add(() -> {
                for (int n = 0; n < entries; n++) {
                    r.xadd("events", StreamEntryID.NEW_ENTRY, Map.of("number", String.valueOf(n)));
                }
                return null;
            });
            for (var name : List.of("a", "b", "c")) {
                works.add(() -> {
                    while (seen.size() < entries) {
                        var read = r.xreadGroup("workers", name, XReadGroupParams.xReadGroupParams().count(7).block(100),
                                Map.of("events", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY));
                        if (read == null) {
                            continue;
                        }
                        for (StreamEntry entry : read.get(0).getValue()) {
                            seen.add(Integer.valueOf(entry.getFields().get("number")));
                            assertEquals(1, r.xack("events", "workers", entry.getID()));
                        }
                    }
                    return null;
                });
            }
            together(works);
            assertEquals(IntStream.range(0, entries).boxed().toList(), seen.stream().sorted().toList());
            r.xadd("events", StreamEntryID.NEW_ENTRY, Map.of("number", "lost"));
            r.xreadGroup("workers", "dies", XReadGroupParams.xReadGroupParams(), Map.of("events", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY));
            assertEquals(1, r.xpending("events", "workers").getTotal());
            var claimed = r.xautoclaim("events", "workers", "heir", 0, new StreamEntryID("0-0"), XAutoClaimParams.xAutoClaimParams());
            assertEquals("lost", claimed.getValue().get(0).getFields().get("number"));
            assertEquals(entries + 1, r.xinfoStream("events").getLength());
            assertEquals(1, r.xinfoGroups("events").get(0).getPending());
            assertEquals(5, r.xinfoConsumers2("events", "workers").size());
            assertEquals(1, r.xinfoStreamFull("events").getGroups().size());
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void whoWaitsIsServedByOthers(RedisProtocol protocol) throws Exception {
        try (var r = connect(protocol)) {
            r.flushAll();
            var got = together(List.<Callable<String>>of(
                    () -> String.valueOf(r.blpop(30, "none", "left")),
                    () -> r.blmove("source", "target", ListDirection.LEFT, ListDirection.RIGHT, 30),
                    () -> r.bzpopmin(30, "scores").toString(),
                    () -> {
                        until("three wait", () -> r.info("clients").contains("blocked_clients:3\r"));
                        r.rpush("left", "a");
                        r.rpush("source", "b");
                        r.zadd("scores", 1.5, "c");
                        return "served";
                    }));
            assertEquals("[left, a]", got.get(0));
            assertEquals("b", got.get(1));
            assertTrue(got.get(2).contains("scores") && got.get(2).contains("c") && got.get(2).contains("1.5"), got.get(2));
            assertNull(r.blpop(0.01, "none"));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void messagesToChannelsAndPatterns(RedisProtocol protocol) throws Exception {
        try (var r = connect(protocol)) {
            var heard = new LinkedBlockingQueue<String>();
            var listener = new JedisPubSub() {
                @Override
                public void onMessage(String channel, String message) {
                    heard.add(channel + " " + message);
                }

                @Override
                public void onPMessage(String pattern, String channel, String message) {
                    heard.add(pattern + " " + channel + " " + message);
                }

                @Override
                public void onSubscribe(String channel, int count) {
                    psubscribe("n*");
                }

                @Override
                public void onPSubscribe(String pattern, int count) {
                    heard.add("ready");
                }
            };
            var thread = new Thread(() -> r.subscribe(listener, "news"));
            thread.start();
            assertEquals("ready", heard.poll(30, TimeUnit.SECONDS));
            assertEquals(2, r.publish("news", "hello"));
            assertEquals(1, r.publish("nothing", "else"));
            for (var wanted : List.of("news hello", "n* news hello", "n* nothing else")) {
                assertEquals(wanted, heard.poll(30, TimeUnit.SECONDS));
            }
            listener.unsubscribe();
            listener.punsubscribe();
            thread.join();
        }
    }

    /** Jedis keeps copies of Redis 7.4 and later only, and Ordo tells clients that it is 7.2, though what Jedis needs for that is there. */
    @Test
    void copiesAreKeptOfLaterVersionsOnly() {
        var config = DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP3).build();
        var cached = RedisClient.builder().hostAndPort("127.0.0.1", PORT).clientConfig(config).cacheConfig(CacheConfig.builder().build());
        try (var keeping = cached.build()) {
            assertThrows(JedisException.class, () -> keeping.get("kept"));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void iteratorsGiveAll(RedisProtocol protocol) {
        final int count = 700;
        try (var r = connect(protocol)) {
            r.flushAll();
            try (var pipe = r.pipelined()) {
                for (int n = 0; n < count; n++) {
                    pipe.set("key:" + n, "v");
                    pipe.hset("hash", String.valueOf(n), "v");
                }
            }
            var keys = new TreeSet<String>();
            var scan = r.scanIteration(17, "key:*");
            while (!scan.isIterationCompleted()) {
                keys.addAll(scan.nextBatchList());
            }
            assertEquals(count, keys.size());
            var fields = new TreeSet<String>();
            var cursor = "0";
            do {
                var part = r.hscan("hash", cursor, new ScanParams().count(50));
                part.getResult().forEach(pair -> fields.add(pair.getKey()));
                cursor = part.getCursor();
            } while (!cursor.equals("0"));
            assertEquals(count, fields.size());
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void errors(RedisProtocol protocol) {
        try (var r = connect(protocol)) {
            r.set("k", "text");
            assertEquals("ERR value is not an integer or out of range", assertThrows(JedisDataException.class, () -> r.incr("k")).getMessage());
            assertTrue(assertThrows(JedisDataException.class, () -> r.lpush("k", "x")).getMessage().startsWith("WRONGTYPE"));
            assertTrue(assertThrows(JedisDataException.class, () -> r.sendCommand(() -> "NOSUCHCOMMAND".getBytes())).getMessage()
                    .startsWith("ERR unknown command 'NOSUCHCOMMAND'"));
            assertEquals("text", r.get("k"));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void aPasswordIsNeededAndEnough(RedisProtocol protocol) {
        assertThrows(JedisDataException.class, () -> connect(protocol, PORT_WITH_PASSWORD, 1, null, null).ping());
        assertThrows(JedisAccessControlException.class, () -> connect(protocol, PORT_WITH_PASSWORD, 1, null, "wrong").ping());
        try (var r = connect(protocol, PORT_WITH_PASSWORD, 1, null, "secret")) {
            assertEquals("PONG", r.ping());
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void aClientForClustersIsNeverSentElsewhere(RedisProtocol protocol) throws Exception {
        var nodes = CLUSTER_PORTS.stream().map(port -> new HostAndPort("127.0.0.1", port)).collect(Collectors.toSet());
        var config = DefaultJedisClientConfig.builder().protocol(protocol).build();
        try (var cluster = RedisClusterClient.builder().nodes(nodes).clientConfig(config).build();
                var one = connect(protocol, CLUSTER_PORTS.get(1), 8, null, null)) {
            one.flushAll();
            assertEquals(CLUSTER_PORTS.size(), cluster.getClusterNodes().size());
            for (int n = 0; n < 300; n++) {
                cluster.set("k" + n, String.valueOf(n));
            }
            for (int n = 0; n < 300; n++) {
                assertEquals(String.valueOf(n), cluster.get("k" + n));
            }
            // Any node has all keys, and any command takes all of them.
            assertEquals(300, one.dbSize());
            assertEquals(List.of("1", "2", "3"), one.mget("k1", "k2", "k3"));
            assertEquals(List.of("1", "2", "3"), cluster.mget("k1", "k2", "k3"));
            try (var pipe = cluster.pipelined()) {
                var reply = pipe.incr("k1");
                pipe.incr("k2");
                pipe.sync();
                assertEquals(2, reply.get());
            }
            assertEquals(4L, cluster.eval("return redis.call('INCR', KEYS[1])", 1, "k2"));
            cluster.set("counter", "0");
            together(Collections.nCopies(4, (Callable<Void>) () -> {
                try (var mine = connect(protocol, CLUSTER_PORTS.get(2), 8, null, null)) {
                    return increment(mine, "counter", 20);
                }
            }));
            assertEquals("80", cluster.get("counter"));
            var errors = one.info("errorstats");
            assertFalse(errors.contains("MOVED") || errors.contains("CROSSSLOT"), errors);
        }
    }
}
