"""The demonstration: the whole path on one machine, and what each party saw.

Six questions of a working day show each step. Twenty office questions compare the
operator's aim with the enclave alone and with the local model alone.

Everything shown is measured, or recorded between the processes: the checks come from
the verifier, the answers from the client's endpoint over HTTP, and the views from a
recorder in front of relay and enclave, which writes everything that passes.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from curtilage.attest.evidence import Tee
from curtilage.cli.terminal import out
from curtilage.client.config import ClientConfig
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.routing.router import CHOSEN
from curtilage.client.routing.utility import Reason
from curtilage.policy.document.load import profile_text
from curtilage.wire.frames import answer_bytes
from curtilage.wire.hpke.suite import SUITES
from curtilage.wire.padding import SIZE_CLASSES
from curtilage.wire.shaping import TransportParameters
from curtilage_dev.asking import events_of, open_answer
from curtilage_dev.demo_model import Model, model_of
from curtilage_dev.emulated.machines import KINDS, MAX_GPUS
from curtilage_dev.forecast import Forecast, forecast, inspected, prices_of, read_client
from curtilage_dev.office import (
    TASKS,
    Answered,
    Asking,
    Pair,
    Task,
    other_side,
    row,
    table,
    was_rejected,
    ways,
)
from curtilage_dev.policy import aimed, with_server
from curtilage_dev.processes import ProcessError, Processes
from curtilage_dev.stack import EMBEDDED, Stack
from curtilage_dev.together import Together, ask_together

WIDTH: Final = 92
KIBIBYTE: Final = 1024
# The suite that our client chooses of those that an enclave publishes.
SUITE: Final = SUITES[0]
AIM: Final = "aim"
MAX_TOKENS: Final = 90
INTERRUPTED: Final = 130
COULD_NOT: Final = 3
HEARTBEAT_S: Final = 5.0
# A question's line continues to the end of its bucket after the answer was shown.
RECORD_S: Final = 60.0
WHERE: Final = {
    "local": "LOCAL    answered on this machine",
    "on_premises": "PREMISES answered by the on-premises server",
    "enclave": "ENCLAVE  sealed, through the relay, to the attested enclave",
}
STAND_INS: Final = (
    "What is a stand-in here: {models} The evidence is emulated: same bytes, same "
    "verifier, but a root made a moment ago, which every production policy refuses; it "
    "proves no isolation. One machine plays every party, and its TLS certificates are "
    "of this run. All the rest is real: processes, sockets, TLS, model, HPKE, "
    "signatures, padding."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of an ordinary working day.

    Attributes:
        text: as typed.
        expected: ``local`` or ``enclave``; ``AIM``: depends on the operator's aim and
            the local model; None: not known.
        desk: who asks, for display.
    """

    text: str
    expected: str | None = None
    desk: str = "you"


