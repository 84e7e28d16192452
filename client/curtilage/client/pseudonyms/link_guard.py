"""Detects where the next character of a text may become part of an address.

Sans-IO. Reads a text character by character, in pieces of any size, with a memory of
fixed size. An application that shows an answer may automatically fetch what it links
to, so this errs towards yes, and follows several readings of one text at once: a tag
for a browser may be text, a comment or code for the renderer that produced the HTML.

Addresses are: what follows a scheme or a host name, the target of a Markdown link or
picture, the target of a link definition, the argument of a LaTeX command that loads a
file, and every value in an HTML tag. Code of a diagram language may build an address
from any of its words, so all of it counts. After the start of a style sheet, a script
or a control character everything counts: a terminal sequence may take in any text that
follows. Only ASCII white space ends an address: to HTML and Markdown, other white space
characters are letters.

Invisible characters inside a host name are skipped, and look-alikes of its punctuation
are read as that punctuation. A punctuation mark written as a reference (``&#47;``,
``%2F``) has no legitimate use in a text, so it opens an address by itself.
"""

import html
import re
import unicodedata
from enum import Enum, auto
from typing import Final
from urllib.parse import unquote

from curtilage.client.detection.wordlists import words

_SPACE: Final = frozenset(" \t\n\f\r")
# The longest look-back: a label of a host name, or a LaTeX command with its options;
# and for a known scheme, the text before it.
_TAIL_CHARS: Final = 96
_SCHEME_CHARS: Final = 8
_ANY_SCHEME_CHARS: Final = 34
_MAX_NAME_CHARS: Final = 32
_MAX_LABEL_CHARS: Final = 64
_MAX_LINE_CHARS: Final = 200
_MANY_LETTERS: Final = 3
_IPV4_DOTS: Final = 3
_CONTROL: Final = "\x00-\x08\x0b\x0e-\x1f\x7f-\x9f"
_DIRECTION: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_MARKS: Final = "\u3002\uff61\uff0e\uff0f\uff1a\uff20\uff3c\uff1f\uff03"
# When nothing is open, only these can open something; all else is skipped.
_SIGN: Final = re.compile(rf"[<\[(:/\\.{{`~@&%{_MARKS}{_CONTROL}{_DIRECTION}]")
CONTROLS: Final = re.compile(f"[{_CONTROL}]")
_DIRECTIONS: Final = re.compile(f"[{_DIRECTION}]")
# As browsers and mail programs read a host name (UTS 46): full-width punctuation is
# punctuation, and invisible characters are ignored.
_FOLDED: Final = str.maketrans(
    _MARKS,
    ".../:@\\?#",
    "\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d"
    "\u202e\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\ufeff"
    + "".join(map(chr, range(0xFE00, 0xFE10))),
)
# Characters that HTML authors escape; any other escaped character is a disguise.
_ESCAPED: Final = frozenset("&<>\"'`= \xa0")
# Symbols and accents may be letters of a name: i❤.ws is a host.
_PUNCTUATION: Final = (
    r"\xa1\xa7\xab\xb6\xb7\xbb\xbf\u2010-\u2027\u2030-\u205e\u3001-\u3003\u3008-\u3011"
    r"\u3014-\u301f\uff01-\uff0f\uff1a\uff1b\uff1f\uff20\uff3b-\uff3d\uff5b\uff5d"
    r"\uff5f-\uff65"
)
_IN_LABEL: Final = rf"(?:[\w\-]|[^\x00-\x7f\s{_PUNCTUATION}])"
_LETTER: Final = re.compile(_IN_LABEL)
_LABEL: Final = re.compile(rf"{_IN_LABEL}+\Z")
_IPV6: Final = re.compile(r"\[[0-9a-f.%]*:[0-9a-z:.%]*\]\Z", re.IGNORECASE)
_ANY_SCHEME: Final = re.compile(
    r"(?<![\w\"'])<?[a-z][a-z0-9+.\-]{1,31}:\Z", re.IGNORECASE
)
# Frequent after a scheme's colon and rare after a colon in a sentence.
_IN_ADDRESS: Final = frozenset("/\\?@")
_LOADING: Final = re.compile(
    r"\\(?:include|includegraphics|includesvg|includepdf|includemedia|graphicspath|href"
    r"|hyperref|url|nolinkurl|path|input|import|subimport|subfile|subfileinclude|openin"
    r"|openout|write|lstinputlisting|verbatiminput|inputminted|bibliography|addbibresource"
    r"|usepackage|RequirePackage|documentclass|movie|media|attachfile|embedfile|htmlData"
    r"|htmlStyle|htmlClass|htmlId|require|unicode|style|class|cssId|bbox)"
    r"\*?\s*(?:\[[^\]\n]{0,60}\]\s*)?\Z"
)
# Code languages that a viewer renders instead of showing, and that may load what they
# name, or build its address from other words.
_DRAWN: Final = words("""
abc actdiag artifact blockdiag bpmn bytefield c4 c4plantuml canvas chart chartjs d2
dataview dataviewjs dbml ditaa dot echarts embed erd excalidraw flow flowchart geojson
gnuplot graphviz gv highcharts iframe kroki leaflet map mapview markmap mathematica
mermaid mmd nomnoml nwdiag packetdiag pikchr plantuml plot plotly pprof puml query
rackdiag railroad reveal revealjs seqdiag sequence smiles startchen startditaa startdot
startebnf startflow startgantt startjson startlatex startmath startmindmap startnwdiag
startregex startsalt starttree startuml startwbs startwire startyaml stl structurizr
svgbob symbolator tikz topojson uml umlet vega vegalite wavedrom wireviz
""")
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
# Longest text between a name and the end of its host, and the characters that decide.
_MAX_BEHIND: Final = 300
_BEHIND: Final = re.compile(rf"(?:[.@+:%&#;{_MARKS}]|{_IN_LABEL})+")
_USER: Final = re.compile(r"[\w.+:%\-\u27e6\u27e7]*@[\w\u27e6]")
_REST_OF_HOST: Final = re.compile(rf"{_IN_LABEL}*((?:\.{_IN_LABEL}+)+)\.?")
_PATH: Final = re.compile(r"(?::[0-9]+)?[/\\?#]|:[0-9]")
_FILES: Final = words("""
bak bib bmp cer csv dcm dicom doc docm docx dot dotx eml epub gif gz heic htm html ics
ini jpeg jpg json jsonl key log md mp3 mp4 msg numbers odp ods odt ott pages pdf pem png
pot pps ppt pptx rtf svg tar tex text tif tiff tsv txt vcard vcf wav webp xls xlsm xlsx
xml yaml yml zip
""")
_CLOSING: Final = {"<": ">", '"': '"', "'": "'", "{": "}", "[": "]", "]": "["}


