"""Every command of ``curtilage``, in the order of ``--help``."""

import re
from pathlib import Path
from typing import Final

from curtilage.cli.attest.table import attest
from curtilage.cli.audit.table import audit
from curtilage.cli.declared import (
    PATHLIB,
    Choice,
    Run,
    Value,
    command,
    group,
    number_from,
    version_option,
)
from curtilage.cli.deploy.table import deploy
from curtilage.cli.laboratory import from_laboratory
from curtilage.cli.options import CLIENT, JSON, NUMBER, POLICY, TEXT, renamed_value
from curtilage.cli.policy.table import policy
from curtilage.cli.release.table import release
from curtilage.cli.route.table import route

MAX_PORT: Final = 65535
MAX_PARALLEL: Final = 64
# Copied from ``curtilage.client.local.registry.catalogue``; a test compares.
TASKS: Final = (
    *("classification", "extraction", "summarisation", "generation", "transform", "qa"),
    *("reasoning", "code"),
)
# Copied from the demo, which is not part of the product; a test compares.
EMULATED: Final = (
    *("emulated-sev-snp", "emulated-tdx", "emulated-nitro", "emulated-azure-snp"),
)
MAX_GPUS: Final = 8
LICENCE: Final = """
Options:
    --accept-licence NAME: for a model whose licence forbids commercial use: confirms
        that you have read the licence and comply with it"""


@group("curtilage")
def root() -> None:
    """Answer regulated questions locally; send the rest to an attested enclave.

    Every question is classified on this machine. Questions that the policy regulates
    are answered by the local model and never sent. The rest are sealed and sent through
    a relay, which sees the sender but not the question, to an enclave, which sees the
    question but not the sender.

    Example:
        curtilage demo
        curtilage ask
        curtilage ask - < letter.txt
        curtilage serve --relay https://relay.example/ward
        curtilage explain - < letter.txt
    """


def _socket(text: str) -> Path:
    scheme, colon, path = text.partition(":")
    if scheme != "unix" or not colon or not Path(path).is_absolute():
        raise ValueError
    return Path(path)


def _gigabytes(text: str) -> int:
    # "nan" parses as a float, and no comparison with it holds.
    if re.fullmatch(r"\d{1,5}(\.\d{1,3})?", text) is None:
        raise ValueError
    return int(float(text) * 1000**3)


@command(
    "demo",
    root,
    types={"KIND": Choice(EMULATED), "COUNT": number_from(0, MAX_GPUS)},
)
def demo() -> Run:
    """Show the whole path on this machine.

    Start an enclave server with emulated evidence, a relay and a client on loopback,
    ask real questions of a working day, and show what each party saw. Exit 1 if a
    question did not take the expected route. Needs a source checkout: the emulator is
    not part of the product.

    Options:
        --ask TEXT...: ask this instead of the demo's questions; repeatable. Every user
            of this machine can read it (`ps`): do not use personal data
        --tee KIND: the processor to emulate (default: emulated-sev-snp)
        --gpus COUNT: number of GPUs to emulate, 0 to 8 (default: 0)
        --model FILE|ADDRESS: a GGUF file, which then answers locally and in the
            enclave, or the URL of an on-premises server, which answers locally;
            default: the embedded model
        --model-name NAME: the model's name on that server
        --model-ca FILE: CA certificates (PEM) for that server

    Example:
        curtilage demo
        curtilage demo --ask 'My card 4111 1111 1111 1111 was refused, what now?'
        curtilage demo --model qwen2.5-coder-1.5b.gguf
    """
    from curtilage.cli.demo import run

    return run


