# pyright: reportPrivateUsage=false
# Private members are looked at here, to see what is left in them.
"""What a sealer keeps of an answer that it has sealed: nothing."""

import pytest
from typing_extensions import override

from curtilage.enclave_server.ohttp.sealing import PlainOutput, PlainSealer
from curtilage.wire.frames import Frame
from curtilage.wire.hpke.suite import KEM_X25519, Suite
from curtilage.wire.shaping import PADDED

ANSWER = b"an answer"


class _Seals:
    def seal(self, bhttp: bytes) -> bytes:
        return bhttp


class _Watched(bytearray):
    """Bytes that remember what they were when they were deleted."""

    last = b""

    @override
    def clear(self) -> None:
        self.last = bytes(self)
        super().clear()


def test_a_whole_answer_is_overwritten_once_it_is_sealed() -> None:
    sealer = PlainSealer(_Seals())
    sealer.begin(200, ())
    sealer.write(ANSWER)
    assert ANSWER in sealer.finish()
    assert sealer._content == bytes(len(ANSWER))


@pytest.mark.parametrize("frames", [1, 3])
def test_a_padded_whole_answer_is_overwritten_once_it_is_sealed(frames: int) -> None:
    suite = Suite(kem_id=KEM_X25519, kdf_id=1, aead_id=1)
    output = PlainOutput(_Seals(), PADDED, suite)
    output._content = content = _Watched()
    output.begin(200, ())
    output.write(ANSWER)
    for _ in range(frames - 1):
        assert output.frame(Frame(plaintext=b"", final=False)) == b""
    assert ANSWER in output.frame(Frame(plaintext=b"", final=True))
    assert content.last == bytes(len(ANSWER))
    assert content == b""
