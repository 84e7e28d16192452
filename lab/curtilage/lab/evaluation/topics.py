"""Figures about texts that are sensitive without a name, and harmless ones."""

from collections.abc import Iterator
from typing import Final

from curtilage.lab.evaluation.bench import Bench, Wanted
from curtilage.lab.evaluation.datasets import DIALOGUE, NOTE, PRIVATE_LABELS
from curtilage.lab.evaluation.figures import Figure, Target
from curtilage.lab.evaluation.rows import sampled_each
from curtilage.lab.evaluation.statistics import share_of

_HEALTH: Final = Target.at_least(0.95)
_MOST_LEAVE: Final = Target.at_least(0.95)
_MANY_LEAVE: Final = Target.at_least(0.70)
_OVERSIZE: Final = "uncertain.oversize"
_HARMLESS_LABELS: Final = ("general_knowledge", "generic_coding", "simple_task")


# --- health and special categories ----------------------------------------------


def health(bench: Bench) -> Iterator[Figure]:
    """Yield the recall for texts by patients, doctors and people in distress."""
    counsel = bench.sample(bench.rows("counsel-chat"))
    yield bench.figure(
        "health.counsel",
        "counsel-chat, questions",
        counsel,
        Wanted.CAUGHT,
        target=_HEALTH,
    )
    every = list(counsel)
    for name in ("mts-dialog", "aci-bench"):
        rows = sampled_each(bench.rows(name), (DIALOGUE, NOTE), 2 * bench.limit)
        every += rows
        for tag in (DIALOGUE, NOTE):
            yield bench.figure(
                f"health.{name.partition('-')[0]}_{tag}",
                f"{name}, {tag}s",
                [row for row in rows if tag in row.tags],
                Wanted.CAUGHT,
                target=_HEALTH,
            )
    yield bench.figure(
        "health.all", "all of these together", every, Wanted.CAUGHT, target=_HEALTH
    )
    judged = bench.judge(every, "health")
    # A text that is kept for its length alone shows nothing about the detectors.
    yield Figure(
        id="health.oversize",
        title="of these, home because they are too long",
        estimate=share_of([_OVERSIZE in each.decision.uncertain for each in judged]),
    )


def privacy(bench: Bench) -> Iterator[Figure]:
    """Yield where requests about confidential matters go, by label.

    They name a kind of data without containing any, so there is no target.
    """
    rows = bench.rows("vllm-sr-privacy")
    private = [row for row in rows if PRIVATE_LABELS.intersection(row.tags)]
    yield bench.figure(
        "privacy.private", "requests with a private label", private, Wanted.CAUGHT
    )
    for label in sorted(PRIVATE_LABELS):
        part = [row for row in private if label in row.tags]
        yield bench.figure(f"privacy.of.{label}", f"  {label}", part, Wanted.CAUGHT)
    harmless = [row for row in rows if row.tags[0] in _HARMLESS_LABELS]
    yield bench.figure(
        "privacy.harmless",
        "general requests that may leave",
        harmless,
        Wanted.LEAVES,
    )


# --- allowed to leave ------------------------------------------------------------


def leave(bench: Bench) -> Iterator[Figure]:
    """Yield the share of harmless queries that may be sent."""
    for name, title, target in (
        ("clinc150", "clinc150, assistant queries", _MOST_LEAVE),
        ("banking77", "banking77, bank customers", _MOST_LEAVE),
        ("arena-hard", "arena-hard, hard prompts", _MANY_LEAVE),
        ("gsm8k", "gsm8k, word problems with names", None),
        ("mt-bench", "mt-bench and vicuna", None),
    ):
        rows = bench.sample(bench.rows(name))
        yield bench.figure(f"leave.{name}", title, rows, Wanted.LEAVES, target=target)
        tags = sorted({tag for row in rows for tag in row.tags})
        for tag in tags if len(tags) > 1 else ():
            part = [row for row in rows if tag in row.tags]
            yield bench.figure(f"leave.{name}.{tag}", f"  {tag}", part, Wanted.LEAVES)


def unchanged(bench: Bench) -> Iterator[Figure]:
    """Yield how many of the same queries are sent, and how many unchanged."""
    for name in ("clinc150", "banking77", "arena-hard"):
        rows = bench.sample(bench.rows(name))
        judged = bench.judge(rows, name)
        yield Figure(
            id=f"leave.sent.{name}",
            title=f"  {name}, after the second look at pseudonyms",
            estimate=share_of([not each.stays for each in judged]),
        )
        yield Figure(
            id=f"leave.unchanged.{name}",
            title=f"  {name}, without a pseudonym",
            estimate=share_of([not each.caught for each in judged]),
        )
