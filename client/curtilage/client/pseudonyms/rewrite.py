"""Replaces the findings in a query with pseudonyms, or reports why it cannot.

Pure. Takes the detectors' findings and the classes for which the policy asks for
pseudonyms; builds the query that may be sent and, with it, the variant of it that the
detectors must inspect before anything is sent. It decides nothing: the rewritten query
is sent only with an ``Allowed`` of its own.

Fails closed. A finding that cannot be replaced with certainty (found only in a
normalised text, across texts, in a stop string, half inside another finding, in a
longer word) keeps the whole query local.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from curtilage.client.chat.answer import Obstacle
from curtilage.client.chat.query import Leaf, Query
from curtilage.client.detection.neighbours import neighbours
from curtilage.client.pseudonyms.deidentified import (
    Deidentified,
    RewrittenText,
    deidentified,
)
from curtilage.client.pseudonyms.obstacles import CannotRewriteError
from curtilage.client.pseudonyms.replacements import (
    PERSON,
    Occurrences,
    Place,
    apart,
    fitted,
    is_alone,
    is_rare,
    require_gone,
)
from curtilage.client.pseudonyms.vault import (
    CLOSING,
    OPENING,
    Vault,
    VaultError,
    kind_of,
)
from curtilage.client.pseudonyms.with_texts import strings_of
from curtilage.client.pseudonyms.wording import ENGLISH, language_of
from curtilage.policy.decision.decide import Assessment, WhatIf
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import counting, scores_of, unapproved
from curtilage.policy.document.model import Policy


def findings_asked(
    policy: Policy, inspection: WhatIf, decision: Assessment
) -> tuple[Finding, ...]:
    """Return the findings for which the policy asks for pseudonyms.

    These are the findings of the classes of every rule that fired and asks for it, with
    any score: one name too many is restored, too. What the policy excludes or approves
    is not replaced.
    """
    fired = {hit.id for hit in decision.rules if hit.route is Route.DEIDENTIFY}
    conditions = (rule.condition for rule in policy.rules if rule.id in fired)
    classes = frozenset[str]().union(*(each.classes for each in conditions))
    found = unapproved(policy.rulebook, inspection.findings, inspection.approved)
    counted = counting(found, policy.exclusions, scores_of(found))
    return tuple(each for each in counted if each.data_class in classes)


def deidentify(
    query: Query, findings: Sequence[Finding], *, key: bytes
) -> Deidentified | Obstacle:
    """Rewrite a query, or report why it cannot be rewritten and so is kept local.

    Args:
        query: the inspected query.
        findings: to be replaced; see ``findings_asked``. One whose class has no
            stand-in is kept: the second decision judges it.
        key: of the conversation, 32 bytes; see ``ConversationKeys``.
    """
    try:
        return _rewrite(query, findings, key)
    except CannotRewriteError as kept:
        return kept.obstacle
    except VaultError:
        return Obstacle.NO_STAND_IN


def _rewrite(query: Query, findings: Sequence[Finding], key: bytes) -> Deidentified:
    leaves = tuple(query.leaves())
    # In the answer, the source's own marks would be indistinguishable from ours.
    if any(OPENING in leaf.text or CLOSING in leaf.text for leaf in leaves):
        raise CannotRewriteError(Obstacle.MARK_IN_SOURCE)
    # Log-probabilities are reported by token, and the tokens would be the stand-ins'.
    if query.settings.logprobs:
        raise CannotRewriteError(Obstacle.LOGPROBS)
    # The findings, and every other occurrence of the same value: detectors may miss it
    # there, and a remaining one would reveal the person behind the token.
    found = _found_places(leaves, findings)
    replaced = {
        place.of(leaf.text): place.data_class
        for leaf in leaves
        for place in found.get(leaf.where, ())
    }
    again = Occurrences(replaced)
    places = {
        leaf.where: apart((*found.get(leaf.where, ()), *again.places(leaf.text)))
        for leaf in leaves
    }
    language = language_of(leaf.text for leaf in leaves if leaf.where.role == "user")
    vault = Vault(
        key,
        source="\n".join(leaf.text for leaf in leaves),
        language=language or ENGLISH,
    )
    english = language == ENGLISH
    texts = {
        leaf.where: RewrittenText(leaf.text, vault, english=english) for leaf in leaves
    }
    values: set[tuple[str, str]] = set()
    for leaf in leaves:
        for place in places[leaf.where]:
            # The model cannot use a stand-in in place of a speaker's name, a stop
            # string or a name that a tool knows.
            if not _can_hold(leaf, place):
                stop = leaf.where.json_path.startswith("stop")
                raise CannotRewriteError(
                    Obstacle.STOP_STRING if stop else Obstacle.NOT_CONTENT
                )
            own = place in found.get(leaf.where, ())
            alone = is_alone(leaf.text, place) and (own or is_rare(place.of(leaf.text)))
            stand_in = texts[leaf.where].replace(place, alone=alone)
            values.add((place.data_class, stand_in))
    # A stop string that is part of a stand-in would cut it in two, and half a stand-in
    # cannot be restored.
    if any(stop in each for stop in query.settings.stop for each in vault.values):
        raise CannotRewriteError(Obstacle.STOP_STRING)
    for leaf in leaves:
        _require_company(leaf.text, places[leaf.where])
    counts = Counter(data_class for data_class, _ in values)
    rewritten = deidentified(query, texts, vault, tuple(sorted(counts.items())))
    # Last, on exactly the texts that would be sent.
    require_gone(replaced, rewritten.outgoing_texts())
    return rewritten


def _can_hold(leaf: Leaf, place: Place) -> bool:
    """Return whether a stand-in can be used at a place."""
    if leaf.document is None:
        return leaf.where.json_path == "content"
    return any(
        start <= place.start and place.end <= end
        for start, end in strings_of(leaf.document)
    )


def _require_company(text: str, places: Sequence[Place]) -> None:
    """Look for an unknown word next to a name, in the same list, row, key set or tag.

    One name of a list may have been found in another text, without its neighbours here;
    these were never inspected.

    Raises:
        CannotRewriteError: there is one that is not replaced.
    """
    people = [
        (place.start, place.end)
        for place in places
        if kind_of(place.data_class) == PERSON
    ]
    for start, end in neighbours(text, people):
        if not any(place.start < end and start < place.end for place in places):
            raise CannotRewriteError(Obstacle.STILL_FOUND)


def _found_places(
    leaves: Sequence[Leaf], findings: Sequence[Finding]
) -> dict[Where, list[Place]]:
    texts = {leaf.where: leaf.text for leaf in leaves}
    places: dict[Where, list[Place]] = {}
    for finding in findings:
        if kind_of(finding.data_class) is None:
            continue
        # Found where two texts meet, or over the whole query: it has no single place.
        if finding.where not in texts:
            raise CannotRewriteError(Obstacle.ACROSS_TEXTS)
        # Its offsets refer to a normalised text; its place in the text to be sent is
        # unknown.
        if finding.normalization is not Normalization.RAW:
            raise CannotRewriteError(Obstacle.OTHER_VIEW)
        found = fitted(texts[finding.where], finding)
        places.setdefault(finding.where, []).extend(found)
    if not places:
        raise CannotRewriteError(Obstacle.NOTHING_FOUND)
    return {
        where: apart(each) for where, each in _without_genitive(texts, places).items()
    }


def _without_genitive(
    texts: Mapping[Where, str], places: Mapping[Where, Sequence[Place]]
) -> dict[Where, list[Place]]:
    """Exclude the "s" of "Müllers Befund", where "Müller" is a name as well.

    German and Dutch write no apostrophe there. Both are one person, and the rest reads
    as a genitive, also in the answer: ⟦PERSON_1⟧s. Where only "Jones" occurs, nothing
    indicates a genitive.
    """
    names = {
        name
        for where, each in places.items()
        for place in each
        if kind_of(place.data_class) == PERSON
        for whole in (place.of(texts[where]).casefold(),)
        for name in (whole, *whole.split()[:1], *whole.split()[-1:])
    }
    return {
        where: [
            replace(place, end=place.end - 1)
            if kind_of(place.data_class) == PERSON
            and place.of(texts[where]).endswith("s")
            and place.of(texts[where])[:-1].casefold() in names
            else place
            for place in each
        ]
        for where, each in places.items()
    }
