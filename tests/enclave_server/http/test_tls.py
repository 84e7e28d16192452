"""TLS on the enclave's hop: what is served, what is refused, and the messages."""

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from curtilage.enclave_server.__main__ import EXIT_CONFIG, main
from curtilage.enclave_server.config import Limits, TLSFiles
from curtilage.enclave_server.errors import ConfigError
from curtilage.enclave_server.http.binding import bind
from curtilage.enclave_server.http.server import EnclaveServer
from curtilage.enclave_server.http.tls import server_context
from support.enclave_deployment import config_text, make_world
from support.enclave_parts import (
    LOOPBACK,
    QUICK,
    get,
    make_parts,
    post,
    read_answer,
    seal,
)
from support.tls_files import write_tls_files
from support.virtual_time import VirtualTime


@asynccontextmanager
async def served(folder: Path, *, header_s: int = 10) -> AsyncGenerator[int]:
    certificate, key = write_tls_files(folder)
    parts = await make_parts(
        transport=QUICK,
        limits=Limits(header_s=header_s),
        timer=VirtualTime().timer,
    )
    server = EnclaveServer(parts.context)
    files = TLSFiles(certificate=certificate, key=key)
    with bind(LOOPBACK) as bound:
        address = await server.start(bound, server_context(files))
        # What is sealed goes to the key of these parts.
        (folder / "message").write_bytes(seal(parts.key).message)
        try:
            yield int(address.rpartition(":")[2])
        finally:
            await server.stop()


def client_context(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "server.pem")


async def test_answers_are_served_over_tls(tmp_path: Path) -> None:
    async with served(tmp_path) as port:
        context = client_context(tmp_path)
        context.set_alpn_protocols(["h2", "http/1.1"])
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context
            )
            tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
            assert tls.selected_alpn_protocol() == "http/1.1"
            assert tls.version() in {"TLSv1.2", "TLSv1.3"}
            writer.write(post((tmp_path / "message").read_bytes()))
            answer = await read_answer(reader)
            assert answer.status == 200
            assert len(answer.pieces) == 8
            writer.close()


def test_older_tls_is_not_spoken(tmp_path: Path) -> None:
    certificate, key = write_tls_files(tmp_path)
    context = server_context(TLSFiles(certificate=certificate, key=key))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_plain_http_to_a_tls_port_is_not_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/healthz"))
        assert b"HTTP/1.1 200" not in await reader.read()
        writer.close()


async def test_silent_handshake_is_dropped(tmp_path: Path) -> None:
    async with served(tmp_path, header_s=1) as port, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()


def refusal(certificate: Path, key: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        server_context(TLSFiles(certificate=certificate, key=key))
    assert caught.value.__suppress_context__
    return str(caught.value)


def test_an_error_in_a_file_is_reported_with_its_remedy(tmp_path: Path) -> None:
    certificate, key = write_tls_files(tmp_path)
    _, other = write_tls_files(tmp_path, "other")
    garbage, gone = tmp_path / "garbage", tmp_path / "gone"
    garbage.write_text("canary")
    assert re.match(r"tls\.certificate: .*FileNotFound", refusal(gone, key))
    assert re.match(r"tls\.key: .*FileNotFound", refusal(certificate, gone))
    assert " tls.certificate" in refusal(certificate, other)
    for refused in (refusal(garbage, key), refusal(certificate, garbage)):
        assert "must be PEM" in refused
        assert "canary" not in refused


def test_key_with_a_passphrase_does_not_ask_the_terminal(tmp_path: Path) -> None:
    certificate, _ = write_tls_files(tmp_path)
    refused = refusal(certificate, tmp_path / "server-locked.key")
    assert "without a passphrase" in refused


def test_check_reads_the_tls_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = make_world(tmp_path)
    write_tls_files(tmp_path)
    tls = f'[tls]\ncertificate = "{tmp_path}/server.pem"\nkey = "{tmp_path}/no.key"\n'
    model = tmp_path / "model.gguf"
    model.write_bytes(b"x")
    path = tmp_path / "enclave.toml"
    path.write_text(config_text(tmp_path, world.deployment) + tls, "utf-8")
    assert main(["--config", str(path), "--check"]) == EXIT_CONFIG
    assert "tls.key: " in capsys.readouterr().err
    path.write_text(path.read_text("utf-8").replace("no.key", "server.key"), "utf-8")
    assert main(["--config", str(path), "--check"]) == 0
