"""Flags and help of ``curtilage release``."""

import argparse
from typing import Final

from curtilage.cli.terminal import Commands, add_command
from curtilage.wire.shaping import PADDED

HEAD_SUFFIX: Final = ".head"  # as in ``curtilage.transparency.log``

ABOUT = """\
Publish releases so that everyone can check what an enclave runs.

A manifest describes a release. Its publisher adds it to a transparency log: an
append-only folder that any static web server can serve. Witnesses cosign the log's
state, so that it cannot show different leaves to different people. A client trusts a
measurement only if its manifest is logged, witnessed and not expired; it checks that
offline.

publisher: manifest, log init, log add, log cosign, prove
witness:   witness init, witness cosign
everyone:  verify, audit

See docs/transparency.md for the formats, and for how to serve the folder."""
EXAMPLES = """\
curtilage release log init public/log --origin log.example.com/enclave --key log.pem
curtilage release manifest --name curtilage-enclave --version 1.2.0 \\
  --source git+https://example.com/enclave@4f2a... --measurements measured.json \\
  --model model.gguf --not-after +180d --out manifest.json
curtilage release log add public/log --key log.pem manifest.json
curtilage release witness cosign w1 --log public/log --log-key log.vkey --write
curtilage release prove public/log --log-key log.vkey --manifest manifest.json \\
  --out proof.txt
curtilage release verify --manifest manifest.json --proof proof.txt --policy mine.yaml
curtilage release audit public/log --policy mine.yaml"""
MANIFEST: Final = """\
Write the manifest of a release: canonical JSON, so that one release has one leaf.

--measurements is a JSON file that maps kinds of evidence to registers, as the image's
build prints it: {"sev-snp": [{"launch": "..."}], "azure-snp": [{"launch": "...",
"pcr11": "..."}]}. Include every set that a machine of this release may have: for
instance, one for each number of virtual processors.

Images and models are given as files, whose SHA-256 is computed, or as sha256:HEX.
After --not-after, clients refuse the release: publish the next one before."""
MANIFEST_EXAMPLE: Final = """\
curtilage release manifest --name curtilage-enclave --version 1.2.0 \\
  --source git+https://example.com/enclave@4f2a... \\
  --measurements measured.json --image vm=enclave.img --model model.gguf \\
  --min-tcb Genoa:bl=9,tee=0,snp=23,ucode=72 --not-after +180d --out manifest.json"""
WITNESS: Final = """\
Act as a witness: cosign a log's state if it is consistent with the last one.

A log with independent witnesses cannot show different histories to different people,
since its own key is not enough. A witness needs no server: it reads a folder (any copy
of the log) or a request file, and writes one line."""
VERIFY: Final = """\
Verify that a manifest is logged and currently valid: offline, from files only.

Checks the log's signature, the witnesses' quorum, the proof that the manifest is a
leaf, its name and version against the policy, its expiry, and the age of the
checkpoint. With --sigstore, the publisher's own signature is also verified; it never
replaces the log. Exit 0: accepted; 1: refused, with a code."""
AUDIT: Final = """\
List every leaf of a log and look for unexpected ones.

Compares every file of the folder with its checkpoint, and the checkpoint with its
witnesses. Flags leaves that are not manifests, releases with a name that the policy
does not know, two leaves of one version, and withdrawn or expired releases. Compares
the log with another copy of it, or with an earlier checkpoint: two histories are a
fork, and both checkpoints together prove it.

Exit 0: one complete log without anything unexpected; withdrawn and expired releases
are listed, but are no cause for alarm. Exit 1: something needs attention."""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "release",
        summary="publish, prove, verify and audit releases",
        text=ABOUT,
        example=EXAMPLES,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_manifest(actions)
    _add_log(actions)
    _add_witness(actions)
    _add_checks(actions)


