// BullMQ, unmodified: queues with retries, priorities, delays, flows, a rate limit and a schedule (tests/applications/run tells where the
// servers are).

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';
import { FlowProducer, Queue, QueueEvents, Worker } from 'bullmq';
import { Cluster, Redis } from 'ioredis';

const ports = process.env.ORDO_PORTS.split(' ').map(Number);
const fault = process.env.ORDO_FAULT;
const JOBS = 300;
const numbers = (count, from = 0) => Array.from({ length: count }, (_, i) => from + i);

// Commands wait while a node is away, as BullMQ asks for.
const redisOptions = { maxRetriesPerRequest: null };
const made = [];
function connect() {
  const connection = ports.length === 1
    ? new Redis({ port: ports[0], ...redisOptions })
    : new Cluster(ports.map((port) => ({ port, host: '127.0.0.1' })), { redisOptions, clusterRetryStrategy: () => 100 });
  made.push(connection);
  return connection;
}

// ioredis does not send a pipeline again whose connection was closed before it was answered: it cannot know what took effect. Jobs have ids
// of our own, so that adding them a second time changes nothing.
async function again(call) {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!fault || !/aborted due to connection close|Connection is closed|ECONNREFUSED|Failed to refresh slots|timed out/.test(error.message)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

// A prefix whose slot is led by the node that will be killed: BullMQ's keys of a queue have one hash tag, as it asks for in clusters.
async function prefixOfFirst() {
  if (ports.length === 1) return 'bull';
  const first = new Redis(ports[0]);
  try {
    for (;;) {
      const mine = (await first.cluster('SLOTS')).filter(([, , [, port]]) => port === ports[0]);
      for (const n of numbers(100)) {
        const slot = await first.cluster('KEYSLOT', `{bull${n}}`);
        if (mine.some(([low, high]) => low <= slot && slot <= high)) return `{bull${n}}`;
      }
    }
  } finally {
    await first.quit();
  }
}

function killAndRestart() {
  if (!fault) return Promise.resolve(0);
  const [command, ...words] = fault.split(' ');
  return new Promise((resolve) => spawn(command, words, { stdio: 'inherit' }).on('exit', resolve));
}

test('every job is done, and every result is right', async () => {
  const prefix = await prefixOfFirst();
  const closing = [];
  const options = () => ({ connection: connect(), prefix });
  const keep = (thing) => {
    thing.on('error', () => {});
    closing.push(thing);
    return thing;
  };
  const executions = new Map();
  const count = (name) => executions.set(name, (executions.get(name) ?? 0) + 1);
  const starts = [];

  const processor = async (job) => {
    count(`${job.queueName}:${job.name}:${job.data.n}`);
    if (job.name === 'twice' && job.attemptsMade === 0) throw new Error('the first time');
    if (job.name === 'fails') throw new Error('as it should');
    if (job.name === 'sum') return Object.values(await job.getChildrenValues()).reduce((a, b) => a + b, 0);
    if (job.queueName === 'limited') starts.push(Date.now());
    return job.data.n * job.data.n;
  };
  // A job whose worker lost its lock while a node was away is done again, as often as that happens.
  const worker = { concurrency: 10, lockDuration: 5000, stalledInterval: 2000, maxStalledCount: 100 };
  keep(new Worker('work', processor, { ...options(), ...worker }));
  keep(new Worker('work', processor, { ...options(), ...worker }));
  keep(new Worker('limited', processor, { ...options(), ...worker, limiter: { max: 10, duration: 500 } }));
  const work = keep(new Queue('work', options()));
  const limited = keep(new Queue('limited', options()));
  const flows = keep(new FlowProducer(options()));
  const events = keep(new QueueEvents('work', options()));
  const heard = new Set();
  events.on('completed', ({ jobId }) => heard.add(jobId));
  await events.waitUntilReady();

  const job = (name, n, opts = {}) => ({ name, data: { n }, opts: { jobId: `${name}-${n}`, ...opts } });
  const addBulk = (queue, jobs) => again(() => queue.addBulk(jobs));
  const add = (from, to) => addBulk(work, numbers(to - from, from).map((n) => job('square', n)));
  const first = await add(0, JOBS / 2);
  assert.equal(await first[1].waitUntilFinished(events, 60_000), 1);
  const faulted = killAndRestart();
  const second = await add(JOBS / 2, JOBS);
  const one = [];
  for (const n of numbers(50, 1000)) one.push(...(await addBulk(work, [job('square', n, { priority: 1 + (n % 3) })])));
  const delayed = await addBulk(work, numbers(20, 2000).map((n) => job('square', n, { delay: 500 })));
  const twice = await addBulk(work, numbers(20, 3000).map((n) => job('twice', n, { attempts: 3, backoff: { type: 'fixed', delay: 50 } })));
  const slow = await addBulk(limited, numbers(40, 4000).map((n) => job('square', n)));
  const trees = await again(() => flows.addBulk(numbers(10).map((f) => ({
    ...job('sum', f),
    queueName: 'work',
    children: numbers(5).map((c) => ({ ...job('square', 5000 + 10 * f + c), queueName: 'work' })),
  }))));
  const same = [];
  for (const _ of numbers(10)) same.push(...(await addBulk(work, [job('square', 6000)])));
  const [failing] = await addBulk(work, [job('fails', 0)]);
  await again(() => work.upsertJobScheduler('ticks', { every: 200, limit: 5 }, { name: 'square', data: { n: 7000 } }));

  const results = async (queue, jobs) => {
    const found = [];
    for (const { id } of jobs) {
      for (;;) {
        const job = await again(() => queue.getJob(id));
        const state = await again(() => job.getState());
        assert.notEqual(state, 'failed', `${job.name} ${job.data.n}: ${job.failedReason}`);
        if (state === 'completed') {
          // What was read of it above may be of before its end.
          found.push((await again(() => queue.getJob(id))).returnvalue);
          break;
        }
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
    return found;
  };
  const squares = (from, count) => numbers(count, from).map((n) => n * n);
  assert.deepEqual(await results(work, [...first, ...second]), squares(0, JOBS));
  assert.deepEqual(await results(work, one), squares(1000, 50));
  assert.deepEqual(await results(work, delayed), squares(2000, 20));
  assert.deepEqual(await results(work, twice), squares(3000, 20));
  assert.deepEqual(await results(limited, slow), squares(4000, 40));
  assert.deepEqual(await results(work, trees.map((tree) => tree.job)),
    numbers(10).map((f) => squares(5000 + 10 * f, 5).reduce((a, b) => a + b)));
  assert.deepEqual(await results(work, same.slice(0, 1)), [36_000_000]);
  while ((await again(() => failing.getState())) !== 'failed') await new Promise((resolve) => setTimeout(resolve, 20));
  while ((executions.get('work:square:7000') ?? 0) < 5) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(await faulted, 0, 'the node is back');

  const done = [...executions].filter(([name]) => name.includes(':square:') && !name.endsWith(':7000'));
  const repeated = done.filter(([, times]) => times !== 1);
  assert.equal(done.length, JOBS + 50 + 20 + 40 + 50 + 1);
  if (fault) {
    console.log(`bullmq: ${done.length} jobs, ${repeated.length} of them repeated`);
  } else {
    assert.deepEqual(repeated, []);
    assert.ok(numbers(20, 3000).every((n) => executions.get(`work:twice:${n}`) === 2));
    // 40 jobs, ten in each half of a second.
    assert.ok(starts.length === 40 && starts.at(-1) - starts[0] >= 1400, `${starts.length} in ${starts.at(-1) - starts[0]} ms`);
    assert.ok(heard.size >= JOBS + 120);
  }
  const { waiting, active, delayed: late, 'waiting-children': parents } = await work.getJobCounts('waiting', 'active', 'delayed', 'waiting-children');
  assert.deepEqual([waiting, active, late, parents], [0, 0, 0, 0]);
  await Promise.all(closing.map((thing) => thing.close()));
  made.forEach((connection) => connection.disconnect());
});
