"""The argument parser: every command, its flags and its help."""

import argparse
import re
from pathlib import Path
from typing import Final, NoReturn

from curtilage.cli.attest import parser as attest
from curtilage.cli.audit import parser as audit
from curtilage.cli.options import (
    add_client_flags,
    add_explain,
    add_policy_flag,
    add_text,
    new_name,
)
from curtilage.cli.policy import parser as policy
from curtilage.cli.release import parser as release
from curtilage.cli.route import parser as route
from curtilage.cli.terminal import EXIT_CODES, Commands, add_command, out
from curtilage.client.local.registry.catalogue import TASKS

DESCRIPTION = """\
Answer regulated questions locally; send the rest to an attested enclave.

Every question is classified on this machine. Questions that the policy regulates are
answered by the local model and never sent. The rest are sealed and sent through a
relay, which sees the sender but not the question, to an enclave, which sees the
question but not the sender."""
EXAMPLE = """\
examples:
  curtilage demo
  curtilage ask
  curtilage ask - < letter.txt
  curtilage serve --relay https://relay.example/ward
  curtilage explain - < letter.txt
"""
DEFAULT_PORT = 8642
MAX_PORT = 65535
MAX_PARALLEL: Final = 64
DEFAULT_LIMIT: Final = 2000
# Copied from ``curtilage.lab.evaluation``, which may not be installed; a test compares.
PARTS: Final = ("all", "developed", "held-out")
APART: Final = "apart"  # held-out rows, with the developers' rows for comparison
GROUPS: Final = (
    "structured",
    "identifying",
    "health",
    "privacy",
    "evasion",
    "leave",
    "pupa",
    "fairness",
    "names",
    "clinical",
    "clean",
    "hard",
    "named",
    "language",
    "redteam",
    "told",
    "surname",
    "shapes",
    "national",
    "own",
    "latency",
    "deadline",
    "sockets",
    "faults",
    "validity",
    "curve",
    "profiles",
)


