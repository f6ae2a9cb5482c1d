package clients;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Stream;

/** Where the servers are that the libraries are tried against, and what all tests share. */
final class Server {
    static final int PORT = port("ORDO_PORT");
    /** The password is {@code secret}. */
    static final int PORT_WITH_PASSWORD = port("ORDO_PORT_WITH_PASSWORD");
    /** A cluster of three nodes. */
    static final List<Integer> CLUSTER_PORTS =
            Stream.of(System.getenv("ORDO_CLUSTER_PORTS").split(" ")).map(Integer::valueOf).toList();
    /** Who waits for longer has lost. */
    static final long PATIENCE_S = 30;

    static final String LIBRARY =
            """
            #!lua name=counters
            redis.register_function('raise', function(k, a) return redis.call('INCRBY', k[1], a[1]) end)
            redis.register_function{function_name='look', flags={'no-writes'}, callback=function(k) return redis.call('GET', k[1]) end}
            """;

    private Server() {}

    private static int port(String variable) {
        return Integer.parseInt(System.getenv(variable));
    }

    /** Runs all of them at once, each in a thread of its own, and gives what they return. */
    static <T> List<T> together(List<Callable<T>> works) throws Exception {
        var threads = Executors.newFixedThreadPool(works.size());
        try {
            var results = new ArrayList<T>();
            for (Future<T> future : threads.invokeAll(works)) {
                results.add(future.get());
            }
            return results;
        } catch (ExecutionException failure) {
            throw failure.getCause() instanceof Exception cause ? cause : failure;
        } finally {
            threads.shutdownNow();
        }
    }

    /** Asks until the condition holds. */
    static void until(String what, Supplier<Boolean> holds) {
        long start = System.nanoTime();
        while (!holds.get()) {
            assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(PATIENCE_S), "never: " + what);
        }
    }
}
