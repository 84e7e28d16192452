"""``curtilage route answer``: the home model answers questions that will be graded."""

import argparse
import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from curtilage.cli.route.answered_file import AnsweredBy, AnsweredRow, line_of
from curtilage.cli.route.grading import Asked, read_asked
from curtilage.cli.start import config_from, registry
from curtilage.cli.terminal import DONE, REFUSED, HowFar, err, out, progress
from curtilage.client.answer import Delta
from curtilage.client.audit.export import new_file
from curtilage.client.config import ClientConfig
from curtilage.client.errors import ClientError
from curtilage.client.local.model import LocalModel, resolve
from curtilage.client.local.shape import read_shape
from curtilage.client.query import Settings, single_query


def run(arguments: argparse.Namespace) -> int:
    """Answer; exit 1 where nothing was answered."""
    questions = read_asked(Path(arguments.data))
    config = config_from(arguments)
    settings = Settings(
        max_tokens=arguments.max_tokens, temperature=arguments.temperature
    )
    answered, graded = asyncio.run(
        _answered(config, questions, settings, Path(arguments.out))
    )
    out(
        f"{answered} of {len(questions)} answered, {graded} graded by what was expected"
    )
    if graded < answered:
        out(f"give the others a grade from 0 to 1 in {arguments.out}, then certify")
    return DONE if answered else REFUSED


async def _answered(
    config: ClientConfig, questions: Sequence[Asked], settings: Settings, path: Path
) -> tuple[int, int]:
    answered = graded = 0
    far = HowFar()
    async with _started(config) as (model, by):
        with new_file(path) as file:
            for number, question in enumerate(questions, start=1):
                try:
                    row = await _row(model, by, question, settings)
                except ClientError as error:
                    err(f"question {number} left unanswered: {error}")
                else:
                    file.write(line_of(row))
                    answered += 1
                    graded += row.grade is not None
                far.tell(
                    f"{number} of {len(questions)} questions",
                    last=number == len(questions),
                )
    return answered, graded


@asynccontextmanager
async def _started(
    config: ClientConfig,
) -> AsyncGenerator[tuple[LocalModel, AnsweredBy]]:
    chosen = resolve(config.model, sha256=config.model_sha256, registry=registry())
    shape = read_shape(chosen.path)
    model = LocalModel.of(chosen, context_tokens=config.context_tokens)
    with progress("loading the local model"):
        await model.start()
    try:
        yield (
            model,
            AnsweredBy(
                model_sha256=model.info.model_sha256,
                template_sha256=model.info.template_sha256,
                quantisation="" if shape is None else shape.quantisation,
            ),
        )
    finally:
        await model.close()


async def _row(
    model: LocalModel, by: AnsweredBy, question: Asked, settings: Settings
) -> AnsweredRow:
    query = replace(single_query(question.text), settings=settings)
    deltas, finish = list[Delta](), "stop"
    async with aclosing(model.generate(query, signals=True)) as events:
        async for event in events:
            if isinstance(event, Delta):
                deltas.append(event)
            else:
                finish = event.finish_reason
    answer = "".join(each.text for each in deltas)
    expected = question.expected
    return AnsweredRow(
        text=question.text,
        deltas=tuple(deltas),
        finish=finish,
        grade=None if expected is None else float(expected.met_by(answer)),
        model=by,
    )
