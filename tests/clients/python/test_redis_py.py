"""redis-py, unmodified, against a running server: ORDO_PORT, and ORDO_PORT_WITH_PASSWORD (the password is `secret`)."""

import os
import threading
import unittest

import redis

PORT = int(os.environ["ORDO_PORT"])
PORT_WITH_PASSWORD = int(os.environ["ORDO_PORT_WITH_PASSWORD"])


def connect(protocol=2, **options):
    options.setdefault("decode_responses", True)
    return redis.Redis(port=PORT, protocol=protocol, **options)


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
        while r.get("gone") is not None:
            pass
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


class CommandsInResp3(Commands):
    protocol = 3


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
