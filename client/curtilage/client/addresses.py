"""Tell whether what comes next in a text may become a part of an address.

Sans-IO. Reads a text character by character, in any pieces, with a memory of
fixed size. Whoever shows an answer may fetch by itself what it links to, so this
errs towards yes, and keeps several readings of one text at once: what is a tag
for a browser may be text, a comment or code for whoever made it HTML.

An address is what follows a scheme, the target of a Markdown link or picture,
the target of a link definition, and every value in an HTML tag. After a style
sheet began nothing is certain any more. Only white space of ASCII ends an
address: to HTML and Markdown, the other kinds are letters.
"""

import re
from enum import Enum, auto
from typing import Final

from curtilage.client.vocabulary import words

_SPACE: Final = frozenset(" \t\n\f\r")
# As far back as one must look: the longest scheme and what stands before it.
_TAIL_CHARS: Final = 8
_MAX_NAME_CHARS: Final = 32
_MANY_LETTERS: Final = 3
# Where nothing is open, only these can open something; all else is skipped.
_SIGN: Final = re.compile(r"[<\[(:/\\.]")
_SCHEME: Final = re.compile(
    r"(?:https?:|wss?:|ftp:|mailto:|//|\\\\|www\.)\Z", re.IGNORECASE
)
_TARGET: Final = re.compile(r"(?:\]|url)\Z", re.IGNORECASE)
_WORD_END: Final = re.compile(r"\w\Z")
_TAG_NAME: Final = re.compile(r"/?[a-z][a-z0-9:._-]*", re.IGNORECASE)
# Elements of one or two letters; "x<y" and "i<n" open none.
_SHORT: Final = words("""
a b g i p q s u br dd dl dt em hr li mi mn mo ms ol rb rp rt td th tr tt ul
h1 h2 h3 h4 h5 h6
""")


class _Tag(Enum):
    """Where in a tag a reading of the text is, as browsers read it."""

    BEFORE_NAME = auto()
    NAME = auto()
    AFTER_NAME = auto()
    BEFORE_VALUE = auto()
    BARE = auto()
    DOUBLE = auto()
    SINGLE = auto()


_VALUES: Final = frozenset((_Tag.BEFORE_VALUE, _Tag.BARE, _Tag.DOUBLE, _Tag.SINGLE))
_QUOTED: Final = frozenset((_Tag.DOUBLE, _Tag.SINGLE))
_ANY: Final = "any"  # every character that has no rule of its own
_NEXT: Final[dict[_Tag, dict[str, _Tag | None]]] = {
    _Tag.BEFORE_NAME: {
        **dict.fromkeys((*_SPACE, "/"), _Tag.BEFORE_NAME),
        ">": None,
        _ANY: _Tag.NAME,
    },
    _Tag.NAME: {
        **dict.fromkeys(_SPACE, _Tag.AFTER_NAME),
        "/": _Tag.BEFORE_NAME,
        "=": _Tag.BEFORE_VALUE,
        ">": None,
        _ANY: _Tag.NAME,
    },
    _Tag.AFTER_NAME: {
        **dict.fromkeys(_SPACE, _Tag.AFTER_NAME),
        "/": _Tag.BEFORE_NAME,
        "=": _Tag.BEFORE_VALUE,
        ">": None,
        _ANY: _Tag.NAME,
    },
    _Tag.BEFORE_VALUE: {
        **dict.fromkeys(_SPACE, _Tag.BEFORE_VALUE),
        '"': _Tag.DOUBLE,
        "'": _Tag.SINGLE,
        ">": None,
        _ANY: _Tag.BARE,
    },
    _Tag.BARE: {
        **dict.fromkeys(_SPACE, _Tag.BEFORE_NAME),
        ">": None,
        _ANY: _Tag.BARE,
    },
    _Tag.DOUBLE: {'"': _Tag.BEFORE_NAME, _ANY: _Tag.DOUBLE},
    _Tag.SINGLE: {"'": _Tag.BEFORE_NAME, _ANY: _Tag.SINGLE},
}


