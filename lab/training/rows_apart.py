"""Scales each row of a quantized guard separately, so that rows can be run together.

    python lab/training/rows_apart.py --model DIR

``quantize_dynamic`` scales the inputs of a product by the largest number in the run, so
other texts in the run would affect the result for a text. Here each piece is divided by
its own largest number, and the output is multiplied by it again; the weights are
unchanged, byte for byte. This costs about 15 % of a single run; a run of many short
rows takes half as long as those rows alone. It must run before ``topic_head.py``, since
the topics are learned on the numbers that are served.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

_LARGEST = 127
_MIDDLE = 128
_LEAST = 1e-6  # the divisor for a row of zeros
_CONTRIB = "com.microsoft"


def rows_apart(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every dynamic quantization made row by row.

    Raises:
        KeyError: it does not have the form that ``quantize_dynamic`` produces.
    """
    graph = model.graph
    for name, value, kind in (
        ("row_step", 1 / _LARGEST, np.float32),
        ("row_least", _LEAST, np.float32),
        ("row_middle", _MIDDLE, np.uint8),
        ("row_axis", [-1], np.int64),
    ):
        graph.initializer.append(numpy_helper.from_array(np.asarray(value, kind), name))
    makes = {name: node for node in graph.node for name in node.output}
    takes = {name: node for node in graph.node for name in node.input}
    made: list[onnx.NodeProto] = []
    replaced: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == "DynamicQuantizeLinear":
            made += _divided(node.input[0], node.output[0])
            replaced.append(node)
        elif node.op_type == "MatMulInteger":
            # Its product as a number, times the scales of both sides.
            as_float = takes[node.output[0]]
            scaled = takes[as_float.output[0]]
            scales = makes[scaled.input[1]]
            source = makes[node.input[0]].input[0]
            left, right, _, zero = node.input
            sides = ["row_step", scales.input[1], "row_middle", zero]
            small, out = f"{scaled.output[0]}_small", scaled.output[0]
            made += [
                helper.make_node(
                    "MatMulIntegerToFloat",
                    [left, right, *sides],
                    [small],
                    domain=_CONTRIB,
                ),
                helper.make_node("Mul", [small, f"{source}_largest"], [out]),
            ]
            replaced += [node, as_float, scaled, scales]
    kept = [node for node in graph.node if node not in replaced]
    del graph.node[:]
    graph.node.extend(_in_order([*kept, *made], graph))
    model.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    return model


def _divided(source: str, out: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Abs", [source], [f"{source}_size"]),
        helper.make_node(
            "ReduceMax", [f"{source}_size", "row_axis"], [f"{source}_most"], keepdims=1
        ),
        helper.make_node("Max", [f"{source}_most", "row_least"], [f"{source}_largest"]),
        helper.make_node("Div", [source, f"{source}_largest"], [f"{source}_share"]),
        helper.make_node(
            "QuantizeLinear", [f"{source}_share", "row_step", "row_middle"], [out]
        ),
    ]


def _in_order(
    nodes: list[onnx.NodeProto], graph: onnx.GraphProto
) -> list[onnx.NodeProto]:
    """Return the nodes in topological order: each after the nodes that it uses."""
    known = {each.name for each in (*graph.initializer, *graph.input)} | {""}
    sorted_nodes: list[onnx.NodeProto] = []
    while nodes:
        ready = [node for node in nodes if known.issuperset(node.input)]
        if not ready:
            raise KeyError("a node takes what none makes")
        for node in ready:
            known.update(node.output)
        sorted_nodes += ready
        nodes = [node for node in nodes if not known.issuperset(node.output)]
    return sorted_nodes


def main() -> int:
    """Rewrite guard.onnx and note it in guard.json; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    folder: Path = parser.parse_args().model
    path, manifest = folder / "guard.onnx", folder / "guard.json"
    onnx.save(rows_apart(onnx.load(path)), path)
    described = json.loads(manifest.read_bytes())
    described["rows_apart"] = True
    described["sha256"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(described, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
