"""A pack as data: the rules that one law requires, and the items that it lists.

A pack adds rules and recognizers to a policy. It cannot remove anything: it has
no exclusions, thresholds or default. ``load.load_pack`` builds it.
"""

from curtilage.policy.document.model import (
    RecognizerNames,
    RuleEntries,
    Sentence,
)
from curtilage.policy.document.sections import Patterns, Section


class Cover(Section):
    """One thing that a law or standard lists, and how it is found.

    Attributes:
        item: its number there, such as ``A`` or ``3.3.1``.
        text: what it says, shortly.
        classes: patterns of the corresponding data classes.
        how: how these are found, in words.
    """

    item: Sentence
    text: Sentence
    classes: Patterns
    how: Sentence


class Pack(Section):
    """One pack, key by key.

    Attributes:
        pack: its name; that of its file.
        title: what it covers, in a line.
        source: the law or standard, and where it is published.
        covers: what that law lists, item by item.
        recognizers: class names of Presidio's recognizers that it enables.
        rules: as in a policy; each gives a reason.
    """

    pack: Sentence
    title: Sentence
    source: Sentence
    covers: tuple[Cover, ...]
    recognizers: RecognizerNames
    rules: RuleEntries
