"""Declarations of ``curtilage route``."""

from curtilage.cli.declared import Run, command, group
from curtilage.cli.laboratory import from_laboratory
from curtilage.cli.options import JSON, MODEL, POLICY, PRICES, TEXT, TOKENS, TRACE


@group("route")
def route() -> None:
    """Show, calibrate and evaluate where queries are answered.

    Work with routing: which of the permitted tiers answers. Begin by observing
    (`routing: {observe: true}` in the policy): answers do not change, and a
    content-free trace records what would have been chosen. Then check whether routing
    pays, grade some of your own questions, and calibrate. See docs/operating.md.

    Example:
        curtilage route explain - < letter.txt
        curtilage route advise --prices enclave=1.5
    """


from_laboratory(route, "route advise", "Show whether routing pays")
from_laboratory(
    route,
    "route calibrate",
    "Fit the estimator to your own graded questions, and certify it",
)
from_laboratory(
    route, "route compare", "Compare two models or tiers on your own questions"
)


@command(
    "explain", route, TEXT, POLICY, MODEL, JSON, offline=True, types={"COUNT": TOKENS}
)
def route_explain() -> Run:
    """Show which tier would answer a text, and why.

    Show which tiers the policy permits for a text and why not the others, the kind of
    task, what a stronger model would add, and the score of each tier. The question is
    not asked, and the text is never printed. Live figures (speed, queues) are initial
    estimates.

    With --jsonl every JSON line gets one output line, in the same order, as soon as it
    is decided:

      {"id": 1, "text": "Is this spam: you won"}
      {"id":1,"permitted":["local","enclave"],"chosen":"local","why":"easy",
       "intent":"classification","gain":0.0,"rank":0.05}

    chosen is null if no tier may answer; why then has the reason (`blocked`, a refusal,
    or `no_routing` if the policy has no such section). gain is null if there was no
    choice, since the text is then not read for it. An unreadable line gets {"id",
    "error"}.

    Options:
        --max-tokens COUNT = 256: maximum tokens of the answer
        --jsonl [-|FILE]: explain each line, {"id", "text"} or {"id", "messages"}, in
            one line each; `-`, or no FILE, reads standard input. Exit 3: some lines
            cannot be read

    Example:
        curtilage route explain - < letter.txt
        curtilage route explain --policy clinic.yaml "What is HIV?"
        curtilage route explain --jsonl questions.jsonl > choices.jsonl
    """
    from curtilage.cli.route.explain import run

    return run


@command("stats", route, TRACE, PRICES, POLICY, JSON, offline=True)
def route_stats() -> Run:
    """Show each tier's share, times and failures.

    Show the figures of each tier in a trace: its share of the queries, times to the
    first text, speed, cost, why it answered in another's place, and ratings of its
    answers. Times are classes: '300 ms' means between 200 and 300.

    Example:
        curtilage route stats
        curtilage route stats --trace ward.jsonl
    """
    from curtilage.cli.route.stats import run

    return run


from_laboratory(
    route, "route answer", "Have the local model answer questions that you will grade"
)
from_laboratory(
    route, "route certify", "Certify the score above which a local draft is used"
)


@command("feedback", route, TRACE, offline=True)
def route_feedback() -> Run:
    """Rate the last answer.

    Rate the last answer in your trace: a line is added with its tier and the kind of
    task, without content. `route stats` counts the ratings; `route advise` raises an
    alarm if they contradict what was promised. An application uses `client.feedback`,
    or /v1/curtilage/feedback.

    Options:
        good|bad as opinion: your rating

    Example:
        curtilage route feedback good
        curtilage route feedback bad
    """
    from curtilage.cli.route.feedback import run

    return run