# The limits of the embedded model, in two lines.
CANNOT: Final = """\
Without MODEL the embedded model answers. It solves next to nothing: the aim's line is
low, nearly all that may be sent is sent, and each of its answers is marked below."""
MARK: Final = "; by the demonstration model, no advice"
OFTEN_LOCAL: Final = "{local_percent: 50}"
NEVER_LOCAL: Final = "{local_percent: 0}"
EASY: Final = Question(
    desk="bank",
    expected=AIM,
    text="Is this a complaint or just a question? 'The new printer is in the hall, and "
    "the key is missing.'",
)
HARD: Final = Question(
    desk="bank",
    expected=AIM,
    text="Write a Python function that returns the yearly rate at which a savings plan "
    "reaches a goal. Explain step by step why its search ends.",
)
DAY: Final = (
    Question(
        desk="clinic",
        expected=AIM,
        text="What is the difference between a viral and a bacterial infection?",
    ),
    Question(
        desk="clinic",
        expected="local",
        text="My patient Maria Gonzalez, born 12 May 1980, was told on Monday that she "
        "has type 2 diabetes. Which foods should she avoid?",
    ),
    Question(
        desk="bank",
        expected="local",
        text="A customer's card 4111 1111 1111 1111 was declined abroad. What should "
        "we check first?",
    ),
    EASY,
    Question(
        desk="clinic",
        expected="local",
        text="I was diagnosed with HIV last week. Do I have to tell my employer?",
    ),
    HARD,
)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The response to one question."""

    question: Question
    said: dict[str, str]
    first_s: float = 0.0
    total_s: float = 0.0
    text: str = field(default="", repr=False)
    cut: bool = False

    @property
    def route(self) -> str:
        """The tier that answered."""
        return self.said["route"]

    @property
    def as_expected(self) -> bool:
        """Whether the expected tier answered.

        The enclave may also replace a local draft that was rejected.
        """
        local = "local" if self.route == "on_premises" else self.route
        return was_rejected(self.said) or self.question.expected in {None, local}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; 0 if every route is the expected one."""
    parser = argparse.ArgumentParser(prog="python -m curtilage_dev.demo")
    parser.add_argument("--ask", action="append", default=[], metavar="TEXT")
    parser.add_argument(
        "--tee", default=Tee.EMULATED_SEV_SNP, type=Tee, choices=list(KINDS)
    )
    parser.add_argument(
        "--gpus", default=0, type=int, choices=range(MAX_GPUS + 1), metavar="N"
    )
    parser.add_argument("--model", metavar="FILE|ADDRESS")
    parser.add_argument("--model-name", default="", metavar="NAME")
    parser.add_argument("--model-ca", type=Path, metavar="FILE")
    read = parser.parse_args(arguments, namespace=_Arguments())
    try:
        model = model_of(read.model, name=read.model_name, ca=read.model_ca)
    except ValueError as error:
        parser.error(str(error))
    asked = read.ask
    if not all(text.strip() for text in asked):
        parser.error("--ask needs a question")
    questions = tuple(Question(text=text) for text in asked) if asked else DAY
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    folder, started = Path(tempfile.mkdtemp(prefix="curtilage-demo-")), False
    try:
        with Processes(folder) as processes:
            stack = Stack(
                folder=folder,
                processes=processes,
                timed=_timed,
                tls=True,
                record=True,
                routed=True,
                tee=read.tee,
                gpus=read.gpus,
            )
            _use(stack, model)
            _start(stack)
            started = True
            return _run(stack, questions, model)
    except ProcessError as error:
        what = "go on" if started else "start"
        out(f"\nthe demo could not {what}: {error}")
        return COULD_NOT
    except KeyboardInterrupt:
        out("\ninterrupted; everything that was started is stopped")
        return INTERRUPTED
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Arguments(argparse.Namespace):
    ask: list[str]
    tee: Tee
    gpus: int
    model: str | None
    model_name: str
    model_ca: Path | None


def _use(stack: Stack, model: Model) -> None:
    """Have a stack that was not started use a model."""
    if model.file is not None:
        stack.model, stack.model_sha256 = str(model.file), model.sha256
    if model.address:
        ca = ""
        if model.ca is not None:
            ca = "on-premises-ca.pem"
            shutil.copyfile(model.ca, stack.folder / ca)
        stack.profile = with_server(
            profile_text("default"), address=model.address, model=model.name, ca=ca
        )


def _interrupt(number: int, frame: object) -> None:
    """Treat every kind of termination like Ctrl-C, so that nothing is left running."""
    del number, frame
    raise KeyboardInterrupt


def _start(stack: Stack) -> None:
    began = time.monotonic()
    _title("Starting")
    stack.start_all()
    out(f"\nready after {time.monotonic() - began:.1f} s")


