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
Work with routing: which of the permitted tiers answers. Begin by observing
(`routing: {observe: true}` in the policy): answers do not change, and a content-free
trace records what would have been chosen. Then check whether routing pays, grade some
of your own questions, and calibrate. See docs/operating.md."""
GRADED: Final = """\
A graded question is a line of JSON:

  {"text": "Translate: good morning", "weak": 1, "strong": 1}
  {"text": "Prove that ...", "weak": 0.2, "strong": 0.9, "intent": "reasoning"}

weak and strong are the grades of the local model's and the strong tier's answers, from
0 to 1. An optional score says how easy a question is (the larger, the sooner it is kept
local); it must not depend on the grades."""
CALIBRATE: Final = f"""\
Learn from graded questions which ones the local model answers well, on this device, and
report how many may be kept local with a guarantee.

{GRADED}

It needs at least 150 different ones; equal questions count as one. There are two
separate results:

  - whether the fitted estimator ranks questions better than chance (the lower bound of
    its APGR), than the rules and than the policy's estimator, measured by
    cross-validation. Only then is it written. The interval shows whether a difference
    may be chance.
  - which error rates can be certified, if any. That needs 500 of them: a random half
    fits the estimator, and the other half tests it.

If it does not rank better, nothing is written, and the exit code is 1."""
ADVISE: Final = """\
Read a trace and report whether routing pays: the share answered locally, cost, energy
and saving, each with an interval, compared with the often promised 70 to 85 % local
and 60 to 80 % saved where they do not hold, and the cost of cover traffic at that
share. If not routing at all is better, it says so."""
EXPLAIN_LINES: Final = """\
With --jsonl every JSON line gets one output line, in the same order, as soon as it is
decided:

  {"id": 1, "text": "Is this spam: you won"}
  {"id":1,"permitted":["local","enclave"],"chosen":"local","why":"easy",
   "intent":"classification","gain":0.0,"rank":0.05}

chosen is null if no tier may answer; why then has the reason (`blocked`, a refusal, or
`no_routing` if the policy has no such section). gain is null if there was no choice,
since the text is then not read for it. An unreadable line gets {"id", "error"}."""
COMPARE: Final = """\
Ask two models or tiers the same questions, and compare their quality and speed by task.
A side is `default`, a name of `curtilage models list`, a GGUF file (with --sha256), or
`tier:ID` for a tier of the policy. Questions to a tier are handled like any query:
those that the policy keeps local reach no enclave.

A question is a line of JSON with its expected answer:

  {"text": "7 * 8 = ?", "task": "sums", "expect": {"contains": "56"}}
  {"text": "Spam or ham? ...", "task": "mail", "expect": {"equals": "spam"}}
  {"text": "...", "task": "dates", "expect": {"regex": "2026-\\\\d\\\\d-\\\\d\\\\d"}}
  {"text": "...", "task": "form", "expect": {"json": {"name": "A. Weber"}}}
  {"text": "... (A) 3 (B) 5", "task": "exam", "expect": {"choice": "B"}}

B is accepted if the whole interval of the difference is above the margin (a loss of
--margin points is still accepted). Exits with 1 if it is not accepted.

With --out the graded pairs are written for `route calibrate` and `route advise`: A's
grade is `weak` and B's `strong`, so name the local model first. A question may then
lack `expect`: its line has both answers, and you add the grades. The file contains
questions, and those answers, in plain text. Until the end, the answers are in
FILE.partial; after an interruption the same command uses them again."""

ANSWER: Final = """\
Have the local model answer your own questions, to grade the answers and to certify the
score above which its drafts may be used. The model's confidence is recorded for each
token. A question is a line of JSON; one with an expected answer, as for `route
compare`, is graded at once, and you grade the others:

  {"text": "7 * 8 = ?", "expect": {"contains": "56"}}
  {"text": "Say politely that we are closed on Monday"}

The output file contains questions and answers in plain text, readable only by you.
Nothing is sent.

Until the end, the answers are in FILE.partial. After an interruption the same command
uses them again and asks the rest."""
CERTIFY: Final = """\
Learn from graded answers of the local model how to score its drafts, and certify the
score above which a draft is used as the answer (`routing: {speculation: ...}`). The
file is the output of `curtilage route answer`, each line with a grade.

