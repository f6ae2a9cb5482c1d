package clients;

import static clients.Server.CLUSTER_PORTS;
import static clients.Server.PATIENCE_S;
import static clients.Server.PORT;
import static clients.Server.PORT_WITH_PASSWORD;
import static clients.Server.together;
import static clients.Server.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.Consumer;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LMoveArgs;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScoredValue;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.XAutoClaimArgs;
import io.lettuce.core.XGroupCreateArgs;
import io.lettuce.core.XReadArgs;
import io.lettuce.core.XReadArgs.StreamOffset;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.support.ConnectionPoolSupport;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Lettuce, unmodified. */
class LettuceTest {
    private static final Logger LOG = Logger.getLogger("io.lettuce");

    static {
        // It warns of each pooled connection that is closed with its client.
        LOG.setLevel(Level.SEVERE);
    }

    private final List<RedisClient> clients = new ArrayList<>();

    private RedisClient client(ProtocolVersion protocol, int port, String password) {
        var uri = RedisURI.builder().withHost("127.0.0.1").withPort(port);
        if (password != null) {
            uri.withPassword(password.toCharArray());
        }
        var client = RedisClient.create(uri.build());
        client.setOptions(ClientOptions.builder().protocolVersion(protocol).autoReconnect(false).build());
        clients.add(client);
        return client;
    }

    private StatefulRedisConnection<String, String> connect(ProtocolVersion protocol) {
        return client(protocol, PORT, null).connect();
    }

