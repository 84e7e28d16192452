import base64
import re
from pathlib import Path

import pytest

from curtilage.attest.log.note import COSIGNATURE_V1, ED25519, SUBTREE_V1, NoteKey
from curtilage.attest.log.vkeys import VerifierKey
from curtilage.enclave_server.config import (
    AnchorFile,
    ChallengeChoice,
    Environment,
    Freshness,
    Limits,
    Peer,
    TLSFiles,
    Witness,
    parse_config,
)
from curtilage.enclave_server.errors import ConfigError
from curtilage.enclave_server.toml_reader import Listen

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER = base64.b64encode(bytes(range(1, 33))).decode()
TOP = {
    "environment": '"development"',
    "listen": '"127.0.0.1:0"',
    "evidence": '"unix:/run/evidence.sock"',
    "release": '"/var/release"',
}
TABLES = f"""
[[trust_anchors]]
kind = "emulated"
product = "Genoa"
certificate = "/run/root.pem"
[log]
origin = "log.example"
key = "{KEY}"
[[log.witnesses]]
name = "w1"
key = "{OTHER}"
[model]
path = "embedded"
"""


def text_of(tables: str = TABLES, /, **top: str | None) -> str:
    lines = {**TOP, **top}
    return (
        "\n".join(f"{key} = {value}" for key, value in lines.items() if value) + tables
    )


def problems_of(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    return caught.value.problems


def test_smallest_configuration_is_read() -> None:
    config = parse_config(text_of())
    assert config.environment is Environment.DEVELOPMENT
    assert (config.listen.host, config.listen.port) == ("127.0.0.1", 0)
    assert config.evidence == Path("/run/evidence.sock")
    assert config.log.witnesses == (Witness(name="w1", key=bytes(range(1, 33))),)
    assert config.log.quorum == 1
    assert config.model.path is None
    assert config.model.sha256 == ""
    assert config.limits == Limits()
    assert config.freshness == Freshness()


def test_production_configuration_is_read() -> None:
    tables = TABLES.replace('"emulated"', '"amd"').replace(
        'path = "embedded"', f'path = "/m.gguf"\nsha256 = "{"ab" * 32}"'
    )
    config = parse_config(
        text_of(tables, environment='"production"', listen='"unix:/run/e.sock"')
    )
    assert config.listen.path == Path("/run/e.sock")
    assert config.model.path == Path("/m.gguf")


def engine(address: str, more: str = "") -> str:
    model = f'engine = "openai"\naddress = "{address}"\nname = "ward"\n{more}'
    return TABLES.replace('path = "embedded"\n', model)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("unix:/run/engine.sock", Listen(path=Path("/run/engine.sock"))),
        ("127.0.0.1:8000", Listen(host="127.0.0.1", port=8000)),
        ("[::1]:8000", Listen(host="::1", port=8000)),
    ],
)
def test_an_engine_of_others_is_named(address: str, place: Listen) -> None:
    text = text_of(engine(address, "parallel = 8\ncontext_tokens = 32768\n"))
    model = parse_config(text).model
    assert model.peer == Peer(address=place, name="ward", parallel=8)
    assert (model.path, model.sha256, model.context_tokens) == (None, "", 32768)
    text = text_of(engine(address, "stall_s = 7\n"))
    assert parse_config(text).model.peer == Peer(address=place, name="ward", stall_s=7)


@pytest.mark.parametrize(
    ("address", "more", "key"),
    [
        ("192.0.2.1:8000", "", "model.address"),
        ("engine.example:8000", "", "model.address"),
        ("127.0.0.1:8000", 'sha256 = "00"\n', "model.'sha256'"),
        ("127.0.0.1:8000", 'path = "/m.gguf"\n', "model.'path'"),
        ("127.0.0.1:8000", "parallel = 0\n", "model.parallel"),
        ("127.0.0.1:8000", "stall_s = 0\n", "model.stall_s"),
        ("127.0.0.1:8000", "stall_s = 3601\n", "model.stall_s"),
    ],
)
def test_an_engine_outside_of_this_machine_is_refused(
    address: str, more: str, key: str
) -> None:
    (problem,) = problems_of(text_of(engine(address, more)))
    assert problem.startswith(f"{key}: ")


