"""Writes the trained weights as an int8 ONNX graph that needs no torch.

    python lab/training/export.py --weights DIR/guard.pt --out WEIGHTS

The graph is written node by node, so that it contains exactly the nodes in this module.
The weights are 7-bit (``reduce_range``): processors without VNNI add two 8-bit products
in 16 bits, and would saturate otherwise.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from batches import marks_of
from labels import LABELS, MAX_PIECES, TOPICS
from network import HEADS, LAYERS, WIDTH
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

_EPSILON = 1e-12
_FAR = -1e4  # added to the attention scores of padding
Array = NDArray[np.float32]


class Graph:
    """Collects nodes and constants under unique names."""

    def __init__(self, prefix: str = "t") -> None:
        self._prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: object, kind: type = np.float32) -> str:
        """Add a constant; return its name."""
        array = np.ascontiguousarray(np.asarray(value, dtype=kind))
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(
        self, operator: str, *inputs: str, output: str = "", **more: object
    ) -> str:
        """Add a node; return the name of its output."""
        name = output or f"{self._prefix}{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, list(inputs), [name], name=f"n_{name}", **more)
        )
        return name

    def linear(
        self, weights: dict[str, Array], x: str, name: str, output: str = ""
    ) -> str:
        """Add the product with a matrix and its offset; return the name."""
        matrix = self.constant(f"{name}.w", weights[f"{name}.weight"].T)
        offset = self.constant(f"{name}.b", weights[f"{name}.bias"])
        return self.node("Add", self.node("MatMul", x, matrix), offset, output=output)


def build(weights: dict[str, Array]) -> onnx.ModelProto:
    """Return the whole graph in 32-bit floats."""
    graph = Graph()
    _shared(graph)
    x = _embedded(graph, weights)
    for layer in range(LAYERS):
        x = _block(graph, weights, x, f"layers.{layer}.")
    graph.linear(weights, x, "entities", output="entities")
    mask = graph.node("Unsqueeze", "mask_f", "axis_2")
    total = graph.node("ReduceSum", graph.node("Mul", x, mask), "axis_1", keepdims=0)
    count = graph.node("ReduceSum", "mask_f", "axis_1", keepdims=1)
    graph.linear(weights, graph.node("Div", total, count), "topics", output="topics")
    ints, floats = TensorProto.INT64, TensorProto.FLOAT
    made = helper.make_graph(
        graph.nodes,
        "guard",
        [
            helper.make_tensor_value_info("ids", ints, ["b", "s"]),
            helper.make_tensor_value_info("mask", ints, ["b", "s"]),
        ],
        [
            helper.make_tensor_value_info("entities", floats, ["b", "s", len(LABELS)]),
            helper.make_tensor_value_info("topics", floats, ["b", len(TOPICS)]),
        ],
        graph.constants,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 9
    return model


def _shared(graph: Graph) -> None:
    for name, value in (("axis_0", [0]), ("axis_1", [1]), ("axis_2", [2])):
        graph.constant(name, value, np.int64)
    graph.constant("axes_heads", [1, 2], np.int64)
    graph.constant("split", [0, 0, HEADS, WIDTH // HEADS], np.int64)
    graph.constant("joined", [0, 0, WIDTH], np.int64)
    graph.constant("scale", (WIDTH // HEADS) ** -0.5)
    graph.constant("one", 1.0)
    graph.constant("far", _FAR)
    graph.node("Cast", "mask", output="mask_f", to=TensorProto.FLOAT)
    seen = graph.node("Unsqueeze", "mask_f", "axes_heads")
    graph.node("Mul", graph.node("Sub", "one", seen), "far", output="unseen")


def _embedded(graph: Graph, weights: dict[str, Array]) -> str:
    words = graph.constant("words", weights["words.weight"])
    places = graph.constant("places", weights["positions.weight"][:MAX_PIECES])
    length = graph.node("Gather", graph.node("Shape", "ids"), "axis_1")
    here = graph.node("Slice", places, "axis_0", length, "axis_0")
    x = graph.node("Add", graph.node("Gather", words, "ids"), here)
    return _norm(graph, weights, x, "embedded_norm")


def _block(graph: Graph, weights: dict[str, Array], x: str, at: str) -> str:
    orders = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}
    query, key, value = (
        graph.node(
            "Transpose",
            graph.node("Reshape", graph.linear(weights, x, at + name), "split"),
            perm=order,
        )
        for name, order in orders.items()
    )
    likeness = graph.node("Mul", graph.node("MatMul", query, key), "scale")
    paid = graph.node("Softmax", graph.node("Add", likeness, "unseen"), axis=-1)
    seen = graph.node("Transpose", graph.node("MatMul", paid, value), perm=[0, 2, 1, 3])
    seen = graph.node("Reshape", seen, "joined")
    seen = graph.linear(weights, seen, at + "attended")
    x = _norm(graph, weights, graph.node("Add", x, seen), at + "attended_norm")
    inner = graph.node("Gelu", graph.linear(weights, x, at + "inner"))
    outer = graph.linear(weights, inner, at + "outer")
    return _norm(graph, weights, graph.node("Add", x, outer), at + "outer_norm")


def _norm(graph: Graph, weights: dict[str, Array], x: str, name: str) -> str:
    scale = graph.constant(f"{name}.w", weights[f"{name}.weight"])
    offset = graph.constant(f"{name}.b", weights[f"{name}.bias"])
    return graph.node("LayerNormalization", x, scale, offset, epsilon=_EPSILON, axis=-1)


def main() -> int:
    """Write guard.onnx, tokenizer.json and guard.json; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, required=True, nargs="+")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--full-range", action="store_true", help="8-bit weights")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        plain, small = Path(scratch) / "f32.onnx", Path(scratch) / "int8.onnx"
        onnx.save(build(_mean_of(arguments.weights)), plain)
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read as the next line runs
        from onnxruntime.quantization import (  # noqa: PLC0415
            QuantType,
            quantize_dynamic,
        )

        quantize_dynamic(
            plain,
            small,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=not arguments.full_range,
        )
        shutil.copyfile(small, out / "guard.onnx")
    shutil.copyfile(arguments.tokenizer, out / "tokenizer.json")
    files = ("guard.onnx", "tokenizer.json")
    described = {
        "format": 1,
        "entities": list(LABELS),
        "topics": list(TOPICS),
        "max_pieces": MAX_PIECES,
        "marks": list(marks_of(Tokenizer.from_file(str(arguments.tokenizer)))),
        "topic_thresholds": dict.fromkeys(TOPICS, 0.5),
        "sha256": {
            name: hashlib.sha256((out / name).read_bytes()).hexdigest()
            for name in files
        },
    }
    (out / "guard.json").write_text(json.dumps(described, indent=1) + "\n")
    return 0


def _mean_of(paths: list[Path]) -> dict[str, Array]:
    """Return the mean of several runs' weights; a single run is unchanged."""
    runs = [torch.load(path, weights_only=True) for path in paths]
    return {
        name: torch.stack([run[name] for run in runs]).mean(0).numpy()
        for name in runs[0]
    }


if __name__ == "__main__":
    sys.exit(main())
