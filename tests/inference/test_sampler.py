"""The samplers of the library, on the byte model's logits."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from llama_cpp import llama_cpp as lib

from curtilage.inference.errors import RequestError, SchemaError
from curtilage.inference.grammar import Grammar
from curtilage.inference.native import Context, Draw, Model, Row, Sampler, draw_of
from curtilage.inference.protocol import (
    ChatMessage,
    GenerateRequest,
    JsonSchema,
    Tool,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.schema import add_schema
from curtilage.inference.structured import form_of
from support.byte_model import EOS, FIRST_BYTE, make_byte_model
from support.json_schema import is_valid
from support.schemas import SCHEMAS

PROMPT = [FIRST_BYTE + value for value in b"a prompt of some length"]
HERE = Path(__file__).parent
DIGITS = "root ::= [0-9]{3,9}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    # With names of control tokens that a text could contain.
    path = make_byte_model(
        tmp_path_factory.mktemp("models") / "byte.gguf", merges=('"a', '{"', '": "')
    )
    model = Model(str(path))
    yield model
    model.free()


@pytest.fixture(scope="module")
def context(model: Model) -> Iterator[Context]:
    context = Context(model, tokens=1024, threads=1)
    yield context
    context.free()


def draw(grammar: str = "", *, seed: int = 5, **fields: Any) -> Draw:  # noqa: ANN401
    plain = Draw(temperature=1.0, top_p=1.0, seed=seed, grammar=grammar)
    return replace(plain, **fields)


def feed(context: Context, tokens: Sequence[int]) -> None:
    """Read tokens; the next one can be drawn then."""
    at, last = context.used(0), len(tokens) - 1
    rows = [Row(each, at + n, 0, n == last) for n, each in enumerate(tokens)]
    context.decode(rows)
    LAST[0] = last


def sampled(context: Context, sampler: Sampler) -> int:
    return context.sample(sampler, LAST[0])


def logits_of(context: Context) -> "np.typing.NDArray[np.float32]":
    return context.logits(LAST[0])


LAST = [0]
"""The row after which the next token is drawn."""


def run(model: Model, context: Context, how: Draw, count: int = 900) -> list[int]:
    """Return the tokens of an answer, with the one that ends it."""
    sampler = Sampler(how, model)
    try:
        feed(context, PROMPT)
        tokens = [sampled(context, sampler)]
        while len(tokens) < count and not model.is_end(tokens[-1]):
            feed(context, tokens[-1:])
            tokens.append(sampled(context, sampler))
        return tokens
    finally:
        sampler.free()
        context.clear()


def text_of(model: Model, tokens: list[int]) -> str:
    return b"".join(model.piece(token) for token in tokens).decode()


def first_logits(context: Context) -> "np.typing.NDArray[np.float32]":
    feed(context, PROMPT)
    row = logits_of(context).copy()
    context.clear()
    return row


# Penalties and bias.


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_bias_decides(model: Model, context: Context, temperature: float) -> None:
    wanted = FIRST_BYTE + ord("q")
    how = draw(temperature=temperature, logit_bias=((wanted, 100.0),))
    assert run(model, context, how, 5) == [wanted] * 5
    free = run(model, context, draw(temperature=0.0), 1)[0]
    banned = draw(temperature=temperature, logit_bias=((free, -100.0),))
    assert free not in run(model, context, banned, 40)


def test_a_bias_of_a_token_that_the_model_lacks_is_refused(model: Model) -> None:
    Sampler(draw(logit_bias=((model.vocabulary_size - 1, 1.0),)), model).free()
    with pytest.raises(RequestError):
        Sampler(draw(logit_bias=((model.vocabulary_size, 1.0),)), model)


def test_penalties_lower_what_the_answer_has(model: Model, context: Context) -> None:
    """By presence once, by frequency for each time: the choice follows the numbers."""
    for frequency, presence in ((2.0, 0.0), (0.0, 2.0), (-2.0, 0.0), (1.5, -0.5)):
        how = draw(
            temperature=0.0,
            frequency_penalty=frequency,
            presence_penalty=presence,
            remembered=60,
        )
        sampler, counts = Sampler(how, model), np.zeros(model.vocabulary_size)
        feed(context, PROMPT)
        for _ in range(40):
            expected = logits_of(context) - counts * frequency - (counts > 0) * presence
            token = sampled(context, sampler)
            assert token == int(expected.argmax())
            counts[token] += 1
            feed(context, [token])
        assert counts.max() > 1
        sampler.free()
        context.clear()


def test_settings_become_a_draw() -> None:
    how = draw_of(
        SamplingSettings(
            max_tokens=7,
            seed=3,
            frequency_penalty=0.5,
            presence_penalty=-0.5,
            logit_bias=((5, 1.0),),
        ),
        DIGITS,
    )
    assert how == Draw(
        temperature=0.7,
        top_p=0.95,
        seed=3,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        remembered=7,
        logit_bias=((5, 1.0),),
        grammar=DIGITS,
    )
    assert "0-9" not in repr(how)


# Grammars.


@pytest.mark.parametrize("temperature", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("top_p", [0.1, 1.0])
def test_an_answer_fulfils_its_grammar(
    model: Model, context: Context, temperature: float, top_p: float
) -> None:
    how = draw(DIGITS, temperature=temperature, top_p=top_p)
    tokens = run(model, context, how)
    assert model.is_end(tokens[-1])
    assert 3 <= len(text_of(model, tokens)) <= 9
    assert text_of(model, tokens).isdigit()
    assert run(model, context, how) == tokens


def test_a_token_that_fulfils_the_grammar_anyway_is_the_same_as_without(
    model: Model, context: Context
) -> None:
    ascii_only = tuple((FIRST_BYTE + value, -100.0) for value in (0, *range(128, 256)))
    anything = "root ::= [\\x01-\U0010ffff]*"
    free = run(model, context, draw(seed=8, logit_bias=ascii_only), 30)
    assert (
        run(model, context, draw(anything, seed=8, logit_bias=ascii_only), 30) == free
    )


def test_tokens_that_fulfil_the_grammar_keep_their_shares(
    model: Model, context: Context
) -> None:
    logits, tries = first_logits(context).astype(float), 1500
    digits = np.arange(FIRST_BYTE + ord("0"), FIRST_BYTE + ord("9") + 1)
    shares = np.exp(logits[digits]) / np.exp(logits[digits]).sum()
    feed(context, PROMPT)
    counts = dict.fromkeys(digits.tolist(), 0)
    for seed in range(tries):
        sampler = Sampler(draw(DIGITS, seed=seed), model)
        counts[sampled(context, sampler)] += 1
        sampler.free()
    context.clear()
    found = np.array([counts[token] for token in digits.tolist()]) / tries
    # Of a share p the standard deviation is at most sqrt(p / tries).
    assert (np.abs(found - shares) <= 4 * np.sqrt(shares / tries) + 0.002).all()


def test_a_bias_holds_within_a_grammar(model: Model, context: Context) -> None:
    how = draw(DIGITS, logit_bias=((FIRST_BYTE + ord("7"), 100.0), (EOS, -100.0)))
    assert text_of(model, run(model, context, how)) == "7" * 9


@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(SCHEMAS, st.integers(0, 2**31), st.sampled_from([0.0, 0.7, 2.0]))
def test_an_answer_is_valid_by_its_schema(
    model: Model,
    context: Context,
    schema: dict[str, Any],
    seed: int,
    temperature: float,
) -> None:
    grammar = Grammar()
    try:
        root = add_schema(grammar, schema, strict=True)
    except SchemaError:
        assume(False)
    how = draw(grammar.gbnf(root), seed=seed, temperature=temperature)
    tokens = run(model, context, how)
    # Random weights may write one text without end: that one says ``length``.
    if model.is_end(tokens[-1]):
        assert is_valid(json.loads(text_of(model, tokens)), schema)


def test_characters_are_whole_and_control_tokens_are_left_out(
    model: Model, context: Context
) -> None:
    """The library takes overlong bytes for characters, and reads tokens' names."""
    few = "root ::= [\u0080-\U0010ffff<|>/_a-z0-9]{20}"
    biases = tuple(
        (token, 30.0)
        for token in range(model.vocabulary_size)
        if model.is_control(token) or token - FIRST_BYTE in {0xE0, 0xF0, 0x82, 0xED}
    )
    for seed in range(5):
        tokens = run(model, context, draw(few, seed=seed, logit_bias=biases))
        assert len(text_of(model, tokens)) == 20
        assert not any(map(model.is_control, tokens[:-1]))