@command(
    "ask",
    root,
    TEXT,
    CLIENT,
    JSON,
    types={
        "T": NUMBER,
        "COUNT": number_from(1, MAX_PARALLEL),
        "TIER": Choice(("enclave", "on_premises", "local"), renamed_value),
    },
)
def ask() -> Run:
    """Answer one question, locally or by the enclave.

    Classify a question on this machine, then answer it where the policy permits:
    locally, or sealed by an attested enclave. Connections to the relay are padded to
    the same length for every answer. The command ends only after the padding, so that
    an observer of the network cannot infer the length of the answer.

    Options:
        --system TEXT: a system message; visible to other users (`ps`)
        --system-file FILE: a file with the system message
        --max-tokens N = 256: maximum tokens of the answer, 1 to 32768
        --temperature T = 0.7: 0 (always the likeliest token) to 2
        --seed N: makes the local model's answers repeatable; an enclave gets another
            number with every run
        --show-outbound: show what would be sealed, and for whom, without sending it;
            exit 1 if nothing would be sent
        --keep DIR: write question and answer there exactly as sealed, in plain text,
            for `curtilage audit receipt`

    Options (which tier answers, among those that the policy permits):
        --require TIER: only this tier: if it may not or cannot
            answer, the question is not answered, and the exit code is not 0
        --mode auto|home|enclave_if_allowed: home: on this machine or on premises;
            enclave_if_allowed: an enclave first (default: auto, the best tier)
        --floor restricted|confidential|internal|public: the least private class of this
            question: the policy may assign a more private one, never a less private
            one. restricted is kept local; public, the default, changes nothing
        --preset voice|chat|batch: how soon an answer is needed
        --defer: if no tier can answer at present, queue the question in the policy's
            file (routing.queue) and end with a ticket: see `curtilage queue`

    Options (many questions):
        --jsonl FILE: ask each line, {"id", "text"} or {"id", "messages"} with options
            such as max_tokens or floor; `-` reads standard input. Exit 3: some have no
            answer yet; run the same command again to continue. Exit 1: all have a line,
            and the policy refuses some
        --out FILE: where each answer is written as soon as it is complete: {"id",
            "answer"}, or {"id", "error"} for a refusal. A question that has a line is
            not asked again
        --parallel COUNT: number of questions asked in parallel, 1 to 64 (default: 4)

    Example:
        curtilage ask
        curtilage ask --json - < letter.txt
        curtilage ask "What is the difference between a virus and a bacterium?"
    """
    from curtilage.cli.ask import run

    return run


@command(
    "serve",
    root,
    CLIENT,
    types={
        "PORT": number_from(0, MAX_PORT, noun="a port, "),
        "unix:PATH": Value("unix:/path", _socket),
    },
)
def serve() -> Run:
    """Serve the OpenAI API on this machine, or as a department's gateway.

    Serve /v1/chat/completions, /v1/models and /healthz on loopback, for OpenAI clients
    that send text; docs/openai-api.md lists what works (tools, JSON, several answers)
    and what is refused (pictures, unknown models). Programs of this account need no
    api_key; any other account sends the token in the file endpoint-token of the state
    folder. The response headers x-curtilage-route, x-curtilage-class and
    x-curtilage-policy say where an answer comes from. Prints one JSON line when ready.
    /v1/curtilage/feedback accepts ratings of answers. SIGHUP reads the files of
    --models and --gateway again. When stopped, it waits until open connections to the
    relay are padded to the length of every answer.

    With --gateway it listens at any address, over TLS, for applications that have a key
    of their own: see `curtilage gateway --help`.

    Options:
        --host HOST: a loopback address (default: 127.0.0.1)
        --port PORT: 0: any free port (default: 8642)
        --listen unix:PATH: listen on this UNIX socket, too; it is created with mode
            0600, in a folder that no other account may write to
        --no-tcp: listen on the socket only
        --gateway FILE: serve a department's applications, as this file says (TOML)
        --otlp URL: send counts to this OTLP/HTTP collector
        --prometheus-port PORT: serve Prometheus metrics on this port
        --log text|json = text: format of state changes on standard error, one per line

    Example:
        curtilage serve --relay https://relay.example/ward
        OPENAI_BASE_URL=http://127.0.0.1:8642/v1 OPENAI_API_KEY=unused my-app
    """
    from curtilage.cli.serve import run

    return run


