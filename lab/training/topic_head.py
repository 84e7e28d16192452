"""Learns the topic head on the shipped encoder's states, and puts it in the graph.

    python lab/training/topic_head.py --features DIR --model WEIGHTS --run DIR

The encoder's nodes and constants are unchanged, so names are found as before; the nodes
from the states to ``topics`` are replaced. ``--dry`` only measures.
"""

import argparse
import hashlib
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from export import Array, Graph
from labels import TOPICS
from topic_features import POOLED, state_names
from torch import Tensor, nn
from torch.nn import functional

_INNER, _BATCH = 128, 256
_LEAST_SPREAD = 1e-6
_FAR = -1e4  # added to the states of padding
_TUNING_TENTHS = 1
# Exam cases read like notes on a patient. Learned as general texts, they would teach
# that notes are impersonal ("A 55-year-old female presents ..."): they are only
# measured.
_WEIGHTS = {"medqa-vignettes": 0.0}
_OUTPUT = "topics"
# The share of impersonal texts that may exceed a threshold.
_MOST_ALARMS = {"health": 0.04}
_MOST_ALARMS_ELSE = 0.01
# Everyday requests by customers and users, for which that is too many; a set of several
# languages includes its language in its name.
_REQUESTS = re.compile(r"banking|clinc|xsid-\w+")
_MOST_OF_REQUESTS = 0.004
# A query's topic is the highest score of its windows and passages, and of the five,
# with a marker: over whole queries, these alarms add up. This additional margin on the
# logit keeps everyday requests as they are. In the order of ``TOPICS``, chosen on the
# tuning rows as a compromise between personal and impersonal texts.
_MARGINS = (0.62, 0.41, 1.39, 0.62, 1.73)  # for the English guard; see train.sh


class Head(nn.Module):
    """From a text's pooled states to topics: one hidden layer.

    Args:
        mean: of each number over the training texts.
        spread: its standard deviation there.
    """

    def __init__(self, mean: Tensor, spread: Tensor, dropout: float = 0.3) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)
        self.inner = nn.Linear(POOLED, _INNER)
        self.topics = nn.Linear(_INNER, len(TOPICS))
        self.dropout = nn.Dropout(dropout)

    def forward(self, pooled: Tensor) -> Tensor:
        """Return topic logits ``[b, T]`` of ``[b, POOLED]``."""
        even = self.dropout((pooled - self.mean) / self.spread)
        return self.topics(self.dropout(functional.gelu(self.inner(even))))

    def weights(self) -> dict[str, Array]:
        """Return the matrices for the graph, with mean and spread folded in."""
        inner = self.inner.weight / self.spread
        offset = self.inner.bias - inner @ self.mean
        return {
            "topic_inner.weight": inner.detach().numpy(),
            "topic_inner.bias": offset.detach().numpy(),
            "topics.weight": self.topics.weight.detach().numpy(),
            "topics.bias": self.topics.bias.detach().numpy(),
        }


@dataclass(frozen=True, slots=True)
class Rows:
    """The states of all texts, and their annotations.

    Attributes:
        pooled: ``[n, POOLED]``.
        truth: for each topic 1, 0, or -1 if it is unknown.
        corpora: the source of each text.
        tuning: which are for the thresholds, and not learned.
    """

    pooled: Tensor
    truth: Tensor
    corpora: list[str]
    tuning: Tensor


def _read(folder: Path) -> Rows:
    rows = [
        json.loads(line)
        for line in (folder / "texts.jsonl").read_text("utf-8").splitlines()
    ]
    digests = (
        hashlib.sha256(f"curtilage-tuning:{row['key']}".encode()).digest()
        for row in rows
    )
    tuning = [int.from_bytes(each[:4], "big") % 10 < _TUNING_TENTHS for each in digests]
    pooled = np.fromfile(folder / "pooled.f16", dtype=np.float16).reshape(-1, POOLED)
    return Rows(
        pooled=torch.from_numpy(pooled.astype(np.float32)),
        truth=torch.tensor([row["topics"] for row in rows]),
        corpora=[row["key"].partition(":")[0] for row in rows],
        tuning=torch.tensor(tuning),
    )