def _add_manifest(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "manifest",
        summary="describe a release",
        text=MANIFEST,
        example=MANIFEST_EXAMPLE,
    )
    parser.add_argument("--name", required=True, help="its name in policies")
    parser.add_argument("--version", required=True, help="a new one for every release")
    parser.add_argument(
        "--source", required=True, help="repository and commit of the build"
    )
    parser.add_argument(
        "--measurements",
        required=True,
        action="append",
        metavar="FILE",
        help="JSON as the image's build prints it; repeatable",
    )
    for name, what in (("image", "a file of the release"), ("model", "a model file")):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="[NAME=]FILE" if name == "image" else "FILE",
            help=f"{what}, or sha256:HEX; repeatable",
        )
    parser.add_argument(
        "--min-tcb",
        action="append",
        default=[],
        metavar="LEVELS",
        help="lowest AMD patch levels: Genoa:bl=9,tee=0,snp=23,ucode=72; repeatable",
    )
    for name, what in (
        ("driver", "driver version"),
        ("vbios", "VBIOS version"),
        ("golden", "SHA-256 of the measurement records"),
    ):
        parser.add_argument(
            f"--gpu-{name}",
            action="append",
            default=[],
            metavar="TEXT",
            help=f"accepted {what} of a GPU; repeatable",
        )
    parser.add_argument(
        "--sandbox",
        metavar="SHA256",
        help="digest of its sandbox policy, or the policy's file; the "
        "enclave server of this version refuses a manifest that names one",
    )
    for name, what in (
        ("operator", "who runs it"),
        ("country", "where: ISO 3166 alpha-2, such as DE"),
        ("region", "where: the operator's name for it"),
    ):
        parser.add_argument(
            f"--{name}", default="", metavar="TEXT", help=f"{what}; policies can ask"
        )
    for name in ("frame_bytes", "period_ms", "first_bucket", "buckets"):
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=int,
            metavar="N",
            help=f"how answers are padded (default: {getattr(PADDED, name)})",
        )
    parser.add_argument(
        "--unsafe-unpadded",
        action="store_true",
        help="answers reveal their length and pace",
    )
    parser.add_argument(
        "--not-after",
        required=True,
        metavar="TIME",
        help="expiry: 2027-06-30T00:00:00Z, or +180d from now",
    )
    parser.add_argument("--out", metavar="FILE", help="default: standard output")