def test_an_engine_is_ours_or_openais() -> None:
    own = TABLES.replace("[model]", '[model]\nengine = "llama.cpp"')
    assert parse_config(text_of(own)).model.peer is None
    other = TABLES.replace("[model]", '[model]\nengine = "other"')
    (problem,) = problems_of(text_of(other))
    assert problem.startswith("model.engine: ")


@pytest.mark.parametrize(
    "listen", ["[::1]:80", "127.0.0.2:65535"], ids=["ipv6", "other-loopback"]
)
def test_loopback_addresses_are_taken(listen: str) -> None:
    assert parse_config(text_of(listen=f'"{listen}"')).listen.port


@pytest.mark.parametrize(
    "listen",
    [
        "localhost:80",
        ":80",
        "127.0.0.1",
        "127.0.0.1:65536",
        "127.0.0.1:+80",
        "127.0.0.1:x",
        "unix:relative",
    ],
)
def test_any_other_address_is_refused(listen: str) -> None:
    (problem,) = problems_of(text_of(listen=f'"{listen}"'))
    assert problem.startswith("listen: must be")


@pytest.mark.parametrize("listen", ["[2001:db8::1]:1"])
def test_plain_tcp_is_refused_beyond_this_machine(listen: str) -> None:
    (problem,) = problems_of(text_of(listen=f'"{listen}"'))
    assert problem.startswith("listen: ")
    assert "[tls]" in problem
    assert "environment" not in problem


def test_plain_tcp_is_refused_in_production() -> None:
    tables = TABLES.replace('"emulated"', '"amd"')
    (problem,) = problems_of(text_of(tables, environment='"production"'))
    assert problem.startswith("listen: TCP ")
    assert "[tls]" in problem
    assert 'environment = "development"' in problem


TLS = '[tls]\ncertificate = "/c.pem"\nkey = "/k.pem"\n'


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "192.0.2.1:443", "[::]:443"])
def test_tls_makes_any_address_good(listen: str) -> None:
    tables = TABLES.replace('"emulated"', '"amd"') + TLS
    config = parse_config(
        text_of(tables, environment='"production"', listen=f'"{listen}"')
    )
    assert config.tls == TLSFiles(certificate=Path("/c.pem"), key=Path("/k.pem"))


def test_tls_is_not_for_a_unix_socket() -> None:
    text = text_of(TABLES + TLS, listen='"unix:/run/e.sock"')
    (problem,) = problems_of(text)
    assert problem.startswith("tls: ")
    assert "UNIX socket" in problem


@pytest.mark.parametrize(
    ("tls", "problem"),
    [
        ('[tls]\nkey = "/k.pem"\n', "tls.certificate: a string is required"),
        ('[tls]\ncertificate = "/c.pem"\n', "tls.key: a string is required"),
        (TLS + "ca = 1\n", "tls.'ca': unknown key"),
        (TLS.replace("/k", "k"), "tls.key: must be an absolute path"),
    ],
)
def test_wrong_tls_table_is_refused(tls: str, problem: str) -> None:
    assert problems_of(text_of(TABLES + tls)) == (problem,)


def test_keys_rotate_every_six_hours_by_default() -> None:
    freshness = parse_config(text_of()).freshness
    assert (freshness.rotate_s, freshness.key_lifetime_s) == (21600, 43200)


def test_emulated_anchor_is_refused_in_production() -> None:
    text = text_of(environment='"production"', listen='"unix:/e.sock"')
    (problem,) = problems_of(text)
    assert problem.startswith('trust_anchors[0].kind: "emulated" ')
    assert problem.endswith('environment = "development"')


def test_recording_is_no_part_of_the_server() -> None:
    """A file of an earlier version that names it is refused in any environment."""
    (problem,) = problems_of(text_of(unsafe_record_view='"/run/view"'))
    assert problem == "'unsafe_record_view': unknown key"


HEAD, TAIL = TABLES[: TABLES.index("[[trust")], TABLES[TABLES.index("[log]") :]