def _run(stack: Stack, questions: Sequence[Question], model: Model) -> int:
    _show_checks(stack)
    office = None
    if questions is DAY:
        office = _foreseen(stack, model)
        questions = [office.aimed(question) for question in questions]
    _title("Questions")
    out(_wrapped(_price(stack.transport), ""))
    outcomes = [ask(stack, question) for question in questions]
    asked = [each.question.text for each in outcomes if each.route == "enclave"]
    hidden, pairs, together = (0.0, 0.0), list[Pair](), None
    if office is not None:
        (began, _), pairs = _ask_twenty(stack, office, model)
        together = _show_together(stack)
        hidden = (began, time.time())
        outcomes += _without_enclave(stack)
    sent = sum(not side.local for pair in pairs for side in (pair.routed, pair.other))
    sent += 0 if together is None else together.sent
    _show_views(stack, asked=asked, hidden=hidden, more=sent)
    _show_audit(stack)
    _title("In short")
    for outcome in outcomes:
        mark = "ok " if outcome.as_expected else "NOT"
        expected = outcome.question.expected or "-"
        out(
            f"  {mark} {outcome.route:<8} (expected {expected:<7}) "
            f"first token {outcome.first_s:5.2f} s, all {outcome.total_s:5.2f} s  "
            f"{textwrap.shorten(outcome.question.text, 34, placeholder='…')}"
        )
    if office is not None:
        _show_ways(office, pairs, model)
    out(f"\n{_wrapped(STAND_INS.format(models=model.stand_in), '')}")
    return verdict([*outcomes, *pairs, *([] if together is None else [together])])


def verdict(asked: Sequence[Outcome | Pair | Together]) -> int:
    """Print how many questions took an unexpected route; 1 if any did."""
    wrong = sum(not each.as_expected for each in asked)
    if wrong:
        out(f"\n{wrong} of {len(asked)} routes are not the expected ones")
    return 1 if wrong else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Office:
    """The expected routes of the demonstration's questions.

    Attributes:
        foreseen: the tier that the aim chooses, by text.
        prices: of a million tokens by tier, in millionths of a dollar.
    """

    foreseen: Mapping[str, Forecast]
    prices: Mapping[str, int]

    def aimed(self, question: Question) -> Question:
        """Return a question with the route that the aim chooses, if it decides."""
        if question.expected != AIM:
            return question
        return replace(question, expected=self.foreseen[question.text].expected)


def _foreseen(stack: Stack, model: Model) -> _Office:
    """Ask ``route explain`` where the questions should go; show two of them."""
    _title("Where the policy's aim has a question answered (`curtilage route explain`)")
    config = _client_of(stack.policy, model)
    asked = [(each.text, MAX_TOKENS) for each in DAY if each.expected == AIM]
    asked += [(task.text, model.lengths.of(task)) for task in TASKS]
    with _timed("policy, detectors and router, without a model"):
        found = inspected(config, asked)
        made = forecast(config, found)
    foreseen = {text: each for (text, _), each in zip(asked, made, strict=True)}
    for kind, question in (("routine", EASY), ("hard", HARD)):
        out(f"\n[{kind}]")
        out(_wrapped(question.text, "  > "))
        _explain(foreseen[question.text])
    # The opposite aim, so that the first question takes the other route.
    aim = NEVER_LOCAL if foreseen[EASY.text].expected == "local" else OFTEN_LOCAL
    out(f"\n[routine, with another aim in the policy: {aim}]")
    other = stack.folder / "other-aim.yaml"
    other.write_text(aimed(stack.policy.read_text("utf-8"), aim), "utf-8")
    place = [text for text, _ in asked].index(EASY.text)
    _explain(*forecast(_client_of(other, model), found[place : place + 1]))
    if model.embedded:
        out(f"\n{CANNOT}")
    return _Office(foreseen=foreseen, prices=prices_of(config.policy))


def _client_of(policy: Path, model: Model) -> ClientConfig:
    return read_client(
        policy,
        model=None if model.file is None else str(model.file),
        model_sha256=model.sha256 or None,
    )


def _explain(foreseen: Forecast) -> None:
    for line in foreseen.sentences:
        label, _, rest = line.partition(" ")
        out(_wrapped(rest.strip(), f"  {label:<7}"))