def _add_log(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "log",
        summary="keep a log that any static web server can serve",
        text="Keep a transparency log (C2SP tlog-tiles) in a folder. Leaves are never "
        "removed; a\nfolder that was changed or rolled back is not written "
        "to.",
        example="curtilage release log init public/log "
        "--origin log.example.com/enclave --key log.pem\n"
        "curtilage release log add public/log --key log.pem manifest.json",
    )
    actions = parser.add_subparsers(dest="log_action", required=True, metavar="ACTION")

    init = add_command(
        actions,
        "init",
        summary="create an empty log",
        text="Create an empty log, and its key (Ed25519, mode 0600) if there is none. "
        "Next to the\nkey are KEY.vkey, its public key for everyone, and "
        f"KEY{HEAD_SUFFIX}, the last state that it\nsigned: back up both, and never "
        "keep the key in a served folder. The origin is the\nlog's permanent name: "
        "the address that it is served from, without https://.",
        example="curtilage release log init public/log "
        "--origin log.example.com/enclave --key log.pem",
    )
    init.add_argument("folder", help="the folder to serve")
    init.add_argument("--origin", required=True, help="the log's name")
    init.add_argument(
        "--key", required=True, metavar="KEY.pem", help="created if missing"
    )

    adding = add_command(
        actions,
        "add",
        summary="log manifests",
        text="Add manifests to a log and sign its new state. A manifest that is "
        "already there keeps\nits index. Every file is compared with the checkpoint "
        "before anything is written,\nand the checkpoint is replaced last: after a "
        "crash the log has the old state or the new\none. Afterwards, have witnesses "
        "cosign.",
        example="curtilage release log add public/log --key log.pem manifest.json",
    )
    adding.add_argument("folder", help="the log")
    adding.add_argument("manifests", nargs="+", metavar="MANIFEST")
    adding.add_argument("--key", required=True, metavar="KEY.pem")
    adding.add_argument(
        "--adopt",
        action="store_true",
        help=f"KEY{HEAD_SUFFIX} was lost: trust the folder, which must be complete and "
        "the newest state that was ever signed",
    )
    adding.add_argument("--json", action="store_true", help="one JSON object")

    request = add_command(
        actions,
        "request",
        summary="ask a witness elsewhere to cosign",
        text="Write the body of an add-checkpoint request (C2SP tlog-witness): the "
        "checkpoint,\nand the proof that it is consistent with what the witness has "
        "seen. Send it with any\nHTTP client; give the response to `release log "
        "cosign`.",
        example="curtilage release log request public/log --log-key log.vkey --old 7 "
        "> request\ncurl --data-binary @request https://witness.example/add-checkpoint "
        "> lines\ncurtilage release log cosign public/log --log-key log.vkey "
        "--witness w.vkey lines",
    )
    request.add_argument("folder", help="the log")
    _add_log_key(request)
    request.add_argument(
        "--old",
        type=int,
        default=0,
        metavar="SIZE",
        help="the size that the witness last cosigned (default: 0, never)",
    )
    request.add_argument("--out", metavar="FILE", help="default: standard output")

    cosign = add_command(
        actions,
        "cosign",
        summary="add witnesses' cosignatures to the checkpoint",
        text="Verify cosignature lines and add those of the named witnesses to the "
        "log's\ncheckpoint. A line of an unknown key is skipped; an invalid one of a "
        "known key is\nrefused.",
        example="curtilage release log cosign public/log --log-key log.vkey "
        "--witness w.vkey lines",
    )
    cosign.add_argument("folder", help="the log")
    cosign.add_argument("lines", help="file with the witness's lines")
    _add_log_key(cosign)
    cosign.add_argument(
        "--witness",
        action="append",
        required=True,
        metavar="VKEY",
        help="a witness's public key, or a file with it; repeatable",
    )


def _add_witness(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "witness",
        summary="watch logs and cosign them",
        text=WITNESS,
        example="curtilage release witness init w1 --name witness.example.com/a\n"
        "curtilage release witness cosign w1 --log public/log --log-key log.vkey",
    )
    actions = parser.add_subparsers(
        dest="witness_action", required=True, metavar="ACTION"
    )

    init = add_command(
        actions,
        "init",
        summary="make a witness's folder and key",
        text="Make a folder (mode 0700) with a key (0600), its public half "
        "(witness.vkey, for log\npolicies) and, later, the last checkpoint of each "
        "log. Keep the folder: without\nits history, a witness proves nothing.",
        example="curtilage release witness init w1 --name witness.example.com/hospital",
    )
    init.add_argument("folder", help="the witness's folder")
    init.add_argument("--name", required=True, help="the key's name")
    init.add_argument(
        "--ml-dsa",
        action="store_true",
        help="an ML-DSA-44 key, safe against quantum computers, rather than Ed25519",
    )

    cosign = add_command(
        actions,
        "cosign",
        summary="cosign a log's checkpoint",
        text="Verify a log's checkpoint and that it continues what this witness "
        "cosigned last,\nstore it, and print the cosignature. With a folder, every "
        "leaf is compared too. A\ncheckpoint that contradicts the last one is refused, "
        "and kept as evidence.",
        example="curtilage release witness cosign w1 --log public/log "
        "--log-key log.vkey --write\n"
        "curtilage release witness cosign w1 --request request --log-key log.vkey",
    )
    cosign.add_argument("folder", help="the witness's folder")
    source = cosign.add_mutually_exclusive_group(required=True)
    source.add_argument("--log", metavar="DIR", help="the log, or a copy of it")
    source.add_argument(
        "--request", metavar="FILE", help="an add-checkpoint request (tlog-witness)"
    )
    _add_log_key(cosign)
    cosign.add_argument(
        "--write",
        action="store_true",
        help="with --log: also add the line to its checkpoint",
    )
    cosign.add_argument("--at", metavar="RFC3339", help=argparse.SUPPRESS)


