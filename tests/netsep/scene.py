"""The real programs in three networks: a client asks an enclave through a relay."""

import http.client
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import Any, Final, cast

from netsep.judge import Link, Packet, Rules, address_forms, every, forms_of
from netsep.namespaces import ADDRESSES, CLIENT, ENCLAVE, RELAY, Capture, Net
from typing_extensions import override

from curtilage_dev.processes import Process, Processes
from curtilage_dev.scripted_enclave import Play
from curtilage_dev.stack import DEVELOPMENT, Stack

PROGRAMS: Final = Path(__file__).parent / "programs"
PLACES: Final[Mapping[str, str]] = {
    "emulator": ENCLAVE,
    "enclave": ENCLAVE,
    "enclave-pump": ENCLAVE,
    "relay": RELAY,
    "relay-pump": RELAY,
    "client": CLIENT,
    "client-pump": CLIENT,
}
CANARY: Final = "seventeen purple umbrellas"
QUESTION: Final = f"Which is longer, a mile or a kilometre? Explain it with {CANARY}."
ANSWER_S: Final = 60.0
# Of each scene its own: the last one's may still be held for a while.
_ports = count(9000, 10)


class PlacedProcesses(Processes):
    """Starts each program in its network, or another program in its place.

    Args:
        folder: for their output.
        net: the networks.
        instead: programs to run in place of others, by their names.
    """

    def __init__(self, folder: Path, net: Net, instead: Mapping[str, Path]) -> None:
        super().__init__(folder)
        self._net = net
        self._instead = {"enclave": PROGRAMS / "echo_enclave.py", **instead}

    @override
    def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start it where it belongs."""
        words = list(arguments)
        if name in self._instead:
            # Of ``-m program …``; the enclave's takes only its configuration.
            rest = words[2:] if name != "enclave" else words[3:4]
            words = [str(self._instead[name]), *rest]
        process = Process(
            name,
            self._net.command(PLACES[name], sys.executable, *words),
            folder=self.folder,
            environment={"PYTHONPATH": str(DEVELOPMENT), **(environment or {})},
        )
        self._all.append(process)
        return process


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one question left on the links.

    Attributes:
        packets: of IP, of both links.
        rules: for the judge.
        route: where the question was answered.
        answer: its text.
    """

    packets: Sequence[Packet] = field(repr=False)
    rules: Mapping[Link, Rules]
    route: str
    answer: str = field(repr=False)


def watch(
    net: Net, folder: Path, *, family: int, instead: Mapping[str, Path] | None = None
) -> Seen:
    """Start everything, ask one question, and stop everything again.

    Args:
        net: the networks.
        folder: for all files; its path is short enough for a socket.
        family: 4 or 6, the version of IP between the networks.
        instead: programs to run in place of others, by their names.
    """
    port = next(_ports)
    with (
        Capture(net) as capture,
        PlacedProcesses(folder, net, instead or {}) as processes,
    ):
        stack = Stack(folder=folder, processes=processes, play=Play(pieces=1))
        _start(stack, processes, family, port)
        route, answer = _ask(folder / "client.sock")
        # Before the others: it stays until the answer is padded to its end.
        stack.running["client"].stop()
    return Seen(
        packets=capture.packets,
        rules=rules_of(family, port),
        route=route,
        answer=answer,
    )


def rules_of(family: int, port: int) -> Mapping[Link, Rules]:
    """Return what may pass while a scene with these addresses plays."""
    client, near, far, enclave = map(ip_address, ADDRESSES[family])
    canary = {f"canary, {name}": forms for name, forms in forms_of(CANARY).items()}
    return {
        Link.CLIENT: Rules(
            addresses=frozenset({client, near}),
            opened=(client, near, port),
            secrets={**canary, "enclave's address": every(address_forms(enclave))},
        ),
        Link.ENCLAVE: Rules(
            addresses=frozenset({far, enclave}),
            opened=(far, enclave, port + 1),
            secrets={**canary, "client's address": every(address_forms(client))},
        ),
    }


def _start(stack: Stack, processes: Processes, family: int, port: int) -> None:
    _, near, _, enclave = ADDRESSES[family]
    inner, outer = port + 2, port + 3
    stack.start_evidence()
    stack.publish()
    stack.start_enclave()
    there = stack.enclave_address.rpartition(":")[2]
    _pump(processes, "enclave-pump", (enclave, port + 1), ("127.0.0.1", int(there)))
    _pump(processes, "relay-pump", ("127.0.0.1", inner), (enclave, port + 1))
    stack.enclave_address = f"127.0.0.1:{inner}"
    # The relay itself, so that it sees the client's address.
    stack.relay_address = f"[{near}]:{port}" if family == 6 else f"{near}:{port}"
    stack.start_relay()
    _pump(processes, "client-pump", ("127.0.0.1", outer), (near, port))
    stack.relay_address = f"127.0.0.1:{outer}"
    stack.start_client("--listen", f"unix:{stack.folder / 'client.sock'}")


def _pump(
    processes: Processes, name: str, listen: tuple[str, int], to: tuple[str, int]
) -> None:
    words = [str(each) for address in (listen, to) for each in address]
    processes.start(name, [str(PROGRAMS / "pump.py"), *words]).wait_ready()


class _Local(http.client.HTTPConnection):
    """A connection over a UNIX socket, which is in no network."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(str(self._path))


def _ask(path: Path) -> tuple[str, str]:
    """Ask the question; return its route and the answer's text."""
    connection = _Local(path)
    body = {"model": "curtilage", "messages": [{"role": "user", "content": QUESTION}]}
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        content = cast("dict[str, Any]", json.loads(answer.read()))
    finally:
        connection.close()
    assert answer.status == http.client.OK, content
    text = str(content["choices"][0]["message"]["content"])
    return answer.getheader("x-curtilage-route") or "", text
