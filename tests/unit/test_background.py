"""Items made ahead are those of the iterator, in order, and no more than was asked for."""

import threading

import pytest

from recap_steam.background import ahead


def test_items_come_in_order_from_one_other_thread():
    threads = set()
    items = (threads.add(threading.get_ident()) or number for number in range(50))
    assert list(ahead(items, 3)) == list(range(50))
    assert len(threads - {threading.get_ident()}) == len(threads) == 1


def test_no_more_are_made_than_asked_for():
    made, both = [], threading.Semaphore(0)
    found = ahead((made.append(number) or both.release() or number for number in range(50)), 2)
    next(found)
    for _ in range(3):
        assert both.acquire(timeout=10)
    assert not both.acquire(timeout=0.05)
    found.close()
    assert made == [0, 1, 2]


def test_an_error_is_raised_where_its_item_is_due():
    def items():
        yield 1
        raise ValueError("broken")

    found = ahead(items(), 4)
    assert next(found) == 1
    with pytest.raises(ValueError, match="broken"):
        next(found)
