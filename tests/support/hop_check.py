"""Compare the recorded traffic of one stack with the ledger."""

from curtilage.enclave_server.ohttp import gateway
from curtilage.relay import refusals
from curtilage.wire.media import KEYS_PATH, OHTTP_KEYS
from support.hop_exchanges import CACHE_S, QUICK
from support.hops import NODE, POOL, Capture, Hops
from support.http_stream import HttpMessage
from support.ledger import (
    Surroundings,
    check_request,
    check_response,
    messages_of,
    read_ledger,
)

LEDGER = read_ledger()
FETCHES = {"bundle": "bundle fetch", "keys": "key list fetch"}


def surroundings(hops: Hops, hop: str, capture: Capture) -> Surroundings:
    """Return what the words of the ledger mean on one hop, for one kind of exchange."""
    near, far = hops.near.address, hops.far.address
    authority = {"client to relay": near, "client to mirror": hops.mirror.address}
    copies = [
        pair.response
        for capture in hops.captures
        for pair in (*capture.far, *capture.mirror)
        if pair.request.start.startswith("GET")
    ]
    lists = [copy for copy in copies if copy.value("content-type") == OHTTP_KEYS]
    return Surroundings(
        words={
            "authority": authority.get(hop, far),
            "gateway": POOL if capture.kind.startswith("pool") else "demo",
            "node": NODE,
            "cache_s": str(CACHE_S),
            "mirror": KEYS_PATH,
        },
        parameters=QUICK,
        keys=tuple(copy.body for copy in lists),
        copies=frozenset(copy.body for copy in copies),
        constants=constants(),
    )


def constants() -> frozenset[bytes]:
    """Every sentence that relay or enclave can say outside the seal."""
    said = {
        answer.content
        for answer in vars(gateway).values()
        if isinstance(answer, gateway.OuterAnswer)
    }
    said.add(gateway.method_not_allowed("GET").content)
    said |= {refusals.refusal_body(refusal) for refusal in refusals.Refusal}
    said |= {refusals.refused_body(status) for status in range(400, 600)}
    return frozenset(said)


def name_of(request: HttpMessage, *, ours: bool) -> list[str]:
    """Say what a request near the client may be; what others send is theirs."""
    if not ours and request.start.startswith("POST"):
        return ["question", "foreign question"]
    path = request.start.split(" ")[1].rpartition("/")[2]
    return [FETCHES.get(path, "foreign request")]


def check_near(hops: Hops, capture: Capture) -> list[str]:
    """Hold what passed between client and relay against the ledger."""
    asks, answers = ("client to relay", "relay to client")
    wrong: list[str] = []
    for pair in capture.near:
        where = surroundings(hops, asks, capture)
        asked = name_of(pair.request, ours=capture.ours)
        if capture.ours:
            rows = messages_of(LEDGER, asks)
            name, problems = check_request(rows, pair.request, where)
            wrong += problems
            asked = [name]
        rows = messages_of(LEDGER, answers)
        wrong += check_response(rows, asked, pair.response, pair.request, where)[1]
    return wrong


def check_far(hops: Hops, capture: Capture) -> list[str]:
    """Hold what passed between relay and enclave against the ledger."""
    asks, answers = ("relay to enclave", "enclave to relay")
    wrong: list[str] = []
    for pair in capture.far:
        where = surroundings(hops, asks, capture)
        rows = [
            row
            for row in messages_of(LEDGER, asks)
            if not (capture.ours and row["message"].startswith("foreign"))
        ]
        name, problems = check_request(rows, pair.request, where)
        wrong += problems
        rows = messages_of(LEDGER, answers)
        wrong += check_response(rows, [name], pair.response, pair.request, where)[1]
    return wrong


def check_mirror(hops: Hops, capture: Capture) -> list[str]:
    """Hold what passed between client and mirror against the ledger."""
    hop = "client to mirror"
    where = surroundings(hops, hop, capture)
    rows = messages_of(LEDGER, hop)
    checked = [check_request(rows, pair.request, where) for pair in capture.mirror]
    return [problem for _, problems in checked for problem in problems]