class _Tags:
    """The tags that may be open; a new one may begin anywhere, even in a value."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._open: frozenset[_Tag] = frozenset()
        self.unending = False

    @property
    def idle(self) -> bool:
        return self._name is None and not self._open

    @property
    def inside(self) -> bool:
        return self.unending or bool(self._open & _VALUES)

    def push(self, char: str) -> None:
        rules = (_NEXT[state] for state in self._open)
        after = (each.get(char, each[_ANY]) for each in rules)
        self._open = frozenset(state for state in after if state is not None)
        if self._name is not None:
            self._read_name(self._name, char)
        if char == "<":
            self._name = ""

    def _read_name(self, name: str, char: str) -> None:
        ends = char in _SPACE or char == ">" or (char == "/" and name != "")
        if not ends and _TAG_NAME.fullmatch(name + char + "a" * (char == "/")):
            self._name = (name + char)[:_MAX_NAME_CHARS]
            return
        self._name = None
        bare = name.removeprefix("/").lower()
        if ends and (len(bare) >= _MANY_LETTERS or bare in _SHORT):
            self.unending |= bare == "style"
            if char != ">":
                self._open |= {_Tag.BEFORE_NAME}

    def blank_line(self) -> None:
        """Give up inside a quoted value: what comes next may be escaped."""
        self.unending |= bool(self._open & _QUOTED)


class _Targets:
    """The target of ``[a](...)``, and ``url(...)``, up to its closing mark."""

    def __init__(self) -> None:
        self._depth = 0
        self._angle = False
        self._fresh = False
        self._escaped = False

    @property
    def inside(self) -> bool:
        return self._depth > 0

    def push(self, char: str, before: str) -> None:
        literal, self._escaped = self._escaped, False
        if char == "(" and _TARGET.search(before):
            self._depth, self._fresh = self._depth + 1, True
        elif self.inside:
            self._escaped = char == "\\" and not literal
            if not literal:
                self._read(char)
            self._fresh = self._fresh and char in _SPACE

    def _read(self, char: str) -> None:
        if char == "<" and self._fresh:
            self._angle = True
        elif char == ">":
            self._angle = False
        elif char == "(":
            self._depth += 1
        elif char == ")" and not self._angle:
            self._depth -= 1

    def blank_line(self) -> None:
        """End it: no link goes on in the next paragraph."""
        self._depth, self._angle, self._fresh = 0, False, False


class _Definitions:
    """The target of ``[a]: ...``, also one line later, in a quote or a list."""

    def __init__(self) -> None:
        self._label = self._labelled = False
        self._wait = self._bare = self._angle = False
        self._escaped = False

    @property
    def idle(self) -> bool:
        return not (self._label or self._labelled or self.inside)

    @property
    def inside(self) -> bool:
        return self._wait or self._bare or self._angle

    def push(self, char: str, before: str) -> None:
        literal = self._escaped
        self._escaped = char == "\\" and not literal
        labelled, self._labelled = self._labelled, False
        if self._wait:
            self._begin(char)
        self._bare = self._bare and char not in _SPACE
        ends = char == "\n" or (char == ">" and not literal)
        self._angle = self._angle and not ends
        if char == ":" and labelled:
            self._wait = True
        elif char == "[" and not _WORD_END.search(before):
            self._label = True
        elif char == "]" and self._label and not literal:
            self._label, self._labelled = False, True

    def _begin(self, char: str) -> None:
        # A ">" is the mark of a quote that goes on in the next line.
        if char not in _SPACE and char != ">":
            self._wait, self._angle, self._bare = False, char == "<", char != "<"

    def blank_line(self) -> None:
        """End what goes on in no other paragraph."""
        self._label = self._labelled = self._wait = False


class _Urls:
    """What follows a scheme; in quotes and brackets white space is a part of it."""

    def __init__(self) -> None:
        self.inside = False
        self._closed_by = ""
        self._in_tag = False

    def push(self, char: str, before: str, *, in_tag: bool) -> None:
        if self.inside:
            self.inside = not self._ends(char, in_tag=in_tag)
        elif begun := _SCHEME.search(before + char):
            opened = (before + char)[max(begun.start() - 1, 0) : begun.start()]
            self._closed_by = {"<": ">", '"': '"', "'": "'"}.get(opened, "")
            self.inside, self._in_tag = True, in_tag

    def _ends(self, char: str, *, in_tag: bool) -> bool:
        if char == "\n":
            return True
        if self._closed_by:
            closed = char == self._closed_by
            # Behind a quote an address may go on: "https://x.example/"a.
            self._closed_by = "" if closed else self._closed_by
            return closed and char == ">"
        tag_ended = char == ">" and self._in_tag and not in_tag
        return char in _SPACE or char == "<" or tag_ended


class AddressWatch:
    """Follows a text and tells where an address may be open."""

    def __init__(self) -> None:
        self._tags = _Tags()
        self._targets = _Targets()
        self._definitions = _Definitions()
        self._urls = _Urls()
        self._tail = ""
        self._blank = False

    @property
    def inside(self) -> bool:
        """Whether what comes next may become a part of an address."""
        return (
            self._tags.inside
            or self._targets.inside
            or self._definitions.inside
            or self._urls.inside
        )

    def push(self, text: str) -> None:
        """Read a piece of the text; takes time by its length alone."""
        whole, at = self._tail + text, len(self._tail)
        while at < len(whole) and not self._tags.unending:
            if self._idle:
                sign = _SIGN.search(whole, at)
                if sign is None:
                    break
                at = sign.start()
            self._read(whole[at], whole[max(at - _TAIL_CHARS, 0) : at])
            at += 1
        self._tail = whole[-_TAIL_CHARS:]

    @property
    def _idle(self) -> bool:
        return self._tags.idle and self._definitions.idle and not self.inside

    def _read(self, char: str, before: str) -> None:
        self._tags.push(char)
        self._targets.push(char, before)
        self._definitions.push(char, before)
        self._urls.push(char, before, in_tag=self._tags.inside)
        if char == "\n" and self._blank:
            self._tags.blank_line()
            self._targets.blank_line()
            self._definitions.blank_line()
        self._blank = char == "\n" or (self._blank and char in " \t\r")