@group("gateway", root, offline=True)
def gateway() -> None:
    """Make keys for a department's gateway, and check its file.

    `curtilage serve --gateway FILE` serves applications of other machines over TLS. The
    file (TOML) says where it listens, names its certificate, and lists digests of the
    applications' keys:

      listen = "0.0.0.0:8443"
      names = ["curtilage.ward.example"]
      keys = ["letters:SALT:DIGEST"]
      [tls]
      certificate = "gateway.crt"
      key = "gateway.key"
      [limits]
      in_progress = 32

    SIGHUP reads it again, and the certificate: a key whose row was removed is refused
    from then on, and no answer is cut.

    Example:
        curtilage gateway make-key letters
        curtilage gateway check gateway.toml
    """


@command("make-key", gateway, JSON)
def gateway_make_key() -> Run:
    """Make a key for an application.

    Print the key, which is stored nowhere, and the row for the list `keys` of the
    gateway's file. The application sends the key as api_key. To replace a key, add the
    new row, send SIGHUP, change the application, remove the old row, and send SIGHUP
    again.

    Options:
        NAME: of the application: 1 to 32 of a-z, 0-9 and -; the audit trail has it

    Example:
        curtilage gateway make-key letters
    """
    from curtilage.cli.gateway import run_make_key

    return run_make_key


@command("check", gateway, JSON)
def gateway_check() -> Run:
    """Check a gateway's file and its certificate, and show what they say.

    Options:
        FILE: the gateway's file

    Example:
        curtilage gateway check gateway.toml
    """
    from curtilage.cli.gateway import run_check

    return run_check


@command("decide", root, POLICY, offline=True)
def decide() -> Run:
    """Show for each JSON line where it may be sent.

    Read lines {"id", "text"} or {"id", "messages"} from standard input and write, in
    order, one line each:

      {"id", "route": "local"|"enclave"|"deidentify"|"block", "classes", "rules",
       "uncertain"}

    The text is never printed. No language model is loaded, no network used and nothing
    recorded, since no query is asked.

    Options:
        --jsonl: JSON lines; the only format so far

    Example:
        echo '{"id": 1, "text": "What is HIV?"}' | curtilage decide --jsonl
        curtilage decide --policy clinic.yaml --jsonl < queries.jsonl > routes.jsonl
    """
    from curtilage.cli.decide import run

    return run


@command("explain", root, TEXT, POLICY, JSON, offline=True)
def explain() -> Run:
    """Show what is found in a text and which rule decides.

    Shows where a text may be sent and why, the positions of what is found (characters,
    counted from 0), and the smallest change that would permit a less private route. All
    detectors run, even if the policy ends a scan early. The text is never printed.

    Options:
        --messages: the text is a conversation: {"messages": [{"role": …, "content":
            …}]}

    Example:
        curtilage explain
        curtilage explain --policy clinic --json - < letter.txt
        curtilage explain "What is HIV?"
    """
    from curtilage.cli.explain import run

    return run


policy.add_command(explain)
from_laboratory(root, "evaluate", "Measure detectors and policy on folders of data")
for each in (policy, audit, route):
    root.add_command(each)


@group("models", root)
def models() -> None:
    """Recommend, download, add, list and verify local models.

    Manage GGUF models. Each is named together with its SHA-256; a file with another
    digest is not used. For some known models the name is enough.

    Example:
        curtilage models recommend
    """


@command(
    "recommend",
    models,
    LICENCE,
    JSON,
    types={
        "GB": Value("a number of GB, such as 2.5", _gigabytes),
        "TASK": Choice(TASKS),
    },
)
def models_recommend() -> Run:
    """Show which models fit this machine.

    Examine this machine's memory, processors and disk, and show for each known model
    whether it fits, what it is good for and what its licence permits. The first that
    fits is the best; the commands that download and use it are shown. At a terminal you
    are asked whether to download it; otherwise nothing is downloaded. Exit 3: none
    fits.

    Options:
        --memory GB: memory that a model may use (default: three quarters of what is
            available)
        --task TASK: only models that are good at this task

    Example:
        curtilage models recommend
        curtilage models recommend --memory 2 --task extraction
    """
    from curtilage.cli.models import run_recommend

    return run_recommend


