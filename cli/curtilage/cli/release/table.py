"""Declarations of ``curtilage release``."""

from typing import Final

from curtilage.cli.declared import TYPES, Run, Types, command, group
from curtilage.cli.options import JSON

SIZES: Final[Types] = {"SIZE": TYPES["N"]}
LOG_KEY: Final = """
Options:
    --log-key VKEY, required: the log's public key (`release log init` prints it), or a
        file with it"""
RULES: Final = """
Options:
    --policy FILE: a Curtilage policy: its log, names, denials
    --log-policy FILE: a C2SP log policy: log and witness keys, groups, quorum
    --name NAME...: with --log-policy: an accepted release name; repeatable (default:
        any)
    --at RFC3339: as of this time (default: now)"""
ONE_OF_RULES: Final = ("--policy", "--log-policy")


@group("release")
def release() -> None:
    r"""Publish, prove, verify and audit releases.

    Everyone can then check what an enclave runs.

    A manifest describes a release. Its publisher adds it to a transparency log: an
    append-only folder that any static web server can serve. Witnesses cosign the log's
    state, so that it cannot show different leaves to different people. A client trusts
    a measurement only if its manifest is logged, witnessed and not expired; it checks
    that offline.

      publisher: manifest, log init, log add, log cosign, prove
      witness:   witness init, witness cosign
      everyone:  verify, audit

    See docs/transparency.md for the formats, and for how to serve the folder.

    Example:
        curtilage release log init public/log --origin log.example.com/enclave \
          --key log.pem
        curtilage release manifest --name curtilage-enclave --version 1.2.0 \
          --source git+https://example.com/enclave@4f2a... \
          --measurements measured.json \
          --model model.gguf --not-after +180d --out manifest.json
        curtilage release log add public/log --key log.pem manifest.json
        curtilage release witness cosign w1 --log public/log --log-key log.vkey \
          --write
        curtilage release prove public/log --log-key log.vkey \
          --manifest manifest.json --out proof.txt
        curtilage release verify --manifest manifest.json --proof proof.txt \
          --policy mine.yaml
        curtilage release audit public/log --policy mine.yaml
    """


@command("manifest", release)
def release_manifest() -> Run:
    r"""Describe a release.

    Writes a manifest: canonical JSON, so that one release has one leaf.

    --measurements is a JSON file that maps kinds of evidence to registers, as the
    image's build prints it: {"sev-snp": [{"launch": "..."}], "azure-snp": [{"launch":
    "...", "pcr11": "..."}]}. Include every set that a machine of this release may
    have: for instance, one for each number of virtual processors.

    Images and models are given as files, whose SHA-256 is computed, or as sha256:HEX.
    After --not-after, clients refuse the release: publish the next one before.

    Options:
        --name NAME, required: its name in policies
        --version VERSION, required: a new one for every release
        --source SOURCE, required: repository and commit of the build
        --measurements FILE..., required: JSON as the image's build prints it;
            repeatable
        --image [NAME=]FILE...: a file of the release, or sha256:HEX; repeatable
        --model FILE...: a model file, or sha256:HEX; repeatable
        --min-tcb LEVELS...: lowest AMD patch levels: Genoa:bl=10,tee=0,snp=27,ucode=86;
            repeatable
        --gpu-driver TEXT...: accepted driver version of a GPU; repeatable
        --gpu-vbios TEXT...: accepted VBIOS version of a GPU; repeatable
        --gpu-golden TEXT...: accepted SHA-256 of the measurement records of a GPU;
            repeatable
        --sandbox SHA256: digest of what its sandbox loads, or the description's file,
            which ``curtilage-enclave sandbox`` prints
        --isolation shared|process: with --sandbox: what separates its requests
        --ephemerality none|overwritten|process: with --sandbox: what becomes of a
            request's memory once it is answered
        --operator TEXT: who runs it; policies can ask
        --country TEXT: where: ISO 3166 alpha-2, such as DE; policies can ask
        --region TEXT: where: the operator's name for it; policies can ask
        --frame-bytes N: how answers are padded (default: 512)
        --period-ms N: how answers are padded (default: 50)
        --first-bucket N: how answers are padded (default: 64)
        --buckets N: how answers are padded (default: 7)
        --unsafe-unpadded: answers reveal their length and pace
        --not-after TIME, required: expiry: 2027-06-30T00:00:00Z, or +180d from now
        --out FILE: default: standard output

    Example:
        curtilage release manifest --name curtilage-enclave --version 1.2.0 \
          --source git+https://example.com/enclave@4f2a... \
          --measurements measured.json --image vm=enclave.img --model model.gguf \
          --min-tcb Genoa:bl=10,tee=0,snp=27,ucode=86 --not-after +180d \
          --out manifest.json
    """
    from curtilage.cli.release.manifest import run_manifest

    return run_manifest


