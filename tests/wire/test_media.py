import pytest

from curtilage.wire import media
from curtilage.wire.errors import (
    ConsumedError,
    LimitExceededError,
    MalformedError,
    OpenError,
    TruncatedError,
    UnknownKeyError,
    UnsupportedError,
    WireError,
)


def test_media_types_are_the_registered_ones() -> None:
    assert [
        media.OHTTP_KEYS,
        media.OHTTP_REQUEST,
        media.OHTTP_RESPONSE,
        media.OHTTP_CHUNKED_REQUEST,
        media.OHTTP_CHUNKED_RESPONSE,
    ] == [
        "application/ohttp-keys",
        "message/ohttp-req",
        "message/ohttp-res",
        "message/ohttp-chunked-req",
        "message/ohttp-chunked-res",
    ]
    assert media.GATEWAY_PATH == "/.well-known/ohttp-gateway"


@pytest.mark.parametrize(
    "error",
    [
        ConsumedError,
        LimitExceededError,
        MalformedError,
        OpenError,
        TruncatedError,
        UnknownKeyError,
        UnsupportedError,
    ],
)
def test_every_error_has_one_root(error: type[Exception]) -> None:
    assert error.__bases__ == (WireError,)