def _ask_twenty(
    stack: Stack, office: _Office, model: Model
) -> tuple[tuple[float, float], list[Pair]]:
    """Ask the twenty questions; return the period and the pairs of answers."""
    _title(f"{len(TASKS)} office questions: as routed, then again by the other side")
    asking = Asking(url=stack.client_url, lengths=model.lengths, overlap=model.embedded)
    out(
        f"answers end at {model.lengths.routine} tokens, those to hard questions at "
        f"{model.lengths.hard}"
    )
    began = time.time()
    routed = _dotted("as routed", asking, [(task, {}) for task in TASKS])
    others = _dotted(
        "other side", asking, [(each.task, other_side(each)) for each in routed]
    )
    pairs = [
        Pair(
            routed=one,
            other=other,
            expected=office.foreseen[one.task.text].expected,
        )
        for one, other in zip(routed, others, strict=True)
    ]
    out(
        "\nwho answered, when the first text came, whether it is right | the other side"
    )
    for number, pair in enumerate(pairs, start=1):
        out(row(number, pair))
    return (began, time.time()), pairs


def _show_together(stack: Stack) -> Together:
    """Ask two questions at the same time, and each side for JSON; show how it went."""
    _title("Two questions at the same time, and one to each side that asks for JSON")
    found = ask_together(stack.client_url)
    each = " and ".join(f"{seconds:.1f} s" for seconds in found.alone_s)
    out(
        f"  by the enclave, one after the other: {each}; together: {found.both_s:.1f} s"
    )
    for side, text in found.answers.items():
        out(f"  with a schema, {side}: {' '.join(text.split())}")
    return found


def _dotted(
    title: str,
    asking: Asking,
    asked: Sequence[tuple[Task, Mapping[str, object]]],
) -> list[Answered]:
    """Ask questions, and print a dot for each."""
    started = time.monotonic()
    out(f"  {title:<12}", end="")
    try:
        return asking.ask_all(asked, lambda: out(".", end=""))
    finally:
        out(f" {time.monotonic() - started:.1f} s")


def _show_ways(office: _Office, pairs: Sequence[Pair], model: Model) -> None:
    """Show the results of the twenty questions, and the limits of the comparison."""
    _title(f"{len(pairs)} office questions, in three ways")
    for line in table(ways(pairs, office.prices)):
        out(f"  {line}")
    routine = [each.routed.local for each in pairs if not each.routed.task.hard]
    hard = [not each.routed.local for each in pairs if each.routed.task.hard]
    out(
        f"  routine answered locally: {sum(routine)} of {len(routine)}; "
        f"hard sent to the enclave: {sum(hard)} of {len(hard)}"
    )
    out(f"\n{_wrapped(model.caveat, '')}")


def _without_enclave(stack: Stack) -> list[Outcome]:
    """Kill the enclave, and ask twice a question that it would have answered."""
    _title("The enclave dies")
    stack.running["enclave"].kill()
    question = replace(HARD, expected="local")
    first = ask(stack, question)
    out("  The next one need not find out again: the circuit breaker is open.")
    return [first, ask(stack, question)]


def _price(transport: TransportParameters) -> str:
    """Return the cost of padding and the reason for the answers' pace, in words."""
    shortest = transport.frames_of(0)
    seconds = shortest * transport.period_ms / 1000
    size = answer_bytes(transport, SUITE, 0) / KIBIBYTE
    return (
        f"What leaves is padded to {_size(SIZE_CLASSES[0])} or more. Every answer from "
        f"the enclave comes in frames of {transport.frame_bytes} bytes, one every "
        f"{transport.period_ms} ms, {shortest} of them ({seconds:g} s, {size:.0f} KiB) "
        "or that times a power of two, whatever it says. The text is shown as it "
        "comes; the line then continues in silence to the end, so that an observer "
        "cannot distinguish a short answer from a long one, or a recipe from a "
        "diagnosis."
    )