It needs at least 700 answers: a random part trains the score; the others, at least
500, certify it. The guarantee holds for this model, this quantisation, this chat
template, and similar questions. If no share of drafts meets the error rate, nothing is
written, and the exit code is 1."""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "route",
        summary="show, calibrate and evaluate where queries are answered",
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
        summary="show which tier would answer a text, and why",
        text="Show which tiers the policy permits for a text and why not the others, "
        "the kind of\ntask, what a stronger model would add, and the score of each "
        "tier. The question is not\nasked, and the text is never printed. Live "
        "figures (speed, queues) are initial estimates."
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
        text="Show the figures of each tier in a trace: its share of the queries, "
        "times to the first\ntext, speed, cost, why it answered in another's place, "
        "and ratings of its answers.\nTimes are classes: '300 ms' means between 200 "
        "and 300.",
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
        summary="rate the last answer",
        text="Rate the last answer in your trace: a line is added with its tier and "
        "the kind of task,\nwithout content. `route stats` counts the ratings; `route "
        "advise` raises an alarm if they\ncontradict what was promised. An application "
        "uses `client.feedback`, or\n/v1/curtilage/feedback.",
        example="curtilage route feedback good\ncurtilage route feedback bad",
    )
    feedback.add_argument("opinion", choices=("good", "bad"), help="your rating")
    _add_trace(feedback)


def _add_trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="the trace (default: your own, written by the client)",
    )


def _add_prices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prices",
        metavar="TIER=USD,...",
        help="dollars per million tokens, read or written (default: the policy's, "
        "else typical prices)",
    )


def _add_data(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--data", required=True, metavar="FILE", help=f"{what}, lines of JSON"
    )


def _grade(text: str) -> float:
    """Parse a grade or a share: above 0, and at most 1."""
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
        help=f"maximum tokens of {what} (default %(default)s)",
    )


def _add_advise(actions: "Commands[argparse.ArgumentParser]") -> None:
    advise = add_command(
        actions,
        "advise",
        summary="show whether routing pays",
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
        help="energy per token; energy is reported only if given for each tier",
    )
    advise.add_argument(
        "--devices",
        type=int,
        default=1,
        metavar="N",
        help="number of devices with such traffic (default 1)",
    )
    advise.add_argument(
        "--promised",
        type=_grade,
        metavar="SHARE",
        help="the promised share of good local answers; an alarm is raised if feedback "
        "contradicts it (default: the bound from --graded)",
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
        help="write the estimator to this file, for `routing: {estimator: ...}` of a "
        "policy; no file is overwritten",
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
    compare.add_argument("a", metavar="A", help="the reference")
    compare.add_argument("b", metavar="B", help="the candidate to replace it")
    _add_data(compare, "questions")
    compare.add_argument(
        "--out",
        metavar="FILE",
        help="write the graded pairs to this file; no file is overwritten",
    )
    compare.add_argument(
        "--sha256",
        action="append",
        default=[],
        metavar="HEX",
        help="digest of a GGUF file; once for each such side, A's first",
    )
    compare.add_argument(
        "--margin",
        type=float,
        default=5.0,
        metavar="POINTS",
        help="how much worse B may be, in percentage points (default 5)",
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
        "--out",
        required=True,
        metavar="FILE",
        help="output file; no file is overwritten",
    )
    _add_max_tokens(answer, "each answer", 512)
    answer.add_argument(
        "--temperature",
        type=float,
        default=0.7,
        metavar="T",
        help="as in your own questions (default %(default)s)",
    )
    add_client_flags(answer)


def _add_certify(actions: "Commands[argparse.ArgumentParser]") -> None:
    certify = add_command(
        actions,
        "certify",
        summary="certify the score above which a local draft is used",
        text=CERTIFY,
        example="curtilage route certify --data answered.jsonl\n"
        "curtilage route certify --data answered.jsonl --alpha 0.05 \\\n"
        "  --out ward-thresholds.json",
    )
    _add_data(certify, "graded answers")
    certify.add_argument(
        "--out",
        metavar="FILE",
        help="write the thresholds to this file, for `routing: {speculation: ...}` of "
        "a policy; no file is overwritten",
    )
    certify.add_argument(
        "--alpha",
        type=float,
        default=0.10,
        metavar="SHARE",
        help="maximum share of bad answers among accepted drafts (default 0.10)",
    )
    _add_good(certify)
    certify.add_argument("--json", action="store_true", help="one JSON object")
