"""Room for calls within calls."""

import sys
from concurrent.futures import ThreadPoolExecutor

from shapetrace.headroom import headroom


def test_what_was_taken_is_given_back_in_any_order():
    before = sys.getrecursionlimit()
    first, second = headroom(100), headroom(10)
    first.__enter__()
    second.__enter__()
    assert sys.getrecursionlimit() == before + 110
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert sys.getrecursionlimit() == before


def test_threads():
    before = sys.getrecursionlimit()

    def work(frames):
        for _ in range(200):
            with headroom(frames):
                pass

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(10, 70, 10)))
    assert sys.getrecursionlimit() == before


def test_a_limit_that_was_set_inside_stays():
    before = sys.getrecursionlimit()
    try:
        with headroom(100):
            sys.setrecursionlimit(before + 7)
        assert sys.getrecursionlimit() == before + 7
    finally:
        sys.setrecursionlimit(before)
