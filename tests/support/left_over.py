"""Finds the objects of this process that still hold a question.

For tests that ask with the collector of cycles switched off: what only it could
free counts as kept, since it may never run.
"""

import gc
import secrets
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, TypeAlias

_MASK: Final = 0x5A
_FORMS: Final = ("utf-8", "utf-16-le", "utf-32-le")


@contextmanager
def uncollected() -> Generator[None]:
    """Free within the block only what nothing refers to."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Canary:
    """A random word that this process holds nowhere in clear by itself."""

    def __init__(self) -> None:
        word = secrets.token_hex(10).encode()
        self._masked = bytes(each ^ _MASK for each in word)

    def text(self, name: str) -> str:
        """Return a fresh text that holds the word and a name."""
        return f"{self._word()}:{name}:"

    def holders(self) -> dict[str, set[str]]:
        """Return the holders: for each name used, types of objects."""
        word = self._word()
        forms = [word.encode(form) for form in _FORMS]
        found: defaultdict[str, set[str]] = defaultdict(set)
        for part, holder in _texts(len(word)):
            if isinstance(part, str):
                if word in part and part is not word:
                    found[_name(part, word)].add(_path(holder))
                continue
            for form, octets in zip(_FORMS, forms, strict=True):
                if octets in part and part is not octets:
                    found[_name(part.decode(form, "replace"), word)].add(_path(holder))
        return dict(found)

    def _word(self) -> str:
        return bytes(each ^ _MASK for each in self._masked).decode()


def _name(text: str, word: str) -> str:
    # By hand: the cache of ``re`` would hold the word.
    name, end, _ = text.partition(f"{word}:")[2].partition(":")
    return name if end else "?"


# An object, and the one that led to it. Named only when something is found: there
# are millions.
Holder: TypeAlias = "tuple[object, Holder | None]"


def _texts(least: int) -> Iterator[tuple[str | bytes | bytearray, Holder]]:
    """Yield every text of at least so many characters, and what leads to it.

    Walks from everything that the collector knows, and from the frames that other
    threads run in; into what it does not know as well, a ``dict`` of texts, say.
    """
    # Not in one display: the list would be among what it lists.
    roots = gc.get_objects()
    roots.extend(_frames())
    seen: set[int] = set()
    queue: deque[Holder] = deque()
    own = {id(roots), id(seen), id(queue)}
    tracked, referents = gc.is_tracked, gc.get_referents
    for root in roots:
        if id(root) not in own:
            queue.append((root, None))
        while queue:
            holder = queue.popleft()
            for part in referents(holder[0]):
                if isinstance(part, str | bytes | bytearray):
                    if len(part) >= least:
                        yield part, holder
                elif not tracked(part) and id(part) not in seen:
                    seen.add(id(part))
                    queue.append((part, holder))


def _path(holder: Holder) -> str:
    """Return the types that lead to a text."""
    each, before = holder
    return f"{_path(before)} > {_kind(each)}" if before else _kind(each)


def _frames() -> Iterator[FrameType]:
    """Yield the frames of the other threads: nothing refers to those that run."""
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    # Our own, which would hold itself.
    del frames[threading.get_ident()]
    for frame in frames.values():
        each: FrameType | None = frame
        while each is not None:
            yield each
            each = each.f_back


def _kind(each: object) -> str:
    kind = type(each)
    code = f" of {each.f_code.co_name}" if isinstance(each, FrameType) else ""
    return f"{kind.__module__}.{kind.__qualname__}{code}"
