"""What a balancer passes on, and its behaviour when a backend dies."""

import socket
import ssl
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from conformance.balancer.conftest import PATIENT, QUICK, UNCAPPED, StartBalancer

from support.balancer_processes import (
    Backend,
    BalancerProcess,
    Program,
    command,
    generate,
)
from support.relay_certificates import Certificates
from support.relay_processes import RelayProcess, free_port
from support.relay_wire import (
    ANSWER,
    CHUNKED_ANSWER,
    CHUNKED_REQUEST,
    HANG_S,
    HOST,
    SEALED,
    Exchange,
    Script,
    one_chunk,
    raw_answer,
    raw_request,
    read_answer,
    read_head,
    say,
    say_and_close,
)

Backends = tuple[Backend, Backend]
FIELD = "Incremental: ?1"
KEY = "Authorization: Bearer ward:c2VjcmV0"
STREAMED = raw_answer(
    FIELD, "Transfer-Encoding: chunked", kind=CHUNKED_ANSWER, body=None
)
ASKERS, EACH = 8, 50
TELLTALE = [
    "Forwarded: for=192.0.2.1",
    "Via: 1.1 somebody",
    "X-Forwarded-For: 192.0.2.1",
    "X-Forwarded-Host: canary.example",
    "X-Forwarded-Proto: https",
    "X-Real-IP: 192.0.2.1",
    "X-Request-ID: 4111111111111111",
    "X-Envoy-External-Address: 192.0.2.1",
    "X-Envoy-Internal: true",
]


def asked(backends: Backends) -> list[Exchange]:
    return [exchange for backend in backends for exchange in backend.exchanges]


def say_once(release: threading.Event) -> Script:
    def script(exchange: Exchange) -> None:
        exchange.read()
        assert release.wait(HANG_S)
        exchange.wire.send(raw_answer())

    return script


def test_a_question_passes_as_it_was_written(
    before_relays: BalancerProcess, backends: Backends
) -> None:
    answer = before_relays.post(KEY, FIELD)
    assert (answer.status, answer.body) == (200, ANSWER)
    (exchange,) = asked(backends)
    assert exchange.body == SEALED
    sent = raw_request(KEY, FIELD).removesuffix(SEALED)
    assert sorted(exchange.head.lines) == sorted(sent.decode().split("\r\n")[1:-2])
    assert exchange.head.start_line == "POST /demo HTTP/1.1"


def test_an_answer_passes_as_it_was_written(
    before_relays: BalancerProcess, backends: Backends
) -> None:
    fields = ("Server: curtilage-relay", "Cache-Control: no-store", FIELD)
    for backend in backends:
        backend.script = say(raw_answer(*fields, "Date: Mon, 23 Nov 2026 17:00:00 GMT"))
    answer = before_relays.post()
    lines = [line for line in answer.lines if not line.startswith("Connection: ")]
    assert sorted(lines) == sorted(
        [
            *fields,
            "Content-Length: 768",
            "Content-Type: message/ohttp-res",
            "Date: Mon, 23 Nov 2026 17:00:00 GMT",
        ]
    )


def test_no_field_says_who_asked(
    before_relays: BalancerProcess, backends: Backends
) -> None:
    assert before_relays.post(*TELLTALE).status == 200
    (exchange,) = asked(backends)
    assert sorted(exchange.head.names) == ["Content-Length", "Content-Type", "Host"]
    assert b"127.0.0.1" not in exchange.head.raw


@pytest.mark.parametrize("target", ["/demo?a=b%2F", "/demo/a//b/../c/", "/%64emo"])
def test_a_path_passes_as_it_was_written(
    before_relays: BalancerProcess, backends: Backends, target: str
) -> None:
    assert before_relays.post(target=target).status == 200
    (exchange,) = asked(backends)
    assert exchange.head.start_line == f"POST {target} HTTP/1.1"


def test_a_refusal_of_a_backend_passes_whole(
    before_relays: BalancerProcess, backends: Backends
) -> None:
    refusal = raw_answer(
        status="422 Unprocessable Content",
        kind="application/problem+json",
        body=b'{"type":"reported"}',
    )
    for backend in backends:
        backend.script = say(refusal)
    answer = before_relays.post()
    assert (answer.status, answer.body) == (422, b'{"type":"reported"}')


