// ioredis, unmodified, against a running server: ORDO_PORT, ORDO_PORT_WITH_PASSWORD (the password is `secret`), and a cluster of three
// nodes at ORDO_CLUSTER_PORTS.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { Cluster, Redis, ReplyError } from 'ioredis';

const port = Number(process.env.ORDO_PORT);
const portWithPassword = Number(process.env.ORDO_PORT_WITH_PASSWORD);
const clusterPorts = process.env.ORDO_CLUSTER_PORTS.split(' ').map(Number);
const numbers = (count) => Array.from({ length: count }, (_, i) => i);

for (const protocol of [2, 3]) {
  const connect = (options = {}) => new Redis({ port, host: '127.0.0.1', protocol, ...options });
  let redis;
  before(() => {
    redis = connect();
  });
  after(() => redis.quit());

  test(`commands, RESP${protocol}`, async () => {
    await redis.flushall();
    assert.equal(await redis.set('k', 'v', 'EX', 100, 'NX'), 'OK');
    assert.equal(await redis.set('k', 'w', 'NX'), null);
    assert.equal(await redis.get('k'), 'v');
    assert.deepEqual(await redis.getBuffer('k'), Buffer.from('v'));
    assert.equal(await redis.hset('h', { f: '1', g: '2' }), 2);
    assert.deepEqual({ ...(await redis.hgetall('h')) }, { f: '1', g: '2' });
    assert.deepEqual(await redis.mget('k', 'none'), ['v', null]);
    assert.equal(await redis.zadd('z', 1.5, 'a', 2, 'b'), 2);
    assert.deepEqual(await redis.zrange('z', 0, -1, 'WITHSCORES'), ['a', '1.5', 'b', '2']);
    assert.equal(await redis.zscore('z', 'a'), '1.5');
    assert.equal(await redis.geoadd('geo', 13.361389, 38.115556, 'Palermo'), 1);
    assert.deepEqual(await redis.geosearch('geo', 'FROMLONLAT', 13, 38, 'BYRADIUS', 200, 'km'), ['Palermo']);
    assert.equal(await redis.bitcount('k'), 5);
    assert.equal(await redis.pfadd('hll', 'a', 'b'), 1);
    assert.match(await redis.info('server'), /ordo_version/);
    assert.deepEqual(await redis.config('GET', 'maxmemory'), ['maxmemory', '0']);
    assert.equal((await redis.client('INFO')).includes('lib-name=ioredis'), true);
  });

  test(`replies as RESP${protocol} has them`, async () => {
    const mapped = connect(protocol === 3 ? { replyMapping: 'resp3' } : {});
    await mapped.flushall();
    await mapped.hset('h', 'f', '1');
    await mapped.zadd('z', 1.5, 'a');
    assert.deepEqual(await mapped.zscore('z', 'a'), protocol === 3 ? 1.5 : '1.5');
    assert.deepEqual(await mapped.config('GET', 'maxmemory'), protocol === 3 ? { maxmemory: '0' } : ['maxmemory', '0']);
    await mapped.quit();
  });

  test(`pipelines, RESP${protocol}`, async () => {
    await redis.flushall();
    const pipeline = redis.pipeline();
    for (const n of numbers(1000)) pipeline.set(`p${n}`, n).get(`p${n}`);
    assert.deepEqual(await pipeline.exec(), numbers(1000).flatMap((n) => [[null, 'OK'], [null, String(n)]]));
    const [ok, wrong, value] = await redis.pipeline().set('s', 'x').incr('s').get('s').exec();
    assert.deepEqual([ok, value], [[null, 'OK'], [null, 'x']]);
    assert.ok(wrong[0] instanceof ReplyError);
    const many = connect({ enableAutoPipelining: true });
    assert.deepEqual(await Promise.all(numbers(500).map((n) => many.get(`p${n}`))), numbers(500).map(String));
    await many.quit();
  });

  test(`blocks, RESP${protocol}`, async () => {
    await redis.flushall();
    assert.deepEqual(await redis.multi().set('a', 1).incr('a').hset('h', 'f', 'v').get('none').exec(),
      [[null, 'OK'], [null, 2], [null, 1], [null, null]]);
    await assert.rejects(redis.multi().set('a', 1).set('too few').exec(), /EXECABORT/);
    assert.deepEqual(await redis.multi().set('a', 'text').incr('a').get('a').exec().then((replies) => replies.map(([error]) => error?.message)),
      [undefined, 'ERR value is not an integer or out of range', undefined]);
  });

  test(`watch races, RESP${protocol}`, async () => {
    await redis.set('counter', 0);
    const increment = async () => {
      const own = connect();
      for (let done = 0; done < 50; ) {
        await own.watch('counter');
        const value = Number(await own.get('counter'));
        if (await own.multi().set('counter', value + 1).exec()) done += 1;
      }
      await own.quit();
    };
    await Promise.all(numbers(4).map(increment));
    assert.equal(await redis.get('counter'), '200');
  });

  test(`scripts, RESP${protocol}`, async () => {
    await redis.flushall();
    redis.defineCommand('transfer', {
      numberOfKeys: 2,
      lua: "redis.call('DECRBY', KEYS[1], ARGV[1]) return redis.call('INCRBY', KEYS[2], ARGV[1])",
    });
    assert.equal(await redis.transfer('alice', 'bob', 30), 30);
    await redis.script('FLUSH');
    // EVALSHA is answered NOSCRIPT, and EVAL follows.
    assert.equal(await redis.transfer('alice', 'bob', 30), 60);
    assert.deepEqual(await redis.pipeline().transfer('alice', 'bob', 1).get('bob').exec(), [[null, 61], [null, '61']]);
    assert.deepEqual(await redis.multi().transfer('alice', 'bob', 1).get('bob').exec(), [[null, 62], [null, '62']]);
    await assert.rejects(redis.evalsha('f'.repeat(40), 0), /NOSCRIPT/);
    assert.deepEqual(await redis.eval("return {1, 'two', {3}, false}", 0), [1, 'two', [3], null]);
    await redis.function('FLUSH');
    assert.equal(await redis.function('LOAD', "#!lua name=l\nredis.register_function('raise', function(k, a) return redis.call('INCRBY', k[1], a[1]) end)"), 'l');
    assert.equal(await redis.fcall('raise', 1, 'n', 5), 5);
    await redis.function('DELETE', 'l');
    await assert.rejects(redis.fcall('raise', 1, 'n', 5), /Function not found/);
  });

  test(`streams with groups, RESP${protocol}`, async () => {
    await redis.flushall();
    const entries = 300;
    await redis.xgroup('CREATE', 'events', 'workers', '0', 'MKSTREAM');
    await assert.rejects(redis.xgroup('CREATE', 'events', 'workers', '0'), /BUSYGROUP/);
    const seen = [];
    const consume = async (name) => {
      const own = connect();
      while (seen.length < entries) {
        const reply = await own.xreadgroup('GROUP', 'workers', name, 'COUNT', 7, 'BLOCK', 100, 'STREAMS', 'events', '>');
        // Streams with their entries in a list of pairs, or, as RESP3's maps are shown, in a flat list.
        const entriesRead = !reply ? [] : Array.isArray(reply[0]) ? reply[0][1] : reply[1];
        for (const [id, fields] of entriesRead) {
          seen.push(Number(fields[1]));
          assert.equal(await own.xack('events', 'workers', id), 1);
        }
      }
      await own.quit();
    };
    await Promise.all([...['a', 'b', 'c'].map(consume), ...numbers(entries).map((n) => redis.xadd('events', '*', 'number', n))]);
    assert.deepEqual(seen.sort((a, b) => a - b), numbers(entries));
    await redis.xadd('events', '*', 'number', 'lost');
    await redis.xreadgroup('GROUP', 'workers', 'dies', 'STREAMS', 'events', '>');
    assert.equal((await redis.xpending('events', 'workers'))[0], 1);
    assert.deepEqual((await redis.xautoclaim('events', 'workers', 'heir', 0, '0'))[1][0][1], ['number', 'lost']);
  });

  test(`who waits is served by others, RESP${protocol}`, async () => {
    await redis.flushall();
    const waiting = numbers(3).map(() => connect());
    const waits = Promise.all([
      waiting[0].blpop('none', 'left', 30),
      waiting[1].blmove('source', 'target', 'LEFT', 'RIGHT', 30),
      waiting[2].bzpopmin('scores', 30),
    ]);
    while (!(await redis.info('clients')).includes('blocked_clients:3\r'));
    await redis.rpush('left', 'a');
    await redis.rpush('source', 'b');
    await redis.zadd('scores', 1.5, 'c');
    assert.deepEqual(await waits, [['left', 'a'], 'b', ['scores', 'c', '1.5']]);
    assert.equal(await redis.blpop('none', 0.01), null);
    await Promise.all(waiting.map((own) => own.quit()));
  });

  test(`messages to channels and patterns, RESP${protocol}`, async () => {
    const listener = connect();
    assert.equal(await listener.subscribe('news', 'sport'), 2);
    assert.equal(await listener.psubscribe('n*'), 3);
    const heard = [];
    const all = new Promise((resolve) => {
      const hears = (...message) => heard.push(message) === 3 && resolve();
      listener.on('message', hears);
      listener.on('pmessage', hears);
    });
    assert.equal(await redis.publish('news', 'hello'), 2);
    assert.equal(await redis.publish('nothing', 'else'), 1);
    await all;
    assert.deepEqual(heard, [['news', 'hello'], ['n*', 'news', 'hello'], ['n*', 'nothing', 'else']]);
    assert.deepEqual(await listener.ping(), protocol === 2 ? ['pong', ''] : 'PONG');
    assert.equal(await listener.unsubscribe('news', 'sport'), 1);
    assert.equal(await listener.punsubscribe('n*'), 0);
    assert.equal(await listener.strlen('none'), 0);
    await listener.quit();
  });

  test(`streams of scans, RESP${protocol}`, async () => {
    await redis.flushall();
    const count = 700;
    await redis.sadd('set', numbers(count));
    await redis.zadd('sorted', ...numbers(count).flatMap((n) => [n, n]));
    await redis.hset('hash', Object.fromEntries(numbers(count).map((n) => [n, n])));
    await redis.mset(numbers(count).flatMap((n) => [`key:${n}`, n]));
    for (const [stream, step] of [
      [redis.scanStream({ match: 'key:*', count: 17 }), 1], [redis.sscanStream('set'), 1], [redis.hscanStream('hash'), 2], [redis.zscanStream('sorted'), 2],
    ]) {
      const found = new Set();
      for await (const some of stream) some.filter((_, place) => place % step === 0).forEach((member) => found.add(member));
      assert.equal(found.size, count);
    }
  });

  test(`who keeps copies is told, RESP${protocol}`, async () => {
    const ear = connect({ protocol: 2 });
    await ear.subscribe('__redis__:invalidate');
    const id = (await redis.client('LIST')).split('\n').find((line) => line.includes('cmd=subscribe')).match(/^id=(\d+)/)[1];
    const reader = connect();
    assert.equal(await reader.client('TRACKING', 'ON', 'REDIRECT', id), 'OK');
    await redis.set('kept', 'old');
    assert.equal(await reader.get('kept'), 'old');
    const told = once(ear, 'message');
    await redis.set('kept', 'new');
    const [channel, keys] = await told;
    assert.deepEqual([channel, [keys].flat()], ['__redis__:invalidate', ['kept']]);
    await Promise.all([ear.quit(), reader.quit()]);
  });

  test(`errors, RESP${protocol}`, async () => {
    await redis.set('k', 'text');
    await assert.rejects(redis.incr('k'), { name: 'ReplyError', message: 'ERR value is not an integer or out of range' });
    await assert.rejects(redis.lpush('k', 'x'), /WRONGTYPE/);
    await assert.rejects(redis.call('NOSUCHCOMMAND', 'a'), /unknown command/);
    assert.equal(await redis.get('k'), 'text');
  });

  test(`a password is needed and enough, RESP${protocol}`, async () => {
    const to = { port: portWithPassword, retryStrategy: null, lazyConnect: true };
    for (const [options, expected] of [[{}, /NOAUTH/], [{ password: 'wrong' }, /WRONGPASS/]]) {
      const stranger = connect({ ...to, ...options });
      const told = once(stranger, 'error');
      await assert.rejects(stranger.connect(), /Connection is closed/);
      assert.match((await told)[0].message, expected);
      stranger.disconnect();
    }
    const friend = connect({ ...to, password: 'secret' });
    assert.equal(await friend.ping(), 'PONG');
    await friend.quit();
  });

  test(`a client for clusters is never sent elsewhere, RESP${protocol}`, async () => {
    const cluster = new Cluster(clusterPorts.map((each) => ({ port: each, host: '127.0.0.1' })), { redisOptions: { protocol } });
    const one = connect({ port: clusterPorts[1] });
    await one.flushall();
    if (cluster.status !== 'ready') await once(cluster, 'ready');
    assert.deepEqual(cluster.nodes('master').map((node) => node.options.port).sort(), clusterPorts);
    await Promise.all(numbers(300).map((n) => cluster.set(`k${n}`, n)));
    assert.deepEqual(await Promise.all(numbers(300).map((n) => cluster.get(`k${n}`))), numbers(300).map(String));
    // Any node has all keys, and any command takes all of them.
    assert.equal(await one.dbsize(), 300);
    assert.deepEqual(await one.mget('k1', 'k2', 'k3'), ['1', '2', '3']);
    assert.deepEqual(await cluster.mget('k1', 'k2', 'k3'), ['1', '2', '3']);
    assert.deepEqual(await cluster.pipeline().incr('{a}1').incr('{a}2').exec(), [[null, 1], [null, 1]]);
    assert.deepEqual(await cluster.multi().incr('k1').get('k1').exec(), [[null, 2], [null, '2']]);
    assert.equal(await cluster.eval("return redis.call('INCR', KEYS[1])", 1, 'k1'), 3);
    const heard = once(cluster, 'message');
    await cluster.subscribe('news');
    await one.publish('news', 'hello');
    assert.deepEqual(await heard, ['news', 'hello']);
    assert.doesNotMatch(await one.info('errorstats'), /MOVED|ASK|CROSSSLOT/);
    await Promise.all([cluster.quit(), one.quit()]);
  });
}
