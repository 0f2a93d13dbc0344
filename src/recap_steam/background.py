"""Work that a thread does before its result is asked for."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor


def ahead[T](items: Iterable[T], count: int) -> Iterator[T]:
    """Yield ``items`` in order, up to ``count`` of them made ahead in one background thread; what making one raises is raised here."""
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1) as pool:
        waiting = deque(pool.submit(next, iterator, end) for _ in range(count))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, iterator, end))
            yield item
