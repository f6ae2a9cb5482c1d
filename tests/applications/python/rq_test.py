"""RQ, unmodified: queues, jobs behind others, retries and a schedule. RQ takes one address: that of the node that stays."""

import datetime
import os
import subprocess
import sys
import tempfile
import time
import unittest

import redis
from rq import Queue, Retry

from rq_jobs import add_results, counts, second_time, square
from where import FAULT, KEPT, URLS, Fault

JOBS = 200
PATIENCE_S = 150


class RqWorks(unittest.TestCase):
    def setUp(self):
        counts.flushall()
        self.output = tempfile.NamedTemporaryFile("w+")
        command = [sys.executable, "-m", "rq.cli", "worker", "--url", URLS[-1], "--with-scheduler", "high", "default"]
        self.workers = [subprocess.Popen(command, stdout=self.output, stderr=self.output) for _ in range(2)]

    def tearDown(self):
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait()
        if not self._outcome.success:
            self.output.seek(0)
            print(self.output.read()[-5000:])
        self.output.close()

    def results(self, jobs):
        start = time.monotonic()
        for job in jobs:
            while not (status := job.get_status()).value == "finished":
                self.assertNotEqual(status.value, "failed", job)
                self.assertLess(time.monotonic() - start, PATIENCE_S, f"{job} is {status}")
                time.sleep(0.02)
        return [job.return_value() for job in jobs]

    def test_every_job_is_done_and_every_result_is_right(self):
        queue, high = Queue(connection=counts), Queue("high", connection=counts)
        first = [queue.enqueue(square, n) for n in range(JOBS // 2)]
        self.assertEqual(self.results(first[:10]), [n * n for n in range(10)])
        fault = Fault()
        fault.start()
        second = queue.enqueue_many([Queue.prepare_data(square, (n,)) for n in range(JOBS // 2, JOBS)])
        urgent = [high.enqueue(square, JOBS + n) for n in range(10)]
        sums = []
        for s in range(5):
            parts = [queue.enqueue(square, 1000 + 3 * s + n) for n in range(3)]
            sums.append(queue.enqueue(add_results, *(part.id for part in parts), depends_on=parts))
        again = [queue.enqueue(second_time, n, retry=Retry(max=2)) for n in range(5)]
        later = [queue.enqueue_in(datetime.timedelta(seconds=1), square, 2000 + n) for n in range(5)]

        self.assertEqual(self.results(first + second), [n * n for n in range(JOBS)])
        self.assertEqual(self.results(urgent), [(JOBS + n) ** 2 for n in range(10)])
        self.assertEqual(self.results(sums), [sum((1000 + 3 * s + n) ** 2 for n in range(3)) for s in range(5)])
        self.assertEqual(self.results(again), list(range(5)))
        self.assertEqual(self.results(later), [(2000 + n) ** 2 for n in range(5)])
        fault.finish()

        executions = {name.decode(): int(count) for name, count in counts.hgetall("executions").items()}
        squares = [executions[f"square:{n}"] for n in [*range(JOBS + 10), *range(1000, 1015), *range(2000, 2005)]]
        if FAULT:
            self.assertTrue(all(count >= 1 for count in squares))
            print(f"rq: {len(squares)} jobs, {sum(squares) - len(squares)} of them repeated")
        else:
            self.assertEqual(set(squares), {1})
            self.assertEqual({executions[f"second:{n}"] for n in range(5)}, {2})
        self.assertEqual((queue.count, high.count), (0, 0))


if __name__ == "__main__":
    unittest.main()