@command("list", models)
def models_list() -> Run:
    """Show the models.

    Shows quantisation, memory with 4,096 tokens of context, and whether the embedded
    model and the registered ones fit into this machine's memory now.

    Options:
        --json: one JSON list

    Example:
        curtilage models list --json
    """
    from curtilage.cli.models import run_list

    return run_list


@command("add", models, LICENCE, types={"FILE": PATHLIB})
def models_add() -> Run:
    """Register a local GGUF file, whole or in parts.

    Register a GGUF file under a name. The digest identifies the file; names of the
    catalogue (`models recommend`) need none. With --from, the parts are joined in the
    order of their names to one file in your data folder, which appears only if its
    digest matches. A LoRA adapter is a separate file, registered with its base model;
    its name then means both.

    Options:
        NAME: the name that it is registered under
        [FILE]: the GGUF file
        --sha256 HEX: its digest
        --from FILE+ as parts: the file's parts; they are joined in the order of their
            names
        --adapter-of MODEL: the file is a LoRA adapter for this model only

    Example:
        curtilage models add big ./model.gguf --sha256 HEX
        curtilage models add letters ./lora.gguf --sha256 HEX --adapter-of big
        curtilage models add qwen2.5-1.5b --from parts/part*.bin
    """
    from curtilage.cli.models import run_add

    return run_add


@command("pull", models, LICENCE)
def models_pull() -> Run:
    r"""Download a pinned GGUF file from a hub.

    Download one file of a repository at one commit, check its digest, and register it.
    For the catalogue's models (`models recommend`) the name is enough. Size, memory,
    licence and network are shown, and you confirm first. An interrupted download is
    resumed; the file appears under its name only after its digest matched.

    Options:
        NAME: the name that it is registered under
        --repo OWNER/NAME: the repository on the hub
        --file PATH: the file in it
        --revision COMMIT: its commit, 40 hex digits
        --sha256 HEX: the file's digest
        --endpoint URL: another hub with the same API
        --yes: confirm without a prompt, for scripts

    Example:
        curtilage models pull qwen2.5-1.5b
        curtilage models pull big --repo OWNER/NAME --file model.gguf \
          --revision 40HEX --sha256 64HEX
    """
    from curtilage.cli.models import run_pull

    return run_pull


@command("verify", models)
def models_verify() -> Run:
    """Hash models again.

    Hash the files of the named models, or of all, and compare. Exit 3 if one differs or
    is missing.

    Options:
        [NAME]... as names

    Example:
        curtilage models verify
    """
    from curtilage.cli.models import run_verify

    return run_verify


@group("rollout", models)
def rollout() -> None:
    """Roll out a model to devices in stages, and roll it back.

    A manifest names the next model, the share of devices that take it, and the model
    that the others run and that a rollback restores. The publisher adds the manifest to
    a log (`release log add`), has witnesses cosign the log and creates a proof
    (`release prove`). A device accepts it if its policy (`routing.rollout`) trusts that
    log. Nothing is sent and nothing is downloaded.

    publisher: manifest; device: take, status, rollback

    Example:
        curtilage models rollout status --policy clinic.yaml
    """


@command("manifest", rollout)
def rollout_manifest() -> Run:
    r"""Write the manifest of a rollout or of its next stage.

    Models are named as in `models list`, and hashed first.
    One --arm is a rollout: 1, 5, 25, then 100 percent, each stage with its own manifest
    (--next). Two are a comparison. Devices keep a model in later stages. The last value
    of --arm is the measured lower bound of good answers per thousand: a device that
    finds the model worse rolls it back automatically.

    Options:
        --name NAME: of the line of manifests
        --serial N = 1: its number
        --previous MODEL: the model of the other devices
        --arm MODEL PERCENT GOOD...: a model, the percentage of devices, and good
            answers per thousand
        --next FILE: write the stage that follows this manifest
        --not-after TIME, required: expiry, RFC 3339 or +60d: afterwards no device
            accepts it
        --out FILE: default: standard output

    Example:
        curtilage models rollout manifest --name clinic-home \
          --previous default --arm qwen2.5-1.5b 1 850 --not-after +60d --out 1.json
        curtilage models rollout manifest --next 1.json --not-after +60d --out 2.json
    """
    from curtilage.cli.rollout import run_manifest

    return run_manifest