@group("log", release)
def log() -> None:
    r"""Keep a log that any static web server can serve.

    Keep a transparency log (C2SP tlog-tiles) in a folder. Leaves are never removed; a
    folder that was changed or rolled back is not written to.

    Example:
        curtilage release log init public/log --origin log.example.com/enclave \
          --key log.pem
        curtilage release log add public/log --key log.pem manifest.json
    """


@command("init", log)
def log_init() -> Run:
    r"""Create an empty log.

    Its key (Ed25519, mode 0600) is created if there is none. Next to the key are
    KEY.vkey, its public key for everyone, and KEY.head, the last state that it signed:
    back up both, and never keep the key in a served folder. The origin is the log's
    permanent name: the address that it is served from, without https://.

    Options:
        FOLDER: the folder to serve
        --origin ORIGIN, required: the log's name
        --key KEY.pem, required: created if missing

    Example:
        curtilage release log init public/log --origin log.example.com/enclave \
          --key log.pem
    """
    from curtilage.cli.release.log import run_init

    return run_init


@command("add", log, JSON)
def log_add() -> Run:
    """Log manifests.

    Add manifests to a log and sign its new state. A manifest that is already there
    keeps its index. Every file is compared with the checkpoint before anything is
    written, and the checkpoint is replaced last: after a crash the log has the old
    state or the new one. Afterwards, have witnesses cosign.

    Options:
        FOLDER: the log
        MANIFEST... as manifests
        --key KEY.pem, required
        --adopt: KEY.head was lost: trust the folder, which must be complete and the
            newest state that was ever signed

    Example:
        curtilage release log add public/log --key log.pem manifest.json
    """
    from curtilage.cli.release.log import run_add

    return run_add


@command("request", log, LOG_KEY, types=SIZES)
def log_request() -> Run:
    r"""Ask a witness elsewhere to cosign.

    Write the body of an add-checkpoint request (C2SP tlog-witness): the checkpoint, and
    the proof that it is consistent with what the witness has seen. Send it with any
    HTTP client; give the response to `release log cosign`.

    Options:
        FOLDER: the log
        --old SIZE = 0: the size that the witness last cosigned; 0: never
        --out FILE: default: standard output

    Example:
        curtilage release log request public/log --log-key log.vkey --old 7 > request
        curl --data-binary @request https://witness.example/add-checkpoint > lines
        curtilage release log cosign public/log --log-key log.vkey \
          --witness w.vkey lines
    """
    from curtilage.cli.release.log import run_request

    return run_request


@command("cosign", log, LOG_KEY)
def log_cosign() -> Run:
    r"""Add witnesses' cosignatures to the checkpoint.

    Verify cosignature lines and add those of the named witnesses to the log's
    checkpoint. A line of an unknown key is skipped; an invalid one of a known key is
    refused.

    Options:
        FOLDER: the log
        LINES: file with the witness's lines
        --witness VKEY..., required: a witness's public key, or a file with it;
            repeatable

    Example:
        curtilage release log cosign public/log --log-key log.vkey \
          --witness w.vkey lines
    """
    from curtilage.cli.release.log import run_cosign

    return run_cosign


@group("witness", release)
def witness() -> None:
    """Watch logs and cosign them.

    A witness cosigns a log's state if it is consistent with the last one. A log with
    independent witnesses cannot show different histories to different people, since its
    own key is not enough. A witness needs no server: it reads a folder (any copy of the
    log) or a request file, and writes one line.

    Example:
        curtilage release witness init w1 --name witness.example.com/a
        curtilage release witness cosign w1 --log public/log --log-key log.vkey
    """


@command("init", witness)
def witness_init() -> Run:
    """Make a witness's folder and key.

    Make a folder (mode 0700) with a key (0600), its public half (witness.vkey, for log
    policies) and, later, the last checkpoint of each log. Keep the folder: without its
    history, a witness proves nothing.

    Options:
        FOLDER: the witness's folder
        --name NAME, required: the key's name
        --ml-dsa: an ML-DSA-44 key, safe against quantum computers, rather than Ed25519

    Example:
        curtilage release witness init w1 --name witness.example.com/hospital
    """
    from curtilage.cli.release.witness import run_init

    return run_init


