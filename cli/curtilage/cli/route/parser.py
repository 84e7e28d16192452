"""Flags and help of ``curtilage route``."""

import argparse
from typing import Final

from curtilage.cli.options import (
    add_client_flags,
    add_model_flags,
    add_policy_flag,
    add_text,
)
from curtilage.cli.terminal import Commands, add_command

ABOUT: Final = """\
Work with routing: of the tiers that the policy permits, which one answers. Begin by
observing (`routing: {observe: true}` in the policy): everything goes as before, and a
trace without any content says what would have been chosen. Then ask whether it pays,
grade some of your own questions, and calibrate. See docs/operating.md."""
GRADED: Final = """\
A graded question is a line of JSON:

  {"text": "Translate: good morning", "weak": 1, "strong": 1}
  {"text": "Prove that ...", "weak": 0.2, "strong": 0.9, "intent": "reasoning"}

weak and strong say how good the home model's and the strong tier's answers were, from
0 to 1. A score, if there is one, says how easy a question is (larger: sooner kept at
home); it must have been made without looking at the grades."""
CALIBRATE: Final = f"""\
Learn from graded questions which ones the local model answers well, on this device, and
say how much may be kept local with a guarantee.

{GRADED}

It takes 150 different ones at least; equal questions count as one. Two things are
said, apart from each other:

  - whether the fitted estimator ranks questions better than chance (the lower bound of
    its APGR), than the rules and than the policy's estimator, judged by fits that had
    not seen the questions. Then it is written. Where a difference may be chance, the
    interval says so.
  - which error rates can be certified, or that none can. That takes 500 of them: one
    half, drawn by chance, fits the estimator, and the other judges it.

Where it does not rank better, nothing is written, and the exit code is 1."""
ADVISE: Final = """\
Read a trace and say whether routing pays: the share at home, cost, energy and saving,
each with an interval, beside the 70 to 85 % at home and the 60 to 80 % saved that are
often promised, where they do not hold, and what cover traffic costs at that share.
Where the honest answer is not to route at all, it says so."""
EXPLAIN_LINES: Final = """\
With --jsonl every line of JSON gets one line, in the same order, as soon as it is
decided:

  {"id": 1, "text": "Is this spam: you won"}
  {"id":1,"permitted":["local","enclave"],"chosen":"local","why":"easy",
   "intent":"classification","gain":0.0,"rank":0.05}

chosen is null where nobody may answer, and why then says so (`blocked`, a refusal, or
`no_routing` where the policy has no such section). gain is null where nothing was to be
chosen and so nothing was read. A line that cannot be read gets {"id", "error"}."""
COMPARE: Final = """\
Ask two models, or two tiers, the same questions, and compare how good and how fast
they are, by task. A side is `default`, a name of `curtilage models list`, a GGUF file
(with --sha256), or `tier:ID` for a tier of the policy; what a tier is asked goes the
way of every query, and what the policy keeps home reaches no enclave.

A question is a line of JSON with what its answer must be:

  {"text": "7 * 8 = ?", "task": "sums", "expect": {"contains": "56"}}
  {"text": "Spam or ham? ...", "task": "mail", "expect": {"equals": "spam"}}
  {"text": "...", "task": "dates", "expect": {"regex": "2026-\\\\d\\\\d-\\\\d\\\\d"}}
  {"text": "...", "task": "form", "expect": {"json": {"name": "A. Weber"}}}
  {"text": "... (A) 3 (B) 5", "task": "exam", "expect": {"choice": "B"}}

B is accepted where the whole interval of the difference lies above --margin (a loss
of so many points is still accepted). Exits with 1 where it is not accepted.

With --out the graded pairs are written as `route calibrate` and `route advise` read
them: A's grade is `weak` and B's `strong`, so name the local model first. A question
may then come without `expect`: its line has both answers, and you give the grades.
The file holds questions, and those answers, in plain text. Until the end the answers
are in FILE.partial; after an interruption the same command uses them again."""