def anchored(*anchors: str) -> str:
    tables = "".join(f"[[trust_anchors]]\n{anchor}\n" for anchor in anchors)
    return text_of(HEAD + tables + TAIL)


AMD = 'kind = "amd"\nproduct = "Milan"'
EMULATED = 'kind = "emulated"\nproduct = "{}"\ncertificate = "/r.pem"'
TPM = 'kind = "tpm"\ncertificate = "/ak.pem"'


@pytest.mark.parametrize(
    ("anchor", "read"),
    [
        (AMD, AnchorFile(kind="amd", product="Milan", certificate=None)),
        (
            AMD + '\ncertificate = "/a.pem"',
            AnchorFile(kind="amd", product="Milan", certificate=Path("/a.pem")),
        ),
        ('kind = "intel"', AnchorFile(kind="intel", product="", certificate=None)),
        ('kind = "aws"', AnchorFile(kind="aws", product="", certificate=None)),
        (TPM, AnchorFile(kind="tpm", product="", certificate=Path("/ak.pem"))),
        (
            EMULATED.format("tdx"),
            AnchorFile(kind="emulated", product="tdx", certificate=Path("/r.pem")),
        ),
        (
            EMULATED.format("nitro"),
            AnchorFile(kind="emulated", product="nitro", certificate=Path("/r.pem")),
        ),
    ],
)
def test_anchors_of_every_kind_are_read(anchor: str, read: AnchorFile) -> None:
    assert parse_config(anchored(anchor)).anchors == (read,)


def test_anchors_of_a_cpu_and_its_devices_go_together() -> None:
    anchors = parse_config(anchored(AMD, 'kind = "nvidia"')).anchors
    assert [anchor.is_device for anchor in anchors] == [False, True]
    anchors = parse_config(
        anchored(EMULATED.format("Genoa"), EMULATED.format("nvidia-gpu"))
    ).anchors
    assert [anchor.is_device for anchor in anchors] == [False, True]


@pytest.mark.parametrize(
    ("anchors", "problem"),
    [
        ((EMULATED.format("Genoa"), AMD), "must all be emulated, or none of them"),
        ((TPM, EMULATED.format("tdx")), "must all be emulated, or none of them"),
        (('kind = "nvidia"',), "none of them is a CPU's"),
        ((EMULATED.format("nvidia-gpu"),), "none of them is a CPU's"),
    ],
)
def test_anchors_that_do_not_go_together_are_refused(
    anchors: tuple[str, ...], problem: str
) -> None:
    assert problems_of(anchored(*anchors)) == (f"trust_anchors: {problem}",)


@pytest.mark.parametrize(
    ("anchor", "problem"),
    [
        (EMULATED.format("Genoa"), '"emulated" needs environment = "development"'),
        (TPM, '"tpm" needs environment = "development"'),
    ],
)
def test_anchors_that_show_no_isolation_need_development(
    anchor: str, problem: str
) -> None:
    text = anchored(anchor).replace('"development"', '"production"', 1)
    text = text.replace('"127.0.0.1:0"', '"unix:/run/e.sock"')
    assert problems_of(text) == (f"trust_anchors[0].kind: {problem}",)


@pytest.mark.parametrize(
    ("anchor", "problem"),
    [
        ('kind = "intel"\nproduct = "tdx"', "'product': unknown key"),
        ('kind = "amd"\nproduct = "tdx"', "product: must be one of Genoa"),
        ('kind = "amd"', "product: a string is required"),
        ('kind = "emulated"\nproduct = "Rome"', "product: must be one of Genoa"),
        ('kind = "tpm"', "certificate: a string is required"),
    ],
)
def test_anchor_with_the_wrong_keys_is_refused(anchor: str, problem: str) -> None:
    found = problems_of(anchored(anchor))
    assert any(line.startswith(f"trust_anchors[0].{problem}") for line in found), found


def test_counters_are_at_a_socket_if_one_is_named() -> None:
    assert parse_config(text_of()).counters is None
    tables = TABLES + '[counters]\nlisten = "unix:/run/counters.sock"\n'
    assert parse_config(text_of(tables)).counters == Path("/run/counters.sock")