def train(rows: Rows, arguments: argparse.Namespace) -> Head:
    """Return the head learned on the rows that are not for tuning."""
    torch.manual_seed(arguments.seed)
    learned = torch.nonzero(~rows.tuning)[:, 0]
    head = Head(
        rows.pooled[learned].mean(0), rows.pooled[learned].std(0) + _LEAST_SPREAD
    )
    weights = torch.tensor([_WEIGHTS.get(name, 1.0) for name in rows.corpora])
    optimizer = torch.optim.AdamW(
        head.parameters(), lr=arguments.rate, weight_decay=0.05
    )
    steps = arguments.epochs * -(-len(learned) // _BATCH)
    step = 0
    for epoch in range(arguments.epochs):
        total = 0.0
        for here in learned[torch.randperm(len(learned))].split(_BATCH):
            for group in optimizer.param_groups:
                group["lr"] = arguments.rate * max(0.02, 1 - step / steps)
            truth = rows.truth[here]
            each = functional.binary_cross_entropy_with_logits(
                head(rows.pooled[here]), truth.clamp(min=0), reduction="none"
            )
            loss = (each * (truth >= 0) * weights[here, None]).sum() / len(here)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(here)
            step += 1
        _say(f"epoch {epoch + 1}: {total / len(learned):.4f}")
    return head.eval()


def _thresholds(
    rows: Rows, logits: Array, margins: Sequence[float]
) -> dict[str, float]:
    """Return for each topic a logit that few impersonal texts reach, plus a margin.

    All corpora count equally, otherwise the largest would decide; and everyday requests
    together may reach it even less often.
    """
    chosen = {}
    impersonal = (rows.truth.max(dim=1, keepdim=True).values <= 0).numpy()
    negative = (rows.truth == 0).numpy() & impersonal
    for at, topic in enumerate(TOPICS):
        by_corpus = defaultdict(list)
        for row in np.flatnonzero(rows.tuning.numpy() & negative[:, at]):
            if rows.corpora[row] not in _WEIGHTS:
                by_corpus[rows.corpora[row]].append(float(logits[row, at]))
        most = _MOST_ALARMS.get(topic, _MOST_ALARMS_ELSE)
        for bound in np.arange(-4.0, 4.0, 0.05):
            shares = [
                sum(each >= bound for each in found) / len(found)
                for found in by_corpus.values()
            ]
            requests = [
                each
                for name, found in by_corpus.items()
                if _REQUESTS.fullmatch(name)
                for each in found
            ]
            alarms = sum(each >= bound for each in requests) / len(requests)
            if sum(shares) / len(shares) <= most and alarms <= _MOST_OF_REQUESTS:
                chosen[topic] = float(bound) + margins[at]
                break
    return chosen


def _report(rows: Rows, logits: Array, bounds: dict[str, float]) -> None:
    """Print for each corpus the share of tuning rows over the thresholds."""
    table: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for row in np.flatnonzero(rows.tuning.numpy()):
        truth = rows.truth[row].tolist()
        for at, topic in enumerate(TOPICS):
            if truth[at] >= 0:
                kind = topic + ("+" if truth[at] else "-" if any(truth) else " alarms")
                over = bool(logits[row, at] >= bounds[topic])
                table[rows.corpora[row]][kind].append(over)
    for corpus, kinds in sorted(table.items()):
        cells = (
            f"{kind} {sum(hits) / len(hits):.3f} of {len(hits)}"
            for kind, hits in sorted(kinds.items())
        )
        _say(f"{corpus}: {', '.join(cells)}")


def splice(model: onnx.ModelProto, head: Head) -> onnx.ModelProto:
    """Put the head into the graph, in place of the nodes that made ``topics``."""
    states = state_names(model)
    graph = model.graph
    kept = _needed(graph, {"entities", *states})
    graph.ClearField("node")
    graph.node.extend(kept)
    used = {name for node in kept for name in node.input}
    constants = [each for each in graph.initializer if each.name in used]
    graph.ClearField("initializer")
    graph.initializer.extend(constants)

    made = Graph(prefix="topic_")
    states_of_both = made.node("Concat", *states, axis=-1)
    mask = made.node("Unsqueeze", "mask_f", made.constant("topic_last", [2], np.int64))
    over = made.constant("topic_pieces", [1], np.int64)
    total = made.node(
        "ReduceSum", made.node("Mul", states_of_both, mask), over, keepdims=0
    )
    mean = made.node("Div", total, made.node("ReduceSum", "mask_f", over, keepdims=1))
    padding = made.node("Sub", made.constant("topic_one", 1.0), mask)
    unseen = made.node("Mul", padding, made.constant("topic_far", _FAR))
    highest = made.node(
        "ReduceMax", made.node("Add", states_of_both, unseen), over, keepdims=0
    )
    pooled = made.node("Concat", mean, highest, axis=-1)
    weights = head.weights()
    inner = made.node("Gelu", made.linear(weights, pooled, "topic_inner"))
    made.linear(weights, inner, "topics", output=_OUTPUT)
    graph.node.extend(made.nodes)
    graph.initializer.extend(made.constants)
    onnx.checker.check_model(model)
    return model


def _needed(graph: onnx.GraphProto, wanted: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes that these values need, in order."""
    kept = []
    wanted = {*wanted, "mask_f"}
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
    return kept[::-1]


def main() -> int:
    """Train, tune, report and export; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="changed in place")
    parser.add_argument(
        "--run", type=Path, required=True, help="training.json's folder"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument(
        "--margins",
        type=float,
        nargs=len(TOPICS),
        default=_MARGINS,
        metavar=tuple(name.upper() for name in TOPICS),
        help="added to each topic's logit",
    )
    parser.add_argument("--dry", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # small products: a second thread mostly waits
    rows = _read(arguments.features)
    head = train(rows, arguments)
    with torch.no_grad():
        logits = head(rows.pooled).numpy()
    bounds = _thresholds(rows, logits, arguments.margins)
    _say(json.dumps(bounds))
    _report(rows, logits, bounds)
    torch.save(head.state_dict(), arguments.run / "head.pt")
    if arguments.dry:
        return 0
    path = arguments.model / "guard.onnx"
    made = splice(onnx.load(path), head)
    onnx.save(made, path)
    described = json.loads((arguments.model / "guard.json").read_text())
    described["topic_thresholds"] = {
        topic: round(1 / (1 + math.exp(-bound)), 4) for topic, bound in bounds.items()
    }
    described["sha256"]["guard.onnx"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (arguments.model / "guard.json").write_text(json.dumps(described, indent=1) + "\n")
    (arguments.run / "topics.json").write_text(
        json.dumps(
            {
                "seed": arguments.seed,
                "examples": int((~rows.tuning).sum()),
                "epochs": arguments.epochs,
                "rate": arguments.rate,
                "margins": arguments.margins,
                "weights": sum(each.numel() for each in head.parameters()),
            },
            indent=1,
        )
    )
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
