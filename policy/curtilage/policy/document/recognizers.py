"""The operator's recognizers in Presidio's no-code YAML.

Keys have the meaning that Presidio documents, with three differences: an unknown key is
an error, as everywhere in a policy; ``type: predefined`` is refused, since packs choose
those; and the language is ignored, since every recognizer runs on every text.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:  # the detectors' process loads no YAML and no verification code
    from curtilage.policy.document.checks import Tree

Fields: TypeAlias = dict[str, object]

MAX_RECOGNIZERS: Final = 500
MAX_REGEX_CHARS: Final = 1000
MAX_WORDS: Final = 10_000
GROUP: Final = "curtilage.recognizers"
"""The group of entry points that are recognizers in Python."""

_TOP: Final = frozenset(
    {"recognizers", "supported_languages", "global_regex_flags", "recognizer_registry"}
)
_KEYS: Final = frozenset(
    {
        "name",
        "type",
        "enabled",
        "supported_entity",
        "supported_entities",
        "supported_language",
        "supported_languages",
        "patterns",
        "deny_list",
        "deny_list_score",
        "context",
        "score_thresholds",
        "country_code",
        "version",
    }
)
# DOTALL, MULTILINE and IGNORECASE, Presidio's defaults: with others the patterns would
# behave differently from where they were tested.
_FLAGS: Final = 26


def recognizers_of(tree: "Tree") -> tuple[str, ...]:
    """Return each recognizer of a file as one line of JSON, by which one is built.

    Keys: ``name``, ``entity``, ``patterns`` (name, regex, score), ``deny_list``,
    ``deny_list_score``, ``context`` and ``score_thresholds``.

    Raises:
        ValueError: not such a file; says where, and quotes no list.
    """
    top = _mapping(tree, "the file")
    _known(top, _TOP, "the file")
    if set(top) == {"recognizer_registry"}:
        return recognizers_of(top["recognizer_registry"])
    if top.get("global_regex_flags") not in (None, _FLAGS):
        raise ValueError(f"global_regex_flags: only Presidio's own, {_FLAGS}")
    entries = _list(top.get("recognizers"), "recognizers")
    if not 0 < len(entries) <= MAX_RECOGNIZERS:
        raise ValueError(f"recognizers: 1 to {MAX_RECOGNIZERS}")
    made = [
        json.dumps(each, sort_keys=True)
        for at, entry in enumerate(entries)
        for each in _made(entry, f"recognizers[{at}]")
    ]
    if not made:
        raise ValueError("recognizers: none of them is enabled")
    return tuple(dict.fromkeys(made))


def require_classes(
    recognizers: tuple[str, ...], classes: Mapping[str, str], *, more: bool
) -> None:
    """Refuse an entity without a class, and a class without an entity.

    Args:
        recognizers: as ``recognizers_of`` returns them.
        classes: the class of each entity.
        more: there are other recognizers, which are not known here.

    Raises:
        ValueError: names the entity.
    """
    found = entities_of(recognizers)
    for entity in found:
        if entity not in classes:
            raise ValueError(f"'classes' has no class for the entity {entity!a}")
    for entity in sorted(classes):
        if not more and entity not in found:
            raise ValueError(f"no recognizer finds the entity {entity!a}")


def entities_of(recognizers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the entities that recognizers find, sorted."""
    return tuple(sorted({json.loads(each)["entity"] for each in recognizers}))


