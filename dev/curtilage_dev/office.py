"""Twenty office questions that may all be sent, asked in three ways.

The ways are: as the policy's aim routes them, all by the enclave, and all locally. A
pattern can check each answer. A question is asked as routed, and once more of the other
side; together these are all three ways.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from threading import Event
from typing import Final

from curtilage.client.chat.answer import Answerer
from curtilage.client.local.reasons import LocalFailure
from curtilage_dev.asking import events_of, open_answer

MTOK: Final = 1_000_000
MICROUSD: Final = 1_000_000
_LOCAL: Final[Mapping[str, object]] = {"mode": "home"}
_ENCLAVE: Final[Mapping[str, object]] = {"require": "enclave"}
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One question, with a check of its answer.

    Attributes:
        kind: the kind of request.
        language: of the question.
        text: as typed.
        right: patterns that all occur in a right answer, ignoring case.
        wrong: patterns that do not occur in one.
        hard: whether it is about code, or takes several steps.
    """

    kind: str
    language: str
    text: str
    right: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    hard: bool = False


TASKS: Final = (
    Task(
        kind="classify",
        language="en",
        text="Is this a complaint, an order or a question? Answer with one word. 'The "
        "new printer is in the hall, and the key is missing.'",
        right=(r"\bcomplaint\b",),
        wrong=(r"\border\b", r"\bquestion\b"),
    ),
    Task(
        kind="classify",
        language="de",
        text="Ist diese Meinung positiv oder negativ? Antworte mit einem Wort. 'Das "
        "Essen war kalt und das Brot alt.'",
        right=(r"\bnegati[vf]",),
        wrong=(r"\bpositi[vf]",),
    ),
    Task(
        kind="classify",
        language="fr",
        text="Cette phrase est-elle positive ou négative ? 'La soupe était froide.'",
        right=(r"\bn[ée]gati[vf]",),
        wrong=(r"\bpositi[vf]",),
    ),
    Task(
        kind="extract",
        language="en",
        text="Extract the order number from this note: 'Paper order PX-4471 is ready "
        "for pickup at the gate.'",
        right=(r"\bPX-4471\b",),
    ),
    Task(
        kind="extract",
        language="de",
        text="Welche Raumnummer steht hier? 'Der Beamer ist jetzt in Raum 214 und "
        "nicht mehr im Keller.'",
        right=(r"\b214\b",),
    ),
    Task(
        kind="rewrite",
        language="en",
        text="Fix the grammar: 'She dont has the keys.'",
        right=(r"\bShe (doesn['\u2019]t|does not) have the keys\b",),
    ),
    Task(
        kind="rewrite",
        language="nl",
        text="Vertaal naar het Engels: 'Het kantoor is gesloten.'",
        right=(r"\boffice is closed\b",),
    ),
    Task(
        kind="rewrite",
        language="en",
        text="Translate into Spanish: 'Good morning'",
        right=(r"\bbuenos d[ií]as\b",),
    ),
    Task(
        kind="fact",
        language="en",
        text="What is the capital of Portugal?",
        right=(r"\blisbon\b|\blisboa\b",),
    ),
    Task(
        kind="fact",
        language="it",
        text="Qual è la capitale della Francia?",
        right=(r"\bparigi\b|\bparis\b",),
    ),
    Task(
        kind="fact",
        language="en",
        text="How many minutes are in a day?",
        right=(r"\b1[,.]?440\b",),
    ),
    Task(
        kind="complete",
        language="en",
        text="Complete the phrase: 'Please do not hesitate to'",
        right=(r"\b(contact|reach|ask|call|get in touch|let|seek|speak)\b",),
    ),
    Task(
        kind="complete",
        language="de",
        text="Vervollständige den Satz: 'Mit freundlichen'",
        right=(r"\bGrü(ß|ss)en\b",),
    ),
    Task(
        kind="code",
        language="en",
        text="What does this Python program print?\n\ntotal = 0\nfor n in range(1, 8):"
        "\n    if n % 2:\n        total += n * n\nprint(total)",
        right=(r"\b84\b",),
        hard=True,
    ),
    Task(
        kind="code",
        language="en",
        text="Write a Python function median(values) that returns the median of a list "
        "of numbers, without any import, and explain how it treats an even number of "
        "values.",
        right=(r"\bdef median\(", r"\bsort(ed)?\(", r"// ?2", r"/ ?2\b"),
        wrong=(r"(?m)^\s*(import|from)\b",),
        hard=True,
    ),
    Task(
        kind="code",
        language="en",
        text="Write an SQL query that lists for each customer of the table "
        "orders(customer, amount) the sum of all amounts, largest first, and explain "
        "how a customer with no order could be shown.",
        right=(
            r"\bsum\(\s*(\w+\.)?amount\s*\)",
            r"\bgroup\s+by\s+(\w+\.)?customer\b",
            r"\border\s+by\b[^;]*\bdesc\b",
        ),
        hard=True,
    ),
    Task(
        kind="steps",
        language="en",
        text="A pump fills a tank in 6 hours, a second one in 4 hours, and a leak "
        "empties it in 12 hours. How many hours does it take to fill with all three "
        "open? Show each step and end with 'Answer:' and the number.",
        right=(r"answer\W+([^\d\n]{0,20})3\b(?![.,/]\d)",),
        hard=True,
    ),
    Task(
        kind="steps",
        language="de",
        text="Ein Preis von 250 Euro steigt um 20 Prozent und sinkt danach um 10 "
        "Prozent. Wie hoch ist er am Ende? Rechne Schritt für Schritt und schließe mit "
        "'Antwort:' und der Zahl.",
        right=(r"antwort\W+([^\d\n]{0,30})270\b",),
        hard=True,
    ),
    Task(
        kind="steps",
        language="es",
        text="Un equipo de 4 personas tarda 9 días en revisar un archivo. ¿Cuántos "
        "días tardarían 6 personas al mismo ritmo? Explica cada paso y termina con "
        "'Respuesta:' y el número.",
        right=(r"respuesta\W+([^\d\n]{0,30})6\b(?![.,/]\d)",),
        hard=True,
    ),
    Task(
        kind="reason",
        language="en",
        text="Four meetings A, B, C and D need one room. B comes right after D, A is "
        "not first, and C is last. In which order do they take place? Reason step by "
        "step and end with 'Answer:' and the four letters.",
        right=(r"answer\W+D\W*B\W*A\W*C\b",),
        hard=True,
    ),
)


