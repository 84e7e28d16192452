"""What the program can be told: every command, its flags and its help."""

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
from curtilage.client.local.catalogue import TASKS

DESCRIPTION = """\
Answer at home what must stay at home; ask an attested enclave the rest.

Every question is classified on this machine. What the policy calls regulated is
answered by the local model and never leaves. The rest goes, sealed, through a relay
that sees who asks but not what, to an enclave that sees what is asked but not who."""
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
# ``curtilage.lab.evaluation`` says the same, and tests compare: it is not everywhere.
PARTS: Final = ("all", "developed", "held-out")
APART: Final = "apart"  # what is held out, and what is not beside it
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
    """As argparse's own, but asks for the version when it is wanted."""

    # ``typing_extensions`` would take as long to import as all of this file.
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
        "saw. Exit 1 where a\nquestion did not take the route it should. Needs a "
        "source checkout, since the\nemulator is no part of the product.",
        example="curtilage demo\ncurtilage demo --ask 'My card 4111 1111 1111 1111 "
        "was refused, what now?'\ncurtilage demo --model qwen2.5-coder-1.5b.gguf",
    )
    parser.add_argument(
        "--ask",
        action="append",
        metavar="TEXT",
        help="ask this instead of the demo's questions; may be given several times. "
        "Every user of this machine can read it (`ps`): nothing of a real person",
    )
    parser.add_argument(
        "--tee",
        metavar="KIND",
        help="the processor to emulate: emulated-sev-snp (as it stands), emulated-tdx,"
        " emulated-nitro or emulated-azure-snp",
    )
    parser.add_argument(
        "--gpus", metavar="N", help="how many GPUs to emulate; as it stands, none"
    )
    parser.add_argument(
        "--model",
        metavar="FILE|ADDRESS",
        help="a GGUF file, which then answers locally and in the enclave, or the "
        "address of an on-premises server, which answers locally; else the embedded "
        "model",
    )
    parser.add_argument(
        "--model-name", metavar="NAME", help="what that server calls its model"
    )
    parser.add_argument(
        "--model-ca",
        metavar="FILE",
        help="the certificates (PEM) of that server's authorities",
    )


def _add_ask(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "ask",
        summary="answer one question, at home or by the enclave",
        text="Classify a question on this machine, then answer it where the policy "
        "permits:\nby the local model, or sealed by an attested enclave. An enclave's "
        "answer may be\ncomplete before its connection has the length that every "
        "answer has; the command\nends when it has, so that nobody on the line learns "
        "how long this one was.",
        example="curtilage ask\ncurtilage ask --json - < letter.txt\n"
        'curtilage ask "What is the difference between a virus and a bacterium?"',
    )
    add_text(parser, "the question")
    add_client_flags(parser)
    parser.add_argument(
        "--system", metavar="TEXT", help="a system message; others can read it, too"
    )
    parser.add_argument(
        "--system-file", metavar="FILE", help="a file that holds the system message"
    )
    parser.add_argument("--max-tokens", type=int, default=256, metavar="N")
    parser.add_argument("--temperature", type=float, default=0.7, metavar="T")
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        metavar="N",
        help="the local model answers alike again; an enclave gets another number "
        "with every run",
    )
    routing = parser.add_argument_group(
        "where it is answered, among those whom the policy permits"
    )
    routing.add_argument(
        "--require",
        choices=("enclave", "on_premises", "local"),
        type=new_name,
        help="only there: where that one may not or cannot answer, nobody does, and "
        "the exit is not 0",
    )
    routing.add_argument(
        "--mode",
        choices=("auto", "home", "enclave_if_allowed"),
        help="home: on this machine or on premises; enclave_if_allowed: by an enclave "
        "before any other (default: auto, where it is best)",
    )
    routing.add_argument(
        "--floor",
        choices=("restricted", "confidential", "internal", "public"),
        help="the least private class that this question may have: the policy may find "
        "a more private one, and never a less private one. restricted is kept local; "
        "public, the default, changes nothing",
    )
    routing.add_argument(
        "--preset",
        choices=("voice", "chat", "batch"),
        help="how soon an answer is wanted",
    )
    routing.add_argument(
        "--defer",
        action="store_true",
        help="where nobody can answer just now, let it wait in the policy's file "
        "(routing.queue) and end with a ticket: see `curtilage queue`",
    )
    many = parser.add_argument_group("many questions")
    many.add_argument(
        "--jsonl",
        metavar="FILE",
        help='ask each line, {"id", "text"} or {"id", "messages"} with options such '
        "as max_tokens or floor; `-` reads standard input. Exit 3: some have no answer "
        "yet; the same command goes on with them. Exit 1: all have a line, and the "
        "policy refuses some",
    )
    many.add_argument(
        "--out",
        metavar="FILE",
        help='where each answer is written as soon as it is there: {"id", "answer"}, '
        'or {"id", "error"} of what is refused. A question that has a line is not '
        "asked again",
    )
    many.add_argument(
        "--parallel",
        type=_parallel,
        metavar="N",
        help="so many are asked side by side, 1 to 64 (default: 4)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--show-outbound",
        action="store_true",
        help="show what would be sealed, and for whom, and send nothing of it; exit 1 "
        "where nothing would leave",
    )
    parser.add_argument(
        "--keep",
        metavar="DIR",
        help="write question and answer there as they stood inside the seal, for "
        "`curtilage audit receipt`; whoever reads the files reads both",
    )