    @AfterEach
    void close() {
        clients.forEach(client -> client.shutdown(0, 5, TimeUnit.SECONDS));
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void commands(ProtocolVersion protocol) {
        var r = connect(protocol).sync();
        assertEquals("OK", r.flushall());
        assertEquals("OK", r.set("k", "v", SetArgs.Builder.nx().ex(100)));
        assertNull(r.set("k", "w", SetArgs.Builder.nx()));
        assertEquals("v", r.get("k"));
        assertEquals(7, r.incrby("n", 7));
        assertEquals(2, r.hset("h", Map.of("f", "1", "g", "2")));
        assertEquals(Map.of("f", "1", "g", "2"), r.hgetall("h"));
        assertEquals(List.of(KeyValue.just("k", "v"), KeyValue.empty("none")), r.mget("k", "none"));
        assertEquals(2, r.zadd("z", ScoredValue.just(1.5, "a"), ScoredValue.just(2, "b")));
        assertEquals(List.of(ScoredValue.just(1.5, "a"), ScoredValue.just(2, "b")), r.zrangeWithScores("z", 0, -1));
        assertEquals(1.5, r.zscore("z", "a"));
        assertEquals(1, r.pfadd("hll", "a", "b"));
        assertEquals(1, r.geoadd("geo", 13.361389, 38.115556, "Palermo"));
        assertTrue(r.info("server").contains("ordo_version"));
        assertTrue(r.commandCount() > 200);
        assertTrue(r.clientInfo().contains("lib-name=Lettuce"), r.clientInfo());
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void aPoolBoundsTheConnectionsOfManyThreads(ProtocolVersion protocol) throws Exception {
        var client = client(protocol, PORT, null);
        var config = new GenericObjectPoolConfig<StatefulRedisConnection<String, String>>();
        config.setMaxTotal(4);
        try (var pool = ConnectionPoolSupport.createGenericObjectPool(client::connect, config)) {
            try (var connection = pool.borrowObject()) {
                connection.sync().del("pooled");
            }
            Callable<Void> work = () -> {
                for (int n = 0; n < 100; n++) {
                    try (var connection = pool.borrowObject()) {
                        connection.sync().incr("pooled");
                    }
                }
                return null;
            };
            together(Collections.nCopies(16, work));
            assertTrue(pool.getCreatedCount() <= 4);
            try (var connection = pool.borrowObject()) {
                assertEquals("1600", connection.sync().get("pooled"));
            }
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void pipelines(ProtocolVersion protocol) throws Exception {
        var connection = connect(protocol);
        connection.setAutoFlushCommands(false);
        var r = connection.async();
        var values = new ArrayList<RedisFuture<String>>();
        for (int n = 0; n < 1000; n++) {
            r.set("p" + n, String.valueOf(n));
            values.add(r.get("p" + n));
        }
        var wrong = r.incr("p0");
        r.set("p0", "text");
        var worse = r.incr("p0");
        connection.flushCommands();
        for (int n = 0; n < 1000; n++) {
            assertEquals(String.valueOf(n), values.get(n).get(PATIENCE_S, TimeUnit.SECONDS));
        }
        assertEquals(1, wrong.get());
        assertTrue(assertThrows(Exception.class, worse::get).getMessage().contains("ERR value is not an integer"));
    }

    private static Void increment(StatefulRedisConnection<String, String> connection, String key, int times) {
        var r = connection.sync();
        for (int done = 0; done < times; ) {
            r.watch(key);
            int value = Integer.parseInt(r.get(key));
            r.multi();
            r.set(key, String.valueOf(value + 1));
            if (!r.exec().wasDiscarded()) {
                done++;
            }
        }
        return null;
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void watchRacesLoseNoIncrement(ProtocolVersion protocol) throws Exception {
        var r = connect(protocol).sync();
        r.set("counter", "0");
        var client = client(protocol, PORT, null);
        together(Collections.nCopies(4, (Callable<Void>) () -> increment(client.connect(), "counter", 50)));
        assertEquals("200", r.get("counter"));
        r.multi();
        r.set("a", "text");
        r.incr("a");
        r.get("a");
        var replies = r.exec();
        assertTrue(replies.<Object>get(1) instanceof RedisCommandExecutionException);
        assertEquals("text", replies.get(2));
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void scriptsAndFunctions(ProtocolVersion protocol) {
        var r = connect(protocol).sync();
        r.flushall();
        var script = "return redis.call('APPEND', KEYS[1], ARGV[1])";
        String[] keys = {"text"};
        var sha = r.digest(script);
        r.scriptFlush();
        assertThrows(RedisNoScriptException.class, () -> r.evalsha(sha, ScriptOutputType.INTEGER, keys, "abc"));
        assertEquals(3L, r.<Long>eval(script, ScriptOutputType.INTEGER, keys, "abc"));
        assertEquals(4L, r.<Long>evalsha(sha, ScriptOutputType.INTEGER, keys, "x"));
        assertEquals(Arrays.asList(1L, "two", List.of(3L), null), r.eval("return {1, 'two', {3}, false}", ScriptOutputType.MULTI));
        r.functionFlush(io.lettuce.core.FlushMode.SYNC);
        assertEquals("counters", r.functionLoad(Server.LIBRARY));
        assertThrows(RedisCommandExecutionException.class, () -> r.functionLoad(Server.LIBRARY));
        String[] counter = {"n"};
        assertEquals(5L, r.<Long>fcall("raise", ScriptOutputType.INTEGER, counter, "5"));
        assertEquals("5", r.<String>fcallReadOnly("look", ScriptOutputType.VALUE, counter));
        if (protocol == ProtocolVersion.RESP3) {
            // Lettuce takes RESP2's lists for maps.
            assertEquals("counters", r.functionList().get(0).get("library_name"));
        }
        var dump = r.functionDump();
        r.functionFlush(io.lettuce.core.FlushMode.SYNC);
        assertThrows(RedisCommandExecutionException.class, () -> r.fcall("raise", ScriptOutputType.INTEGER, counter, "5"));
        assertEquals("OK", r.functionRestore(dump));
        assertEquals(10L, r.<Long>fcall("raise", ScriptOutputType.INTEGER, counter, "5"));
        r.functionFlush(io.lettuce.core.FlushMode.SYNC);
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void streamsWithGroups(ProtocolVersion protocol) throws Exception {
        final int entries = 300;
        var client = client(protocol, PORT, null);
        var r = client.connect().sync();
        r.flushall();
        r.xgroupCreate(StreamOffset.from("events", "0"), "workers", XGroupCreateArgs.Builder.mkstream());
        assertThrows(RedisCommandExecutionException.class, () -> r.xgroupCreate(StreamOffset.from("events", "0"), "workers"));
        var seen = Collections.synchronizedList(new ArrayList<Integer>());
        var works = new ArrayList<Callable<Void>>();
        works.add(() -> {
            for (int n = 0; n < entries; n++) {
                r.xadd("events", "number", String.valueOf(n));
            }
            return null;
        });
        for (var name : List.of("a", "b", "c")) {
            works.add(() -> {
                var mine = client.connect().sync();
                while (seen.size() < entries) {
                    for (var message : mine.xreadgroup(Consumer.from("workers", name), XReadArgs.Builder.count(7).block(100),
                            StreamOffset.lastConsumed("events"))) {
                        seen.add(Integer.valueOf(message.getBody().get("number")));
                        assertEquals(1, mine.xack("events", "workers", message.getId()));
                    }
                }
                return null;
            });
        }
        together(works);
        assertEquals(IntStream.range(0, entries).boxed().toList(), seen.stream().sorted().toList());
        r.xadd("events", "number", "lost");
        r.xreadgroup(Consumer.from("workers", "dies"), StreamOffset.lastConsumed("events"));
        assertEquals(1, r.xpending("events", "workers").getCount());
        var claimed = r.xautoclaim("events", XAutoClaimArgs.Builder.xautoclaim(Consumer.from("workers", "heir"), 0, "0"));
        assertEquals("lost", claimed.getMessages().get(0).getBody().get("number"));
        assertEquals(entries + 1, r.xlen("events"));
        assertEquals(5, r.xinfoConsumers("events", "workers").size());
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void whoWaitsIsServedByOthers(ProtocolVersion protocol) throws Exception {
        var client = client(protocol, PORT, null);
        var r = client.connect().sync();
        r.flushall();
        var got = together(List.<Callable<String>>of(
                () -> String.valueOf(client.connect().sync().blpop(30, "none", "left")),
                () -> client.connect().sync().blmove("source", "target", LMoveArgs.Builder.leftRight(), 30),
                () -> String.valueOf(client.connect().sync().bzpopmin(30, "scores")),
                () -> {
                    until("three wait", () -> r.info("clients").contains("blocked_clients:3\r"));
                    r.rpush("left", "a");
                    r.rpush("source", "b");
                    r.zadd("scores", 1.5, "c");
                    return "served";
                }));
        assertEquals("KeyValue[left, a]", got.get(0));
        assertEquals("b", got.get(1));
        assertTrue(got.get(2).contains("scores") && got.get(2).contains("1.5"), got.get(2));
        assertNull(r.blpop(0.01, "none"));
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void messagesToChannelsAndPatterns(ProtocolVersion protocol) throws Exception {
        var client = client(protocol, PORT, null);
        var r = client.connect().sync();
        var listener = client.connectPubSub();
        var heard = new LinkedBlockingQueue<String>();
        listener.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(String channel, String message) {
                heard.add(channel + " " + message);
            }

            @Override
            public void message(String pattern, String channel, String message) {
                heard.add(pattern + " " + channel + " " + message);
            }
        });
        listener.sync().subscribe("news");
        listener.sync().psubscribe("n*");
        assertEquals(2, r.publish("news", "hello"));
        assertEquals(1, r.publish("nothing", "else"));
        for (var wanted : List.of("news hello", "n* news hello", "n* nothing else")) {
            assertEquals(wanted, heard.poll(30, TimeUnit.SECONDS));
        }
        assertEquals(List.of("news"), r.pubsubChannels());
        assertEquals(1, r.pubsubNumpat());
        listener.sync().unsubscribe("news");
        listener.sync().punsubscribe("n*");
        assertEquals("PONG", listener.sync().ping());
    }

    @Test
    void whatAClientKeepsIsCalledBack() {
        var client = client(ProtocolVersion.RESP3, PORT, null);
        var r = client.connect().sync();
        r.set("kept", "old");
        var copies = Collections.synchronizedMap(new HashMap<String, String>());
        try (var cache = ClientSideCaching.enable(CacheAccessor.forMap(copies), client.connect(), TrackingArgs.Builder.enabled())) {
            assertEquals("old", cache.get("kept"));
            assertEquals(Map.of("kept", "old"), copies);
            for (int n = 0; n < 20; n++) {
                var wanted = "new" + n;
                r.set("kept", wanted);
                until("the new value", () -> wanted.equals(cache.get("kept")));
            }
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void iteratorsGiveAll(ProtocolVersion protocol) {
        final int count = 700;
        var r = connect(protocol).sync();
        r.flushall();
        var numbers = IntStream.range(0, count).mapToObj(String::valueOf).toArray(String[]::new);
        r.sadd("set", numbers);
        r.hset("hash", Arrays.stream(numbers).collect(Collectors.toMap(n -> n, n -> n)));
        r.mset(Arrays.stream(numbers).collect(Collectors.toMap(n -> "key:" + n, n -> n)));
        for (var number : numbers) {
            r.zadd("sorted", Double.parseDouble(number), number);
        }
        assertEquals(count, ScanIterator.scan(r, ScanArgs.Builder.matches("key:*").limit(17)).stream().distinct().count());
        assertEquals(count, ScanIterator.sscan(r, "set").stream().distinct().count());
        assertEquals(count, ScanIterator.hscan(r, "hash").stream().distinct().count());
        assertEquals(count, ScanIterator.zscan(r, "sorted").stream().distinct().count());
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void errors(ProtocolVersion protocol) {
        var r = connect(protocol).sync();
        r.set("k", "text");
        assertEquals("ERR value is not an integer or out of range",
                assertThrows(RedisCommandExecutionException.class, () -> r.incr("k")).getMessage());
        assertTrue(assertThrows(RedisCommandExecutionException.class, () -> r.lpush("k", "x")).getMessage().startsWith("WRONGTYPE"));
        assertEquals("text", r.get("k"));
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void aPasswordIsNeededAndEnough(ProtocolVersion protocol) {
        assertThrows(Exception.class, () -> client(protocol, PORT_WITH_PASSWORD, null).connect().sync().get("k"));
        assertThrows(RedisConnectionException.class, () -> client(protocol, PORT_WITH_PASSWORD, "wrong").connect());
        assertEquals("PONG", client(protocol, PORT_WITH_PASSWORD, "secret").connect().sync().ping());
    }

    @ParameterizedTest
    @EnumSource(names = {"RESP2", "RESP3"})
    void aClientForClustersIsNeverSentElsewhere(ProtocolVersion protocol) throws Exception {
        var one = client(protocol, CLUSTER_PORTS.get(1), null).connect().sync();
        one.flushall();
        var cluster = RedisClusterClient.create(RedisURI.create("127.0.0.1", CLUSTER_PORTS.get(0)));
        try {
            cluster.setOptions(ClusterClientOptions.builder().protocolVersion(protocol).build());
            var r = cluster.connect().sync();
            var upstream = cluster.getPartitions().stream().filter(node -> node.is(RedisClusterNode.NodeFlag.UPSTREAM));
            assertEquals(CLUSTER_PORTS, upstream.map(node -> node.getUri().getPort()).sorted().toList());
            for (int n = 0; n < 300; n++) {
                r.set("k" + n, String.valueOf(n));
            }
            for (int n = 0; n < 300; n++) {
                assertEquals(String.valueOf(n), r.get("k" + n));
            }
            // Any node has all keys, and any command takes all of them.
            assertEquals(300, one.dbsize());
            assertEquals(List.of("1", "2", "3"), one.mget("k1", "k2", "k3").stream().map(KeyValue::getValue).toList());
            assertEquals(List.of("1", "2", "3"), r.mget("k1", "k2", "k3").stream().map(KeyValue::getValue).toList());
            String[] keys = {"k1"};
            assertEquals(2L, r.<Long>eval("return redis.call('INCR', KEYS[1])", ScriptOutputType.INTEGER, keys));
            one.set("counter", "0");
            var client = client(protocol, CLUSTER_PORTS.get(2), null);
            together(Collections.nCopies(4, (Callable<Void>) () -> increment(client.connect(), "counter", 20)));
            assertEquals("80", r.get("counter"));
            var heard = new LinkedBlockingQueue<String>();
            var listener = cluster.connectPubSub();
            listener.addListener(new RedisPubSubAdapter<>() {
                @Override
                public void message(String channel, String message) {
                    heard.add(message);
                }
            });
            listener.sync().subscribe("news");
            one.publish("news", "hello");
            assertEquals("hello", heard.poll(30, TimeUnit.SECONDS));
            var errors = one.info("errorstats");
            assertFalse(errors.contains("MOVED") || errors.contains("CROSSSLOT"), errors);
        } finally {
            cluster.shutdown(0, 5, TimeUnit.SECONDS);
        }
    }
}
