"""Documents in the layout of other services, over emulated machines.

Nothing here was published by any of them: names and places are theirs, every key,
report and quote is emulated. Functions return JSON values, so that a test can change
one member before it encodes the document.
"""

import base64
import gzip
import hashlib
import json
import struct
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from curtilage.attest.evidence import GpuEvidence, SnpEvidence, TdxEvidence
from curtilage.attest.sev_snp import report as layout
from curtilage_dev.emulated.machines import SnpMachine, TdxMachine
from curtilage_dev.emulated.tdx import QuoteFields

COMPOSE: Final = b'{"docker_compose_file":"services: {}","manifest_version":2}'
NONCE: Final = bytes(range(32))
_RUNTIME: Final = 0x08000001
_ALGORITHM: Final = "https://tinfoil.sh/report-data/v1"
_TINFOIL: Final = "https://tinfoil.sh/"
_REGISTER_BYTES: Final = 48

Json = dict[str, object]


def b64(data: bytes) -> str:
    """Return standard base64."""
    return base64.b64encode(data).decode()


def pem(*ders: bytes) -> str:
    """Return certificates as PEM blocks; an empty one is left out."""
    return "".join(
        f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(der).decode()}"
        "-----END CERTIFICATE-----\n"
        for der in filter(None, ders)
    )


def as_json(value: object) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def tinfoil_2(machine: SnpMachine, tls: bytes, hpke: bytes, *, now: datetime) -> Json:
    """Return a bundle of the cache around a form 2 document.

    Args:
        machine: whose report it is.
        tls: SHA-256 of the TLS key.
        hpke: the HPKE key, 32 bytes.
        now: when it was made.
    """
    evidence = cast("SnpEvidence", machine.evidence(tls + hpke, now=now))
    return {
        "domain": "model.example",
        "enclaveAttestationReport": {
            "format": f"{_TINFOIL}predicate/sev-snp-guest/v2",
            "body": b64(gzip.compress(evidence.report)),
        },
        "sigstoreBundle": tinfoil_statement(machine.image.hex()),
        "vcek": b64(evidence.vek),
    }


def tinfoil_statement(launch: str) -> Json:
    """Return a Sigstore bundle that names a launch measurement, without signature."""
    statement = {
        "predicateType": f"{_TINFOIL}predicate/snp-tdx-multiplatform/v1",
        "predicate": {
            "snp_measurement": launch,
            "tdx_measurement": {"rtmr1": "00" * 48, "rtmr2": "00" * 48},
        },
    }
    return {"dsseEnvelope": {"payload": b64(as_json(statement)), "signatures": []}}


def tinfoil_3(
    machine: SnpMachine | TdxMachine,
    *,
    now: datetime,
    nonce: bytes = NONCE,
    material: bytes | None = None,
) -> Json:
    """Return a form 3 document with its collateral.

    Args:
        machine: whose evidence it is.
        now: when it was made.
        nonce: of the request.
        material: the keys; None: one of each form.
    """
    if material is None:
        material = tinfoil_keys(tls=b"\x11" * 32, hpke=b"\x22" * 32)
    devices = as_json(
        {"format": f"{_TINFOIL}format/device-evidence/v1", "items": [{"id": "gpu-0"}]}
    )
    parts = hashlib.sha256(material).digest() + hashlib.sha256(devices).digest()
    bound = hashlib.sha256(_ALGORITHM.encode() + nonce + parts).digest() + bytes(32)
    evidence = machine.evidence(bound, now=now)
    if isinstance(evidence, SnpEvidence):
        kind, report = "sev-snp-report", evidence.report
        collateral = _amd(evidence)
    else:
        evidence = cast("TdxEvidence", evidence)
        kind, report = "tdx-quote", evidence.quote
        collateral = [_entry("intel-pcs", {"responses": _intel(evidence)})]
    return {
        "format": f"{_TINFOIL}predicate/attestation/v3",
        "challenge": {
            "nonce": nonce.hex(),
            "report_data": bound.hex(),
            "report_data_algorithm": _ALGORITHM,
        },
        "cpu_evidence": {
            "format": f"{_TINFOIL}format/{kind}/v1",
            "report_base64": b64(report),
        },
        "crypto_material": b64(material),
        "device_evidence": b64(devices),
        "collateral": collateral,
    }