def _parallel(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PARALLEL:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to {MAX_PARALLEL}")
    return int(text)


def _add_queue(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "queue",
        summary="see what waits for an answer, and ask it again",
        text="See to the questions that nobody could answer just then and whose "
        "sender wanted them\nto wait (`ask --defer`), in the sealed file of a policy "
        "that lets them (routing.queue).\nA running `serve` asks them again by "
        "itself.",
        example="curtilage queue list --policy clinic.yaml",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = add_command(
        actions,
        "list",
        summary="show what waits",
        text="Show what waits, and what became of the rest: ticket, state, class, "
        "cause and times.\nNever a word of it.",
        example="curtilage queue list --json",
    )
    show = add_command(
        actions,
        "show",
        summary="show an answer",
        text="Show the answer that a ticket is for; it stays until it is dropped. "
        "Exit 3: there is\nnone yet, or none at all.",
        example="curtilage queue show 5f0c4f2be1a94c0d8f2e7a6b9c3d1e20",
    )
    show.add_argument("ticket")
    drop = add_command(
        actions,
        "drop",
        summary="forget questions and their answers",
        text="Forget questions and their answers, for good. A key under which nothing "
        "lies any more\nis overwritten. Exit 3: nothing waits under a ticket.",
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
        summary="ask what waits again, now",
        text="Ask all that waits again, once. Each is inspected and decided anew, by "
        "the policy in\nforce; what had to stay then, or is of another class now, "
        "stays. Exit 1: some were refused for good; 3: some still wait.",
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
        "Prints one JSON line when ready. /v1/curtilage/feedback takes what somebody\n"
        "thinks of an answer. When stopped, it waits until open connections to the "
        "relay have\nthe length that every answer has.",
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
        help=f"0 takes a free one (default: {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--listen",
        type=_socket,
        metavar="unix:PATH",
        help="listen on this UNIX socket, too; it is made with mode 0600, in a folder "
        "that no other account may write to",
    )
    parser.add_argument(
        "--no-tcp", action="store_true", help="listen on the socket alone"
    )
    parser.add_argument(
        "--otlp", metavar="URL", help="send counts to this OTLP/HTTP collector"
    )
    parser.add_argument(
        "--prometheus-port", type=int, metavar="PORT", help="answer Prometheus here"
    )
    parser.add_argument(
        "--log",
        choices=("text", "json"),
        default="text",
        help="how a change of state is written to standard error, a line each",
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
        summary="say for each line of JSON where it may go",
        text='Read lines {"id", "text"} or {"id", "messages"} from standard input '
        "and write, in\norder, one line each:\n"
        '  {"id", "route": "local"|"enclave"|"deidentify"|"block", "classes", '
        '"rules", "uncertain"}\nNever the text. No language model is loaded, no '
        "network touched and\nnothing recorded: these are decisions about no query.",
        example="""echo '{"id": 1, "text": "What is HIV?"}' | curtilage decide --jsonl
curtilage decide --policy clinic.yaml --jsonl < queries.jsonl > routes.jsonl""",
    )
    add_policy_flag(parser)
    parser.add_argument(
        "--jsonl", action="store_true", help="lines of JSON; the only format so far"
    )


def _add_evaluate(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "evaluate",
        summary="measure detectors and policy on folders of data",
        text="Measure what is caught, what may leave and how long it takes, on data "
        "sets in their\nauthors' formats, with 95% intervals. A set that is missing "
        "is said and skipped, and the\nexit code is 3. No text is ever printed.\n\n"
        f"groups of figures: {', '.join(GROUPS)}",
        example="""curtilage evaluate --data sets --stock --json figures.json
curtilage evaluate --data sets --policy clinic --part held-out --only health,leave
curtilage evaluate --texts questions.txt --sheet sheet.csv
curtilage evaluate --texts sheet.csv --policy clinic""",
    )
    parser.add_argument("--data", metavar="DIR", help="a folder with a folder each set")
    parser.add_argument(
        "--texts",
        metavar="FILE",
        help="your own texts, CSV or JSON Lines: text, must (stays, may leave, names "
        "only), names",
    )
    parser.add_argument(
        "--sheet",
        metavar="FILE",
        help="only write the texts of --texts into a new CSV sheet, to be labelled in "
        "a spreadsheet and measured then; they stand in no other file",
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
        help="which rows of this project's own split; apart: held out, and the "
        "developers' beside it (default: all)",
    )
    parser.add_argument(
        "--only", metavar="IDS", help="groups or figures, with commas between"
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=int,
        default=DEFAULT_LIMIT,
        help=f"most rows of a set, the same each time (default: {DEFAULT_LIMIT})",
    )
    parser.add_argument(
        "--stock",
        choices=("both", "bare"),
        nargs="?",
        const="both",
        help="measure Presidio beside it, as it comes and with spaCy's small English "
        "model (bare: without)",
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures as JSON")
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="draw recall against what may leave, a line for each profile, as SVG",
    )
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        help="write the tables into a page between its two marks (docs/detection.md)",
    )
    parser.add_argument(
        "--misses",
        metavar="FILE",
        help="write figure and row id of every row on the wrong side; never texts",
    )


def _gigabytes(text: str) -> int:
    # No number of its own kind: "nan" is one, and larger than nothing.
    if re.fullmatch(r"\d{1,5}(\.\d{1,3})?", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of GB, such as 2.5")
    return int(float(text) * 1000**3)


def _add_licence_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accept-licence",
        metavar="NAME",
        help="for a model whose licence permits no commercial use: you read it, and "
        "use it as it permits",
    )


def _add_models(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "models",
        summary="recommend, fetch, add, list and verify local models",
        text="Manage GGUF models. Each is named together with its SHA-256; a file with "
        "another\ndigest answers nothing. For some known models the name is enough.",
        example="curtilage models recommend",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    recommend = add_command(
        actions,
        "recommend",
        summary="say which model will do on this machine",
        text="Look at this machine's memory, processors and disk, and say of each "
        "known model\nwhether it will do, what it is good for and what its licence "
        "permits. The first that\nwill do is the best; the commands that fetch and use "
        "it are shown. At a terminal you are\nasked whether to fetch it; otherwise "
        "nothing is fetched. Exit 3: none will do.",
        example="curtilage models recommend\n"
        "curtilage models recommend --memory 2 --task extraction",
    )
    recommend.add_argument(
        "--memory",
        type=_gigabytes,
        metavar="GB",
        help="what a model may take (default: three quarters of what is available)",
    )
    recommend.add_argument(
        "--task", choices=TASKS, help="only models that are good for this"
    )
    _add_licence_flag(recommend)
    recommend.add_argument("--json", action="store_true", help="one JSON object")

    listing = add_command(
        actions,
        "list",
        summary="show the models",
        text="Show the embedded model and the registered ones: quantisation, memory "
        "with 4,096\ntokens of context, and whether that fits into this machine now.",
        example="curtilage models list --json",
    )
    listing.add_argument("--json", action="store_true", help="one JSON list")

    adding = add_command(
        actions,
        "add",
        summary="register a GGUF file that is here, whole or in parts",
        text="Register a GGUF file under a name. The digest makes sure that it is the "
        "file you mean;\nnames of the catalogue (`models recommend`) need none. With "
        "--from, the parts are joined\nin the order of their names "
        "to one file in your data folder, which\nappears only if its digest is right. "
        "A LoRA adapter is a file of its own, named with\nthe model that it was made "
        "for; its name then means both.",
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
        help="it is a LoRA adapter for this model, and used with no other",
    )
    _add_licence_flag(adding)

    pull = add_command(
        actions,
        "pull",
        summary="download a pinned GGUF file from a hub",
        text="Download one file of a repository at one commit, check its digest, and "
        "register it;\nof the catalogue's models (`models recommend`) by their name. "
        "Size, memory, licence\nand network are shown and agreed to first. A download "
        "that broke off goes on where it\nstopped; the file appears under its name "
        "only when its digest matched.",
        example="curtilage models pull qwen2.5-1.5b\n"
        "curtilage models pull big --repo OWNER/NAME --file model.gguf "
        "--revision 40HEX --sha256 64HEX",
    )
    pull.add_argument("name")
    pull.add_argument("--repo", metavar="OWNER/NAME")
    pull.add_argument("--file", metavar="PATH")
    pull.add_argument("--revision", metavar="COMMIT")
    pull.add_argument("--sha256", metavar="HEX")
    pull.add_argument(
        "--endpoint", metavar="URL", help="another hub that speaks the same API"
    )
    pull.add_argument(
        "--yes", action="store_true", help="agree without being asked, in a script"
    )
    _add_licence_flag(pull)

    verify = add_command(
        actions,
        "verify",
        summary="hash models again",
        text="Hash the files of the named models, or of all, and compare. Exit 3 when "
        "one differs\nor is missing.",
        example="curtilage models verify",
    )
    verify.add_argument("names", nargs="*", metavar="name")

    _add_rollout(actions)


def _add_rollout(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "rollout",
        summary="bring another model to devices, in stages, and take it back",
        text="A manifest says which model devices take next, how many of them, and "
        "which one they\nrun else and go back to. Whoever publishes it adds it "
        "to a log (`release log add`), has\nwitnesses cosign and proves it "
        "(`release prove`). A device takes it if its policy\n(`routing.rollout`) "
        "believes that log. Nothing is sent and nothing is "
        "fetched.\n\npublisher: manifest; device: take, status, rollback",
        example="curtilage models rollout status --policy clinic.yaml",
    )
    actions = parser.add_subparsers(
        dest="rollout_action", required=True, metavar="ACTION"
    )
    manifest = add_command(
        actions,
        "manifest",
        summary="say which model devices take, or how many more",
        text="Write a manifest. Models are named as here (`models list`), and hashed "
        "first.\nOne --arm is a rollout: 1, 5, 25, then 100 percent, each a "
        "manifest of its own (--next).\nTwo are a comparison. Devices that took "
        "a model keep it in the next stage. The last word\nof --arm is how many "
        "of a thousand answers are good at least, as was measured: a "
        "device\nthat finds the model worse goes back by itself.",
        example="curtilage models rollout manifest --name clinic-home \\\n"
        "  --previous default --arm qwen2.5-1.5b 1 850 --not-after +60d --out 1.json\n"
        "curtilage models rollout manifest --next 1.json --not-after +60d --out 2.json",
    )
    manifest.add_argument("--name", help="of the line of manifests")
    manifest.add_argument(
        "--serial", type=int, default=1, metavar="N", help="its number (default: 1)"
    )
    manifest.add_argument(
        "--previous", metavar="MODEL", help="what devices run that do not take another"
    )
    manifest.add_argument(
        "--arm",
        nargs=3,
        action="append",
        metavar=("MODEL", "PERCENT", "GOOD"),
        help="a model, how many devices take it, and how many of a thousand answers "
        "are good",
    )
    manifest.add_argument(
        "--next", metavar="FILE", help="the stage that follows this manifest"
    )
    manifest.add_argument(
        "--not-after",
        required=True,
        metavar="TIME",
        help="when no device takes it any more: RFC 3339, or +60d",
    )
    manifest.add_argument("--out", metavar="FILE", help="(default: standard output)")

    take = add_command(
        actions,
        "take",
        summary="put a manifest in force on this device",
        text="Verify a manifest and its proof, and follow it from now on; a client "
        "that runs\nchanges its model between two answers. One that does not verify, "
        "has expired, or is\nnot newer than one that was in force changes nothing "
        "(exit 2). The model and the one\nbefore it must be here; what is missing is "
        "said with the command that gets it.",
        example="curtilage models rollout take --manifest 1.json --proof proof.txt",
    )
    take.add_argument("--manifest", required=True, metavar="FILE")
    take.add_argument("--proof", required=True, metavar="FILE")
    add_policy_flag(take)

    status = add_command(
        actions,
        "status",
        summary="say which model runs here, and how it was graded",
        text="Say which manifest is followed, what it means for this device, and how "
        "the model's\nanswers were graded. With --trace, count the grades of each "
        "model of the manifest in\nthese traces, which may be of many devices, with "
        "95 % intervals.",
        example="curtilage models rollout status --trace one.jsonl two.jsonl",
    )
    status.add_argument(
        "--trace", nargs="+", default=(), metavar="FILE", help="traces, of any devices"
    )
    status.add_argument("--json", action="store_true", help="one JSON object")
    add_policy_flag(status)

    rollback = add_command(
        actions,
        "rollback",
        summary="go back to the model before, on this device",
        text="Take back here what the manifest in force rolls out; also its later "
        "stages will not\nbring it. A manifest of another model will be followed.",
        example="curtilage models rollout rollback",
    )
    add_policy_flag(rollback)
