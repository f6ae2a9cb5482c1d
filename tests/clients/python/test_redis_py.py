"""redis-py, unmodified, against a running server: ORDO_PORT, ORDO_PORT_WITH_PASSWORD (the password is `secret`), a cluster of three
nodes at ORDO_CLUSTER_PORTS, and three nodes of a hierarchy at ORDO_HIERARCHY_PORTS."""

import os
import threading
import time
import unittest
from unittest import mock

import redis
from redis.cache import CacheConfig
from redis.cluster import ClusterNode

PORT = int(os.environ["ORDO_PORT"])
CLUSTER_PORTS = [int(port) for port in os.environ["ORDO_CLUSTER_PORTS"].split()]
HIERARCHY_PORTS = [int(port) for port in os.environ["ORDO_HIERARCHY_PORTS"].split()]
PORT_WITH_PASSWORD = int(os.environ["ORDO_PORT_WITH_PASSWORD"])


def connect(protocol=2, **options):
    options.setdefault("decode_responses", True)
    return redis.Redis(port=PORT, protocol=protocol, **options)


def until(what, holds):
    """Asks until it holds."""
    start = time.monotonic()
    while not holds():
        if time.monotonic() - start > 30:
            raise AssertionError(f"never: {what}")


def together(works):
    """Runs each of the functions in a thread of its own and gives what they return, or raises what one of them has raised."""
    results, failures = [None] * len(works), []

    def run(place, work):
        try:
            results[place] = work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(place, work)) for place, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


