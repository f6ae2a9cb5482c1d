package applications;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.IntegerCodec;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ConstantDelay;

/** Redisson's locks, unmodified (tests/applications/run tells where the servers are). Every client is one of its own. */
class RedissonTest {
    private static final List<Integer> PORTS = Stream.of(System.getenv("ORDO_PORTS").split(" ")).map(Integer::valueOf).toList();
    private static final String FAULT = System.getenv("ORDO_FAULT");
    private static final int CLIENTS = 4;
    private static final int TIMES = 80;
    private static final long PATIENCE_S = 150;
    /** Longer than a node is away. */
    private static final long LEASE_S = 20;

    private final List<RedissonClient> clients = new ArrayList<>();

    @BeforeEach
    void connect() {
        for (int n = 0; n < CLIENTS; n++) {
            var config = new Config();
            if (PORTS.size() == 1) {
                config.useSingleServer().setAddress("redis://127.0.0.1:" + PORTS.get(0));
            } else {
                var servers = config.useClusterServers().setScanInterval(500);
                servers.setRetryAttempts(40).setRetryDelay(new ConstantDelay(Duration.ofMillis(500)));
                PORTS.forEach(port -> servers.addNodeAddress("redis://127.0.0.1:" + port));
            }
            clients.add(Redisson.create(config));
        }
        clients.get(0).getKeys().flushall();
    }

    @AfterEach
    void disconnect() {
        clients.forEach(RedissonClient::shutdown);
    }

    private static <T> List<T> together(List<Callable<T>> works) throws Exception {
        var threads = Executors.newFixedThreadPool(works.size());
        try {
            var results = new ArrayList<T>();
            for (Future<T> future : threads.invokeAll(works, PATIENCE_S, TimeUnit.SECONDS)) {
                results.add(future.get());
            }
            return results;
        } catch (ExecutionException failure) {
            throw failure.getCause() instanceof Exception cause ? cause : failure;
        } finally {
            threads.shutdownNow();
        }
    }

    /** The work of each client, twice: in threads of their own. */
    private <T> List<T> everywhere(java.util.function.Function<RedissonClient, Callable<T>> work) throws Exception {
        return together(Stream.concat(clients.stream(), clients.stream()).map(work).toList());
    }

    /** Reads and writes what a lock protects, and sees whether somebody else is inside. */
    private static void inside(RBucket<Integer> counter, AtomicInteger inside, int atOnce) {
        assertTrue(inside.incrementAndGet() <= atOnce, "too many are inside");
        counter.set(counter.get() + 1);
        inside.decrementAndGet();
    }

    private static RBucket<Integer> counter(RedissonClient client, String name) {
        return client.getBucket(name, IntegerCodec.INSTANCE);
    }

    @Test
    void aLockIsHeldByOne() throws Exception {
        for (var fair : List.of(false, true)) {
            var times = fair ? TIMES / 4 : TIMES;
            var name = fair ? "fair" : "lock";
            counter(clients.get(0), name + ":count").set(0);
            var inside = new AtomicInteger();
            everywhere(client -> () -> {
                RLock lock = fair ? client.getFairLock(name) : client.getLock(name);
                for (int n = 0; n < times; n++) {
                    lock.lock();
                    try {
                        // A second time by the same thread.
                        assertTrue(lock.tryLock());
                        lock.unlock();
                        inside(counter(client, name + ":count"), inside, 1);
                    } finally {
                        lock.unlock();
                    }
                }
                return null;
            });
            assertEquals(2 * CLIENTS * times, counter(clients.get(0), name + ":count").get());
            assertFalse(clients.get(0).getLock(name).isLocked());
        }
    }

    @Test
    void aLockIsNotHeldLongerThanItsLease() throws Exception {
        var lock = clients.get(0).getLock("leased");
        lock.lock(500, TimeUnit.MILLISECONDS);
        assertFalse(clients.get(1).getLock("leased").tryLock());
        assertTrue(clients.get(1).getLock("leased").tryLock(PATIENCE_S, TimeUnit.SECONDS));
        assertFalse(lock.isHeldByCurrentThread());
        clients.get(1).getLock("leased").unlock();
    }

    @Test
    void aFairLockIsGivenInTheOrderOfItsWaiters() throws Exception {
        var first = clients.get(0).getFairLock("queue");
        first.lock();
        var order = Collections.synchronizedList(new ArrayList<Integer>());
        var waiting = clients.get(0).getDeque("redisson_lock_queue:{queue}", StringCodec.INSTANCE);
        var threads = new ArrayList<Thread>();
        for (int n = 0; n < 8; n++) {
            var number = n;
            var thread = new Thread(() -> {
                var lock = clients.get(number % CLIENTS).getFairLock("queue");
                lock.lock();
                order.add(number);
                lock.unlock();
            });
            thread.start();
            threads.add(thread);
            while (waiting.size() <= n) {
                assertTrue(thread.isAlive());
            }
        }
        first.unlock();
        for (var thread : threads) {
            thread.join();
        }
        assertEquals(IntStream.range(0, 8).boxed().toList(), order);
    }

