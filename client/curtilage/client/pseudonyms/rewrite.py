"""Rewrite a query so that what was found in it stays here, or say why not.

Pure. Takes what the detectors found and the classes for which the policy asked
for pseudonyms; makes the query that may be asked of others and, beside it, the
reading of it that the detectors must look at before anything leaves. It decides
nothing: the rewritten query leaves only with an ``Allowed`` of its own.

Fails closed. Whatever cannot be replaced for certain (found only in another
reading of a text, across texts, in a stop string, half inside something else, in a
longer word) keeps the whole query home.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from curtilage.client.answer import Obstacle
from curtilage.client.detection.neighbours import neighbours
from curtilage.client.pseudonyms.deidentified import (
    Deidentified,
    RewrittenText,
    deidentified,
)
from curtilage.client.pseudonyms.obstacles import KeptHomeError
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
from curtilage.client.pseudonyms.wording import ENGLISH, language_of
from curtilage.client.query import Leaf, Query
from curtilage.policy.decision.decide import Assessment, WhatIf
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import counting, scores_of, unapproved
from curtilage.policy.document.model import Policy


def findings_asked(
    policy: Policy, inspection: WhatIf, decision: Assessment
) -> tuple[Finding, ...]:
    """Return the findings for which the policy asks for pseudonyms.

    Those of the classes of every rule that fired and asks for it, at any score:
    one name too many comes back, too. What the policy excludes or approves stays
    as it is.
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
    """Rewrite a query, or tell why it must stay as it is, and so at home.

    Args:
        query: what was inspected.
        findings: what is to be replaced; see ``findings_asked``. One whose
            class has no stand-in is left: the second decision judges it.
        key: of the conversation, 32 bytes; see ``ConversationKeys``.
    """
    try:
        return _rewrite(query, findings, key)
    except KeptHomeError as kept:
        return kept.obstacle
    except VaultError:
        return Obstacle.NO_STAND_IN


def _rewrite(query: Query, findings: Sequence[Finding], key: bytes) -> Deidentified:
    leaves = tuple(query.leaves())
    # In the answer, the source's own marks could not be told from ours.
    if any(OPENING in leaf.text or CLOSING in leaf.text for leaf in leaves):
        raise KeptHomeError(Obstacle.MARK_IN_SOURCE)
    # They are told token by token, and the tokens would be those of stand-ins.
    if query.settings.logprobs:
        raise KeptHomeError(Obstacle.LOGPROBS)
    # What was found, and every other place at which the same value stands: detectors
    # may miss it there, and one that is left would say whom the token hides.
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
            # What a speaker is called, or a stop string, is no text that the model
            # could speak of with a stand-in in its place.
            if leaf.where.json_path != "content":
                stop = leaf.where.json_path.startswith("stop")
                raise KeptHomeError(
                    Obstacle.STOP_STRING if stop else Obstacle.NOT_CONTENT
                )
            own = place in found.get(leaf.where, ())
            alone = is_alone(leaf.text, place) and (own or is_rare(place.of(leaf.text)))
            stand_in = texts[leaf.where].replace(place, alone=alone)
            values.add((place.data_class, stand_in))
    # A stop string that is a part of a stand-in would cut it in two, and half of one
    # cannot be restored.
    if any(stop in each for stop in query.settings.stop for each in vault.values):
        raise KeptHomeError(Obstacle.STOP_STRING)
    outgoing = {at: text.outgoing for at, text in texts.items()}
    for leaf in leaves:
        _require_company(leaf.text, places[leaf.where])
    # Last, over the very texts that would leave.
    require_gone(replaced, outgoing.values())
    counts = Counter(data_class for data_class, _ in values)
    return deidentified(query, texts, vault, tuple(sorted(counts.items())))


def _require_company(text: str, places: Sequence[Place]) -> None:
    """Look for an unknown word beside a name, in the same list, row, key set or tag.

    One name of a list may have been found in another text, where its neighbours here
    do not stand; what they are, nobody has looked at.

    Raises:
        KeptHomeError: there is one that is not replaced.
    """
    people = [
        (place.start, place.end)
        for place in places
        if kind_of(place.data_class) == PERSON
    ]
    for start, end in neighbours(text, people):
        if not any(place.start < end and start < place.end for place in places):
            raise KeptHomeError(Obstacle.STILL_FOUND)


def _found_places(
    leaves: Sequence[Leaf], findings: Sequence[Finding]
) -> dict[Where, list[Place]]:
    texts = {leaf.where: leaf.text for leaf in leaves}
    places: dict[Where, list[Place]] = {}
    for finding in findings:
        if kind_of(finding.data_class) is None:
            continue
        # Found where two texts meet, or over the whole query: it has no one place.
        if finding.where not in texts:
            raise KeptHomeError(Obstacle.ACROSS_TEXTS)
        # Its offsets are those of a text that was undone; nobody knows where it
        # stands in the one that would be sent.
        if finding.normalization is not Normalization.RAW:
            raise KeptHomeError(Obstacle.OTHER_VIEW)
        found = fitted(texts[finding.where], finding)
        places.setdefault(finding.where, []).extend(found)
    if not places:
        raise KeptHomeError(Obstacle.NOTHING_FOUND)
    return {
        where: apart(each) for where, each in _without_genitive(texts, places).items()
    }


def _without_genitive(
    texts: Mapping[Where, str], places: Mapping[Where, Sequence[Place]]
) -> dict[Where, list[Place]]:
    """Leave the "s" of "Müllers Befund" outside, where "Müller" is a name as well.

    German and Dutch write no apostrophe there. The two are one person, and what is left
    reads as a genitive, in the answer as well: ⟦PERSON_1⟧s. Where only "Jones" stands,
    nothing says that it is one.
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