ANSWER: Final = """\
Have the local model answer your own questions, to grade the answers and to certify from
which score on its drafts may be used. With each token it is noted how sure the model
was. A question is a line of JSON; one that says what its answer must be, as for
`route compare`, is graded at once, and the others by you:

  {"text": "7 * 8 = ?", "expect": {"contains": "56"}}
  {"text": "Say politely that we are closed on Monday"}

The file that is written holds questions and answers in plain text, for you alone.
Nothing leaves this machine.

Until the end the answers are in FILE.partial. After an interruption the same command
uses them again and asks the rest."""
CERTIFY: Final = """\
Learn from graded answers of the local model what its good ones look like, and certify
the score from which on a draft is the answer (`routing: {speculation: ...}`). The file
is that of `curtilage route answer`, each line with a grade.

It takes 700 of them at least: a part, drawn by chance, teaches the score; the others,
500 at least, certify it. What is promised holds for this model, this quantisation and
this chat template, and for questions like these. Nothing is written, and the exit code
is 1, where the error rate cannot be promised for any share."""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "route",
        summary="see, calibrate and judge where queries are answered",
        text=ABOUT,
        example="curtilage route explain - < letter.txt\n"
        "curtilage route advise --prices enclave=1.5",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_advise(actions)
    _add_calibrate(actions)
    _add_compare(actions)

    explain = add_command(
        actions,
        "explain",
        summary="say which tier a text would be answered by, and why",
        text="Say which tiers the policy permits for a text and why not the others, "
        "what kind of\ntask it is, what a stronger model would add, and what speaks "
        "for each tier. Nothing\nis asked, and the text is never printed. Live "
        "figures (speed, queues) are those that\nare expected before any was measured."
        f"\n\n{EXPLAIN_LINES}",
        example="curtilage route explain - < letter.txt\n"
        'curtilage route explain --policy clinic.yaml "What is HIV?"\n'
        "curtilage route explain --jsonl questions.jsonl > choices.jsonl",
    )
    add_text(explain, "the text")
    add_policy_flag(explain)
    add_model_flags(explain)
    _add_max_tokens(explain, "the answer", 256)
    explain.add_argument("--json", action="store_true", help="one JSON object")
    explain.add_argument(
        "--jsonl",
        nargs="?",
        const="-",
        metavar="FILE",
        help='explain each line, {"id", "text"} or {"id", "messages"}, in one line '
        "each; `-`, or no FILE, reads standard input. Exit 3: some lines cannot be "
        "read",
    )

    stats = add_command(
        actions,
        "stats",
        summary="show each tier's share, times and failures",
        text="Show what a trace says of each tier: its share of the queries, times to "
        "the first\ntext, speed, cost, why another one answered in its place, and what "
        "people thought\nof the answers. Times are classes: '300 ms' means between "
        "200 and 300.",
        example="curtilage route stats\ncurtilage route stats --trace ward.jsonl",
    )
    _add_trace(stats)
    add_policy_flag(stats)
    _add_prices(stats)
    stats.add_argument("--json", action="store_true", help="one JSON object")
    _add_answer(actions)
    _add_certify(actions)

    feedback = add_command(
        actions,
        "feedback",
        summary="say whether the last answer was good",
        text="Say what you think of the last answer, the one that ends your trace: a "
        "line is added\nthat tells who gave it and what kind of task it was, and no "
        "more. `route stats` counts\nsuch words; `route advise` rings where they "
        "speak against what was promised. An\napplication says it with "
        "`client.feedback`, or to /v1/curtilage/feedback.",
        example="curtilage route feedback good\ncurtilage route feedback bad",
    )
    feedback.add_argument("opinion", choices=("good", "bad"), help="what you think")
    _add_trace(feedback)


def _add_trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="the trace (default: your own, which the client writes)",
    )


def _add_prices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prices",
        metavar="TIER=USD,...",
        help="dollars for a million tokens, read or written (default: the policy's, "
        "else what is usual)",
    )


def _add_data(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--data", required=True, metavar="FILE", help=f"{what}, lines of JSON"
    )


def _grade(text: str) -> float:
    """Read a grade or a share: above 0, and at most 1."""
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError("expected a number above 0, at most 1")
    return value