    @Test
    void aSemaphoreAdmitsAsManyAsItSays() throws Exception {
        assertTrue(clients.get(0).getSemaphore("semaphore").trySetPermits(3));
        var inside = new AtomicInteger();
        var most = new AtomicInteger();
        everywhere(client -> () -> {
            var semaphore = client.getSemaphore("semaphore");
            for (int n = 0; n < TIMES / 2; n++) {
                semaphore.acquire();
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                inside.decrementAndGet();
                semaphore.release();
            }
            return null;
        });
        assertTrue(most.get() <= 3, most.toString());
        assertEquals(3, clients.get(0).getSemaphore("semaphore").availablePermits());
    }

    @Test
    void aLatchOpensWhenAllHaveCountedDown() throws Exception {
        for (int round = 0; round < 5; round++) {
            var name = "latch:" + round;
            assertTrue(clients.get(0).getCountDownLatch(name).trySetCount(2 * CLIENTS));
            var down = new AtomicInteger();
            var seen = everywhere(client -> () -> {
                var latch = client.getCountDownLatch(name);
                down.incrementAndGet();
                latch.countDown();
                assertTrue(latch.await(PATIENCE_S, TimeUnit.SECONDS));
                return down.get();
            });
            assertTrue(seen.stream().allMatch(count -> count == 2 * CLIENTS), seen.toString());
        }
    }

    @Test
    void readersShareALockAndWritersDoNot() throws Exception {
        counter(clients.get(0), "shared:count").set(0);
        var inside = new AtomicInteger();
        everywhere(client -> () -> {
            var lock = client.getReadWriteLock("shared");
            for (int n = 0; n < TIMES / 4; n++) {
                lock.writeLock().lock();
                inside(counter(client, "shared:count"), inside, 1);
                lock.writeLock().unlock();
                lock.readLock().lock();
                assertEquals(0, inside.get());
                lock.readLock().unlock();
            }
            return null;
        });
        assertEquals(2 * CLIENTS * (TIMES / 4), counter(clients.get(0), "shared:count").get());
    }

    /**
     * While a node is away, calls end with errors whose effect the client does not know: a lock or a permit may be held that nobody knows of,
     * until its lease ends. What is promised is that nobody else is inside meanwhile, and that it goes on.
     */
    @Test
    void oneIsInsideWhileANodeIsAway() throws Exception {
        if (FAULT.isEmpty()) {
            return;
        }
        // A lock of each partition, so also of the one that the node leads which will be away.
        var keys = clients.get(0).getKeys();
        var names = IntStream.range(0, PORTS.size())
                .mapToObj(partition -> IntStream.iterate(0, n -> n + 1).mapToObj(n -> "away:" + n)
                        .filter(name -> keys.getSlot(name) * PORTS.size() / 16384 == partition).findFirst().orElseThrow())
                .toList();
        var insides = names.stream().map(name -> new AtomicInteger()).toList();
        var broken = new AtomicInteger();
        var total = new AtomicInteger();
        var works = new ArrayList<Callable<Void>>();
        for (int n = 0; n < 3 * CLIENTS; n++) {
            var client = clients.get(n % CLIENTS);
            var inside = insides.get(n % names.size());
            var name = names.get(n % names.size());
            works.add(() -> {
                for (int done = 0; done < TIMES; ) {
                    var lock = client.getLock(name);
                    try {
                        lock.lock(LEASE_S, TimeUnit.SECONDS);
                        assertTrue(inside.incrementAndGet() == 1, "two are inside");
                        // Time for somebody else to come in.
                        Thread.sleep(10);
                        total.incrementAndGet();
                        done++;
                        inside.decrementAndGet();
                        lock.unlock();
                    } catch (RedisException | IllegalMonitorStateException away) {
                        broken.incrementAndGet();
                    }
                }
                return null;
            });
        }
        works.add(() -> {
            while (total.get() < TIMES) {
                Thread.sleep(1);
            }
            assertEquals(0, new ProcessBuilder(FAULT.split(" ")).inheritIO().start().waitFor());
            return null;
        });
        together(works);
        assertEquals(3 * CLIENTS * TIMES, total.get());
        System.out.println("redisson: " + total + " times inside, " + broken + " calls broken off");
    }
}