class Commands(unittest.TestCase):
    protocol = 2

    def setUp(self):
        self.r = connect(self.protocol)
        self.r.flushall()

    def tearDown(self):
        self.r.close()

    def test_strings(self):
        r = self.r
        self.assertTrue(r.ping())
        self.assertTrue(r.set("k", "v"))
        self.assertEqual(r.get("k"), "v")
        self.assertIsNone(r.get("none"))
        self.assertIsNone(r.set("k", "w", nx=True))
        self.assertEqual(r.set("k", "w", get=True), "v")
        self.assertEqual(r.incrby("n", 5), 5)
        self.assertEqual(r.incrbyfloat("n", 0.5), 5.5)
        self.assertEqual(r.append("k", "!"), 2)
        self.assertTrue(r.mset({"a": "1", "b": "2"}))
        self.assertEqual(r.mget("a", "b", "c"), ["1", "2", None])
        self.assertEqual(r.getrange("k", 0, 0), "w")
        self.assertEqual(r.strlen("k"), 2)
        self.assertEqual(r.getdel("a"), "1")
        self.assertFalse(r.exists("a"))

    def test_binary_values_of_any_size(self):
        raw = connect(self.protocol, decode_responses=False)
        for size in (0, 1, 21, 22, 1000, 1 << 20, 5_000_000):
            value = os.urandom(size)
            raw.set(b"binary\r\n\x00", value)
            self.assertEqual(raw.get(b"binary\r\n\x00"), value)
        raw.close()

    def test_hashes(self):
        r = self.r
        self.assertEqual(r.hset("h", mapping={"f": "1", "g": "2"}), 2)
        self.assertEqual(r.hgetall("h"), {"f": "1", "g": "2"})
        self.assertEqual(r.hmget("h", "f", "x"), ["1", None])
        self.assertEqual(r.hincrby("h", "f", 4), 5)
        self.assertEqual(sorted(r.hkeys("h")), ["f", "g"])
        self.assertEqual(r.hdel("h", "g"), 1)
        self.assertEqual(r.hlen("h"), 1)
        self.assertEqual(dict(r.hscan_iter("h")), {"f": "5"})
        self.assertEqual(r.type("h"), "hash")

    def test_expiry(self):
        r = self.r
        r.set("k", "v", px=60_000)
        self.assertTrue(0 < r.pttl("k") <= 60_000)
        self.assertTrue(r.persist("k"))
        self.assertEqual(r.ttl("k"), -1)
        self.assertEqual(r.ttl("none"), -2)
        self.assertTrue(r.expire("k", 100))
        self.assertTrue(r.expiretime("k") > 0)
        r.set("gone", "v", px=1)
        until("it expires", lambda: r.get("gone") is None)
        self.assertEqual(r.exists("gone"), 0)

    def test_keys_and_scan(self):
        r = self.r
        names = {f"key:{i}" for i in range(500)}
        r.mset({name: "v" for name in names})
        self.assertEqual(r.dbsize(), 500)
        self.assertEqual(set(r.keys("key:*")), names)
        self.assertEqual(set(r.scan_iter("key:*", count=17)), names)
        self.assertEqual(len(list(r.scan_iter("key:1?"))), 10)
        self.assertEqual(r.delete("key:1", "key:2", "none"), 2)
        self.assertTrue(r.rename("key:3", "key:x"))
        self.assertIsNotNone(r.randomkey())

    def test_errors(self):
        r = self.r
        r.set("k", "text")
        with self.assertRaisesRegex(redis.ResponseError, "value is not an integer or out of range"):
            r.incr("k")
        with self.assertRaisesRegex(redis.ResponseError, "WRONGTYPE"):
            r.hget("k", "f")
        with self.assertRaisesRegex(redis.ResponseError, "unknown command"):
            r.execute_command("NOSUCHCOMMAND", "a")
        self.assertEqual(r.get("k"), "text")

    def test_the_server_tells_about_itself(self):
        r = self.r
        info = r.info()
        self.assertEqual(info["role"], "master")
        self.assertIn("ordo_version", info)
        self.assertEqual(r.config_get("appendonly"), {"appendonly": "yes"})
        self.assertTrue(r.config_set("timeout", 0))
        self.assertEqual(r.client_setname("tester"), True)
        self.assertEqual(r.client_getname(), "tester")
        self.assertTrue(any(client["name"] == "tester" for client in r.client_list()))
        self.assertIn("get", r.command())
        self.assertEqual(r.command_count() > 50, True)
        self.assertTrue(r.time()[0] > 1_600_000_000)
        self.assertTrue(r.bgsave() or True)
        self.assertTrue(r.save())

    def test_pipelines(self):
        pipe = self.r.pipeline(transaction=False)
        for i in range(2000):
            pipe.set(f"p:{i}", i)
            pipe.get(f"p:{i}")
        replies = pipe.execute()
        self.assertEqual(replies, [reply for i in range(2000) for reply in (True, str(i))])
        pipe.set("s", "x").incr("s").get("s")
        replies = pipe.execute(raise_on_error=False)
        self.assertIsInstance(replies[1], redis.ResponseError)
        self.assertEqual((replies[0], replies[2]), (True, "x"))

    def test_blocks(self):
        r = self.r
        with r.pipeline() as pipe:
            pipe.set("a", 1).incr("a").hset("h", "f", "v").hgetall("h").get("none")
            self.assertEqual(pipe.execute(), [True, 2, 1, {"f": "v"}, None])
            pipe.set("a", "text").incr("a").get("a")
            replies = pipe.execute(raise_on_error=False)
            self.assertIsInstance(replies[1], redis.ResponseError)
            self.assertEqual(replies[2], "text")

    def test_a_watched_key_that_changed_voids_the_block(self):
        r = self.r
        with r.pipeline() as pipe:
            pipe.watch("k")
            r.set("k", "theirs")
            pipe.multi()
            pipe.set("k", "mine")
            with self.assertRaises(redis.WatchError):
                pipe.execute()
        self.assertEqual(r.get("k"), "theirs")

    def test_watch_races_lose_no_increment(self):
        clients, increments = 4, 50
        self.r.set("counter", 0)
        failures = []

        def work():
            try:
                mine = connect(self.protocol)
                for _ in range(increments):
                    mine.transaction(lambda pipe: (
                        (value := int(pipe.get("counter"))), pipe.multi(), pipe.set("counter", value + 1)), "counter")
                mine.close()
            except Exception as error:  # shown by the assertion below
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(int(self.r.get("counter")), clients * increments)

    def test_scripts(self):
        r = self.r
        transfer = r.register_script("""
            local from = tonumber(redis.call('GET', KEYS[1]) or 0)
            if from < tonumber(ARGV[1]) then return redis.error_reply('NOFUNDS not enough') end
            redis.call('DECRBY', KEYS[1], ARGV[1])
            return redis.call('INCRBY', KEYS[2], ARGV[1])
        """)
        r.set("alice", 100)
        self.assertEqual(transfer(keys=["alice", "bob"], args=[30]), 30)
        with self.assertRaisesRegex(redis.ResponseError, "not enough"):
            transfer(keys=["alice", "bob"], args=[71])
        self.assertEqual(r.mget("alice", "bob"), ["70", "30"])
        self.assertEqual(r.eval("return {1, 'two', {3}, false}", 0), [1, "two", [3], None])
        self.assertEqual(r.eval("return cjson.decode(ARGV[1]).a[2]", 0, '{"a": [1, 2]}'), 2)
        self.assertEqual(r.script_exists(transfer.sha, "0" * 40), [True, False])
        # A key that is known only while the script runs.
        r.mset({"pointer": "target", "target": "found"})
        self.assertEqual(r.eval("return redis.call('GET', redis.call('GET', 'pointer'))", 0), "found")
        with r.pipeline() as pipe:
            pipe.eval("return redis.call('INCR', 'n')", 0)
            pipe.incr("n")
            self.assertEqual(pipe.execute(), [1, 2])

    def test_transfers_by_many_clients_keep_the_sum(self):
        accounts = [f"account:{i}" for i in range(10)]
        self.r.mset({account: 100 for account in accounts})
        script = "redis.call('DECRBY', KEYS[1], ARGV[1]) redis.call('INCRBY', KEYS[2], ARGV[1]) return 'done'"
        failures = []

        def work(number):
            try:
                mine = connect(self.protocol)
                for step in range(100):
                    a, b = accounts[(number + step) % 10], accounts[(number * 3 + step * 7 + 1) % 10]
                    mine.eval(script, 2, a, b, step)
                    if sum(map(int, mine.mget(accounts))) != 1000:
                        failures.append("a reader saw half of a transfer")
                mine.close()
            except Exception as error:  # shown by the assertion below
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_a_pool_bounds_the_connections_of_many_threads(self):
        pool = redis.BlockingConnectionPool(port=PORT, protocol=self.protocol, max_connections=4, timeout=30)
        shared = redis.Redis(connection_pool=pool, client_name="pooled")
        shared.client_setname("pooled")

        def work():
            for _ in range(100):
                shared.incr("pooled")

        together([work] * 16)
        self.assertEqual(int(shared.get("pooled")), 1600)
        addresses = {client["addr"] for client in self.r.client_list() if client["name"] == "pooled"}
        self.assertTrue(1 <= len(addresses) <= 4, addresses)
        shared.close()
        pool.disconnect()

    def test_functions(self):
        r = self.r
        r.function_flush()
        library = """#!lua name=counters
            redis.register_function('raise', function(keys, arguments) return redis.call('INCRBY', keys[1], arguments[1]) end)
            redis.register_function{function_name='look', flags={'no-writes'}, callback=function(keys)
                return redis.call('GET', keys[1]) end}"""
        self.assertEqual(r.function_load(library), "counters")
        with self.assertRaisesRegex(redis.ResponseError, "already exists"):
            r.function_load(library)
        self.assertEqual(r.function_load(library, replace=True), "counters")
        self.assertEqual(r.fcall("raise", 1, "n", 5), 5)
        self.assertEqual(r.fcall_ro("look", 1, "n"), "5")
        with self.assertRaisesRegex(redis.ResponseError, "Can not execute a script with write flag using"):
            r.fcall_ro("raise", 1, "n", 5)
        self.assertEqual(len(r.function_list()), 1)
        dump = connect(self.protocol, decode_responses=False)
        payload = dump.function_dump()
        self.assertTrue(dump.function_delete("counters"))
        with self.assertRaisesRegex(redis.ResponseError, "Function not found"):
            r.fcall("raise", 1, "n", 5)
        self.assertTrue(dump.function_restore(payload))
        self.assertEqual(r.fcall("raise", 1, "n", 5), 10)
        r.function_flush()
        dump.close()

    def test_a_script_that_the_server_does_not_know_is_sent_to_it(self):
        r = self.r
        script = r.register_script("return redis.call('APPEND', KEYS[1], ARGV[1])")
        r.script_flush()
        with self.assertRaises(redis.exceptions.NoScriptError):
            r.evalsha(script.sha, 1, "text", "x")
        self.assertEqual(script(keys=["text"], args=["abc"]), 3)
        self.assertEqual(r.evalsha(script.sha, 1, "text", "x"), 4)
        with r.pipeline() as pipe:
            r.script_flush()
            script(keys=["text"], args=["y"], client=pipe)
            self.assertEqual(pipe.execute(), [5])

    def test_streams_with_groups(self):
        r = self.r
        entries, consumers = 300, 3
        r.xgroup_create("events", "workers", id="0", mkstream=True)
        with self.assertRaisesRegex(redis.ResponseError, "BUSYGROUP"):
            r.xgroup_create("events", "workers", id="0")

        def produce():
            mine = connect(self.protocol)
            for number in range(entries):
                mine.xadd("events", {"number": number}, maxlen=10_000, approximate=True)
            mine.close()

        def consume(name):
            mine, seen = connect(self.protocol), []
            while True:
                reply = mine.xreadgroup("workers", name, {"events": ">"}, count=7, block=500)
                if not reply and sum(consumer["pending"] for consumer in mine.xinfo_consumers("events", "workers")) == 0 \
                        and mine.xlen("events") == entries:
                    mine.close()
                    return seen
                # RESP2: [[stream, entries]]; RESP3: {stream: [entries]}.
                batches = [part for parts in reply.values() for part in parts] if isinstance(reply, dict) else [part for _, part in reply]
                for entry, fields in (pair for part in batches for pair in part):
                    seen.append(int(fields["number"]))
                    mine.xack("events", "workers", entry)

        parts = together([produce] + [lambda name=f"c{n}": consume(name) for n in range(consumers)])[1:]
        self.assertEqual(sorted(number for part in parts for number in part), list(range(entries)))

        # What a consumer has taken and not confirmed is another's in the end.
        r.xadd("events", {"number": "lost"})
        r.xreadgroup("workers", "dies", {"events": ">"})
        self.assertEqual(r.xpending("events", "workers")["pending"], 1)
        self.assertEqual(len(r.xpending_range("events", "workers", "-", "+", 10)), 1)
        claimed = r.xautoclaim("events", "workers", "heir", min_idle_time=0)
        self.assertEqual([fields for _, fields in claimed[1]], [{"number": "lost"}])
        self.assertEqual(r.xinfo_stream("events")["length"], entries + 1)
        self.assertEqual(r.xinfo_groups("events")[0]["pending"], 1)
        self.assertEqual(r.xtrim("events", maxlen=10, approximate=False), entries - 9)
        self.assertEqual(len(r.xrange("events")), 10)

    def test_who_waits_is_served_by_others(self):
        r = self.r

        def wait(command, *arguments, **options):
            mine = connect(self.protocol)
            result = getattr(mine, command)(*arguments, **options)
            mine.close()
            return result

        def serve():
            until("five wait", lambda: r.info("clients")["blocked_clients"] == 5)
            r.rpush("left", "a")
            r.lpush("right", "b")
            r.rpush("source", "c")
            r.zadd("scores", {"d": 1.5})
            r.rpush("many", "e", "f")

        left, right, moved, least, several, _ = together([
            lambda: wait("blpop", ["none", "left"], timeout=30),
            lambda: wait("brpop", ["right"], timeout=30),
            lambda: wait("blmove", "source", "target", 30, "LEFT", "RIGHT"),
            lambda: wait("bzpopmin", ["scores"], timeout=30),
            lambda: wait("blmpop", 30, 1, "many", direction="LEFT", count=5),
            serve,
        ])
        self.assertEqual(list(left), ["left", "a"])
        self.assertEqual(list(right), ["right", "b"])
        self.assertEqual(moved, "c")
        self.assertEqual(list(least), ["scores", "d", 1.5])
        self.assertEqual(list(several), ["many", ["e", "f"]])
        self.assertEqual(r.lrange("target", 0, -1), ["c"])
        self.assertIsNone(r.blpop(["none"], timeout=0.01))

    def test_messages_to_channels_and_patterns(self):
        r = self.r
        listener = r.pubsub()
        listener.subscribe("news", "sport")
        listener.psubscribe("n*")
        kinds = [listener.get_message(timeout=30)["type"] for _ in range(3)]
        self.assertEqual(kinds, ["subscribe", "subscribe", "psubscribe"])
        self.assertEqual(r.publish("news", "hello"), 2)
        self.assertEqual(r.publish("nothing", "else"), 1)
        messages = [listener.get_message(timeout=30) for _ in range(3)]
        found = [(message["type"], message["pattern"], message["channel"], message["data"]) for message in messages]
        self.assertEqual(found, [
            ("message", None, "news", "hello"), ("pmessage", "n*", "news", "hello"), ("pmessage", "n*", "nothing", "else")])
        self.assertEqual(sorted(r.pubsub_channels()), ["news", "sport"])
        self.assertEqual(r.pubsub_numsub("news"), [("news", 1)])
        self.assertEqual(r.pubsub_numpat(), 1)
        if self.protocol == 2:
            # In RESP3 a listener's PONG is a plain string, which redis-py takes for a message where it
            # decodes replies.
            listener.ping()
            self.assertEqual(listener.get_message(timeout=30)["type"], "pong")
        listener.unsubscribe()
        listener.punsubscribe()
        self.assertEqual([listener.get_message(timeout=30)["type"] for _ in range(3)], ["unsubscribe", "unsubscribe", "punsubscribe"])
        listener.close()

    def test_scan_iterators_of_all_kinds(self):
        r = self.r
        count = 700
        r.sadd("set", *range(count))
        r.zadd("sorted", {str(n): n for n in range(count)})
        r.hset("hash", mapping={str(n): n for n in range(count)})
        self.assertEqual({int(member) for member in r.sscan_iter("set", count=13)}, set(range(count)))
        self.assertEqual({(int(member), score) for member, score in r.zscan_iter("sorted")}, {(n, float(n)) for n in range(count)})
        self.assertEqual({int(field) for field, _ in r.hscan_iter("hash", match="*")}, set(range(count)))
        self.assertEqual(set(r.scan_iter(_type="ZSET")), {"sorted"})

    def test_locks_are_held_by_one(self):
        held, inside, failures = 0, 0, []
        guard = threading.Lock()

        def work():
            nonlocal held, inside
            mine = connect(self.protocol)
            for _ in range(10):
                with mine.lock("door", timeout=30, sleep=0.001):
                    with guard:
                        inside += 1
                        if inside != 1:
                            failures.append(inside)
                    held += 1
                    with guard:
                        inside -= 1
            mine.close()

        together([work] * 4)
        self.assertEqual((held, failures), (40, []))


