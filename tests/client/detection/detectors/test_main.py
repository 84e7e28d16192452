"""The child's end of the pipe; with a parent, it is ``test_worker``'s."""

import io
import json
import subprocess
import sys
from base64 import b64encode
from dataclasses import replace

import pytest

from curtilage.client.detection.detectors.__main__ import read_plan, serve
from curtilage.client.detection.detectors.all import own_equipment
from curtilage.client.detection.detectors.scanner import Scanner
from curtilage.client.detection.pipe import LOADING, READY
from curtilage.client.detection.worker import worker_environment
from curtilage.policy.document.detection_plan import DetectionPlan, OwnDetector
from curtilage.policy.document.load import load_profile
from curtilage.sandbox.pipe import encode_frame, read_frame
from curtilage.sandbox.wall import Wall

TABLE = bytes(range(256)) * 4


def sent(plan: DetectionPlan, *lists: bytes, count: int) -> io.BytesIO:
    frames = [[plan.to_fields(), count], *(b64encode(each).decode() for each in lists)]
    return io.BytesIO(b"".join(map(encode_frame, frames)))


def with_list() -> DetectionPlan:
    own = OwnDetector(
        id="a", kind="edm", data_class="org.edm.a", base_score=9, table=TABLE
    )
    return replace(load_profile("default").plan, detectors=(own,))


def test_an_exact_list_follows_the_plan() -> None:
    plan = with_list()
    assert TABLE.hex() not in json.dumps(plan.to_fields())
    assert read_plan(sent(plan, TABLE, count=1)) == plan


@pytest.mark.parametrize(
    ("lists", "count"), [((), 0), ((), 1), ((TABLE[1:],), 1), ((b"",), 1)]
)
def test_a_plan_without_its_list_is_none(lists: tuple[bytes, ...], count: int) -> None:
    with pytest.raises(ValueError, match=r"exact list|characters"):
        read_plan(sent(with_list(), *lists, count=count))


@pytest.mark.parametrize("frame", [{}, [], [{}], [{}, "1"], 7])
def test_another_first_frame_is_no_plan(frame: object) -> None:
    with pytest.raises(ValueError, match="first frame"):
        read_plan(io.BytesIO(encode_frame(frame)))


@pytest.mark.parametrize(
    "batch",
    [
        7,
        {"texts": []},
        [7],
        [{"texts": "x"}],
        [{"task": 0, "texts": 7, "limit_ms": 1, "wall_ms": 1}],
        [{"task": 0, "texts": [["x"], "y"], "limit_ms": 1, "wall_ms": 1}],
    ],
)
def test_serve_refuses_what_is_no_batch(batch: object) -> None:
    with pytest.raises(ValueError, match=r"batch|task|conversation"):
        serve(
            io.BytesIO(encode_frame(batch)),
            io.BytesIO(),
            Scanner(own_equipment()),
            Wall(),
        )


def test_serve_answers_each_task() -> None:
    batch = [
        {"task": n, "texts": [["a@b.example"]], "limit_ms": 9000, "wall_ms": 9000}
        for n in (4, 5)
    ]
    replies = io.BytesIO()
    wall = Wall(missing=("seccomp: none here",))
    serve(io.BytesIO(encode_frame(batch)), replies, Scanner(own_equipment()), wall)
    replies.seek(0)
    assert read_frame(replies) == {READY: wall.to_fields()}
    for number in (4, 5):
        while (answer := read_frame(replies)) in ({LOADING: True}, {LOADING: False}):
            pass
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