def test_challenges_are_off_unless_enabled() -> None:
    assert not parse_config(text_of()).challenge.enabled
    tables = TABLES + "[challenge]\nenabled = true\nleast_interval_s = 7\n"
    assert parse_config(text_of(tables)).challenge == ChallengeChoice(
        enabled=True, least_interval_s=7
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"emulated"', '"arm"', "trust_anchors[0].kind: must be one of"),
        ('"Genoa"', '""', "trust_anchors[0].product: a string is required"),
        ('"/run/root.pem"', '"root.pem"', "trust_anchors[0].certificate: must be"),
        ('certificate = "/run/root.pem"\n', "", "trust_anchors[0].certificate: a"),
        (KEY, "short", "log.key: must be 32 bytes"),
        (KEY, "AAAA", "log.key: must be 32 bytes"),
        ("[[log.witnesses]]", "[log.witnesses]", "log.witnesses: at least one"),
        (f'[[log.witnesses]]\nname = "w1"\nkey = "{OTHER}"', "", "log.witnesses: at"),
        ("[[log.witnesses]]", "[[log.others]]", "log.'others': unknown key"),
        ("[log]", "[log]\nquorum = 2", "log.quorum: must be 1 to 1"),
        ("[log]", "[log]\nquorum = 0", "log.quorum: must be 1 to 1"),
        ("[log]", "[log]\nquorum = true", "log.quorum: an integer is required"),
        ("[log]", "[log]\nmax_checkpoint_age_s = 1", "log.max_checkpoint_age_s: must"),
        ('"embedded"', '"m.gguf"', "model.path: must be"),
        ('"embedded"', '"/m.gguf"', "model.sha256: a string is required"),
        ("[model]", '[model]\nsha256 = "AB"', "model.sha256: must be 64"),
        ("[model]", "[model]\ncontext_tokens = 1", "model.context_tokens: must be"),
        ("[model]", "[model]\nthreads = 0", "model.threads: must be 1 to 64"),
        ("[model]", '[model]\nkv_type = "q5_1"', "model.kv_type: must be one of f16"),
        ("[model]", '[model]\nflash_attention = "yes"', "model.flash_attention: mu"),
        ("[model]", "[model]\ngpu_layers = -1", "model.gpu_layers: must be 0 to"),
        (
            "[model]",
            '[model]\nisolation = "none"',
            "model.isolation: must be one of sh",
        ),
        (
            "[model]",
            '[model]\nisolation = "process"\ngpu_layers = 1',
            'model.isolation: "process" computes no layer on a GPU',
        ),
        (
            "[model]",
            '[model]\nkv_type = "q8_0"\nflash_attention = "off"',
            "model.kv_type: a quantised one needs flash attention",
        ),
        ("[model]", "[model]\nsequences = 0", "model.sequences: must be 1 to 64"),
        ("[model]", "[modell]", "model: a table is required"),
        ("[model]", "[limits]\nmax_body_bytes = 0\n[model]", "limits.max_body_bytes"),
        ("[model]", "[limits]\nbody_bytes = 0\n[model]", "limits.'body_bytes': unkn"),
        ("[model]", "[freshness]\nrefresh_s = 43201\n[model]", "freshness.refresh_s"),
        ("[model]", "[challenge]\nenabled = 1\n[model]", "challenge.enabled: true"),
        ("[model]", "[challenge]\nleast_interval_s = 0\n[model]", "challenge.least"),
        ("[model]", "[challenge]\nseldom = 0\n[model]", "challenge.'seldom': un"),
        ("[model]", "[freshness]\nrotate_s = 3600\n[model]", "freshness.rotate_s"),
        (
            "[model]",
            '[counters]\nlisten = "127.0.0.1:9"\n[model]',
            "counters.listen: m",
        ),
        ("[model]", "[counters]\n[model]", "counters.listen: a string"),
        (
            "[model]",
            '[counters]\nlisten = "unix:/run/evidence.sock"\n[model]',
            "counters.listen: is another socket's path",
        ),
        (
            "[model]",
            '[counters]\nlisten = "unix:/c"\nlabels = 1\n[model]',
            "counters.'labels': unknown key",
        ),
        (
            "[model]",
            "[freshness]\nkey_lifetime_s = 43201\n[model]",
            "freshness.key_lifetime_s: must be 60 to 43200",
        ),
    ],
)
def test_wrong_table_is_refused(old: str, new: str, problem: str) -> None:
    assert old in TABLES
    found = problems_of(text_of(TABLES.replace(old, new)))
    assert any(line.startswith(problem) for line in found), found


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("environment", None, "environment: a string is required"),
        ("environment", '"test"', "environment: must be one of"),
        ("evidence", '"/run/e.sock"', "evidence: must be"),
        ("evidence", '"unix:e.sock"', "evidence: must be"),
        ("release", "1", "release: a string is required"),
        ("release", '"here"', "release: must be an absolute path"),
        ("relase", '"/x"', "'relase': unknown key"),
        ("limits", "3", "limits: a table is required"),
    ],
)
def test_wrong_key_is_refused(key: str, value: str | None, problem: str) -> None:
    found = problems_of(text_of(**{key: value}))
    assert any(line.startswith(problem) for line in found), found