class CommandsInResp3(Commands):
    protocol = 3

    def test_what_a_client_keeps_is_called_back(self):
        # redis-py keeps copies of Redis 7.4 and later only; what it needs is there since 6.0.
        patch = mock.patch.object(redis.connection.CacheProxyConnection, "MIN_ALLOWED_VERSION", "7.2.0")
        patch.start()
        self.addCleanup(patch.stop)
        keeping = connect(3, cache_config=CacheConfig())
        self.r.set("kept", "old")
        self.assertEqual(keeping.get("kept"), "old")
        self.assertEqual(keeping.get_cache().size, 1)
        self.assertEqual(keeping.get("kept"), "old")
        for number in range(20):
            self.r.set("kept", f"new{number}")
            # The write was answered, so its invalidation is on its way, and redis-py looks for it before it
            # answers from its cache.
            until("the new value", lambda: keeping.get("kept") == f"new{number}")
        keeping.close()


class InACluster(unittest.TestCase):
    """redis-py's client for clusters: it sends each key to the node that CLUSTER SLOTS names, and never has to be sent elsewhere."""

    def setUp(self):
        self.r = redis.RedisCluster(
            startup_nodes=[ClusterNode("127.0.0.1", port) for port in CLUSTER_PORTS], decode_responses=True)
        self.r.flushall(target_nodes=self.r.get_node("127.0.0.1", CLUSTER_PORTS[0]))

    def tearDown(self):
        self.r.close()

    def test_every_node_is_known_and_no_key_is_at_the_wrong_one(self):
        r = self.r
        self.assertEqual({node.port for node in r.get_primaries()}, set(CLUSTER_PORTS))
        for number in range(300):
            r.set(f"k{number}", number)
        self.assertEqual([r.get(f"k{number}") for number in range(300)], [str(number) for number in range(300)])
        for node in r.get_primaries():
            errors = r.info("errorstats", target_nodes=node)
            self.assertFalse([name for name in errors if "MOVED" in name or "ASK" in name or "CROSSSLOT" in name], errors)
        # Any node has all keys, and any command takes all of them.
        self.assertEqual(r.dbsize(target_nodes=r.get_random_node()), 300)
        one = redis.Redis(port=CLUSTER_PORTS[1], decode_responses=True)
        self.assertEqual(one.mget("k1", "k2", "k3"), ["1", "2", "3"])
        one.close()

    def test_commands_of_several_slots(self):
        r = self.r
        self.assertTrue(r.mset_nonatomic({f"k{number}": number for number in range(50)}))
        self.assertEqual(r.mget_nonatomic([f"k{number}" for number in range(50)]), [str(number) for number in range(50)])
        self.assertEqual(r.delete(*[f"k{number}" for number in range(50)]), 50)
        pipe = r.pipeline()
        for number in range(200):
            pipe.incrby(f"p{number}", number)
        self.assertEqual(pipe.execute(), list(range(200)))
        self.assertEqual(r.eval("return redis.call('INCR', KEYS[1])", 1, "p7"), 8)
        # Each node is asked for its keys, and has those of all: the iterator gives each key once for every
        # node.
        self.assertEqual(set(r.scan_iter("p*")), {f"p{number}" for number in range(200)})

    def test_watch_races_lose_no_increment(self):
        self.r.set("{a}counter", 0)

        def work():
            mine = redis.RedisCluster(host="127.0.0.1", port=CLUSTER_PORTS[0], decode_responses=True)

            def increment(pipe):
                value = int(pipe.get("{a}counter"))
                pipe.multi()
                pipe.set("{a}counter", value + 1)

            for _ in range(20):
                mine.transaction(increment, "{a}counter")
            mine.close()

        together([work] * 4)
        self.assertEqual(int(self.r.get("{a}counter")), 80)

    def test_messages_reach_listeners_at_every_node(self):
        listeners = [redis.Redis(port=port, decode_responses=True).pubsub() for port in CLUSTER_PORTS]
        for listener in listeners:
            listener.subscribe("news")
            self.assertEqual(listener.get_message(timeout=30)["type"], "subscribe")
        self.r.publish("news", "hello")
        for listener in listeners:
            self.assertEqual(listener.get_message(timeout=30)["data"], "hello")
            listener.close()
        sharded = self.r.pubsub()
        sharded.ssubscribe("shard")
        self.assertEqual(sharded.get_sharded_message(timeout=30)["type"], "ssubscribe")
        self.r.spublish("shard", "hello")
        self.assertEqual(sharded.get_sharded_message(timeout=30)["data"], "hello")
        sharded.close()