def test_each_piece_of_an_answer_passes_before_the_next_exists(
    before_relays: BalancerProcess, backends: Backends
) -> None:
    seen = threading.Semaphore(0)
    pieces = [bytes([number]) * 530 for number in range(1, 9)]

    def script(exchange: Exchange) -> None:
        exchange.read()
        exchange.wire.send(STREAMED)
        for piece in pieces:
            exchange.wire.send(one_chunk(piece))
            assert seen.acquire(timeout=HANG_S)
        exchange.wire.send(b"0\r\n\r\n")

    for backend in backends:
        backend.script = script
    wire = before_relays.connect()
    wire.send(raw_request(FIELD, kind=CHUNKED_REQUEST))
    assert read_head(wire).value("Incremental") == "?1"
    for piece in pieces:
        assert wire.chunk() == piece
        seen.release()
    assert wire.chunk() == b""


def test_a_request_passes_while_it_is_being_written(
    before_relays: BalancerProcess, backends: Backends
) -> None:
    arrived = threading.Event()

    def script(exchange: Exchange) -> None:
        assert exchange.wire.exactly(100) == SEALED[:100]
        arrived.set()
        assert exchange.wire.exactly(len(SEALED) - 100) == SEALED[100:]
        exchange.wire.send(raw_answer())

    for backend in backends:
        backend.script = script
    wire = before_relays.connect()
    whole = raw_request(FIELD)
    wire.send(whole[: len(whole) - len(SEALED) + 100])
    assert arrived.wait(HANG_S)
    wire.send(SEALED[100:])
    assert read_answer(wire).body == ANSWER


def test_a_cut_answer_is_seen_to_be_cut(
    before_relays: BalancerProcess, backends: Backends
) -> None:
    for backend in backends:
        backend.script = say_and_close(STREAMED, one_chunk(ANSWER))
    wire = before_relays.connect()
    wire.send(raw_request(FIELD, kind=CHUNKED_REQUEST))
    answer = read_answer(wire)
    assert (answer.status, answer.complete) == (200, False)


def test_both_relays_are_asked(
    before_relays: BalancerProcess, backends: Backends
) -> None:
    while not all(backend.exchanges for backend in backends):
        assert before_relays.post().status == 200


def test_what_was_sent_is_not_sent_again(
    before_relays: BalancerProcess, backends: Backends
) -> None:
    for backend in backends:
        backend.script = say_and_close()
    answer = before_relays.post()
    assert answer.status in {502, 503}
    assert answer.value("Content-Type") == "application/problem+json"
    assert answer.value("Cache-Control") == "no-store"
    assert answer.body == (
        b'{"type":"about:blank","status":%d,'
        b'"title":"The balancer cannot pass this on."}' % answer.status
    )
    assert len(asked(backends)) == 1


def test_what_could_not_be_sent_goes_to_the_next_relay(
    start_balancer: StartBalancer, backends: Backends
) -> None:
    alive = backends[0]
    addresses = [f"http://127.0.0.1:{port}" for port in (alive.port, free_port())]
    balancer = start_balancer(relays={HOST: addresses}, clients=UNCAPPED)
    for _ in range(20):
        assert balancer.post().status == 200
    assert len(alive.exchanges) == 20


def test_the_name_decides_which_enclave_is_asked(
    before_enclaves: BalancerProcess, backends: Backends
) -> None:
    for name, backend in zip(("a.example", "b.example"), backends, strict=True):
        for port in ("", ":8443"):
            request = raw_request(target="/.well-known/ohttp-gateway", host=name + port)
            assert before_enclaves.send(request).status == 200
        assert [each.head.value("Host") for each in backend.exchanges] == [name] * 2


def test_no_other_enclave_is_asked_for_one_that_is_down(
    start_balancer: StartBalancer, backends: Backends
) -> None:
    balancer = start_balancer(
        enclaves={
            "a.example": f"http://127.0.0.1:{free_port()}",
            "b.example": backends[1].address,
        }
    )
    answer = balancer.send(raw_request(host="a.example"))
    assert answer.status in {502, 503}
    assert asked(backends) == []
    assert balancer.send(raw_request(host="b.example")).status == 200


