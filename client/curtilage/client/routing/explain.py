"""What an estimate rests on, in lines for people; no word of the text is in them."""

from curtilage.client.routing.estimate import (
    HEAD_CHARS,
    KNOWN,
    TAIL_CHARS,
    Estimator,
    signs_of,
)

_LEAST_SHARE = 0.05


def explain_text(
    estimator: Estimator, text: str, max_tokens: int = 512
) -> tuple[str, ...]:
    """Return what is expected of a text, and by what signs."""
    expected = estimator.estimate(text, max_tokens)
    seen = signs_of(text)
    cues = [
        f"{intent} {share:.2f}"
        for intent, share in zip(KNOWN, seen.shares, strict=True)
        if share >= _LEAST_SHARE
    ]
    signs = ["code"] * seen.in_code + ["several steps"] * seen.in_steps
    read = "all of it"
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        read = f"{HEAD_CHARS} characters and the last {TAIL_CHARS}, of {len(text)}"
    low, high = expected.gain_low, expected.gain_high
    asked, answered = expected.prompt_tokens, expected.answer_tokens
    return (
        f"intent   {expected.intent} (confidence {expected.intent_confidence:.2f})",
        f"gain     {expected.gain:+.2f}, between {low:+.2f} and {high:+.2f}",
        f"told by  {expected.source}",
        f"tokens   about {asked} asked, about {answered} answered",
        f"cues     {', '.join(cues) or 'none'}",
        f"signs    {', '.join(signs) or 'none'}",
        f"read     {read}",
    )
