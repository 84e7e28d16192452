"""The notices about a gateway's file: what is not refused, and may be a mistake."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from curtilage.client.endpoint.gateway_file import GatewayFile, TLSFiles
from curtilage.client.endpoint.gateway_notices import SOON, notices
from curtilage.client.endpoint.keys import make_key
from support.tls_files import write_tls_files

RECORDS = (make_key("letters")[1],)
NOW = datetime.now(UTC)
BEFORE = NOW - SOON - timedelta(hours=1)
"""The certificates of the tests last a day from now."""


@pytest.fixture
def tls(tmp_path: Path) -> TLSFiles:
    certificate, key = write_tls_files(tmp_path)
    key.chmod(0o600)
    return TLSFiles(certificate=certificate, key=key)


def file(tls: TLSFiles | None, *names: str, keys: bool = True) -> GatewayFile:
    return GatewayFile(
        path=Path("gateway.toml"),
        host="127.0.0.1",
        port=0,
        names=frozenset(names or {"localhost", "127.0.0.1"}),
        records=RECORDS if keys else (),
        tls=tls,
    )


def test_there_may_be_nothing_to_say(tls: TLSFiles) -> None:
    assert notices(file(tls), BEFORE) == []
    assert notices(file(None), NOW) == []


def test_without_a_key_all_is_refused(tls: TLSFiles) -> None:
    (said,) = notices(file(tls, keys=False), BEFORE)
    assert said.startswith("gateway.toml: no application")


def test_a_key_that_others_can_read_is_named(tls: TLSFiles) -> None:
    tls.key.chmod(0o640)
    (said,) = notices(file(tls), BEFORE)
    assert said.startswith(f"{tls.key}: other accounts")


@pytest.mark.parametrize(("days", "verb"), [(0, "ends at"), (2, "ended at")])
def test_the_end_of_a_certificate_is_named(days: int, verb: str, tls: TLSFiles) -> None:
    (said,) = notices(file(tls), NOW + timedelta(days=days))
    assert said.startswith(f"{tls.certificate}: {verb}")


def test_a_name_that_the_certificate_lacks_is_named(tls: TLSFiles) -> None:
    said = notices(file(tls, "localhost", "ward.example", "[::1]"), BEFORE)
    assert len(said) == 2
    assert "not for [::1]" in said[0]
    assert "not for ward.example" in said[1]


def test_a_wildcard_is_for_one_label(tmp_path: Path) -> None:
    certificate, key = write_tls_files(tmp_path, names=("*.ward.example",))
    key.chmod(0o600)
    wild = TLSFiles(certificate=certificate, key=key)
    assert notices(file(wild, "curtilage.ward.example"), BEFORE) == []
    assert len(notices(file(wild, "ward.example", "a.b.ward.example"), BEFORE)) == 2


def test_what_cannot_be_read_is_left_to_the_library(tls: TLSFiles) -> None:
    tls.certificate.write_text("no certificate")
    assert notices(file(tls), BEFORE) == []