def _show_checks(stack: Stack) -> None:
    """Let the verifier check the bundle that the relay serves, and show it."""
    _title("What the client checks before a single byte is sealed")
    bundle = stack.fetch_bundle()
    command = [sys.executable, "-m", "curtilage.cli", "attest", "verify"]
    command += ["--bundle", str(bundle), "--policy", str(stack.policy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        out(f"  {line}")
    if done.returncode != 0:
        raise ProcessError(f"the evidence was refused: {done.stderr.strip()}")


def ask(stack: Stack, question: Question) -> Outcome:
    """Ask the client's endpoint, as an OpenAI client does, and show it."""
    out(f"\n[{question.desk}]")
    out(_wrapped(question.text, "  > "))
    asked = time.monotonic()
    answer = open_answer(stack.client_url, question.text, max_tokens=MAX_TOKENS)
    with answer as response:
        events = events_of(response)
        # In the first event and not in the header, which is sent after a second without
        # it.
        said = cast("dict[str, str]", next(events)["curtilage"])
        outcome = Outcome(question=question, said=said)
        found = said["class"].replace(",", ", ") or "nothing"
        uncertain = said.get("uncertain", "")
        if uncertain:
            found += f"; could not be known: {uncertain.replace(',', ', ')}"
        out(f"  found  {found}")
        out(f"  route  {where(said)}")
        out(f"  rule   {said['rule']}")
        if "why" in said:
            why = CHOSEN[Reason(said["why"])]
            out(f"  why    {said['tier']} was chosen: {why}")
        if "fallback" in said:
            out(f"  but    {FAILURE_TEXTS[said['fallback']]}")
        column = 0
        for choice in _choices(events):
            if (piece := choice["delta"].get("content")) and not outcome.text:
                outcome.first_s = time.monotonic() - asked
            outcome.text += piece or ""
            column = _flow(piece or "", column)
            outcome.cut = choice["finish_reason"] == "length"
    outcome.total_s = time.monotonic() - asked
    cut = f"; the answer was cut at {MAX_TOKENS} tokens" if outcome.cut else ""
    mark = MARK if stack.model == EMBEDDED and outcome.route != "on_premises" else ""
    out(
        f"\n  [first token {outcome.first_s:.2f} s, all {outcome.total_s:.2f} s"
        f"{cut}{mark}]"
    )
    return outcome


def where(said: Mapping[str, str]) -> str:
    """Return where a question was answered, and whether nothing was sent, in words.

    A local answer that replaces another one may come after a sealed attempt.
    """
    home = said["route"] == "local" and "fallback" not in said
    return WHERE[said["route"]] + ("; nothing was sent" if home else "")


def _flow(piece: str, column: int) -> int:
    """Print a piece as it arrives, wrapped to the width; return the column."""
    for character in piece:
        if column == 0:
            out("  | ", end="")
            column = 4
        if character == "\n" or (character == " " and column > WIDTH - 10):
            out("")
            column = 0
            continue
        out(character, end="")
        column += 1
    return column


def _choices(events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for event in events:
        yield from event["choices"]


def _show_views(
    stack: Stack,
    *,
    asked: Sequence[str],
    hidden: tuple[float, float] = (0.0, 0.0),
    more: int = 0,
) -> None:
    """Show what relay and enclave could see, as a recorder in front of each saw it.

    Args:
        stack: with its recorders.
        asked: the questions that were sent to the enclave, oldest first. No recorder
            sees their length, which only the sender knows.
        hidden: the period of further questions, which are only counted.
        more: the number of those.
    """
    shape = stack.transport
    _title("What each party saw (recorded between the processes)")
    out("  the relay: who, when, how much in coarse steps; everything else is sealed")
    for seen in outside(hidden, _recorded(stack.relay_view, len(asked) + more)):
        took = cast("float", seen["end"]) - cast("float", seen["start"])
        clock = time.strftime("%H:%M:%S", time.localtime(cast("float", seen["start"])))
        out(
            f"    {clock}  from {seen['peer']:<10} {seen['method']:<4} "
            f"{seen['path']:<6} {_class(_number(seen, 'request_bytes')):>7} in, "
            f"{_frames(shape, _number(seen, 'response_bytes')):>10} out, {took:5.2f} s"
        )
    out("\n  the enclave: what is asked (in memory, not shown here), but not by whom")
    inside = outside(hidden, _recorded(stack.enclave_view, len(asked) + more))
    for seen, text in zip(inside, asked, strict=False):
        out(
            f"    from {seen['peer']:<10} (the relay)  "
            f"{_class(_number(seen, 'request_bytes')):>7} in, "
            f"{_frames(shape, _number(seen, 'response_bytes')):>10} out; "
            f"inside: {len(text)} characters"
        )
    fields = {
        name.lower()
        for seen in inside
        for name in cast("list[str]", seen["header_names"])
    }
    out(f"    fields of these requests: {', '.join(sorted(fields))}")
    if more:
        out(f"    and {more} of the office questions at each of them, not shown here")
    out(
        "\n  Both hops are TLS: the line shows less than the relay sees.\n"
        "  On one machine every address is this machine's; between machines the\n"
        "  enclave sees the relay's address only. Questions that had to stay\n"
        "  appear in neither list; one that was sealed and sent while the enclave was\n"
        "  dead appears in the relay's alone."
    )


def _number(seen: dict[str, object], name: str) -> int:
    return cast("int", seen[name])


def _class(size: int) -> str:
    """Name a request's size by its class, if it has one."""
    return _size(size) if size in SIZE_CLASSES else f"{size} B"


def _size(size: int) -> str:
    return f"{size // KIBIBYTE} KiB"


def _frames(transport: TransportParameters, size: int) -> str:
    """Name an answer's size by its number of frames, if it is a whole bucket."""
    for bucket in range(transport.buckets):
        if answer_bytes(transport, SUITE, bucket) == size:
            return f"{transport.frames_of(bucket)} frames"
    return f"{size} B"


def _show_audit(stack: Stack) -> None:
    """Let the auditor's command verify what the client recorded, and show it."""
    _title("What the client recorded of it, for an auditor (never a word of it)")
    # A running client signs once a minute; when it ends, it signs everything written.
    with _timed("the client ends"):
        stack.running["client"].stop()
    command = [sys.executable, "-m", "curtilage.cli", "audit", "verify"]
    command += ["--dir", str(stack.audit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProcessError(f"the audit trail is not right: {done.stderr.strip()}")
    verified = [line for line in done.stdout.splitlines() if "verified: " in line]
    if not verified:
        raise ProcessError("the audit trail was not verified")
    for line in verified:
        out(f"  {line}")


def _recorded(path: Path, asked: int) -> list[dict[str, object]]:
    """Read the questions that passed; each is written after its answer's last byte."""
    until = time.monotonic() + RECORD_S
    while True:
        lines = path.read_text("utf-8").splitlines()
        seen = [one for one in map(json.loads, lines) if one["method"] == "POST"]
        if len(seen) >= asked:
            return sorted(seen, key=lambda one: cast("float", one["start"]))
        if time.monotonic() > until:
            out("    (a line is missing: it was not written in time)")
            return seen
        time.sleep(0.05)


def outside(
    hidden: tuple[float, float], seen: Sequence[dict[str, object]]
) -> list[dict[str, object]]:
    """Return the entries that did not begin within a period."""
    began, ended = hidden
    return [one for one in seen if not began <= cast("float", one["start"]) <= ended]


@contextmanager
def _timed(title: str, /) -> Generator[None]:
    """Print what is running, that it still runs, and how long it took."""
    started = time.monotonic()
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_S):
            out(f"    … {title}: {time.monotonic() - started:.0f} s so far")

    teller = threading.Thread(target=beat, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
    out(f"  {time.monotonic() - started:5.1f} s  {title}")


def _title(text: str) -> None:
    out(f"\n{text}\n{'-' * len(text)}")


def _wrapped(text: str, prefix: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=prefix, subsequent_indent=" " * len(prefix)
    )


if __name__ == "__main__":
    sys.exit(main())