def tinfoil_keys(**keys: bytes) -> bytes:
    """Return key material: ``tls`` is a digest, ``hpke`` a key."""
    forms = {"tls": "spki-fp-sha256", "hpke": "x25519-hpke"}
    items = [
        {"id": name, "format": f"{_TINFOIL}key/{forms[name]}/v1", "data": key.hex()}
        for name, key in keys.items()
    ]
    return as_json({"format": f"{_TINFOIL}format/crypto-material/v1", "items": items})


def _entry(name: str, data: Json) -> Json:
    return {
        "id": name,
        "role": "endorsement",
        "format": f"{_TINFOIL}collateral/{name}/v1",
        "subjects": ["cpu"],
        "data": data,
    }


def _amd(evidence: SnpEvidence) -> list[Json]:
    chain = pem(evidence.ask, evidence.ark)
    return [
        _entry(
            "amd-vcek", {"vcek_der_base64": b64(evidence.vek), "cert_chain_pem": chain}
        ),
        _entry("amd-crl", {"crl_der_base64": b64(evidence.crl)}),
    ]


def _intel(evidence: TdxEvidence) -> list[Json]:
    """Return the collateral as answers of Intel's service."""
    found: dict[str, str] = json.loads(evidence.collateral)
    api = "https://api.trustedservices.intel.com"

    def answer(url: str, body: bytes, header: str = "", chain: str = "") -> Json:
        headers = {header: [chain.replace("\n", "%0A")]} if header else {}
        return {"url": url, "headers": headers, "body_base64": b64(body)}

    def statement(member: str, name: str) -> bytes:
        signature = found[f"{name}_signature"]
        text = f'{{"{member}":{found[name]},"signature":"{signature}"}}'
        return text.encode()

    return [
        answer(
            f"{api}/tdx/certification/v4/tcb?fmspc=00",
            statement("tcbInfo", "tcb_info"),
            "TCB-Info-Issuer-Chain",
            found["tcb_info_issuer_chain"],
        ),
        answer(
            f"{api}/tdx/certification/v4/qe/identity",
            statement("enclaveIdentity", "qe_identity"),
            "SGX-Enclave-Identity-Issuer-Chain",
            found["qe_identity_issuer_chain"],
        ),
        answer(
            f"{api}/sgx/certification/v4/pckcrl?ca=platform",
            bytes.fromhex(found["pck_crl"]),
            "SGX-PCK-CRL-Issuer-Chain",
            found["pck_crl_issuer_chain"],
        ),
        answer(
            "https://certificates.trustedservices.intel.com/IntelSGXRootCA.der",
            bytes.fromhex(found["root_ca_crl"]),
        ),
    ]


def contrast_manifest(host_data: bytes, role: str = "coordinator") -> bytes:
    """Return a manifest that lists one machine by its HOST_DATA."""
    return as_json({"Policies": {host_data.hex(): {"Role": role}}})


def contrast_answer(
    machine: SnpMachine,
    manifests: tuple[bytes, ...],
    *,
    now: datetime,
    nonce: bytes = NONCE,
    host_data: bytes = bytes(32),
    hpke: bytes = b"",
) -> Json:
    """Return a Coordinator's answer.

    Args:
        machine: whose report it is.
        manifests: oldest first.
        now: when it was made.
        nonce: of the request.
        host_data: what the host said which machine this is, 32 bytes.
        hpke: the key of the newer form, or b"".
    """
    root_ca, mesh_ca = pem(b"root authority").encode(), pem(b"mesh authority").encode()
    transition = bytes(32)
    for manifest in manifests:
        digest = hashlib.sha256(manifest).digest()
        transition = hashlib.sha256(digest + transition).digest()
    text = nonce + transition
    text += hashlib.sha256(root_ca).digest() + hashlib.sha256(mesh_ca).digest()
    bound = hashlib.sha256(text + hpke).digest() + bytes(32)
    fields = machine.platform.report_fields(
        report_data=bound, measurement=machine.image
    )
    fields = replace(fields, host_data=host_data)
    evidence = machine.platform.evidence(fields, now=now)
    answer: Json = {
        "version": "1",
        "attestation_type": [1, 3, 9901, 2, 1],
        "raw_attestation_doc": b64(snp_message(evidence)),
        "manifests": [b64(each) for each in manifests],
        "policies": [],
        "root_ca": b64(root_ca),
        "mesh_ca": b64(mesh_ca),
    }
    return answer | ({"hpke_pub_key": b64(hpke)} if hpke else {})


def snp_message(evidence: SnpEvidence) -> bytes:
    """Return report and chain as go-sev-guest's message ``Attestation``."""
    chain = _field(1, evidence.vek) + _field(2, evidence.ask)
    chain += _field(3, evidence.ark)
    return _field(1, _report_message(evidence.report)) + _field(2, chain)


