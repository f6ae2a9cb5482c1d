// node-redis, unmodified, against a running server: ORDO_PORT, and ORDO_PORT_WITH_PASSWORD (the password is `secret`).

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createClient, WatchError } from 'redis';

const port = Number(process.env.ORDO_PORT);
const portWithPassword = Number(process.env.ORDO_PORT_WITH_PASSWORD);

async function connect(options = {}) {
  const client = createClient({ socket: { port, host: '127.0.0.1', reconnectStrategy: false }, ...options });
  client.on('error', () => {});
  await client.connect();
  return client;
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
