"""The laboratory's commands; one does not load another's libraries."""

from typing import Final

from curtilage.cli.declared import Run, Value, ascii_only, command, group
from curtilage.cli.options import CLIENT, JSON, NUMBER, POLICY, PRICES, TOKENS, TRACE

# Copied from ``curtilage.lab.evaluation``, which takes seconds to import; a test
# compares.
PARTS: Final = ("all", "developed", "held-out")
APART: Final = "apart"  # held-out rows, with the developers' rows for comparison
GROUPS: Final = (
    *("structured", "identifying", "health", "privacy", "evasion", "leave", "pupa"),
    *("fairness", "names", "clinical", "clean", "hard", "named", "language", "redteam"),
    *("told", "surname", "shapes", "national", "own", "latency", "deadline", "sockets"),
    *("faults", "validity", "curve", "profiles"),
)
GRADED: Final = """

A graded question is a line of JSON:

  {"text": "Translate: good morning", "weak": 1, "strong": 1}
  {"text": "Prove that ...", "weak": 0.2, "strong": 0.9, "intent": "reasoning"}

weak and strong are the grades of the local model's and the strong tier's answers, from
0 to 1. An optional score says how easy a question is (the larger, the sooner it is kept
local); it must not depend on the grades."""


def _grade(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError
    return value


GRADE: Final = Value("a number above 0, at most 1", ascii_only(_grade))


@group("laboratory")
def laboratory() -> None:
    """The commands under their names in the product."""


@command("evaluate", laboratory, offline=True)
def evaluate() -> Run:
    r"""Measure detectors and policy on folders of data.

    Measure recall, what may be sent and how long it takes, on data sets in their
    authors' formats, with 95% intervals. A missing set is reported and skipped, and the
    exit code is 3. No text is ever printed.

    groups of figures: structured, identifying, health, privacy, evasion, leave, pupa,
    fairness, names, clinical, clean, hard, named, language, redteam, told, surname,
    shapes, national, own, latency, deadline, sockets, faults, validity, curve, profiles

    Options:
        --data DIR: a folder with one folder per set
        --texts FILE: your own texts, CSV or JSON Lines: text, must (stays, may leave,
            names only), names
        --sheet FILE: only write the texts of --texts to a new CSV sheet, to be labelled
            in a spreadsheet and then measured; no other file contains them
        --policy FILE|NAME: policy file or shipped profile (default: $CURTILAGE_POLICY,
            else the shipped profile default)
        --part all|developed|held-out|apart = all: which rows of this project's own
            split; apart: held out, compared with the developers'
        --only IDS: groups or figures, separated by commas
        --limit N = 2000: maximum rows of a set, the same each time
        --stock [both|bare]: also measure Presidio in its default configuration with
            spaCy's small English model (bare: without)
        --json FILE: write all figures as JSON
        --plot FILE: plot recall against what may be sent, a line per profile, as SVG
        --markdown FILE: write the tables between the two marks of a page
            (docs/detection.md)
        --misses FILE: write figure and row id of every misclassified row; never texts

    Example:
        curtilage evaluate --data sets --stock --json figures.json
        curtilage evaluate --data sets --policy clinic --part held-out \
          --only health,leave
        curtilage evaluate --texts questions.txt --sheet sheet.csv
        curtilage evaluate --texts sheet.csv --policy clinic
    """
    from curtilage.lab.commands.evaluate import run

    return run


@command(
    "route advise",
    laboratory,
    TRACE,
    PRICES,
    POLICY,
    JSON,
    offline=True,
    types={"SHARE": GRADE},
    more=GRADED,
)
def advise() -> Run:
    r"""Show whether routing pays.

    Read a trace and report whether routing pays: the share answered locally, cost,
    energy and saving, each with an interval, compared with the often promised 70 to 85
    % local and 60 to 80 % saved where they do not hold, and the cost of cover traffic
    at that share. If not routing at all is better, it says so.

    Options:
        --graded FILE: graded questions, lines of JSON
        --energy TIER=JOULES[,TIER=JOULES]: energy per token; energy is reported only if
            given for each tier
        --devices N = 1: number of devices with such traffic
        --promised SHARE: the promised share of good local answers; an alarm is raised
            if feedback contradicts it (default: the bound from --graded)

    Example:
        curtilage route advise
        curtilage route advise --trace ward.jsonl --policy ward.yaml \
          --prices enclave=1.5,device=0.05 --energy enclave=0.9,device=0.6 \
          --devices 400 --graded graded.jsonl
    """
    from curtilage.lab.commands.advise import run

    return run


@command(
    "route calibrate",
    laboratory,
    POLICY,
    JSON,
    offline=True,
    types={"GRADE": GRADE},
    more=GRADED,
)
def calibrate() -> Run:
    """Fit the estimator to your own graded questions, and certify it.

    Learn from graded questions which ones the local model answers well, on this device,
    and report how many may be kept local with a guarantee.

    It needs at least 150 different ones; equal questions count as one. There are two
    separate results:

      - whether the fitted estimator ranks questions better than chance (the lower
        bound of its APGR), than the rules and than the policy's estimator, measured
        by cross-validation. Only then is it written. The interval shows whether a
        difference may be chance.
      - which error rates can be certified, if any. That needs 500 of them: a random
        half fits the estimator, and the other half tests it.

    If it does not rank better, nothing is written, and the exit code is 1.

    Options:
        --data FILE, required: graded questions, lines of JSON
        --out FILE: write the estimator to this file, for `routing: {estimator: ...}` of
            a policy; no file is overwritten
        --good GRADE = 0.5: an answer graded lower than this is bad

    Example:
        curtilage route calibrate --data graded.jsonl
        curtilage route calibrate --data graded.jsonl --out ward-router.npz
    """
    from curtilage.lab.commands.calibrate import run

    return run


@command(
    "route compare", laboratory, CLIENT, JSON, types={"POINTS": NUMBER, "COUNT": TOKENS}
)
def compare() -> Run:
    r"""Compare two models or tiers on your own questions.

    Ask two models or tiers the same questions, and compare their quality and speed by
    task. A side is `default`, a name of `curtilage models list`, a GGUF file (with
    --sha256), or `tier:ID` for a tier of the policy. Questions to a tier are handled
    like any query: those that the policy keeps local reach no enclave.

    A question is a line of JSON with its expected answer:

      {"text": "7 * 8 = ?", "task": "sums", "expect": {"contains": "56"}}
      {"text": "Spam or ham? ...", "task": "mail", "expect": {"equals": "spam"}}
      {"text": "...", "task": "dates", "expect": {"regex": "2026-\\d\\d-\\d\\d"}}
      {"text": "...", "task": "form", "expect": {"json": {"name": "A. Weber"}}}
      {"text": "... (A) 3 (B) 5", "task": "exam", "expect": {"choice": "B"}}

    B is accepted if the whole interval of the difference is above the margin (a loss of
    --margin points is still accepted). Exits with 1 if it is not accepted.

    With --out the graded pairs are written for `route calibrate` and `route advise`:
    A's grade is `weak` and B's `strong`, so name the local model first. A question may
    then lack `expect`: its line has both answers, and you add the grades. The file
    contains questions, and those answers, in plain text. Until the end, the answers are
    in FILE.partial; after an interruption the same command uses them again.

    Options:
        A: the reference
        B: the candidate to replace it
        --data FILE, required: questions, lines of JSON
        --out FILE: write the graded pairs to this file; no file is overwritten
        --sha256 HEX...: digest of a GGUF file; once for each such side, A's first
        --margin POINTS = 5.0: how much worse B may be, in percentage points
        --max-tokens COUNT = 256: maximum tokens of each answer

    Example:
        curtilage route compare --data tasks.jsonl default big
        curtilage route compare --data tasks.jsonl ./q8.gguf ./q4.gguf \
          --sha256 HEX --sha256 HEX --margin 2
        curtilage route compare --data tasks.jsonl --out graded.jsonl \
          default tier:enclave
    """
    from curtilage.lab.commands.compare import run

    return run


@command(
    "route answer",
    laboratory,
    CLIENT,
    offline=True,
    types={"T": NUMBER, "COUNT": TOKENS},
)
def answer() -> Run:
    """Have the local model answer questions that you will grade.

    Have the local model answer your own questions, to grade the answers and to certify
    the score above which its drafts may be used. The model's confidence is recorded for
    each token. A question is a line of JSON; one with an expected answer, as for `route
    compare`, is graded at once, and you grade the others:

      {"text": "7 * 8 = ?", "expect": {"contains": "56"}}
      {"text": "Say politely that we are closed on Monday"}

    The output file contains questions and answers in plain text, readable only by you.
    Nothing is sent.

    Until the end, the answers are in FILE.partial. After an interruption the same
    command uses them again and asks the rest.

    Options:
        --data FILE, required: questions, lines of JSON
        --out FILE, required: output file; no file is overwritten
        --max-tokens COUNT = 512: maximum tokens of each answer
        --temperature T = 0.7: as in your own questions

    Example:
        curtilage route answer --data questions.jsonl --out answered.jsonl
    """
    from curtilage.lab.commands.answer import run

    return run


@command(
    "route certify",
    laboratory,
    JSON,
    offline=True,
    types={"GRADE": GRADE, "SHARE": NUMBER},
)
def certify() -> Run:
    r"""Certify the score above which a local draft is used.

    Learn from graded answers of the local model how to score its drafts, and certify
    the score above which a draft is used as the answer (`routing: {speculation: ...}`).
    The file is the output of `curtilage route answer`, each line with a grade.

    It needs at least 700 answers: a random part trains the score; the others, at least
    500, certify it. The guarantee holds for this model, this quantisation, this chat
    template, and similar questions. If no share of drafts meets the error rate, nothing
    is written, and the exit code is 1.

    Options:
        --data FILE, required: graded answers, lines of JSON
        --out FILE: write the thresholds to this file, for `routing: {speculation: ...}`
            of a policy; no file is overwritten
        --alpha SHARE = 0.1: maximum share of bad answers among accepted drafts
        --good GRADE = 0.5: an answer graded lower than this is bad

    Example:
        curtilage route certify --data answered.jsonl
        curtilage route certify --data answered.jsonl --alpha 0.05 \
          --out ward-thresholds.json
    """
    from curtilage.lab.commands.certify import run

    return run
