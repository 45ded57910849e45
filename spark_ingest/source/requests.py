"""Makes many requests to a store at once, in a bounded number of threads.

A store answers in milliseconds to tens of them, and discovery makes a few requests for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from engine.errors import EngineError

REQUESTS_AT_ONCE = 32  # the connections that a store of S3 keeps

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def request_all(function: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT | EngineError]:
    """Returns the result of each item, in the order of the items; or its error.

    Raises a retryable error, such as that of a store that does not answer: it is not one of the item.
    """

    def attempt(item: ItemT) -> ResultT | EngineError:
        try:
            return function(item)
        except EngineError as error:
            if error.retryable:
                raise
            return error

    if len(items) < 2:
        return [attempt(item) for item in items]
    with ThreadPoolExecutor(min(REQUESTS_AT_ONCE, len(items))) as pool:
        try:
            return list(pool.map(attempt, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def value_of(result: ResultT | EngineError) -> ResultT:
    """Returns a result. Raises the error if it is one."""
    if isinstance(result, EngineError):
        raise result
    return result
