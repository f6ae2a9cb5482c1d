"""The tasks of celery_test.py, for its worker."""

import os

import redis
from celery import Celery

from where import KEPT, URLS

app = Celery("celery_tasks", broker=os.environ["CELERY_TEST_BROKER"], backend=URLS[-1])
app.conf.update(
    # What a worker has taken and not done is another's after that many seconds: Celery's way to do each task
    # at least once.
    task_acks_late=True,
    broker_transport_options={"visibility_timeout": 20},
    worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True,
    task_publish_retry_policy={"max_retries": None, "interval_max": 0.5},
)
counts = redis.Redis(port=KEPT)


@app.task
def square(n):
    counts.hincrby("executions", f"square:{n}", 1)
    return n * n


@app.task
def total(numbers):
    counts.hincrby("executions", "total", 1)
    return sum(numbers)


@app.task
def add(a, b):
    return a + b


@app.task(bind=True, max_retries=5)
def second_time(self, n):
    if counts.hincrby("executions", f"second:{n}", 1) == 1:
        raise self.retry(countdown=0)
    return n


@app.task
def fails():
    raise ValueError("as it should")