@command("take", rollout, POLICY, offline=True)
def rollout_take() -> Run:
    """Put a manifest in force on this device.

    Verify a manifest and its proof, and follow it from now on; a running client changes
    its model between two answers. A manifest that does not verify, has expired, or is
    not newer than an earlier one changes nothing (exit 2). The new and the previous
    model must be installed; if one is missing, the message shows the command that
    installs it.

    Options:
        --manifest FILE, required
        --proof FILE, required

    Example:
        curtilage models rollout take --manifest 1.json --proof proof.txt
    """
    from curtilage.cli.rollout import run_take

    return run_take


@command("status", rollout, JSON, POLICY, offline=True)
def rollout_status() -> Run:
    """Show which model runs here, and its grades.

    Show which manifest is followed, what it means for this device, and how the model's
    answers were graded. With --trace, count the grades of each model of the manifest in
    these traces, from any number of devices, with 95 % intervals.

    Options:
        --trace FILE+: traces from any devices

    Example:
        curtilage models rollout status --trace one.jsonl two.jsonl
    """
    from curtilage.cli.rollout import run_status

    return run_status


@command("rollback", rollout, POLICY, offline=True)
def rollout_rollback() -> Run:
    """Restore the previous model on this device.

    Later stages of the same rollout will not install it again; a manifest of another
    model is followed.

    Example:
        curtilage models rollout rollback
    """
    from curtilage.cli.rollout import run_rollback

    return run_rollback


for each in (attest, release, deploy):
    root.add_command(each)


@group("queue", root)
def queue() -> None:
    """Show and retry queued questions.

    Manage the questions that no tier could answer at the time and that were queued
    (`ask --defer`) in the policy's sealed file (routing.queue). A running `serve`
    retries them automatically.

    Example:
        curtilage queue list --policy clinic.yaml
    """


@command("list", queue, POLICY, JSON, offline=True)
def queue_list() -> Run:
    """List queued questions and the outcomes of earlier ones.

    Shows ticket, state, class, cause and times, never the texts.

    Example:
        curtilage queue list --json
    """
    from curtilage.cli.deferred import run_list

    return run_list


@command("show", queue, POLICY, JSON, offline=True)
def queue_show() -> Run:
    """Show an answer.

    It is kept until it is dropped. Exit 3: there is no answer yet, or no such ticket.

    Options:
        TICKET

    Example:
        curtilage queue show 5f0c4f2be1a94c0d8f2e7a6b9c3d1e20
    """
    from curtilage.cli.deferred import run_show

    return run_show


@command("drop", queue, POLICY, offline=True)
def queue_drop() -> Run:
    """Delete questions and their answers.

    They are deleted permanently. A key that no longer seals anything
    is overwritten. Exit 3: nothing is queued under a ticket.

    Options:
        [TICKET]... as tickets
        --all: all of them

    Example:
        curtilage queue drop 5f0c4f2be1a94c0d8f2e7a6b9c3d1e20
        curtilage queue drop --all
    """
    from curtilage.cli.deferred import run_drop

    return run_drop


@command("drain", queue, CLIENT)
def queue_drain() -> Run:
    """Retry queued questions now.

    Each is inspected and decided anew under the policy
    in force; one that had to be kept local then, or whose class has changed, is kept
    local. Exit 1: some were refused permanently; 3: some are still queued.

    Example:
        curtilage queue drain --relay https://relay.example/ward
    """
    from curtilage.cli.deferred import run_drain

    return run_drain


@command("completion", root, offline=True)
def completion() -> Run:
    """Print the script that completes commands and options in a shell.

    Options:
        bash|zsh|fish as shell: the shell

    Example:
        eval "$(curtilage completion bash)"
    """
    from curtilage.cli.completion import run

    return run


root.params = [version_option()]