def test_anchor_that_is_no_table_is_refused() -> None:
    tables = "\n" + TABLES[TABLES.index("[log]") :]
    (problem,) = problems_of(text_of(tables, trust_anchors="[3]"))
    assert re.match(r"trust_anchors\[0\]: .*\btable\b", problem)


def test_two_witnesses_with_one_key_are_refused() -> None:
    twice = f'[[log.witnesses]]\nname = "w2"\nkey = "{OTHER}"\n[model]'
    (problem,) = problems_of(text_of(TABLES.replace("[model]", twice)))
    assert re.match("log.witnesses: .* differ$", problem)


def test_keys_may_be_vkeys_of_the_right_kind() -> None:
    log = parse_config(text_of()).log
    keys = (log.key, log.witnesses[0].key)
    types = (ED25519, COSIGNATURE_V1)
    written = [
        VerifierKey(key=NoteKey(name="x", public_key=key), signature_type=kind).text
        for key, kind in zip(keys, types, strict=True)
    ]
    bare = [base64.b64encode(key).decode() for key in keys]
    tables = TABLES.replace(bare[0], written[0]).replace(bare[1], written[1])
    assert parse_config(text_of(tables)).log == log
    subtree = VerifierKey(
        key=NoteKey(name="x", public_key=bytes(1312)), signature_type=SUBTREE_V1
    ).text
    (problem,) = problems_of(text_of(TABLES.replace(bare[0], subtree)))
    assert re.match(r"log\.key: .* 32 bytes .* vkey$", problem)


def test_text_that_is_not_toml_is_refused() -> None:
    (problem,) = problems_of("= 1")
    assert problem.startswith("not TOML")


def test_all_problems_come_at_once() -> None:
    assert len(problems_of('surprise = 1\nlisten = "x"')) >= 7


def test_freshness_defaults_follow_the_ages() -> None:
    tables = TABLES + "[freshness]\nkey_lifetime_s = 601\nmax_evidence_age_s = 300\n"
    freshness = parse_config(text_of(tables)).freshness
    assert (freshness.refresh_s, freshness.rotate_s) == (150, 301)


def test_the_model_computes_as_configured() -> None:
    usual = parse_config(text_of()).model
    assert usual.context_tokens is None
    assert (usual.kv_type, usual.flash_attention, usual.gpu_layers) == (
        "f16",
        "auto",
        0,
    )
    given = 'kv_type = "q4_0"\nflash_attention = "on"\ngpu_layers = 40\n'
    found = parse_config(text_of(TABLES + given + "context_tokens = 8192\n")).model
    assert found.context_tokens == 8192
    assert (found.kv_type, found.flash_attention, found.gpu_layers) == (
        "q4_0",
        "on",
        40,
    )
    assert (usual.isolation, found.isolation) == ("shared", "shared")
    apart = parse_config(text_of(TABLES + 'isolation = "process"\n')).model
    assert apart.isolation == "process"