@pytest.mark.parametrize("name", ["c.example", "a.example.evil.example", "127.0.0.1"])
def test_another_name_has_no_backend(
    before_enclaves: BalancerProcess, backends: Backends, name: str
) -> None:
    answer = before_enclaves.send(raw_request(host=name))
    assert answer.status == 421
    assert answer.value("Content-Type") == "application/problem+json"
    assert asked(backends) == []


def test_http_1_0_could_not_show_a_cut(
    before_relays: BalancerProcess, backends: Backends
) -> None:
    request = raw_request(FIELD).replace(b" HTTP/1.1", b" HTTP/1.0")
    assert before_relays.send(request).status == 426
    assert asked(backends) == []


def test_a_relay_that_is_draining_is_left_out(
    before_relays: BalancerProcess, backends: Backends, program: Program
) -> None:
    draining, other = backends

    def asked_of_20() -> tuple[int, int]:
        before = len(draining.exchanges), len(other.exchanges)
        for _ in range(20):
            assert before_relays.post().status == 200
        return len(draining.exchanges) - before[0], len(other.exchanges) - before[1]

    draining.healthy = False
    if program == "nginx":
        # It does no health checks, as the head of its text says; it may still leave out
        # one for a second that failed in the previous test.
        while min(asked_of_20()) == 0:
            pass
        return
    # One health check is enough, but it may overlap with requests.
    while asked_of_20() != (0, 20):
        assert len(draining.checks) < 20
    draining.healthy = True
    while asked_of_20() == (0, 20):
        assert len(draining.checks) < 40


def test_a_look_at_health_says_nothing_of_anybody(
    before_relays: BalancerProcess, backends: Backends, program: Program
) -> None:
    while program == "envoy" and not backends[0].checks:
        assert before_relays.post().status == 200
    for head in backends[0].checks:
        assert set(head.names) <= {"host", "user-agent"}


def test_one_client_that_asks_too_often_is_refused(
    start_balancer: StartBalancer, backends: Backends
) -> None:
    balancer = start_balancer(
        relays={HOST: [backends[0].address]},
        clients={"exchanges": 0, "requests_per_s": 0.001, "burst": 3},
    )
    statuses = [balancer.post().status for _ in range(6)]
    assert statuses[:3] == [200] * 3
    assert statuses[-1] == 429
    assert balancer.ask_from("127.0.0.2", raw_request()).status == 200


def test_one_client_holds_its_share_at_most(
    start_balancer: StartBalancer, backends: Backends, program: Program
) -> None:
    backend, release = backends[0], threading.Event()
    backend.script = say_once(release)
    balancer = start_balancer(
        relays={HOST: [backend.address]},
        clients={"exchanges": 1, "requests_per_s": 0},
    )
    wire = balancer.connect()
    wire.send(raw_request())
    backend.arrival()
    # Envoy does not count one client's requests; the head of its text says so.
    again = balancer.connect()
    again.send(raw_request())
    if program == "nginx":
        assert read_answer(again).status == 429
    else:
        backend.arrival()
    release.set()
    assert read_answer(wire).status == 200


def test_who_finds_no_place_is_refused_at_once(
    start_balancer: StartBalancer, backends: Backends
) -> None:
    backend, release = backends[0], threading.Event()
    backend.script = say_once(release)
    balancer = start_balancer(
        enclaves={"a.example": backend.address},
        limits={**QUICK, "max_per_backend": 1},
    )
    wire = balancer.connect()
    wire.send(raw_request(host="a.example"))
    backend.arrival()
    for _ in range(8):
        assert balancer.send(raw_request(host="a.example")).status in {502, 503}
    release.set()
    assert read_answer(wire).status == 200
    assert len(backend.exchanges) == 1


def test_a_backend_learns_that_its_reader_left(
    before_relays: BalancerProcess, backends: Backends
) -> None:
    left = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.read()
        exchange.wire.send(STREAMED + one_chunk(b"first"))
        if exchange.wire.ended():
            left.set()

    for backend in backends:
        backend.script = script
    wire = before_relays.connect()
    wire.send(raw_request(FIELD))
    read_head(wire)
    assert wire.chunk() == b"first"
    wire.close()
    assert left.wait(HANG_S)