def _add_checks(commands: "Commands[argparse.ArgumentParser]") -> None:
    prove = add_command(
        commands,
        "prove",
        summary="prove that a manifest is in a log",
        text="Write the proof (C2SP tlog-proof) that a manifest is a leaf of a log, "
        "under the\nlog's checkpoint: have witnesses cosign it first. With --since, "
        "also write the proof\nof consistency with an earlier size, for "
        "consistency.txt.",
        example="curtilage release prove public/log --log-key log.vkey "
        "--manifest manifest.json --out proof.txt",
    )
    prove.add_argument("folder", help="the log, or a copy of it")
    _add_log_key(prove)
    prove.add_argument("--manifest", required=True, metavar="FILE")
    prove.add_argument("--out", metavar="FILE", help="default: standard output")
    prove.add_argument(
        "--since", type=int, metavar="SIZE", help="an earlier size of the log"
    )
    prove.add_argument(
        "--consistency", metavar="FILE", help="file for the consistency proof"
    )
    verify = add_command(
        commands,
        "verify",
        summary="verify a manifest, its proof and its publisher",
        text=VERIFY,
        example="curtilage release verify --manifest manifest.json --proof proof.txt "
        "--policy mine.yaml\n"
        "curtilage release verify --manifest manifest.json --proof proof.txt \\\n"
        "  --log-policy log.policy --name curtilage-enclave \\\n"
        "  --sigstore manifest.sigstore.json --trusted-root trusted_root.json \\\n"
        "  --identity https://github.com/o/r/.github/workflows/release.yml"
        "@refs/tags/v1.2.0 \\\n"
        "  --issuer https://token.actions.githubusercontent.com",
    )
    verify.add_argument("--manifest", required=True, metavar="FILE")
    verify.add_argument("--proof", required=True, metavar="FILE")
    _add_rules(verify)
    verify.add_argument("--json", action="store_true", help="one JSON object")
    signed = verify.add_argument_group("the publisher's Sigstore bundle (an extra)")
    signed.add_argument("--sigstore", metavar="FILE", help="bundle, version 0.3")
    signed.add_argument("--trusted-root", metavar="FILE", help="trusted_root.json")
    signed.add_argument(
        "--identity", metavar="TEXT", help="the exact signer; a workflow with its tag"
    )
    signed.add_argument(
        "--issuer", metavar="URL", help="the exact OIDC issuer of the identity"
    )
    audit = add_command(
        commands,
        "audit",
        summary="list a log's leaves and look for unexpected ones",
        text=AUDIT,
        example="curtilage release audit public/log --policy mine.yaml\n"
        "curtilage release audit copy --policy mine.yaml --against copy-of-yesterday\n"
        "curtilage release audit copy --log-policy log.policy "
        "--name curtilage-enclave --since march.checkpoint",
    )
    audit.add_argument("folder", help="the log, or a copy of it")
    _add_rules(audit)
    audit.add_argument("--against", metavar="DIR", help="another copy of the log")
    audit.add_argument("--since", metavar="FILE", help="an earlier checkpoint")
    audit.add_argument("--json", action="store_true", help="one JSON object")


def _add_log_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-key",
        required=True,
        metavar="VKEY",
        help="the log's public key (`release log init` prints it), or a file with it",
    )


def _add_rules(parser: argparse.ArgumentParser) -> None:
    rules = parser.add_mutually_exclusive_group(required=True)
    rules.add_argument(
        "--policy", metavar="FILE", help="a Curtilage policy: its log, names, denials"
    )
    rules.add_argument(
        "--log-policy",
        metavar="FILE",
        help="a C2SP log policy: log and witness keys, groups, quorum",
    )
    parser.add_argument(
        "--name",
        action="append",
        metavar="NAME",
        help="with --log-policy: an accepted release name; repeatable (default: any)",
    )
    parser.add_argument(
        "--at", metavar="RFC3339", help="as of this time (default: now)"
    )