def _made(tree: "Tree", at: str) -> Iterator[Fields]:
    entry = _mapping(tree, at)
    _known(entry, _KEYS, at)
    if entry.get("type", "custom") != "custom":
        raise ValueError(f"{at}.type: custom only; a pack names Presidio's own")
    if entry.get("enabled", True) is not True:
        if entry["enabled"] is not False:
            raise ValueError(f"{at}.enabled: true or false")
        return
    patterns = [
        _pattern(each, f"{at}.patterns[{number}]")
        for number, each in enumerate(_list(entry.get("patterns"), f"{at}.patterns"))
    ]
    words = _texts(entry.get("deny_list"), f"{at}.deny_list")
    if not patterns and not words:
        raise ValueError(f"{at}: neither patterns nor deny_list")
    thresholds = _mapping(entry.get("score_thresholds") or {}, f"{at}.score_thresholds")
    fields: Fields = {
        "name": _text(entry.get("name"), f"{at}.name"),
        "entity": _entity(entry, at),
        "patterns": patterns,
        "deny_list": words,
        "deny_list_score": _score(
            entry.get("deny_list_score", 1), f"{at}.deny_list_score"
        ),
        "score_thresholds": {
            name: _score(value, f"{at}.score_thresholds")
            for name, value in thresholds.items()
        },
    }
    for context in _contexts(entry, at):
        yield {**fields, "context": context}


def _entity(entry: "Mapping[str, Tree]", at: str) -> str:
    found = [entry["supported_entity"]] if "supported_entity" in entry else []
    found += _list(entry.get("supported_entities"), f"{at}.supported_entities")
    if len(found) != 1:
        raise ValueError(f"{at}: one supported_entity")
    return _text(found[0], f"{at}.supported_entity")


def _pattern(tree: "Tree", at: str) -> Fields:
    pattern = _mapping(tree, at)
    _known(pattern, frozenset({"name", "regex", "score"}), at)
    regex = _text(pattern.get("regex"), f"{at}.regex")
    if len(regex) > MAX_REGEX_CHARS:
        raise ValueError(f"{at}.regex: more than {MAX_REGEX_CHARS} characters")
    return {
        "name": _text(pattern.get("name", "pattern"), f"{at}.name"),
        "regex": regex,
        "score": _score(pattern.get("score"), f"{at}.score"),
    }


def _contexts(entry: "Mapping[str, Tree]", at: str) -> "list[list[Tree]]":
    """Return the context words, once for each language that has its own."""
    common = _texts(entry.get("context"), f"{at}.context")
    languages = _list(entry.get("supported_languages"), f"{at}.supported_languages")
    if not languages:
        return [common]
    made: list[list[Tree]] = []
    for each in languages:
        if isinstance(each, dict):
            _known(
                each, frozenset({"language", "context"}), f"{at}.supported_languages"
            )
            own = _texts(each.get("context"), f"{at}.supported_languages")
            made.append(own or common)
        else:
            made.append(common)
    return made


def _mapping(tree: "Tree", at: str) -> "Mapping[str, Tree]":
    if not isinstance(tree, dict):
        raise ValueError(f"{at}: expected keys and values")  # noqa: TRY004 - one error
    return tree


def _known(tree: "Mapping[str, Tree]", keys: frozenset[str], at: str) -> None:
    for key in tree:
        if key not in keys:
            raise ValueError(f"{at}: unknown key {key!a}")


def _list(tree: "Tree", at: str) -> "list[Tree]":
    if tree is None:
        return []
    if not isinstance(tree, list) or len(tree) > MAX_WORDS:
        raise ValueError(f"{at}: expected a list of at most {MAX_WORDS}")
    return tree


def _texts(tree: "Tree", at: str) -> "list[Tree]":
    found = _list(tree, at)
    # In this YAML 42 is a number, but in a list of words it is meant as a word.
    return [str(each) if type(each) is int else _text(each, at) for each in found]


def _text(tree: "Tree", at: str) -> str:
    if not isinstance(tree, str) or not tree:
        raise ValueError(f"{at}: expected text")
    return tree


def _score(tree: "Tree", at: str) -> float:
    # The policy's YAML has no fractions, so 0.6 arrives as text.
    try:
        score = float(tree) if isinstance(tree, str | int) else -1.0
    except ValueError:
        score = -1.0
    if isinstance(tree, bool) or not 0 <= score <= 1:
        raise ValueError(f"{at}: expected a score from 0 to 1")
    return score