def test_a_silent_backend_is_given_up(
    start_balancer: StartBalancer, backends: Backends
) -> None:
    ended = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.read()
        ended.wait(HANG_S)

    backend = backends[0]
    backend.script = script
    balancer = start_balancer(
        enclaves={"a.example": backend.address},
        limits={**QUICK, "silence_s": 0.5},
    )
    assert balancer.send(raw_request(host="a.example")).status in {408, 504}
    ended.set()


def test_a_running_answer_survives_the_drain(
    start_balancer: StartBalancer, backends: Backends
) -> None:
    release = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.read()
        exchange.wire.send(STREAMED + one_chunk(b"first"))
        assert release.wait(HANG_S)
        exchange.wire.send(one_chunk(b"last") + b"0\r\n\r\n")

    backend = backends[0]
    backend.script = script
    balancer = start_balancer(relays={HOST: [backend.address]})
    wire = balancer.connect()
    wire.send(raw_request(FIELD))
    read_head(wire)
    assert wire.chunk() == b"first"
    balancer.drain()
    while is_listening(balancer.port):
        pass
    release.set()
    assert wire.chunk() == b"last"
    assert wire.chunk() == b""


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=HANG_S).close()
    except OSError:
        return False
    return True


def test_nothing_is_written_anywhere(
    start_balancer: StartBalancer, backends: Backends
) -> None:
    backend = backends[0]
    backend.script = say_and_close()
    balancer = start_balancer(relays={HOST: [backend.address]})
    balancer.send(raw_request(target="/canary", host="canary.example"))
    balancer.send(raw_request(target="/canary"))
    balancer.send(b"canary\r\n\r\n")
    written = balancer.stop()
    assert written == ""
    for file in balancer.folder.rglob("*"):
        if file.is_file() and file != balancer.file:
            assert b"canary" not in file.read_bytes(), file
            assert file.name == "nginx.pid"


# TLS towards clients, and towards backends.


def test_a_question_passes_over_tls_on_both_hops(
    start_balancer: StartBalancer, certificates: Certificates
) -> None:
    enclave = Backend(certificates.server())
    balancer = start_balancer(
        enclaves={"localhost": f"https://127.0.0.1:{enclave.port}"},
        tls=certificates.settings(client_ca=True),
        upstream_ca_file=str(certificates.authority),
    )
    balancer.tls = certificates.client("client")
    assert balancer.send(raw_request(host="localhost")).body == ANSWER
    balancer.tls = certificates.client()
    # In TLS 1.3 a client learns with its first read that its certificate is missing.
    with pytest.raises((AssertionError, OSError), match=r"without an answer|EOF|reset"):
        balancer.send(raw_request(host="localhost"))
    balancer.tls = certificates.client("client")
    balancer.tls.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError, match=r"(?i)alert|version|protocol|reset|eof"):
        balancer.connect()
    assert len(enclave.exchanges) == 1
    enclave.close()


@pytest.mark.parametrize("kind", ["untrusted", "misnamed"])
def test_who_has_no_certificate_for_the_name_is_not_asked(
    start_balancer: StartBalancer, certificates: Certificates, kind: str
) -> None:
    impostor = Backend(certificates.server(kind))
    balancer = start_balancer(
        enclaves={"localhost": f"https://127.0.0.1:{impostor.port}"},
        upstream_ca_file=str(certificates.authority),
    )
    assert balancer.send(raw_request(host="localhost")).status in {502, 503}
    assert impostor.exchanges == []
    assert impostor.checks == []
    impostor.close()


def test_a_session_cannot_be_resumed(
    start_balancer: StartBalancer, backends: Backends, certificates: Certificates
) -> None:
    balancer = start_balancer(
        relays={"localhost": [backends[0].address]},
        tls=certificates.settings(),
    )
    balancer.tls = certificates.client()
    wire = balancer.connect()
    wire.send(raw_request(host="localhost"))
    assert read_answer(wire).status == 200
    assert isinstance(wire.socket, ssl.SSLSocket)
    with (
        socket.create_connection(("127.0.0.1", balancer.port), HANG_S) as plain,
        balancer.tls.wrap_socket(
            plain, server_hostname="localhost", session=wire.socket.session
        ) as again,
    ):
        assert not again.session_reused


# Real relays as backends.