@command("cosign", witness, LOG_KEY, one_of=("--log", "--request"))
def witness_cosign() -> Run:
    r"""Cosign a log's checkpoint.

    Verify a log's checkpoint and that it continues what this witness cosigned last,
    store it, and print the cosignature. With a folder, every leaf is compared too. A
    checkpoint that contradicts the last one is refused, and kept as evidence.

    Options:
        FOLDER: the witness's folder
        --log DIR: the log, or a copy of it
        --request FILE: an add-checkpoint request (tlog-witness)
        --write: with --log: also add the line to its checkpoint
        --at RFC3339: as of this time (default: now)

    Example:
        curtilage release witness cosign w1 --log public/log --log-key log.vkey \
          --write
        curtilage release witness cosign w1 --request request --log-key log.vkey
    """
    from curtilage.cli.release.witness import run_cosign

    return run_cosign


@command("prove", release, LOG_KEY, types=SIZES)
def release_prove() -> Run:
    r"""Prove that a manifest is in a log.

    Write the proof (C2SP tlog-proof) that a manifest is a leaf of a log, under the
    log's checkpoint: have witnesses cosign it first. With --since, also write the proof
    of consistency with an earlier size, for consistency.txt.

    Options:
        FOLDER: the log, or a copy of it
        --manifest FILE, required
        --out FILE: default: standard output
        --since SIZE: an earlier size of the log
        --consistency FILE: file for the consistency proof

    Example:
        curtilage release prove public/log --log-key log.vkey \
          --manifest manifest.json --out proof.txt
    """
    from curtilage.cli.release.check import run_prove

    return run_prove


@command("verify", release, RULES, JSON, one_of=ONE_OF_RULES)
def release_verify() -> Run:
    r"""Verify a manifest, its proof and its publisher.

    Offline, from files only. Checks the log's signature, the witnesses' quorum, the
    proof that the manifest is a leaf, its name and version against the policy, its
    expiry, and the age of the checkpoint. With --sigstore, the publisher's own
    signature is also verified; it never replaces the log. Exit 0: accepted; 1: refused,
    with a code.

    Options:
        --manifest FILE, required
        --proof FILE, required

    Options (the publisher's Sigstore bundle, an extra):
        --sigstore FILE: bundle, version 0.3
        --trusted-root FILE: trusted_root.json
        --identity TEXT: the exact signer; a workflow with its tag
        --issuer URL: the exact OIDC issuer of the identity

    Example:
        curtilage release verify --manifest manifest.json --proof proof.txt \
          --policy mine.yaml
        curtilage release verify --manifest manifest.json --proof proof.txt \
          --log-policy log.policy --name curtilage-enclave \
          --sigstore manifest.sigstore.json --trusted-root trusted_root.json \
          --identity https://github.com/o/r/.github/workflows/r.yml@refs/tags/v1.2.0 \
          --issuer https://token.actions.githubusercontent.com
    """
    from curtilage.cli.release.check import run_verify

    return run_verify


@command("audit", release, RULES, JSON, one_of=ONE_OF_RULES)
def release_audit() -> Run:
    r"""List a log's leaves and look for unexpected ones.

    Compares every file of the folder with its checkpoint, and the checkpoint with its
    witnesses. Flags leaves that are not manifests, releases with a name that the policy
    does not know, two leaves of one version, and withdrawn or expired releases.
    Compares the log with another copy of it, or with an earlier checkpoint: two
    histories are a fork, and both checkpoints together prove it.

    Exit 0: one complete log without anything unexpected; withdrawn and expired releases
    are listed, but are no cause for alarm. Exit 1: something needs attention.

    Options:
        FOLDER: the log, or a copy of it
        --against DIR: another copy of the log
        --since FILE: an earlier checkpoint

    Example:
        curtilage release audit public/log --policy mine.yaml
        curtilage release audit copy --policy mine.yaml --against copy-of-yesterday
        curtilage release audit copy --log-policy log.policy \
          --name curtilage-enclave --since march.checkpoint
    """
    from curtilage.cli.release.audit import run_audit

    return run_audit