def _tokens(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return value


def _add_good(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--good",
        type=_grade,
        default=0.5,
        metavar="GRADE",
        help="an answer graded lower than this is bad (default %(default)s)",
    )


def _add_max_tokens(parser: argparse.ArgumentParser, what: str, default: int) -> None:
    parser.add_argument(
        "--max-tokens",
        type=_tokens,
        default=default,
        metavar="N",
        help=f"how long {what} may be (default %(default)s)",
    )


def _add_advise(actions: "Commands[argparse.ArgumentParser]") -> None:
    advise = add_command(
        actions,
        "advise",
        summary="say whether routing pays, or that it does not",
        text=f"{ADVISE}\n\n{GRADED}",
        example="curtilage route advise\n"
        "curtilage route advise --trace ward.jsonl --policy ward.yaml \\\n"
        "  --prices enclave=1.5,device=0.05 --energy enclave=0.9,device=0.6 \\\n"
        "  --devices 400 --graded graded.jsonl",
    )
    _add_trace(advise)
    add_policy_flag(advise)
    advise.add_argument(
        "--graded", metavar="FILE", help="graded questions, lines of JSON"
    )
    _add_prices(advise)
    advise.add_argument(
        "--energy",
        metavar="TIER=JOULES,...",
        help="energy of a token; without one for each tier, energy is not told",
    )
    advise.add_argument(
        "--devices",
        type=int,
        default=1,
        metavar="N",
        help="how many devices have such traffic (default 1)",
    )
    advise.add_argument(
        "--promised",
        type=_grade,
        metavar="SHARE",
        help="the share of good answers at home that was promised; an alarm says "
        "where feedback speaks against it (default: what --graded bounds)",
    )
    advise.add_argument("--json", action="store_true", help="one JSON object")


def _add_calibrate(actions: "Commands[argparse.ArgumentParser]") -> None:
    calibrate = add_command(
        actions,
        "calibrate",
        summary="fit the estimator to your own graded questions, and certify it",
        text=CALIBRATE,
        example="curtilage route calibrate --data graded.jsonl\n"
        "curtilage route calibrate --data graded.jsonl --out ward-router.npz",
    )
    _add_data(calibrate, "graded questions")
    calibrate.add_argument(
        "--out",
        metavar="FILE",
        help="write the estimator there, for `routing: {estimator: ...}` of a policy; "
        "no file is overwritten",
    )
    _add_good(calibrate)
    add_policy_flag(calibrate)
    calibrate.add_argument("--json", action="store_true", help="one JSON object")


def _add_compare(actions: "Commands[argparse.ArgumentParser]") -> None:
    compare = add_command(
        actions,
        "compare",
        summary="compare two models or tiers on your own questions",
        text=COMPARE,
        example="curtilage route compare --data tasks.jsonl default big\n"
        "curtilage route compare --data tasks.jsonl ./q8.gguf ./q4.gguf \\\n"
        "  --sha256 HEX --sha256 HEX --margin 2\n"
        "curtilage route compare --data tasks.jsonl --out graded.jsonl \\\n"
        "  default tier:enclave",
    )
    compare.add_argument("a", metavar="A", help="the side that is known")
    compare.add_argument("b", metavar="B", help="the side that may take its place")
    _add_data(compare, "questions")
    compare.add_argument(
        "--out",
        metavar="FILE",
        help="write the pairs there, graded; no file is overwritten",
    )
    compare.add_argument(
        "--sha256",
        action="append",
        default=[],
        metavar="HEX",
        help="digest of a GGUF file; once for each side that is one, A's first",
    )
    compare.add_argument(
        "--margin",
        type=float,
        default=5.0,
        metavar="POINTS",
        help="how much worse B may be, in points of 100 (default 5)",
    )
    _add_max_tokens(compare, "each answer", 256)
    add_client_flags(compare)
    compare.add_argument("--json", action="store_true", help="one JSON object")


def _add_answer(actions: "Commands[argparse.ArgumentParser]") -> None:
    answer = add_command(
        actions,
        "answer",
        summary="have the local model answer questions that you will grade",
        text=ANSWER,
        example="curtilage route answer --data questions.jsonl --out answered.jsonl",
    )
    _add_data(answer, "questions")
    answer.add_argument(
        "--out", required=True, metavar="FILE", help="where; no file is overwritten"
    )
    _add_max_tokens(answer, "each answer", 512)
    answer.add_argument(
        "--temperature",
        type=float,
        default=0.7,
        metavar="T",
        help="as your own questions have it (default %(default)s)",
    )
    add_client_flags(answer)


def _add_certify(actions: "Commands[argparse.ArgumentParser]") -> None:
    certify = add_command(
        actions,
        "certify",
        summary="certify from which score on a draft of the local model is used",
        text=CERTIFY,
        example="curtilage route certify --data answered.jsonl\n"
        "curtilage route certify --data answered.jsonl --alpha 0.05 \\\n"
        "  --out ward-thresholds.json",
    )
    _add_data(certify, "graded answers")
    certify.add_argument(
        "--out",
        metavar="FILE",
        help="write the thresholds there, for `routing: {speculation: ...}` of a "
        "policy; no file is overwritten",
    )
    certify.add_argument(
        "--alpha",
        type=float,
        default=0.10,
        metavar="SHARE",
        help="at most so many of the accepted drafts are bad (default 0.10)",
    )
    _add_good(certify)
    certify.add_argument("--json", action="store_true", help="one JSON object")