class _Tag(Enum):
    """State of one reading inside a tag, as browsers parse it."""

    BEFORE_NAME = auto()
    NAME = auto()
    AFTER_NAME = auto()
    BEFORE_VALUE = auto()
    BARE = auto()
    DOUBLE = auto()
    SINGLE = auto()


_VALUES: Final = frozenset((_Tag.BEFORE_VALUE, _Tag.BARE, _Tag.DOUBLE, _Tag.SINGLE))
_QUOTED: Final = frozenset((_Tag.DOUBLE, _Tag.SINGLE))
_ANY: Final = "any"  # every character without a rule of its own
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
            self.unending |= bare in {"style", "script"}
            if char != ">":
                self._open |= {_Tag.BEFORE_NAME}

    def blank_line(self) -> None:
        """Close quoted values: what comes next may be escaped."""
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
        """Close it: no link continues in the next paragraph."""
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
        # A ">" marks a quotation that continues in the next line.
        if char not in _SPACE and char != ">":
            self._wait, self._angle, self._bare = False, char == "<", char != "<"

    def blank_line(self) -> None:
        """Close what does not continue in another paragraph."""
        self._label = self._labelled = self._wait = False


class _Arguments:
    """The argument of a LaTeX command that loads the file that it names."""

    def __init__(self) -> None:
        self._depth = 0

    @property
    def inside(self) -> bool:
        return self._depth > 0

    def push(self, char: str, before: str) -> None:
        if char == "{" and (self.inside or _LOADING.search(before)):
            self._depth += 1
        elif char == "}" and self.inside:
            self._depth -= 1

    def blank_line(self) -> None:
        """Close it: an argument has no paragraphs."""
        self._depth = 0


class _References:
    """Punctuation and letters written as references, up to white space."""

    def __init__(self) -> None:
        self._kind = ""  # "&" or "%", while a reference is being read
        self._read = ""
        self._open = False

    @property
    def idle(self) -> bool:
        return not (self._kind or self._open)

    @property
    def inside(self) -> bool:
        # "&#47" already counts if no digit follows.
        return self._open or (self._kind == "&" and self._read.startswith("#"))

    def push(self, char: str) -> None:
        if self._kind == "&":
            self._entity(char)
        elif self._kind == "%":
            self._percent(char)
        self._open = self._open and char not in _SPACE
        if char in "&%" and not self._kind:
            self._kind, self._read = char, ""

    def _entity(self, char: str) -> None:
        if (char.isalnum() or (char == "#" and not self._read)) and len(
            self._read
        ) < _MAX_NAME_CHARS:
            self._read += char
            return
        written = f"&{self._read};" if char == ";" else f"&{self._read}"
        if char == ";" or self._read.startswith("#"):
            decoded = html.unescape(written)
            self._open |= decoded != written and _is_disguised(decoded[:1])
        self._kind = ""

    def _percent(self, char: str) -> None:
        self._read += char
        try:
            decoded = chr(int(self._read, 16))
        except ValueError:
            self._kind = ""
            return
        if len(self._read) > 1:
            self._open |= _is_disguised(decoded)
            self._kind = ""


