"""The jobs of rq_test.py, for its workers."""

import redis

from where import KEPT

counts = redis.Redis(port=KEPT)


def square(n):
    counts.hincrby("executions", f"square:{n}", 1)
    return n * n


def add_results(*identifiers):
    from rq.job import Job

    counts.hincrby("executions", "sum:" + identifiers[0], 1)
    return sum(Job.fetch(identifier, connection=counts).return_value() for identifier in identifiers)


def second_time(n):
    if counts.hincrby("executions", f"second:{n}", 1) == 1:
        raise ValueError("the first time")
    return n