class _ShowVersion(argparse.Action):
    """Like argparse's own, but looks the version up only when it is needed."""

    # Importing ``typing_extensions`` would take as long as all of this file.
    def __call__(  # type: ignore[explicit-override]
        self, parser: argparse.ArgumentParser, *_: object
    ) -> NoReturn:
        from importlib.metadata import version  # noqa: PLC0415 - slower than the rest

        out(f"curtilage {version('curtilage')}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of every command."""
    parser = argparse.ArgumentParser(
        prog="curtilage",
        description=DESCRIPTION,
        epilog=f"{EXAMPLE}\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action=_ShowVersion,
        nargs=0,
        help="show program's version number and exit",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        _add_demo,
        _add_ask,
        _add_serve,
        _add_decide,
        add_explain,
        _add_evaluate,
        policy.add,
        audit.add,
        route.add,
        _add_models,
        attest.add,
        release.add,
        _add_queue,
    ):
        add(commands)
    return parser


def _add_demo(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "demo",
        summary="show the whole path on this machine",
        text="Start an enclave server with emulated evidence, a relay and a client "
        "on loopback,\nask real questions of a working day, and show what each party "
        "saw. Exit 1 if a\nquestion did not take the expected route. Needs a source "
        "checkout: the emulator is not\npart of the product.",
        example="curtilage demo\ncurtilage demo --ask 'My card 4111 1111 1111 1111 "
        "was refused, what now?'\ncurtilage demo --model qwen2.5-coder-1.5b.gguf",
    )
    parser.add_argument(
        "--ask",
        action="append",
        metavar="TEXT",
        help="ask this instead of the demo's questions; repeatable. Every user of "
        "this machine can read it (`ps`): do not use personal data",
    )
    parser.add_argument(
        "--tee",
        metavar="KIND",
        help="the processor to emulate: emulated-sev-snp (default), emulated-tdx, "
        "emulated-nitro or emulated-azure-snp",
    )
    parser.add_argument(
        "--gpus", metavar="N", help="number of GPUs to emulate (default: 0)"
    )
    parser.add_argument(
        "--model",
        metavar="FILE|ADDRESS",
        help="a GGUF file, which then answers locally and in the enclave, or the URL "
        "of an on-premises server, which answers locally; default: the embedded "
        "model",
    )
    parser.add_argument(
        "--model-name", metavar="NAME", help="the model's name on that server"
    )
    parser.add_argument(
        "--model-ca",
        metavar="FILE",
        help="CA certificates (PEM) for that server",
    )


def _add_ask(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "ask",
        summary="answer one question, locally or by the enclave",
        text="Classify a question on this machine, then answer it where the policy "
        "permits:\nlocally, or sealed by an attested enclave. Connections to the "
        "relay are padded to the\nsame length for every answer. The command ends only "
        "after the padding, so that an\nobserver of the network cannot infer the "
        "length of the answer.",
        example="curtilage ask\ncurtilage ask --json - < letter.txt\n"
        'curtilage ask "What is the difference between a virus and a bacterium?"',
    )
    add_text(parser, "the question")
    add_client_flags(parser)
    parser.add_argument(
        "--system",
        metavar="TEXT",
        help="a system message; visible to other users (`ps`)",
    )
    parser.add_argument(
        "--system-file", metavar="FILE", help="a file with the system message"
    )
    parser.add_argument("--max-tokens", type=int, default=256, metavar="N")
    parser.add_argument("--temperature", type=float, default=0.7, metavar="T")
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        metavar="N",
        help="makes the local model's answers repeatable; an enclave gets another "
        "number with every run",
    )
    routing = parser.add_argument_group(
        "which tier answers, among those that the policy permits"
    )
    routing.add_argument(
        "--require",
        choices=("enclave", "on_premises", "local"),
        type=new_name,
        help="only this tier: if it may not or cannot answer, the question is not "
        "answered, and the exit code is not 0",
    )
    routing.add_argument(
        "--mode",
        choices=("auto", "home", "enclave_if_allowed"),
        help="home: on this machine or on premises; enclave_if_allowed: an enclave "
        "first (default: auto, the best tier)",
    )
    routing.add_argument(
        "--floor",
        choices=("restricted", "confidential", "internal", "public"),
        help="the least private class of this question: the policy may assign a more "
        "private one, never a less private one. restricted is kept local; public, the "
        "default, changes nothing",
    )
    routing.add_argument(
        "--preset",
        choices=("voice", "chat", "batch"),
        help="how soon an answer is needed",
    )
    routing.add_argument(
        "--defer",
        action="store_true",
        help="if no tier can answer at present, queue the question in the policy's "
        "file (routing.queue) and end with a ticket: see `curtilage queue`",
    )
    many = parser.add_argument_group("many questions")
    many.add_argument(
        "--jsonl",
        metavar="FILE",
        help='ask each line, {"id", "text"} or {"id", "messages"} with options such '
        "as max_tokens or floor; `-` reads standard input. Exit 3: some have no answer "
        "yet; run the same command again to continue. Exit 1: all have a line, and the "
        "policy refuses some",
    )
    many.add_argument(
        "--out",
        metavar="FILE",
        help='where each answer is written as soon as it is complete: {"id", '
        '"answer"}, or {"id", "error"} for a refusal. A question that has a line is '
        "not asked again",
    )
    many.add_argument(
        "--parallel",
        type=_parallel,
        metavar="N",
        help="number of questions asked in parallel, 1 to 64 (default: 4)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--show-outbound",
        action="store_true",
        help="show what would be sealed, and for whom, without sending it; exit 1 if "
        "nothing would be sent",
    )
    parser.add_argument(
        "--keep",
        metavar="DIR",
        help="write question and answer there exactly as sealed, in plain text, for "
        "`curtilage audit receipt`",
    )