class InAHierarchy(unittest.TestCase):
    """Transactions that a client holds open: ORDO.BEGIN, and commands, until ORDO.COMMIT or ORDO.ROLLBACK."""

    def connect(self, port=HIERARCHY_PORTS[0], protocol=2):
        # A transaction is its connection's: redis-py takes any other one from its pool for each command.
        r = redis.Redis(port=port, protocol=protocol, single_connection_client=True, decode_responses=True)
        self.addCleanup(r.close)
        return r

    def commit(self, r, run):
        """Runs a transaction again until it is committed: it conflicts with others, also with what its node has not heard the end of."""

        def attempt():
            self.assertEqual(r.execute_command("ORDO.BEGIN"), "OK")
            end = "ORDO.ROLLBACK"
            try:
                run()
                end = "ORDO.COMMIT"
            except redis.ResponseError as error:
                self.assertRegex(str(error), "^CONFLICT ")
            try:
                self.assertEqual(r.execute_command(end), "OK")
                return end == "ORDO.COMMIT"
            except redis.ResponseError as error:
                self.assertRegex(str(error), "^CONFLICT ")
                return False

        until("it is committed", attempt)

    def test_what_is_committed_has_an_effect_as_a_whole_and_what_is_rolled_back_has_none(self):
        other = self.connect(HIERARCHY_PORTS[1])
        for protocol in (2, 3):
            r = self.connect(protocol=protocol)
            self.assertTrue(r.mset({"alice": 100, "bob": 0}))
            r.delete("history")

            def transfer():
                self.assertEqual(r.get("alice"), "100")
                self.assertEqual(r.decrby("alice", 30), 70)
                self.assertEqual(r.incrby("bob", 30), 30)
                self.assertEqual(r.hset("history", mapping={"alice": -30, "bob": 30}), 2)
                self.assertEqual(other.mget("alice", "bob"), ["100", "0"])

            self.commit(r, transfer)
            self.assertEqual(other.mget("alice", "bob"), ["70", "30"])
            self.assertEqual(r.execute_command("ORDO.BEGIN"), "OK")
            self.assertTrue(r.set("alice", "gone"))
            self.assertEqual(r.execute_command("ORDO.ROLLBACK"), "OK")
            self.assertEqual(other.get("alice"), "70")
            with self.assertRaisesRegex(redis.ResponseError, "without ORDO.BEGIN"):
                r.execute_command("ORDO.COMMIT")

    def test_a_transaction_that_only_reads_reads_one_moment(self):
        r = self.connect()
        self.assertTrue(r.mset({"left": 1, "right": 1}))
        self.assertEqual(r.execute_command("ORDO.BEGIN", "READONLY"), "OK")
        left = r.get("left")
        self.assertTrue(self.connect(HIERARCHY_PORTS[2]).mset({"left": 2, "right": 2}))
        self.assertEqual(r.get("right"), left)
        with self.assertRaisesRegex(redis.ResponseError, "READONLY"):
            r.set("left", 3)
        self.assertEqual(r.execute_command("ORDO.COMMIT"), "OK")

    def test_a_conflict_is_an_error_and_no_increment_is_lost(self):
        self.connect().set("counter", 0)

        def work(port):
            r = self.connect(port)
            for _ in range(10):
                self.commit(r, lambda: r.set("counter", int(r.get("counter")) + 1))

        together([lambda port=port: work(port) for port in HIERARCHY_PORTS])
        self.assertEqual(self.connect().get("counter"), "30")


class Authentication(unittest.TestCase):
    def test_a_password_is_needed_and_enough(self):
        with self.assertRaises(redis.AuthenticationError):
            redis.Redis(port=PORT_WITH_PASSWORD).ping()
        with self.assertRaises(redis.AuthenticationError):
            redis.Redis(port=PORT_WITH_PASSWORD, password="wrong").ping()
        for protocol in (2, 3):
            self.assertTrue(redis.Redis(port=PORT_WITH_PASSWORD, password="secret", protocol=protocol).ping())
            named = redis.Redis(port=PORT_WITH_PASSWORD, username="default", password="secret", protocol=protocol)
            self.assertTrue(named.ping())


if __name__ == "__main__":
    unittest.main()