def _is_disguised(char: str) -> bool:
    """Return whether a character is one that authors never write as a reference."""
    if char.isascii():
        return char.isprintable() and char not in _ESCAPED
    return char.translate(_FOLDED) != char or unicodedata.category(char) == "Cf"


class _Drawings:
    """Code that is drawn and not shown, up to the end of its block."""

    def __init__(self) -> None:
        self._mark = ""
        self._count = 0
        self._first: str | None = None  # the line of a mark, while it is read
        self._line = ""
        self.inside = False

    @property
    def idle(self) -> bool:
        return self._first is None and not self.inside

    def push(self, char: str, before: str) -> None:
        if char in "\n\r":
            self._end_line()
        elif self.inside:
            self._line = (self._line + char)[:_MAX_LINE_CHARS]
        elif self._first is not None:
            self._count += char == self._mark and not self._first
            self._first = (self._first + char).lstrip(self._mark)[:_MAX_LINE_CHARS]
        elif char == "@" or (char in "`~:" and before.endswith(2 * char)):
            self._mark, self._first = char, ""
            self._count = 1 if char == "@" else 3

    def _end_line(self) -> None:
        line, self._line = self._line.strip(" \t>"), ""
        if self.inside:
            ends = set(line) == {self._mark} and len(line) >= self._count
            ends |= self._mark == "@" and line.startswith("@end")
            self.inside = not ends
        elif self._first is not None:
            labels = re.split("[^a-z0-9]+", self._first.lower())
            if self._mark == "@":
                labels = [each for each in labels[:1] if each.startswith("start")]
            # An inline code span is no block.
            closed = self._mark == "`" and "`" in self._first
            self.inside = not closed and not _DRAWN.isdisjoint(labels)
        self._first = None


class _Hosts:
    """Reads a host name; reports when an address begins behind it."""

    def __init__(self) -> None:
        self._dots = 0
        self._label = self._last = ""
        self._numbers = self._port = False
        self.opened = ""  # the text before the name

    @property
    def idle(self) -> bool:
        return self._dots == 0

    def push(self, char: str, before: str) -> bool:
        """Read on; return whether a path, a query or a port's path begins."""
        if char == "/" and (literal := _IPV6.search(before)):
            self.opened = before[max(literal.start() - 1, 0) : literal.start()]
            return True
        if self._dots == 0:
            self._begin(char, before)
            return False
        if char in "/\\?#" and self._whole:
            return True
        if self._port:
            self._dots *= char.isdecimal()
        elif _LETTER.match(char):
            self._label = (self._label + char)[:_MAX_LABEL_CHARS]
        elif char == "." and self._label:
            self._numbers = self._numbers and self._label.isdecimal()
            self._dots, self._last, self._label = self._dots + 1, self._label, ""
        elif char == ":" and self._whole:
            self._port = True
        else:
            self._dots = 0
        return False

    def _begin(self, char: str, before: str) -> None:
        label = _LABEL.search(before)
        # Only invisible characters: a label precedes them.
        if char == "." and (label or not before):
            start = label.start() if label else 0
            self._dots, self._label, self._port = 1, "", False
            self._last = label[0] if label else ""
            self._numbers = self._last.isdecimal()
            self.opened = before[max(start - 1, 0) : start]

    @property
    def _whole(self) -> bool:
        last = self._label or self._last
        if self._numbers and last.isdecimal():
            return self._dots >= _IPV4_DOTS
        # "1." ends a sentence, "e.g." and "p.m." an abbreviation of single letters.
        return bool(self._label or self._dots > 1) and _is_top_label(last)


def _is_top_label(label: str) -> bool:
    """Return whether a host name may end so; no list of endings is complete."""
    letters = len(label) > 1 and label.isalpha()
    return letters or label.lower().startswith("xn--") or "\u27e6" in label