def is_right(task: Task, answer: str) -> bool:
    """Return whether an answer is the known right one."""

    def occurs(pattern: str) -> bool:
        return re.search(pattern, answer, re.IGNORECASE) is not None

    return all(map(occurs, task.right)) and not any(map(occurs, task.wrong))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Maximum lengths of answers, in tokens.

    Attributes:
        routine: of a routine question.
        hard: of a hard one.
    """

    routine: int
    hard: int

    def of(self, task: Task) -> int:
        """Return the maximum length of the answer to a question."""
        return self.hard if task.hard else self.routine


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The response to one question.

    Attributes:
        task: the question.
        tier: the tier that answered, as the policy calls it.
        local: whether that was not an enclave.
        first_s: until the first text.
        tokens: of question and answer, as the tier counted them.
        right: whether the answer is right.
        rejected: whether it replaced a draft of the local model that was not good
            enough.
    """

    task: Task
    tier: str
    local: bool
    first_s: float
    tokens: int
    right: bool
    rejected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The results of the questions, asked in one way.

    Attributes:
        title: of the way.
        asked: how many questions.
        local: how many were answered locally.
        right: how many were answered right.
        first_s: median of the times until the first text.
        thousand_usd: the cost of a thousand such questions in US dollars.
    """

    title: str
    asked: int
    local: int
    right: int
    first_s: float
    thousand_usd: float


def summed(title: str, answers: Sequence[Answered], prices: Mapping[str, int]) -> Way:
    """Return the totals of answers.

    Args:
        title: of the way.
        answers: one for each question.
        prices: of a million tokens by tier, in millionths of a dollar.
    """
    microusd = sum(each.tokens * prices[each.tier] / MTOK for each in answers)
    return Way(
        title=title,
        asked=len(answers),
        local=sum(each.local for each in answers),
        right=sum(each.right for each in answers),
        first_s=median(each.first_s for each in answers),
        thousand_usd=1000 * microusd / MICROUSD / len(answers),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A question's answers by both sides.

    Attributes:
        routed: by the side that the policy's aim chose.
        other: by the other side, when the request asked for that.
        expected: ``local`` or ``enclave``.
    """

    routed: Answered
    other: Answered
    expected: str

    @property
    def as_expected(self) -> bool:
        """Whether both sides are those that should have answered.

        The enclave may also replace a draft that was rejected.
        """
        local = self.expected == "local" and not self.routed.rejected
        return (self.routed.local, self.other.local) == (local, not local)

    def side(self, *, local: bool) -> Answered:
        """Return the answer of one side."""
        return self.routed if self.routed.local is local else self.other