def test_a_place_where_no_token_fits_fails(
    model: Model, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with a vocabulary without bytes.
    def is_control(_model: Model, token: int) -> bool:
        return token != EOS

    def is_end(_model: Model, token: int) -> bool:
        return token == EOS

    monkeypatch.setattr(Model, "is_control", is_control)
    monkeypatch.setattr(Model, "is_end", is_end)
    with pytest.raises(RequestError):
        run(model, context, draw(DIGITS))


@pytest.mark.parametrize(
    "grammar",
    [
        "x",
        "other ::= [0-9]",
        "root ::= missing",
        "root ::= root [0-9]",
        "root ::= [0-9",
        'root ::= "a',
        'root ::= "a"{5000}',
        "root ::= (",
        "root ::= \\q",
        "\0",
        "root ::= \ud7ff{",
    ],
    ids=range(11),
)
def test_a_grammar_that_the_library_refuses_is_refused(
    model: Model, grammar: str
) -> None:
    with pytest.raises(RequestError):
        Sampler(draw(grammar), model)


def test_a_sampler_frees_its_grammar(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[object] = []
    free = lib.llama_sampler_free

    def counted(link: "lib.llama_sampler_p") -> None:
        freed.append(link)
        free(link)

    monkeypatch.setattr(lib, "llama_sampler_free", counted)
    Sampler(draw(DIGITS), model).free()
    Sampler(draw(), model).free()
    assert len(freed) == 3


ODD: tuple[dict[str, Any], ...] = (
    {"type": "string", "minLength": 2000, "maxLength": 2000},
    {"type": "array", "items": {"type": "array", "minItems": 2000}, "minItems": 2000},
    {"enum": [f"value {number}" for number in range(1000)]},
    {"properties": {f"name {number}": {} for number in range(1000)}},
    {"properties": {'"\\\n\t\x7f ]": "': {"const": '"\\\n\t\x7f\U0001f600'}}},
    {
        "$defs": {"a": {"items": {"$ref": "#/$defs/a"}, "type": "array"}},
        "$ref": "#/$defs/a",
    },
    {"anyOf": [{"type": "string", "maxLength": number} for number in range(60)]},
    {"type": ["integer", "number"], "minimum": -(10**15), "maximum": 10**15},
    {"enum": [""]},
    {"type": "object", "additionalProperties": {"type": "object"}},
)


def large(kind: str) -> GenerateRequest:
    """Return a request with as large a grammar as there can be, or about."""
    hello = (ChatMessage(role="user", content="hello"),)
    if kind == "tools":
        tools = tuple(Tool(name=f"tool_{n}_{'x' * 50}") for n in range(128))
        return GenerateRequest(messages=hello, tools=tools)
    named: dict[str, Any] = {
        "members": {f"name {n}": {"type": "string"} for n in range(1000)},
        "texts": {f"n{n}": {"type": "string", "maxLength": 1999 - n} for n in range(9)},
        "bounds": {
            f"n{n}": {"type": "integer", "minimum": n - 10**14, "maximum": 10**14 - n}
            for n in range(450)
        },
    }
    wanted = JsonSchema(schema=json.dumps({"properties": named[kind]}))
    return GenerateRequest(messages=hello, response_format=wanted)


@pytest.mark.parametrize("kind", ["tools", "members", "texts", "bounds"])
def test_a_grammar_takes_no_more_memory_than_is_counted(
    byte_model: Path, kind: str
) -> None:
    form = form_of(large(kind))
    # In a program of its own: what others have freed is used again.
    code = """
import sys
import psutil
from curtilage.inference.native import Draw, Model, Sampler
model = Model(sys.argv[1])
grammar = sys.stdin.read()
draw = Draw(temperature=2.0, top_p=1.0, seed=1, grammar=grammar)
before = psutil.Process().memory_info().rss
samplers = [Sampler(draw, model) for _ in range(4)]
print((psutil.Process().memory_info().rss - before) // 4)
"""
    done = run_program(code, byte_model, form.grammar)
    assert done.returncode == 0, done.stderr
    assert form.held_bytes // 8 < int(done.stdout) <= form.held_bytes


@pytest.mark.parametrize("schema", ODD, ids=range(len(ODD)))
def test_odd_schemas_neither_crash_nor_stall(byte_model: Path, schema: Any) -> None:  # noqa: ANN401
    grammar = Grammar()
    gbnf = grammar.gbnf(add_schema(grammar, schema, strict=True))
    # In a program of its own, as the library ends it when it fails.
    code = """
import sys
from curtilage.inference.native import Context, Draw, Model, Sampler
from test_sampler import feed, sampled
model = Model(sys.argv[1])
context = Context(model, tokens=512, threads=1)
grammar = sys.stdin.read()
for seed in range(3):
    draw = Draw(temperature=2.0, top_p=1.0, seed=seed, grammar=grammar)
    sampler = Sampler(draw, model)
    feed(context, [5, 6])
    for _ in range(60):
        token = sampled(context, sampler)
        if model.is_end(token):
            break
        feed(context, [token])
    sampler.free()
    context.clear()
"""
    done = run_program(code, byte_model, gbnf)
    assert done.returncode == 0, done.stderr


def run_program(
    code: str, model: Path, grammar: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, str(model)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)])},
        input=grammar,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
