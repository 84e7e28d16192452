"""Shapes of keys and tokens that vendors publish, read from ``data`` as rules.

This module runs nothing; the matcher does.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from curtilage.client.detection.detectors.patterns.rule import (
    ANY_DIGIT,
    PatternRule,
    listed,
)
from curtilage.client.detection.wordlists import read_data

_KEY: Final = "secret.api_key"
_DATA: Final = read_data(
    "curtilage.client.detection.detectors.patterns", "vendor_tokens.toml"
)


def _rules(entries: list[Mapping[str, Any]]) -> Iterator[PatternRule]:
    for entry in entries:
        # An entry with a key that is not a field of a rule raises here, immediately.
        keys: dict[str, Any] = {"data_class": _KEY, "score": 95, **entry}
        keys["words"] = listed(keys.get("words", ""))
        if "token" in keys:
            keys["regex"] = rf"(?<!\w)(?:{'|'.join(keys.pop('token'))})"
            keys["cased"] = True
        yield PatternRule(**keys)


def _named_key(vendor: str) -> PatternRule:
    return PatternRule(
        id=f"{vendor.replace('_', '-')}-named-key",
        data_class=_KEY,
        regex=rf"{vendor}[\w .\-]{{0,24}}[\"']?\s{{0,3}}"
        r"(?:[:=]|=>|:=|\bis\b)\s{0,3}[\"'`]?"
        r"(?=[\w+/=.\-]{0,40}\d)(?=[\w+/=.\-]{0,40}[a-z])([\w+/=\-]{16,400})(?![\w./])",
        score=85,
        group=1,
        gate=ANY_DIGIT,
        words=(vendor,),
    )


VENDOR_KEYS: Final = (
    *_rules(_DATA["rule"]),
    *map(_named_key, listed(_DATA["vendors"]["names"])),
)