def ways(pairs: Sequence[Pair], prices: Mapping[str, int]) -> tuple[Way, Way, Way]:
    """Return the results as routed, all by the enclave, and all locally."""
    return (
        summed("as routed", [each.routed for each in pairs], prices),
        summed("all-enclave", [each.side(local=False) for each in pairs], prices),
        summed("all-local", [each.side(local=True) for each in pairs], prices),
    )


def table(compared: Sequence[Way]) -> Iterator[str]:
    """Yield the ways side by side, in lines; savings are relative to the second."""
    yield f"{'':<12}{'local':>10}{'right':>12}{'first token':>14}{'$ per 1,000':>14}"
    for way in compared:
        local, right = (f"{n} of {way.asked}" for n in (way.local, way.right))
        first = f"{way.first_s:.2f} s"
        yield (
            f"{way.title:<12}{local:>10}{right:>12}{first:>14}{way.thousand_usd:>14.4f}"
        )
    routed, enclave = compared[0], compared[1]
    share = round(100 * routed.local / routed.asked)
    saved = round(100 * (1 - routed.thousand_usd / enclave.thousand_usd))
    yield (
        f"{share} % answered locally, {saved} % of all-enclave's dollars saved, "
        f"{routed.right - enclave.right:+d} right answers"
    )


def row(number: int, pair: Pair) -> str:
    """Return the result of one question, in a line."""
    task = pair.routed.task
    mark = "ok " if pair.as_expected else "NOT"
    text = " ".join(task.text.split())
    shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    kind = f"{task.kind} {task.language}"
    return (
        f"{mark}{number:3} {'hard' if task.hard else 'routine':<7} {kind:<11} "
        f"{_said(pair.routed)} | {_said(pair.other)} | {shown}"
    )


def _said(answered: Answered) -> str:
    right = "right" if answered.right else "wrong"
    draft = ", draft rejected" if answered.rejected else ""
    return f"{answered.tier:<7} {answered.first_s:5.2f} s {right}{draft}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The settings of the office questions.

    Attributes:
        url: the client's endpoint.
        lengths: of answers.
        overlap: whether the next question is asked as soon as an enclave's answer
            begins. The rest of a short answer's time is padding.
        clock: a monotonic clock in seconds.
    """

    url: str
    lengths: Lengths
    overlap: bool = False
    clock: Callable[[], float] = time.monotonic

    def ask_all(
        self,
        asked: Sequence[tuple[Task, Mapping[str, object]]],
        progress: Callable[[], None],
    ) -> list[Answered]:
        """Ask questions one after the other.

        Args:
            asked: each with the routing options of its request.
            progress: called after each.
        """
        running: list[Future[Answered]] = []
        pool = ThreadPoolExecutor(len(asked))
        try:
            for task, options in asked:
                free = Event()
                running.append(pool.submit(self._ask, task, options, free))
                free.wait()
                progress()
            return [each.result() for each in running]
        finally:
            # An interruption waits for no answer: then the client is stopped.
            pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, task: Task, options: Mapping[str, object], free: Event) -> Answered:
        """Ask one question.

        Args:
            task: the question.
            options: the routing options of the request.
            free: set when the next question may be asked.

        Raises:
            ProcessError: there was no complete answer.
        """
        began, first_s, text, tokens = self.clock(), 0.0, "", 0
        more = {"curtilage": options, "stream_options": {"include_usage": True}}
        try:
            with open_answer(
                self.url, task.text, max_tokens=self.lengths.of(task), more=more
            ) as response:
                events = events_of(response)
                said: dict[str, str] = next(events)["curtilage"]
                local = said["route"] != Answerer.ENCLAVE
                for event in events:
                    for choice in event["choices"]:
                        piece = choice["delta"].get("content") or ""
                        if piece and not text:
                            first_s = self.clock() - began
                            if self.overlap and not local:
                                free.set()
                        text += piece
                    if usage := event.get("usage"):
                        tokens = usage["prompt_tokens"] + usage["completion_tokens"]
        finally:
            free.set()
        return Answered(
            task=task,
            tier=said["tier"],
            local=local,
            first_s=first_s or self.clock() - began,
            tokens=tokens,
            right=is_right(task, text),
            rejected=was_rejected(said),
        )


def was_rejected(said: Mapping[str, str]) -> bool:
    """Return whether an answer replaced a draft that was not good enough."""
    return said.get("fallback") == LocalFailure.DRAFT_REJECTED.value


def other_side(answered: Answered) -> Mapping[str, object]:
    """Return the routing options that make the other side answer."""
    return _ENCLAVE if answered.local else _LOCAL
