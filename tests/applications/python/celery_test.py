"""Celery, unmodified: Redis is its broker and keeps its results."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

from where import FAULT, KEPT, URLS, Fault

# Whoever sends tasks knows all nodes, and goes to another one when its own is gone. The worker is at the node
# that stays: what Celery takes off a list whose reply it does not see is lost with every Redis.
os.environ["CELERY_TEST_BROKER"] = ";".join(URLS)

from celery import chain, chord, group  # noqa: E402
from celery_tasks import add, app, counts, fails, second_time, square, total  # noqa: E402

TASKS = 300
PATIENCE_S = 150


class CeleryWorks(unittest.TestCase):
    def setUp(self):
        counts.flushall()
        self.output = tempfile.NamedTemporaryFile("w+")
        environment = dict(os.environ, CELERY_TEST_BROKER=URLS[-1])
        command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "--concurrency", "2", "--loglevel", "INFO"]
        self.worker = subprocess.Popen(command, env=environment, stdout=self.output, stderr=self.output)
        start = time.monotonic()
        while not app.control.ping(timeout=0.5):
            self.assertIsNone(self.worker.poll(), "the worker has ended")
            self.assertLess(time.monotonic() - start, PATIENCE_S, "the worker does not answer")

    def tearDown(self):
        self.worker.terminate()
        self.worker.wait()
        if any(failure for _, failure in getattr(self._outcome, "errors", [])) or not self._outcome.success:
            self.output.seek(0)
            print(self.output.read()[-5000:])
        self.output.close()

    def test_every_task_is_done_and_every_result_is_right(self):
        first = [square.delay(n) for n in range(TASKS // 2)]
        self.assertEqual(first[-1].get(timeout=PATIENCE_S), (TASKS // 2 - 1) ** 2)
        fault = Fault()
        fault.start()
        second = [square.delay(n) for n in range(TASKS // 2, TASKS)]
        later = [square.apply_async((TASKS + n,), countdown=1) for n in range(10)]
        again = [second_time.delay(n) for n in range(20)]
        # Groups of tasks, then one over all of their results; tasks behind each other.
        totals = [chord(group(square.s(1000 + 10 * c + n) for n in range(10)))(total.s()) for c in range(5)]
        chains = [chain(add.s(n, 1), add.s(10), add.s(100))() for n in range(20)]

        self.assertEqual([result.get(timeout=PATIENCE_S) for result in first + second], [n * n for n in range(TASKS)])
        self.assertEqual([result.get(timeout=PATIENCE_S) for result in later], [(TASKS + n) ** 2 for n in range(10)])
        self.assertEqual([result.get(timeout=PATIENCE_S) for result in again], list(range(20)))
        self.assertEqual(
            [result.get(timeout=PATIENCE_S) for result in totals],
            [sum((1000 + 10 * c + n) ** 2 for n in range(10)) for c in range(5)])
        self.assertEqual([result.get(timeout=PATIENCE_S) for result in chains], [n + 111 for n in range(20)])
        with self.assertRaisesRegex(ValueError, "as it should"):
            fails.delay().get(timeout=PATIENCE_S)
        fault.finish()

        executions = {name.decode(): int(count) for name, count in counts.hgetall("executions").items()}
        squares = [executions[f"square:{n}"] for n in [*range(TASKS + 10), *range(1000, 1050)]]
        seconds = [executions[f"second:{n}"] for n in range(20)]
        if FAULT:
            self.assertTrue(all(count >= 1 for count in squares))
            repeated = sorted(name for name, count in executions.items() if name.startswith("square") and count > 1)
            print(f"celery: {len(squares)} tasks, {sum(squares) - len(squares)} of them repeated: {repeated}")
        else:
            self.assertEqual((set(squares), set(seconds), executions["total"]), ({1}, {2}, 5))
        self.assertEqual(counts.llen("celery"), 0)


if __name__ == "__main__":
    unittest.main()