class _Urls:
    """The text after a scheme or a host name.

    In quotes and brackets white space is part of it.
    """

    def __init__(self) -> None:
        self.inside = False
        self._hosts = _Hosts()
        self._word = False  # after a word and a colon, which may be a scheme
        self._closed_by = ""
        self._in_tag = False

    @property
    def idle(self) -> bool:
        return not self._word and self._hosts.idle

    def push(self, char: str, before: str, *, in_tag: bool) -> None:
        if self.inside:
            self.inside = not self._ends(char, in_tag=in_tag)
            return
        opened = self._opened(char, before)
        if opened is not None:
            self._closed_by = _CLOSING.get(opened, "")
            self.inside, self._in_tag = True, in_tag
            self._word, self._hosts = False, _Hosts()

    def _opened(self, char: str, before: str) -> str | None:
        """Return the text before an address that begins here."""
        read = before[-_SCHEME_CHARS:] + char
        if begun := _SCHEME.search(read):
            return read[max(begun.start() - 1, 0) : begun.start()]
        if self._hosts.push(char, before):
            return self._hosts.opened
        self._word = self._word and char not in _SPACE and char not in '"<>`'
        if self._word and char in _IN_ADDRESS:
            return ""
        if char != ":":
            return None
        scheme = _ANY_SCHEME.search(before[-_ANY_SCHEME_CHARS:] + char)
        if scheme is not None:
            self._word = True
            return "<" if scheme[0].startswith("<") else None
        return None

    def _ends(self, char: str, *, in_tag: bool) -> bool:
        if char == "\n":
            return True
        if self._closed_by:
            closed = char == self._closed_by
            # After a quotation mark an address may continue: "https://x.example/"a.
            self._closed_by = "" if closed else self._closed_by
            return closed and char == ">"
        tag_ended = char == ">" and self._in_tag and not in_tag
        return char in _SPACE or char == "<" or tag_ended


def is_joined(text: str, end: int, *, last: bool) -> bool | None:
    """Return whether the text up to ``end`` may be part of a host name or command.

    Before ``.evil.example`` or ``@evil.example`` it may. A name before a single label
    would be a domain of its own, which an attacker cannot have registered in advance;
    so "Smith.docx" and a sentence that begins without a space are accepted, unless a
    path follows.

    Args:
        text: the text so far.
        end: index after its last character.
        last: no more text follows.

    Returns:
        None if it depends on text that has not arrived.
    """
    run = _BEHIND.match(text, end, end + _MAX_BEHIND)
    stop = end if run is None else run.end()
    if stop == len(text) and stop - end < _MAX_BEHIND and not last:
        return None
    read = unquote(html.unescape(text[end:stop])).translate(_FOLDED)
    read += text[stop : stop + 1]
    long = stop - end >= _MAX_BEHIND
    if long or CONTROLS.search(read) or _USER.match(read):
        return True
    name = _REST_OF_HOST.match(read)
    labels = name[1].split(".")[1:] if name else [""]
    if name is None or not _is_top_label(labels[-1]):
        return False
    alone = len(labels) == 1 and not _PATH.match(read, name.end())
    first = labels[0]
    return not (
        alone and (first.lower() in _FILES or first.istitle() or not first.isascii())
    )


class AddressWatch:
    """Follows a text and reports where an address may be open."""

    def __init__(self) -> None:
        self._tags = _Tags()
        self._targets = _Targets()
        self._definitions = _Definitions()
        self._arguments = _Arguments()
        self._references = _References()
        self._drawings = _Drawings()
        self._urls = _Urls()
        self._tail = ""
        self._blank = False
        self._controlled = self._turned = False

    @property
    def inside(self) -> bool:
        """Whether the next character may become part of an address."""
        return (
            self._over
            or self._turned
            or self._tags.inside
            or self._targets.inside
            or self._definitions.inside
            or self._arguments.inside
            or self._references.inside
            or self._drawings.inside
            or self._urls.inside
        )

    def push(self, text: str) -> None:
        """Read a piece of the text; time is linear in its length."""
        whole, at = self._tail + text, len(self._tail)
        while at < len(whole) and not self._over:
            if self._idle:
                sign = _SIGN.search(whole, at)
                if sign is None:
                    break
                at = sign.start()
            self._read(whole[at], whole[max(at - _TAIL_CHARS, 0) : at])
            at += 1
        self._tail = whole[-_TAIL_CHARS:]

    @property
    def _over(self) -> bool:
        return self._controlled or self._tags.unending

    @property
    def _idle(self) -> bool:
        parts = (
            self._tags,
            self._definitions,
            self._references,
            self._drawings,
            self._urls,
        )
        return all(part.idle for part in parts) and not self.inside

    def _read(self, char: str, before: str) -> None:
        self._controlled = bool(CONTROLS.match(char))
        self._turned = (self._turned and char != "\n") or bool(_DIRECTIONS.match(char))
        self._tags.push(char)
        if not (char + before).isascii():
            char, before = char.translate(_FOLDED), before.translate(_FOLDED)
            if not char:
                return
        self._targets.push(char, before)
        self._definitions.push(char, before)
        self._arguments.push(char, before)
        self._references.push(char)
        self._drawings.push(char, before)
        self._urls.push(char, before, in_tag=self._tags.inside)
        if char == "\n" and self._blank:
            self._tags.blank_line()
            self._targets.blank_line()
            self._definitions.blank_line()
            self._arguments.blank_line()
        self._blank = char == "\n" or (self._blank and char in " \t\r")
