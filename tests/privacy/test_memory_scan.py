"""The scan of another process's memory finds a text in every form it looks for."""

import json
import subprocess
import sys
from array import array
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from support.memory_scan import forms_of, hits, is_readable

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="SKIPPED LOUDLY: only Linux has /proc/PID/mem",
)

TEXT = 'the "lantern" by the wooden fence'
OTHER = "a text of the same length, or so"
HOLDS = """
import sys
held = bytes(octet ^ 255 for octet in sys.stdin.buffer.readline()[:-1])
print(flush=True)
sys.stdin.read()
"""


def token_of(code: int) -> int:
    return code + 1000


def planted(text: str) -> dict[str, bytes]:
    """Return a text as programs hold it, by the names of the forms."""
    tokens = [token_of(code) for code in text.encode()]
    return {
        "UTF-8": text.encode(),
        "UTF-16": text.encode("utf-16-le"),
        "UTF-32": text.encode("utf-32-le"),
        "tokens of 32 bits": array("i", tokens).tobytes(),
        "tokens of 64 bits": array("q", tokens).tobytes(),
        "JSON": json.dumps({"content": text}).encode(),
        "JSON in JSON": json.dumps({"a": json.dumps({"content": text})}).encode(),
        **{
            f"base64, {at}": b64encode(bytes(at) + text.encode() + b"more")
            for at in range(3)
        },
    }


@contextmanager
def holding(octets: bytes) -> Generator[int]:
    """Run a process that holds these, and nothing else of them; yield its id."""
    command = [sys.executable, "-I", "-c", HOLDS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # Inverted, so that no buffer on the way holds them.
        process.stdin.write(bytes(octet ^ 255 for octet in octets) + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        if not is_readable(process.pid):
            process.stdin.close()
            pytest.skip("SKIPPED LOUDLY: this system hides /proc/PID/mem")
        yield process.pid
        process.stdin.close()


def test_each_form_has_a_test() -> None:
    assert planted(TEXT).keys() == forms_of(TEXT, token_of).keys()


@pytest.mark.parametrize("form", planted(TEXT))
def test_a_text_is_found_in_each_form(form: str) -> None:
    forms = forms_of(TEXT, token_of)
    with holding(planted(TEXT)[form]) as pid:
        assert form in hits(pid, forms)
        assert form in hits(pid, forms, everything=True)
    with holding(planted(OTHER)[form]) as pid:
        assert hits(pid, forms, everything=True) == {}