def _report_message(report: bytes) -> bytes:
    def number(at: int, form: str) -> int:
        return cast("int", struct.unpack_from(form, report, at)[0])

    numbers = {
        1: number(layout.OFFSET_VERSION, "<I"),
        2: number(layout.OFFSET_GUEST_SVN, "<I"),
        3: number(layout.OFFSET_POLICY, "<Q"),
        6: number(layout.OFFSET_VMPL, "<I"),
        7: number(layout.OFFSET_ALGORITHM, "<I"),
        8: number(layout.OFFSET_CURRENT_TCB, "<Q"),
        9: number(layout.OFFSET_PLATFORM_INFO, "<Q"),
        10: number(layout.OFFSET_KEY_INFO, "<I"),
        18: number(layout.OFFSET_REPORTED_TCB, "<Q"),
        20: number(layout.OFFSET_COMMITTED_TCB, "<Q"),
        27: number(layout.OFFSET_LAUNCH_TCB, "<Q"),
        30: number(layout.OFFSET_MITIGATIONS, "<Q"),
        31: number(layout.OFFSET_MITIGATIONS + 8, "<Q"),
    }
    for first, offset in (
        (21, layout.OFFSET_CURRENT_FIRMWARE),
        (24, layout.OFFSET_COMMITTED_FIRMWARE),
    ):
        numbers |= {first + each: report[offset + each] for each in range(3)}
    family, model, stepping = report[layout.OFFSET_CPUID :][:3]
    numbers[29] = (
        stepping
        | (model & 0xF) << 4
        | 0xF << 8
        | (model >> 4) << 16
        | (family - 0xF) << 20
    )
    strings = {
        4: report[layout.OFFSET_FAMILY_ID :][:16],
        5: report[layout.OFFSET_IMAGE_ID :][:16],
        11: report[layout.OFFSET_REPORT_DATA :][:64],
        12: report[layout.OFFSET_MEASUREMENT :][:48],
        13: report[layout.OFFSET_HOST_DATA :][:32],
        14: report[layout.OFFSET_ID_KEY_DIGEST :][:48],
        15: report[layout.OFFSET_AUTHOR_KEY_DIGEST :][:48],
        16: report[layout.OFFSET_REPORT_ID :][:32],
        17: report[layout.OFFSET_REPORT_ID_MA :][:32],
        19: report[layout.OFFSET_CHIP_ID :][:64],
        28: report[layout.SIGNED_BYTES :],
    }
    message = b"".join(
        varint(name << 3) + varint(value) for name, value in numbers.items()
    )
    return message + b"".join(_field(name, value) for name, value in strings.items())


def varint(value: int) -> bytes:
    """Return a number as Protocol Buffers write it."""
    out = bytearray()
    while value >> 7:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


@dataclass(frozen=True, slots=True, kw_only=True)
class DstackMachine:
    """A TDX machine that dstack started an application on.

    Attributes:
        machine: what makes its quotes; its RTMR3 is the event log's.
        compose: the application's definition.
        events: the entries of its event log.
    """

    machine: TdxMachine
    compose: bytes = field(repr=False)
    events: tuple[Json, ...] = field(repr=False)

    def measurement(self) -> dict[str, str]:
        """Return the registers that a policy names."""
        return {**self.machine.platform.measurement, "mrconfigid": self._config().hex()}

    def evidence(self, report_data: bytes, *, now: datetime) -> TdxEvidence:
        """Make a quote with the application's digest in MRCONFIGID."""

        def change(fields: QuoteFields) -> QuoteFields:
            return replace(
                fields, report=replace(fields.report, mrconfigid=self._config())
            )

        return self.machine.platform.evidence(report_data, now=now, quote=change)

    def _config(self) -> bytes:
        return b"\x01" + hashlib.sha256(self.compose).digest() + bytes(15)


def runtime_event(name: str, payload: bytes, *, newer: bool = False) -> Json:
    """Return one of dstack's own entries of an event log."""
    text = _RUNTIME.to_bytes(4, "little") + b":" + name.encode() + b":" + payload
    if newer:
        # With its keys in order, which is all that RFC 8785 changes here.
        text = as_json({"name": name, "payload": payload.hex(), "type": _RUNTIME})
    return {
        "imr": 3,
        "event_type": _RUNTIME,
        "digest": hashlib.sha384(text).hexdigest(),
        "event": name,
        "event_payload": payload.hex(),
    }


