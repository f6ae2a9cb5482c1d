// node-redis, unmodified, against a running server: ORDO_PORT, ORDO_PORT_WITH_PASSWORD (the password is `secret`), and a cluster of three
// nodes at ORDO_CLUSTER_PORTS.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createClient, createClientPool, createCluster, defineScript, ErrorReply, WatchError } from 'redis';

const port = Number(process.env.ORDO_PORT);
const portWithPassword = Number(process.env.ORDO_PORT_WITH_PASSWORD);
const clusterPorts = process.env.ORDO_CLUSTER_PORTS.split(' ').map(Number);
const numbers = (count) => Array.from({ length: count }, (_, i) => i);

async function connect(options = {}) {
  const client = createClient({ socket: { port, host: '127.0.0.1', reconnectStrategy: false }, ...options });
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function untilBlocked(client, count) {
  while (!(await client.info('clients')).includes(`blocked_clients:${count}\r`));
}

for (const RESP of [2, 3]) {
  let client;
  before(async () => {
    client = await connect({ RESP });
  });
  after(() => client.close());

  test(`commands, RESP${RESP}`, async () => {
    await client.flushAll();
    assert.equal(await client.set('k', 'v'), 'OK');
    assert.equal(await client.get('k'), 'v');
    assert.equal(await client.get('none'), null);
    assert.equal(await client.set('k', 'w', { NX: true }), null);
    assert.equal(await client.incrBy('n', 7), 7);
    assert.equal(await client.hSet('h', { f: '1', g: '2' }), 2);
    assert.deepEqual({ ...(await client.hGetAll('h')) }, { f: '1', g: '2' });
    assert.deepEqual(await client.mGet(['k', 'none']), ['v', null]);
    assert.equal(await client.expire('k', 100), 1);
    assert.ok((await client.ttl('k')) > 0);
    assert.equal(await client.type('h'), 'hash');
    await assert.rejects(client.hGet('k', 'f'), /WRONGTYPE/);
    await assert.rejects(client.sendCommand(['NOSUCHCOMMAND']), /unknown command/);
    const found = [];
    for await (const keys of client.scanIterator({ MATCH: '?' })) found.push(...keys);
    assert.deepEqual(found.sort(), ['h', 'k', 'n']);
    assert.match(await client.info('server'), /ordo_version/);
    assert.ok((await client.commandCount()) > 50);
  });

  test(`pipelines, RESP${RESP}`, async () => {
    await client.flushAll();
    // Commands of one tick are written together.
    const replies = await Promise.all(
      Array.from({ length: 3000 }, (_, i) => (i % 3 === 0 ? client.set('p', String(i)) : i % 3 === 1 ? client.get('p') : client.incr('c'))),
    );
    for (let i = 0; i < 3000; i += 3) {
      assert.deepEqual(replies.slice(i, i + 3), ['OK', String(i), i / 3 + 1]);
    }
  });

  test(`blocks, RESP${RESP}`, async () => {
    await client.flushAll();
    assert.deepEqual(await client.multi().set('a', '1').incr('a').get('a').exec(), ['OK', 2, '2']);
    await assert.rejects(client.multi().set('a', 'text').incr('a').exec());
    assert.equal(await client.get('a'), 'text');
  });

  test(`watch races, RESP${RESP}`, async () => {
    const [a, b] = await Promise.all([connect({ RESP }), connect({ RESP })]);
    await a.watch('raced');
    await b.set('raced', 'theirs');
    await assert.rejects(a.multi().set('raced', 'mine').exec(), WatchError);
    assert.equal(await b.get('raced'), 'theirs');

    await a.set('counter', '0');
    const increment = async (own) => {
      for (let done = 0; done < 50; ) {
        await own.watch('counter');
        const value = Number(await own.get('counter'));
        try {
          await own.multi().set('counter', String(value + 1)).exec();
          done += 1;
        } catch (error) {
          if (!(error instanceof WatchError)) throw error;
        }
      }
    };
    await Promise.all([increment(a), increment(b)]);
    assert.equal(await a.get('counter'), '100');
    await Promise.all([a.close(), b.close()]);
  });

  test(`scripts, RESP${RESP}`, async () => {
    await client.flushAll();
    const script = "redis.call('SET', KEYS[1], ARGV[1]) return {redis.call('GET', KEYS[1]), 2}";
    assert.deepEqual(await client.eval(script, { keys: ['s'], arguments: ['x'] }), ['x', 2]);
    const sha = await client.scriptLoad('return redis.call("INCRBY", KEYS[1], ARGV[1])');
    assert.equal(await client.evalSha(sha, { keys: ['n'], arguments: ['3'] }), 3);
    assert.deepEqual(await client.scriptExists([sha, '0'.repeat(40)]), [1, 0]);
    await assert.rejects(client.evalSha('f'.repeat(40), { keys: [], arguments: [] }), /NOSCRIPT/);
    await assert.rejects(client.eval("return redis.call('HGET', 's', 'f')"), /WRONGTYPE/);
  });

  test(`a pool, RESP${RESP}`, async () => {
    await client.flushAll();
    const pool = createClientPool({ RESP, name: 'pooled', socket: { port, host: '127.0.0.1' } }, { minimum: 1, maximum: 4 });
    pool.on('error', () => {});
    await pool.connect();
    await Promise.all(numbers(400).map(() => pool.incr('pooled')));
    assert.equal(await pool.get('pooled'), '400');
    const held = (await client.sendCommand(['CLIENT', 'LIST'])).split('\n').filter((line) => line.includes(' name=pooled '));
    assert.ok(held.length >= 1 && held.length <= 4, String(held.length));
    await pool.close();
  });

  test(`a script that the server does not know is sent to it, RESP${RESP}`, async () => {
    await client.flushAll();
    await client.scriptFlush();
    const own = await connect({
      RESP,
      scripts: {
        join: defineScript({
          SCRIPT: "return redis.call('APPEND', KEYS[1], ARGV[1])",
          NUMBER_OF_KEYS: 1,
          parseCommand(parser, key, text) {
            parser.pushKey(key);
            parser.push(text);
          },
          transformReply: undefined,
        }),
      },
    });
    assert.equal(await own.join('text', 'abc'), 3);
    await client.scriptFlush();
    assert.equal(await own.join('text', 'x'), 4);
    await own.close();
  });

  test(`functions, RESP${RESP}`, async () => {
    await client.flushAll();
    await client.functionFlush();
    const library = `#!lua name=counters
      redis.register_function('raise', function(keys, arguments) return redis.call('INCRBY', keys[1], arguments[1]) end)
      redis.register_function{function_name='look', flags={'no-writes'}, callback=function(keys) return redis.call('GET', keys[1]) end}`;
    assert.equal(await client.functionLoad(library), 'counters');
    await assert.rejects(client.functionLoad(library), /already exists/);
    assert.equal(await client.functionLoad(library, { REPLACE: true }), 'counters');
    assert.equal(await client.fCall('raise', { keys: ['n'], arguments: ['5'] }), 5);
    assert.equal(await client.fCallRo('look', { keys: ['n'], arguments: [] }), '5');
    assert.equal((await client.functionList())[0].library_name, 'counters');
    assert.equal((await client.functionStats()).running_script, null);
    await client.functionDelete('counters');
    await assert.rejects(client.fCall('raise', { keys: ['n'], arguments: ['5'] }), /Function not found/);
  });

  test(`streams with groups, RESP${RESP}`, async () => {
    await client.flushAll();
    const entries = 300;
    await client.xGroupCreate('events', 'workers', '0', { MKSTREAM: true });
    await assert.rejects(client.xGroupCreate('events', 'workers', '0'), /BUSYGROUP/);
    const seen = [];
    const consume = async (name) => {
      const own = await connect({ RESP });
      while (seen.length < entries) {
        const reply = await own.xReadGroup('workers', name, { key: 'events', id: '>' }, { COUNT: 7, BLOCK: 100 });
        const messages = RESP === 2 ? (reply ?? []).flatMap((stream) => stream.messages) : Object.values(reply ?? {}).flat();
        // What of the reply is a list of streams has their messages below `messages`.
        for (const message of messages.flatMap((found) => found.messages ?? [found])) {
          seen.push(Number(message.message.number));
          assert.equal(await own.xAck('events', 'workers', message.id), 1);
        }
      }
      await own.close();
    };
    await Promise.all([...['a', 'b', 'c'].map(consume), ...numbers(entries).map((i) => client.xAdd('events', '*', { number: String(i) }))]);
    assert.deepEqual(seen.sort((a, b) => a - b), numbers(entries));
    assert.equal((await client.xPending('events', 'workers')).pending, 0);
    await client.xAdd('events', '*', { number: 'lost' });
    await client.xReadGroup('workers', 'dies', { key: 'events', id: '>' });
    const claimed = await client.xAutoClaim('events', 'workers', 'heir', 0, '0');
    assert.equal(claimed.messages[0].message.number, 'lost');
    assert.equal((await client.xInfoStream('events')).length, entries + 1);
    assert.equal((await client.xInfoConsumers('events', 'workers')).length, 5);
  });

  test(`who waits is served by others, RESP${RESP}`, async () => {
    await client.flushAll();
    const waiting = await Promise.all(numbers(4).map(() => connect({ RESP })));
    const waits = Promise.all([
      waiting[0].blPop(['none', 'left'], 30),
      waiting[1].blMove('source', 'target', 'LEFT', 'RIGHT', 30),
      waiting[2].bzPopMin('scores', 30),
      waiting[3].xRead({ key: 'stream', id: '$' }, { BLOCK: 30_000 }),
    ]);
    await untilBlocked(client, 4);
    await client.rPush('left', 'a');
    await client.rPush('source', 'b');
    await client.zAdd('scores', { score: 1.5, value: 'c' });
    await client.xAdd('stream', '*', { f: 'd' });
    const [left, moved, least, read] = await waits;
    assert.deepEqual({ ...left }, { key: 'left', element: 'a' });
    assert.equal(moved, 'b');
    assert.deepEqual({ ...least }, { key: 'scores', value: 'c', score: 1.5 });
    assert.ok(JSON.stringify(read).includes('"d"'));
    assert.equal(await client.blPop('none', 0.01), null);
    await Promise.all(waiting.map((own) => own.close()));
  });

  test(`messages to channels and patterns, RESP${RESP}`, async () => {
    const listener = await connect({ RESP });
    const heard = [];
    let more;
    const hears = (...message) => {
      heard.push(message);
      more?.();
    };
    await listener.subscribe('news', (message, channel) => hears('news', channel, message));
    await listener.pSubscribe('n*', (message, channel) => hears('n*', channel, message));
    assert.equal(await client.publish('news', 'hello'), 2);
    assert.equal(await client.publish('nothing', 'else'), 1);
    while (heard.length < 3) await new Promise((resolve) => (more = resolve));
    assert.deepEqual(heard, [['news', 'news', 'hello'], ['n*', 'news', 'hello'], ['n*', 'nothing', 'else']]);
    assert.deepEqual(await client.pubSubChannels(), ['news']);
    assert.equal(await client.pubSubNumPat(), 1);
    if (RESP === 3) {
      assert.equal(await listener.echo('a listener may send commands'), 'a listener may send commands');
    }
    await listener.unsubscribe();
    await listener.pUnsubscribe();
    assert.equal(await listener.strLen('none'), 0);
    await listener.close();
  });

  test(`iterators, RESP${RESP}`, async () => {
    await client.flushAll();
    const count = 700;
    await client.sAdd('set', numbers(count).map(String));
    await client.zAdd('sorted', numbers(count).map((n) => ({ score: n, value: String(n) })));
    await client.hSet('hash', Object.fromEntries(numbers(count).map((n) => [n, n])));
    for (const [iterator, name] of [
      [client.sScanIterator('set'), (member) => member],
      [client.zScanIterator('sorted'), (member) => member.value],
      [client.hScanIterator('hash'), (member) => member.field],
    ]) {
      const found = new Set();
      for await (const members of iterator) members.forEach((member) => found.add(name(member)));
      assert.equal(found.size, count);
    }
  });

  test(`errors, RESP${RESP}`, async () => {
    await client.set('k', 'text');
    await assert.rejects(client.incr('k'), (error) => error instanceof ErrorReply && /^ERR value is not an integer/.test(error.message));
    await assert.rejects(client.lPush('k', 'x'), /^ErrorReply: WRONGTYPE|WRONGTYPE/);
    await assert.rejects(client.sendCommand(['GET']), /wrong number of arguments for 'get' command/);
    assert.equal(await client.get('k'), 'text');
  });
}

test('what a client keeps is called back', async () => {
  const writer = await connect();
  const keeping = await connect({ RESP: 3, clientSideCache: { ttl: 0, maxEntries: 100, evictPolicy: 'LRU' } });
  await writer.set('kept', 'old');
  assert.equal(await keeping.get('kept'), 'old');
  for (let i = 0; i < 20; i++) {
    await writer.set('kept', `new${i}`);
    // What is in the client's memory is given without a look at its connection: that is looked at in the next turn.
    while ((await keeping.get('kept')) !== `new${i}`) await new Promise((resolve) => setImmediate(resolve));
  }
  await Promise.all([writer.close(), keeping.close()]);
});

for (const RESP of [2, 3]) {
  test(`a client for clusters is never sent elsewhere, RESP${RESP}`, async () => {
    const cluster = createCluster({ rootNodes: clusterPorts.map((each) => ({ url: `redis://127.0.0.1:${each}` })), defaults: { RESP } });
    cluster.on('error', () => {});
    await cluster.connect();
    const one = createClient({ RESP, socket: { port: clusterPorts[1], host: '127.0.0.1' } });
    one.on('error', () => {});
    await one.connect();
    await one.flushAll();
    assert.deepEqual(cluster.masters.map((master) => master.port).sort(), clusterPorts);
    await Promise.all(numbers(300).map((n) => cluster.set(`k${n}`, String(n))));
    assert.deepEqual(await Promise.all(numbers(300).map((n) => cluster.get(`k${n}`))), numbers(300).map(String));
    // Any node has all keys, and any command takes all of them.
    assert.equal(await one.dbSize(), 300);
    assert.deepEqual(await one.mGet(['k1', 'k2', 'k3']), ['1', '2', '3']);
    assert.deepEqual(await cluster.mGet(['k1', 'k2', 'k3']), ['1', '2', '3']);
    assert.deepEqual(await cluster.multi().incr('k1').incr('k2').incr('k3').exec(), [2, 3, 4]);
    assert.equal(await cluster.eval("return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])", { keys: ['k1', 'k2'] }), 7);
    const heard = new Promise((resolve) => cluster.subscribe('news', resolve).then(() => one.publish('news', 'hello')));
    assert.equal(await heard, 'hello');
    const sharded = new Promise((resolve) => cluster.sSubscribe('shard', resolve).then(() => cluster.sPublish('shard', 'hello')));
    assert.equal(await sharded, 'hello');
    assert.doesNotMatch(await one.info('errorstats'), /MOVED|ASK|CROSSSLOT/);
    await Promise.all([cluster.close(), one.close()]);
  });
}

test('a password is needed and enough', async () => {
  const socket = { port: portWithPassword, host: '127.0.0.1', reconnectStrategy: false };
  const stranger = await connect({ socket }).catch((error) => error);
  if (stranger instanceof Error) {
    assert.match(stranger.message, /NOAUTH/);
  } else {
    await assert.rejects(stranger.ping(), /NOAUTH/);
    stranger.destroy();
  }
  await assert.rejects(connect({ socket, password: 'wrong' }), /WRONGPASS/);
  const client = await connect({ socket, password: 'secret', RESP: 3 });
  assert.equal(await client.ping(), 'PONG');
  await client.close();
});
