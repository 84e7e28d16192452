"""Helpers for writing nginx configurations, and what nginx does differently.

Pure text: quoting, comments, maps. Does not know a relay's configuration.
"""

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Final

Lines = list[str]

DIFFERENCES: Final[Mapping[str, str]] = {
    "unknown-answer-fields": (
        "a gateway's field that is not on the list of hidden ones reaches the "
        "client; nginx can hide fields by name only"
    ),
    "reason-phrase": "the reason phrase of an answer that passes is the gateway's",
    "answer-kind": (
        "an answer of another media type, of another status in 2xx or with a "
        "content coding passes without its type, where the built-in relay "
        "answers 502; a client of ours refuses it"
    ),
    "answer-size": (
        "nginx has no bound on an answer's length: limits.max_answer_bytes is not "
        "carried out"
    ),
    "answer-framing": (
        "1.22 accepts an answer with two lengths, or with a length and chunks; the "
        "client detects it by the answer's seal"
    ),
    "unframed-answers": (
        "an answer with neither length nor chunks passes; only its seal shows whether "
        "it was truncated"
    ),
    "no-http": "an answer that is not HTTP/1 passes unchanged, without a head",
    "informational": (
        "an answer in 1xx from a gateway is taken for the final one, and fails"
    ),
    "gateway-errors": (
        "a gateway's error gets our constant content, with its status, except "
        "422, whose content passes (a client needs its problem type)"
    ),
    "unasked-streaming": (
        "an answer is passed on as it arrives even if the client did not ask for "
        "that, so a truncation may follow the head"
    ),
    "request-streaming": (
        "content is passed on as it arrives even if the client did not ask for that, "
        "so a slow or oversized sender takes a place at the gateway until refused; "
        "limits.max_uploads is not applied"
    ),
    "slow-content": (
        "a silent sender is dropped without an answer; there is no minimum rate "
        "(limits.min_body_bytes_per_s), only a maximum silence"
    ),
    "client-connections": (
        "the cap on one client's connections counts those with a running request, "
        "and its refusal uses the text of the relay's own cap; an IPv6 /56 whose "
        "addresses are written short may count twice, or together with others"
    ),
    "turns": (
        "a request that finds no place at the gateway is refused at once: there is no "
        "queue (limits.place_wait_s), and one client's share does not shrink while "
        "few places are left, so about ten addresses can take them all"
    ),
    "connection-cap": "connections beyond the cap wait; they get no 503",
    "draining": (
        "on quit it stops listening at once (limits.drain_delay_s is not applied), "
        "and /healthz never reports draining"
    ),
    "lax-heads": (
        "a line of a head may end in LF alone or have no colon, and fields are "
        "bounded in size, not in number"
    ),
    "continue": "a client that expects 100-continue gets it before any refusal",
    "repeated-fields": "the first of repeated fields counts; the others are dropped",
    "first-line": ("errors in a request's first line get nginx's own constant page"),
    "server-field": "the constant Server field says nginx",
    "addresses": (
        "limits per client keep addresses, as they are, in nginx's memory; the "
        "built-in relay keeps counts under a keyed hash whose key changes"
    ),
}
"""What the generated configuration does differently from the built-in relay."""

CUSTOMERS: Final[Mapping[str, str]] = {
    r"~^::ffff:[0-9.]+$": "$binary_remote_addr",
    r"~^(?<curtilage_net>([0-9a-f]{1,4}:){3}[0-9a-f]{0,2}?)[0-9a-f]{1,2}:": (
        "$curtilage_net"
    ),
    r"~^(?<curtilage_short>[0-9a-f:]*?::)": "$curtilage_short",
}
"""The key of one customer with IPv6: nginx has an address only as text. Without this,
a client with a /64 has as many shares as there are addresses in it."""

_HIDDEN: Final = """
Accept-CH Accept-Ranges Access-Control-Allow-Credentials Access-Control-Allow-Headers
Access-Control-Allow-Methods Access-Control-Allow-Origin Access-Control-Expose-Headers
Access-Control-Max-Age Age Allow Alt-Svc Alt-Used Authentication-Info Baggage
Cache-Control CDN-Cache-Control CDN-Loop CF-Cache-Status CF-Ray Clear-Site-Data
Content-Disposition Content-Encoding Content-Language Content-Location Content-Range
Content-Security-Policy Content-Security-Policy-Report-Only Content-Type
Correlation-Id Critical-CH DNT ETag Expires Forwarded Incremental Keep-Alive
Last-Modified Link Location NEL Origin-Trial Permissions-Policy Pragma
Proxy-Authenticate Proxy-Authentication-Info Proxy-Status Public-Key-Pins Refresh
Report-To Reporting-Endpoints Request-Id Retry-After Server-Timing Set-Cookie
Set-Cookie2 SourceMap Strict-Transport-Security Surrogate-Control Timing-Allow-Origin
Tk Traceparent Tracestate Trailer Upgrade Vary Via Warning WWW-Authenticate
X-Amz-Cf-Id X-Amzn-Trace-Id X-B3-Sampled X-B3-SpanId X-B3-TraceId X-Cache
X-Cloud-Trace-Context X-Content-Type-Options X-Correlation-ID
X-Envoy-Upstream-Service-Time X-Forwarded-For X-Forwarded-Host X-Forwarded-Proto
X-Frame-Options X-Powered-By X-Real-IP X-Request-ID X-Runtime X-Served-By X-Timer
X-Trace-Id
"""
HIDDEN_FIELDS: Final = tuple(_HIDDEN.split())
"""Fields of a gateway's answer that stop here, besides those nginx always hides."""
_WORDS_OF_MAP: Final = frozenset({"default", "hostnames", "include", "volatile"})
"""Characters with a special meaning inside an nginx map, also when quoted."""


def map_to(
    source: str, name: str, values: Mapping[str, str], otherwise: str = ""
) -> Lines:
    """Map a text with variables to a variable of ours."""
    return [
        f'map "{source}" $curtilage_{name} {{',
        *(f"    {_map_key(key)} {quoted(text)};" for key, text in values.items()),
        f"    default {quoted(otherwise)};",
        "}",
    ]


def _map_key(key: str) -> str:
    # A Host may be called "default": unquoted, that line would admit every other one.
    return quoted(f"\\{key}" if key in _WORDS_OF_MAP else key)


def pages(codes: Iterable[int], target: str) -> Lines:
    """Map statuses to a target, a row of them at a time."""
    words = [str(code) for code in codes]
    rows = [words[start : start + 15] for start in range(0, len(words), 15)]
    return [f"error_page {' '.join(row)} {target};" for row in rows]


def quoted(text: str) -> str:
    """Quote a text; variables in it remain variables."""
    # The backslash first, or those added for the quotes would be doubled too.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def rate(per_second: float) -> str:
    """Return the nearest rate that nginx can write: whole, per second or minute."""
    if per_second == int(per_second):
        return f"{int(per_second)}r/s"
    return f"{max(1, round(per_second * 60))}r/m"


def ms(seconds: float) -> str:
    """Format a duration; at least a millisecond, since 0 means for ever."""
    return f"{max(1, round(seconds * 1000))}ms"


def comment(*lines: str) -> Lines:
    """Format comments, one line each."""
    return [f"# {line}" for line in lines]


def indented(lines: Iterable[str]) -> Lines:
    """Indent lines by one level."""
    return [f"    {line}" if line else line for line in lines]


def listed(texts: Mapping[str, str]) -> Lines:
    """Format texts as items of a list, each under its name."""
    return [
        line
        for name, text in texts.items()
        for line in wrap(
            f"{name}: {text}.",
            76,
            initial_indent="  - ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]
