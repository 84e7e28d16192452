"""The child's end of the pipe; with a parent, it is ``test_worker``'s."""

import io
import json
import subprocess
import sys

import pytest

from curtilage.client.detection.detectors.__main__ import serve
from curtilage.client.detection.detectors.all import own_equipment
from curtilage.client.detection.detectors.scanner import Scanner
from curtilage.client.detection.pipe import READY, encode_frame, read_frame
from curtilage.client.detection.worker import worker_environment
from curtilage.sandbox.wall import Wall


@pytest.mark.parametrize(
    "batch",
    [7, {"texts": []}, [7], [{"texts": "x"}], [{"task": 0, "texts": 7, "limit_ms": 1}]],
)
def test_serve_refuses_what_is_no_batch(batch: object) -> None:
    with pytest.raises(ValueError, match=r"batch|task"):
        serve(
            io.BytesIO(encode_frame(batch)),
            io.BytesIO(),
            Scanner(own_equipment()),
            Wall(),
        )


def test_serve_answers_each_task() -> None:
    batch = [{"task": n, "texts": ["a@b.example"], "limit_ms": 9000} for n in (4, 5)]
    replies = io.BytesIO()
    wall = Wall(missing=("seccomp: none here",))
    serve(io.BytesIO(encode_frame(batch)), replies, Scanner(own_equipment()), wall)
    replies.seek(0)
    assert read_frame(replies) == {READY: wall.to_fields()}
    for number in (4, 5):
        answer = read_frame(replies)
        assert isinstance(answer, dict)
        assert answer["task"] == number
        assert "identifier.direct.email" in json.dumps(answer["found"])


@pytest.mark.parametrize(
    "attempt",
    [
        "import socket; socket.socket()",
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import socket; socket.getaddrinfo('example.org', 443)",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1')",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.fork()",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "open('/tmp/canary', 'w')",
        "import tempfile; tempfile.TemporaryFile(dir='/tmp')",
        "import os; os.open('/tmp/canary', os.O_CREAT | os.O_WRONLY)",
    ],
)
def test_a_worker_cannot_connect_start_or_write(attempt: str) -> None:
    code = f"""
from curtilage.client.detection.detectors.__main__ import refuse_network_and_files
refuse_network_and_files()
try:
    {attempt}
except PermissionError:
    print("refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        env=worker_environment(),
        timeout=60,
    )
    assert done.stdout == b"refused\n"