def dstack_machine(machine: TdxMachine, compose: bytes = COMPOSE) -> DstackMachine:
    """Let dstack start an application on a machine."""
    events: tuple[Json, ...] = (
        {"imr": 0, "event_type": 1, "digest": "00" * 48, "event": "firmware"},
        runtime_event("system-preparing", b""),
        runtime_event("app-id", bytes(20)),
        runtime_event("compose-hash", hashlib.sha256(compose).digest(), newer=True),
        runtime_event("instance-id", b"\x01" * 20),
        runtime_event("system-ready", b""),
        # The application's own, with a name of dstack's.
        runtime_event("compose-hash", bytes(32)),
    )
    register = bytes(_REGISTER_BYTES)
    for event in events[1:]:
        digest = bytes.fromhex(cast("str", event["digest"]))
        register = hashlib.sha384(register + digest).digest()
    platform = machine.platform
    platform = replace(platform, rtmr=(*platform.rtmr[:3], register))
    return DstackMachine(
        machine=replace(machine, platform=platform), compose=compose, events=events
    )


def dstack_quote(
    machine: DstackMachine, report_data: bytes, *, now: datetime
) -> tuple[Json, bytes]:
    """Return the agent's answer with the application's definition, and collateral."""
    evidence = machine.evidence(report_data, now=now)
    answer: Json = {
        "quote": evidence.quote.hex(),
        "event_log": json.dumps(machine.events),
        "report_data": report_data.hex(),
        "info": {"tcb_info": json.dumps({"app_compose": machine.compose.decode()})},
    }
    return answer, evidence.collateral


def aci_report(
    machine: DstackMachine,
    keyset: Json,
    *,
    now: datetime,
    nonce: bytes | None = NONCE,
) -> tuple[Json, bytes]:
    """Return a gateway's report over a set of keys, and collateral."""
    text = json.dumps(keyset, sort_keys=True, separators=(",", ":")).encode()
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    statement = {
        "keyset_digest": digest,
        "nonce": None if nonce is None else nonce.hex(),
        "purpose": "aci.report_data.v1",
    }
    bound = hashlib.sha256(as_json(statement)).digest() + bytes(32)
    answer, collateral = dstack_quote(machine, bound, now=now)
    return {
        "api_version": "aci/1",
        "workload_keyset_digest": digest,
        "attestation": {
            "tee_type": "tdx",
            "workload_keyset": keyset,
            "report_data": bound.hex(),
            "evidence": {
                "quote": answer["quote"],
                "event_log": list(machine.events),
                "app_compose": machine.compose.decode(),
            },
        },
    }, collateral


def signed_report(
    machine: DstackMachine,
    address: bytes,
    *,
    now: datetime,
    tls: bytes = b"",
    nonce: bytes = NONCE,
    gpus: tuple[GpuEvidence, ...] = (),
) -> tuple[Json, bytes]:
    """Return a model server's or gateway's report, and collateral.

    Args:
        machine: whose quote it is.
        address: an Ethereum address or an Ed25519 key.
        now: when it was made.
        tls: SHA-256 of the TLS key, or b"".
        nonce: of the request.
        gpus: evidence over the same nonce.
    """
    first = hashlib.sha256(address + tls).digest() if tls else address.ljust(32, b"\0")
    answer, collateral = dstack_quote(machine, first + nonce, now=now)
    payload = {
        "nonce": nonce.hex(),
        "arch": "HOPPER",
        "evidence_list": [
            {
                "certificate": b64(pem(*gpu.chain).encode()),
                "evidence": b64(gpu.report),
            }
            for gpu in gpus
        ],
    }
    report: Json = {
        "signing_algo": "ed25519" if len(address) == len(nonce) else "ecdsa",
        "signing_address": address.hex(),
        "request_nonce": nonce.hex(),
        "intel_quote": answer["quote"],
        "event_log": answer["event_log"],
        "info": answer["info"],
        "nvidia_payload": json.dumps(payload) if gpus else None,
    }
    return report | ({"tls_cert_fingerprint": tls.hex()} if tls else {}), collateral


def ohttp_attestation(key: Ed25519PrivateKey, config: bytes) -> Json:
    """Return an OHTTP key configuration, signed."""
    return {
        "signing_algo": "ed25519",
        "signing_key": key.public_key().public_bytes_raw().hex(),
        "key_config": config.hex(),
        "signature": key.sign(config).hex(),
    }