def _parallel(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PARALLEL:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to {MAX_PARALLEL}")
    return int(text)


def _add_queue(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "queue",
        summary="show and retry queued questions",
        text="Manage the questions that no tier could answer at the time and that were "
        "queued\n(`ask --defer`) in the policy's sealed file (routing.queue). A "
        "running `serve` retries\nthem automatically.",
        example="curtilage queue list --policy clinic.yaml",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = add_command(
        actions,
        "list",
        summary="list queued questions",
        text="List queued questions and the outcomes of earlier ones: ticket, state, "
        "class, cause and\ntimes, never their texts.",
        example="curtilage queue list --json",
    )
    show = add_command(
        actions,
        "show",
        summary="show an answer",
        text="Show the answer of a ticket; it is kept until it is dropped. Exit 3: "
        "there is no answer\nyet, or no such ticket.",
        example="curtilage queue show 5f0c4f2be1a94c0d8f2e7a6b9c3d1e20",
    )
    show.add_argument("ticket")
    drop = add_command(
        actions,
        "drop",
        summary="delete questions and their answers",
        text="Delete questions and their answers permanently. A key that no longer "
        "seals anything\nis overwritten. Exit 3: nothing is queued under a ticket.",
        example="curtilage queue drop 5f0c4f2be1a94c0d8f2e7a6b9c3d1e20\n"
        "curtilage queue drop --all",
    )
    drop.add_argument("tickets", nargs="*", metavar="ticket")
    drop.add_argument("--all", action="store_true", help="all of them")
    for each in (listing, show, drop):
        add_policy_flag(each)
    for each in (listing, show):
        each.add_argument("--json", action="store_true", help="JSON")
    drain = add_command(
        actions,
        "drain",
        summary="retry queued questions now",
        text="Retry all queued questions once. Each is inspected and decided anew "
        "under the policy in\nforce; one that had to be kept local then, or whose "
        "class has changed, is kept local.\nExit 1: some were refused permanently; 3: "
        "some are still queued.",
        example="curtilage queue drain --relay https://relay.example/ward",
    )
    add_client_flags(drain)


def _add_serve(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "serve",
        summary="serve the OpenAI API on this machine",
        text="Serve /v1/chat/completions, /v1/models and /healthz on loopback, for "
        "OpenAI clients\nthat send text; docs/openai-api.md lists what works and what "
        "is refused (tools, JSON,\npictures, other models). Programs of this account "
        "need no api_key; any other account\nsends the token in the file "
        "endpoint-token of the state folder. The response headers\nx-curtilage-route, "
        "x-curtilage-class and x-curtilage-policy say where an answer comes\nfrom. "
        "Prints one JSON line when ready. /v1/curtilage/feedback accepts ratings of "
        "answers.\nWhen stopped, it waits until open connections to the relay are "
        "padded to the length\nof every answer.",
        example="curtilage serve --relay https://relay.example/ward\n"
        "OPENAI_BASE_URL=http://127.0.0.1:8642/v1 OPENAI_API_KEY=unused my-app",
    )
    add_client_flags(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="a loopback address (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=DEFAULT_PORT,
        help=f"0: any free port (default: {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--listen",
        type=_socket,
        metavar="unix:PATH",
        help="listen on this UNIX socket, too; it is created with mode 0600, in a "
        "folder that no other account may write to",
    )
    parser.add_argument(
        "--no-tcp", action="store_true", help="listen on the socket only"
    )
    parser.add_argument(
        "--otlp", metavar="URL", help="send counts to this OTLP/HTTP collector"
    )
    parser.add_argument(
        "--prometheus-port",
        type=int,
        metavar="PORT",
        help="serve Prometheus metrics on this port",
    )
    parser.add_argument(
        "--log",
        choices=("text", "json"),
        default="text",
        help="format of state changes on standard error, one per line",
    )


def _socket(text: str) -> Path:
    scheme, colon, path = text.partition(":")
    if scheme != "unix" or not colon or not Path(path).is_absolute():
        raise argparse.ArgumentTypeError(f"{text!r} is not unix:/path")
    return Path(path)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to {MAX_PORT}")
    return int(text)


def _add_decide(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "decide",
        summary="show for each JSON line where it may be sent",
        text='Read lines {"id", "text"} or {"id", "messages"} from standard input '
        "and write, in\norder, one line each:\n"
        '  {"id", "route": "local"|"enclave"|"deidentify"|"block", "classes", '
        '"rules", "uncertain"}\nThe text is never printed. No language model is '
        "loaded, no network used and nothing\nrecorded, since no query is asked.",
        example="""echo '{"id": 1, "text": "What is HIV?"}' | curtilage decide --jsonl
curtilage decide --policy clinic.yaml --jsonl < queries.jsonl > routes.jsonl""",
    )
    add_policy_flag(parser)
    parser.add_argument(
        "--jsonl", action="store_true", help="JSON lines; the only format so far"
    )


def _add_evaluate(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "evaluate",
        summary="measure detectors and policy on folders of data",
        text="Measure recall, what may be sent and how long it takes, on data sets in "
        "their authors'\nformats, with 95% intervals. A missing set is reported and "
        "skipped, and the exit code\nis 3. No text is ever printed.\n\n"
        f"groups of figures: {', '.join(GROUPS)}",
        example="""curtilage evaluate --data sets --stock --json figures.json
curtilage evaluate --data sets --policy clinic --part held-out --only health,leave
curtilage evaluate --texts questions.txt --sheet sheet.csv
curtilage evaluate --texts sheet.csv --policy clinic""",
    )
    parser.add_argument(
        "--data", metavar="DIR", help="a folder with one folder per set"
    )
    parser.add_argument(
        "--texts",
        metavar="FILE",
        help="your own texts, CSV or JSON Lines: text, must (stays, may leave, names "
        "only), names",
    )
    parser.add_argument(
        "--sheet",
        metavar="FILE",
        help="only write the texts of --texts to a new CSV sheet, to be labelled in a "
        "spreadsheet and then measured; no other file contains them",
    )
    parser.add_argument(
        "--policy",
        metavar="FILE|NAME",
        help="policy file or shipped profile (default: $CURTILAGE_POLICY, else the "
        "shipped profile default)",
    )
    parser.add_argument(
        "--part",
        choices=(*PARTS, APART),
        default=PARTS[0],
        help="which rows of this project's own split; apart: held out, compared with "
        "the developers' (default: all)",
    )
    parser.add_argument(
        "--only", metavar="IDS", help="groups or figures, separated by commas"
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=int,
        default=DEFAULT_LIMIT,
        help=f"maximum rows of a set, the same each time (default: {DEFAULT_LIMIT})",
    )
    parser.add_argument(
        "--stock",
        choices=("both", "bare"),
        nargs="?",
        const="both",
        help="also measure Presidio in its default configuration with spaCy's small "
        "English model (bare: without)",
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures as JSON")
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="plot recall against what may be sent, a line per profile, as SVG",
    )
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        help="write the tables between the two marks of a page (docs/detection.md)",
    )
    parser.add_argument(
        "--misses",
        metavar="FILE",
        help="write figure and row id of every misclassified row; never texts",
    )


def _gigabytes(text: str) -> int:
    # "nan" parses as a float, and no comparison with it holds.
    if re.fullmatch(r"\d{1,5}(\.\d{1,3})?", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GB, such as 2.5")
    return int(float(text) * 1000**3)


def _add_licence_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accept-licence",
        metavar="NAME",
        help="for a model whose licence forbids commercial use: confirms that you "
        "have read the licence and comply with it",
    )


def _add_models(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "models",
        summary="recommend, download, add, list and verify local models",
        text="Manage GGUF models. Each is named together with its SHA-256; a file with "
        "another\ndigest is not used. For some known models the name is enough.",
        example="curtilage models recommend",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    recommend = add_command(
        actions,
        "recommend",
        summary="show which models fit this machine",
        text="Examine this machine's memory, processors and disk, and show for each "
        "known model\nwhether it fits, what it is good for and what its licence "
        "permits. The first that fits\nis the best; the commands that download and use "
        "it are shown. At a terminal you are\nasked whether to download it; otherwise "
        "nothing is downloaded. Exit 3: none fits.",
        example="curtilage models recommend\n"
        "curtilage models recommend --memory 2 --task extraction",
    )
    recommend.add_argument(
        "--memory",
        type=_gigabytes,
        metavar="GB",
        help="memory that a model may use (default: three quarters of what is "
        "available)",
    )
    recommend.add_argument(
        "--task", choices=TASKS, help="only models that are good at this task"
    )
    _add_licence_flag(recommend)
    recommend.add_argument("--json", action="store_true", help="one JSON object")

    listing = add_command(
        actions,
        "list",
        summary="show the models",
        text="List the embedded model and the registered ones: quantisation, memory "
        "with 4,096\ntokens of context, and whether they fit into this machine's "
        "memory now.",
        example="curtilage models list --json",
    )
    listing.add_argument("--json", action="store_true", help="one JSON list")

    adding = add_command(
        actions,
        "add",
        summary="register a local GGUF file, whole or in parts",
        text="Register a GGUF file under a name. The digest identifies the file; names "
        "of the\ncatalogue (`models recommend`) need none. With --from, the parts are "
        "joined in the order\nof their names to one file in your data folder, which "
        "appears only if its digest\nmatches. A LoRA adapter is a separate file, "
        "registered with its base model; its name\nthen means both.",
        example="curtilage models add big ./model.gguf --sha256 HEX\n"
        "curtilage models add letters ./lora.gguf --sha256 HEX --adapter-of big\n"
        "curtilage models add qwen2.5-1.5b --from parts/part*.bin",
    )
    adding.add_argument("name")
    adding.add_argument("file", type=Path, nargs="?")
    adding.add_argument("--sha256", metavar="HEX")
    adding.add_argument(
        "--from",
        dest="parts",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="the file's parts; they are joined in the order of their names",
    )
    adding.add_argument(
        "--adapter-of",
        metavar="MODEL",
        help="the file is a LoRA adapter for this model only",
    )
    _add_licence_flag(adding)

    pull = add_command(
        actions,
        "pull",
        summary="download a pinned GGUF file from a hub",
        text="Download one file of a repository at one commit, check its digest, and "
        "register it.\nFor the catalogue's models (`models recommend`) the name is "
        "enough. Size, memory,\nlicence and network are shown, and you confirm first. "
        "An interrupted download is\nresumed; the file appears under its name only "
        "after its digest matched.",
        example="curtilage models pull qwen2.5-1.5b\n"
        "curtilage models pull big --repo OWNER/NAME --file model.gguf "
        "--revision 40HEX --sha256 64HEX",
    )
    pull.add_argument("name")
    pull.add_argument("--repo", metavar="OWNER/NAME")
    pull.add_argument("--file", metavar="PATH")
    pull.add_argument("--revision", metavar="COMMIT")
    pull.add_argument("--sha256", metavar="HEX")
    pull.add_argument("--endpoint", metavar="URL", help="another hub with the same API")
    pull.add_argument(
        "--yes", action="store_true", help="confirm without a prompt, for scripts"
    )
    _add_licence_flag(pull)

    verify = add_command(
        actions,
        "verify",
        summary="hash models again",
        text="Hash the files of the named models, or of all, and compare. Exit 3 if "
        "one differs or\nis missing.",
        example="curtilage models verify",
    )
    verify.add_argument("names", nargs="*", metavar="name")

    _add_rollout(actions)


def _add_rollout(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "rollout",
        summary="roll out a model to devices in stages, and roll it back",
        text="A manifest names the next model, the share of devices that take it, and "
        "the model that\nthe others run and that a rollback restores. The publisher "
        "adds the manifest to a log\n(`release log add`), has witnesses cosign the "
        "log and creates a proof\n(`release prove`). A device accepts it if its policy "
        "(`routing.rollout`) trusts that log.\nNothing is sent and nothing is "
        "downloaded.\n\npublisher: manifest; device: take, status, rollback",
        example="curtilage models rollout status --policy clinic.yaml",
    )
    actions = parser.add_subparsers(
        dest="rollout_action", required=True, metavar="ACTION"
    )
    manifest = add_command(
        actions,
        "manifest",
        summary="write the manifest of a rollout or of its next stage",
        text="Write a manifest. Models are named as in `models list`, and hashed "
        "first.\nOne --arm is a rollout: 1, 5, 25, then 100 percent, each stage with "
        "its own manifest\n(--next). Two are a comparison. Devices keep a model in "
        "later stages. The last value of\n--arm is the measured lower bound of good "
        "answers per thousand: a device that finds the\nmodel worse rolls it back "
        "automatically.",
        example="curtilage models rollout manifest --name clinic-home \\\n"
        "  --previous default --arm qwen2.5-1.5b 1 850 --not-after +60d --out 1.json\n"
        "curtilage models rollout manifest --next 1.json --not-after +60d --out 2.json",
    )
    manifest.add_argument("--name", help="of the line of manifests")
    manifest.add_argument(
        "--serial", type=int, default=1, metavar="N", help="its number (default: 1)"
    )
    manifest.add_argument(
        "--previous", metavar="MODEL", help="the model of the other devices"
    )
    manifest.add_argument(
        "--arm",
        nargs=3,
        action="append",
        metavar=("MODEL", "PERCENT", "GOOD"),
        help="a model, the percentage of devices, and good answers per thousand",
    )
    manifest.add_argument(
        "--next", metavar="FILE", help="write the stage that follows this manifest"
    )
    manifest.add_argument(
        "--not-after",
        required=True,
        metavar="TIME",
        help="expiry, RFC 3339 or +60d: afterwards no device accepts it",
    )
    manifest.add_argument("--out", metavar="FILE", help="default: standard output")

    take = add_command(
        actions,
        "take",
        summary="put a manifest in force on this device",
        text="Verify a manifest and its proof, and follow it from now on; a running "
        "client changes\nits model between two answers. A manifest that does not "
        "verify, has expired, or is not\nnewer than an earlier one changes nothing "
        "(exit 2). The new and the previous model must\nbe installed; if one is "
        "missing, the message shows the command that installs it.",
        example="curtilage models rollout take --manifest 1.json --proof proof.txt",
    )
    take.add_argument("--manifest", required=True, metavar="FILE")
    take.add_argument("--proof", required=True, metavar="FILE")
    add_policy_flag(take)

    status = add_command(
        actions,
        "status",
        summary="show which model runs here, and its grades",
        text="Show which manifest is followed, what it means for this device, and how "
        "the model's\nanswers were graded. With --trace, count the grades of each "
        "model of the manifest in\nthese traces, from any number of devices, with "
        "95 % intervals.",
        example="curtilage models rollout status --trace one.jsonl two.jsonl",
    )
    status.add_argument(
        "--trace", nargs="+", default=(), metavar="FILE", help="traces from any devices"
    )
    status.add_argument("--json", action="store_true", help="one JSON object")
    add_policy_flag(status)

    rollback = add_command(
        actions,
        "rollback",
        summary="restore the previous model on this device",
        text="Restore the previous model on this device. Later stages of the same "
        "rollout will not\ninstall it again; a manifest of another model is followed.",
        example="curtilage models rollout rollback",
    )
    add_policy_flag(rollback)
