"""Programs that only the watched world needs; ``python -m support.outside.programs``.

``control PLACE`` does everything that no program of ours may; ``library`` asks as an
application does; ``evidence`` is the shipped evidence process over a device in memory.
"""

import asyncio
import itertools
import json
import os
import pwd
import socket
import ssl
import sys
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from curtilage.client.api import SyncClient
from curtilage.enclave_server.acquire.command import serve_until_signalled
from curtilage.enclave_server.acquire.configfs_tsm import TsmProvider
from curtilage.enclave_server.acquire.process import EvidenceServer, EvidenceSettings
from curtilage_dev.deployment import MEASUREMENT
from support.enclave_devices import FakeTsm
from support.enclave_vendors import snp_platform

HOME_QUESTION = "I was diagnosed with HIV last week. Do I have to tell my employer?"
LEAVING_QUESTION = "How does compound interest work?"
NAMED_QUESTION = "Write a polite reminder to John Smith about the meeting on Monday."
QUESTIONS = (HOME_QUESTION, LEAVING_QUESTION, NAMED_QUESTION)

PAUSE_S = 1.0

CONTROL_NAME = "control.example"
CONTROL_TCP = ("198.51.100.7", 443)
CONTROL_TCP6 = ("2001:db8::7", 8443)
CONTROL_UDP = ("198.51.100.8", 9999)
CONTROL_FOLDER = "/run"
CONTROL_FILE = "left-by-the-control"


def control(place: str) -> None:
    """Look up, connect, send and write, each in several ways.

    Args:
        place: a folder of the checkout.
    """
    with suppress(OSError):
        socket.getaddrinfo(CONTROL_NAME, 443)
    with suppress(OSError):
        connection = socket.create_connection(CONTROL_TCP, timeout=60)
        context = ssl.create_default_context()
        context.wrap_socket(connection, server_hostname=CONTROL_NAME)
    with suppress(OSError):
        socket.create_connection(CONTROL_TCP6, timeout=60)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"control", CONTROL_UDP)
    account = pwd.getpwuid(os.getuid()).pw_dir
    for folder in (account, os.environ["HOME"], "/dev/shm", place):  # noqa: S108 - watched
        (Path(folder) / CONTROL_FILE).write_text("control", "utf-8")
    gone = Path(CONTROL_FOLDER) / CONTROL_FILE
    gone.write_text("control", "utf-8")
    gone.unlink()


def library() -> None:
    """Ask question after question; say where each was answered, until killed."""
    model = os.environ["WATCHED_MODEL"], os.environ["WATCHED_MODEL_SHA256"]
    with SyncClient(
        policy=os.environ["WATCHED_POLICY"],
        relay=os.environ["WATCHED_RELAY"],
        relay_ca=os.environ["WATCHED_RELAY_CA"],
        model=model[0],
        model_sha256=model[1],
    ) as client:
        for question in itertools.cycle(QUESTIONS):
            answer = client.chat(question, max_tokens=8)
            _say({"route": answer.route})
            time.sleep(PAUSE_S)


def evidence(listen: str, identify: str, endorsements: str) -> None:
    """Serve evidence of an emulated SEV-SNP machine on two sockets."""
    platform = snp_platform()

    def sign(report_data: bytes, level: int) -> bytes:
        fields = platform.report_fields(
            report_data=report_data, measurement=MEASUREMENT
        )
        signed = replace(fields, vmpl=level)
        return platform.evidence(signed, now=datetime.now(UTC)).report

    settings = EvidenceSettings(
        endorsements=Path(endorsements), listen=Path(listen), identify=Path(identify)
    )
    server = EvidenceServer(settings, TsmProvider(FakeTsm(sign=sign)), _notice)
    asyncio.run(serve_until_signalled(server, settings, _notice_ready))


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _notice_ready(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _notice(line: str) -> None:
    sys.stderr.write(line + "\n")


def main() -> None:
    match sys.argv[1:]:
        case ["control", place]:
            control(place)
        case ["evidence", listen, identify, endorsements]:
            evidence(listen, identify, endorsements)
        case _:
            library()


if __name__ == "__main__":
    main()