class Load:
    """Clients that send one question after the other, each with a number."""

    def __init__(self, balancer: BalancerProcess) -> None:
        self._balancer = balancer
        self._halfway, self._rest = threading.Semaphore(0), threading.Event()
        self._answers = dict[int, int]()
        self._askers = [
            threading.Thread(target=self._ask, args=(index * EACH,))
            for index in range(ASKERS)
        ]
        for asker in self._askers:
            asker.start()

    def halfway(self) -> None:
        """Return when all of them are sending."""
        for _ in self._askers:
            assert self._halfway.acquire(timeout=HANG_S)

    def finish(self) -> dict[int, int]:
        """Let them send the rest; return the status of each answer."""
        self._rest.set()
        for asker in self._askers:
            asker.join()
        return self._answers

    def _ask(self, first: int) -> None:
        for number in range(first, first + EACH):
            if number == first + EACH // 4:
                self._halfway.release()
            if number == first + EACH // 2:
                assert self._rest.wait(HANG_S)
            body = b"%08d" % number + SEALED[8:]
            answer = self._balancer.send(raw_request(FIELD, body=body))
            self._answers[number] = answer.status


def test_a_relay_that_is_killed_under_load_loses_only_what_it_had(
    start_balancer: StartBalancer, backends: Backends, tmp_path: Path
) -> None:
    enclave = backends[0]
    tree = {
        "environment": "development",
        "gateways": {"demo": enclave.address},
        "clients": {"connections": 0, "exchanges": 0, "requests_per_s": 0},
    }
    relays = list[RelayProcess]()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        relays.append(RelayProcess("built-in", tree, tmp_path / name))
    balancer = start_balancer(
        relays={HOST: [f"http://127.0.0.1:{relay.port}" for relay in relays]},
        clients=UNCAPPED,
        limits=PATIENT,
    )
    load = Load(balancer)
    load.halfway()
    relays[0].process.kill()
    relays[0].stop()
    answers = load.finish()
    relays[1].stop()
    # No question was sent twice, and no answer is for a question that never arrived.
    arrived = Counter(int(each.body[:8]) for each in enclave.exchanges)
    assert max(arrived.values()) == 1
    answered = {number for number, status in answers.items() if status == 200}
    assert answered <= set(arrived)
    # Lost is at most what the killed relay had in its hands, one for each asker, and
    # what went down a connection that was kept to it before its end was noticed, one
    # for each again.
    assert len(answers) == ASKERS * EACH
    assert len(answers) - len(answered) <= 2 * ASKERS
    assert {answers[number] for number in answers.keys() - answered} <= {502, 503}


# The texts themselves.


@pytest.mark.parametrize("change", ["relays", "enclaves", "socket"])
def test_the_program_accepts_the_text(
    program: Program, certificates: Certificates, tmp_path: Path, change: str
) -> None:
    relays = ["https://relay-1.example:8443", "https://[2001:db8::1]"]
    tree: dict[str, object] = {
        "listen": "0.0.0.0:8443",
        "tls": certificates.settings(client_ca=True),
        "relays": {HOST: relays, "other.example": ["unix:/run/a/relay.sock"]},
    }
    if change == "enclaves":
        del tree["relays"]
        tree["listen"] = "[::1]:8443"
        tree["upstream_ca_file"] = str(certificates.authority)
        tree["enclaves"] = {"a.example": "https://10.0.0.1"}
    if change == "socket":
        del tree["tls"]
        tree["listen"] = f"unix:{tmp_path}/balancer.sock"
    if program == "nginx":
        # Names are looked up when the text is read.
        relays[0] = "https://localhost:8443"
    file = tmp_path / "balancer.yaml"
    file.write_text(generate(program, tree, tmp_path), "utf-8")
    checked = subprocess.run(
        command(program, file, check=True),
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr


def test_the_command_writes_the_text(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "balancer.toml"
    file.write_text(
        'listen = "127.0.0.1:8080"\n[relays]\n"relay.example" = ["https://10.0.0.1"]\n'
    )
    made = subprocess.run(
        [
            *(sys.executable, "-m", "curtilage.relay", "balancer-config", program),
            *("--config", str(file), "--folder", str(tmp_path)),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    tree = {
        "listen": "127.0.0.1:8080",
        "relays": {"relay.example": ["https://10.0.0.1"]},
    }
    assert made.stdout == generate(program, tree, tmp_path)
