"""``curtilage route answer``: the local model answers questions to be graded later."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from curtilage.cli.declared import Arguments
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, REFUSED, HowFar, err, out, progress
from curtilage.client.audit.export import new_file, refuse_taken
from curtilage.client.chat.answer import Delta
from curtilage.client.chat.query import Settings, single_query
from curtilage.client.config import ClientConfig
from curtilage.client.errors import ClientError
from curtilage.client.local.model import LocalModel, resolve, running_digest
from curtilage.client.local.registry.shape import read_shape
from curtilage.client.local.registry.store import Registry
from curtilage.lab.commands.answered_file import (
    AnsweredBy,
    AnsweredRow,
    begun_answers,
    line_of,
)
from curtilage.lab.commands.begun_file import Begun
from curtilage.lab.commands.grading import Asked, read_asked


def run(arguments: Arguments) -> int:
    """Answer the questions; exit 1 if none was answered."""
    refuse_taken(arguments.out)
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
    how = {"max_tokens": settings.max_tokens, "temperature": settings.temperature}
    async with _started(config) as (model, by):
        with begun_answers(path, by, how) as before:
            rows = await _all(model, by, questions, settings, before)
            if rows:
                with new_file(path) as file:
                    file.writelines(map(line_of, rows))
            before.remove()
    return len(rows), sum(row.grade is not None for row in rows)


async def _all(
    model: LocalModel,
    by: AnsweredBy,
    questions: Sequence[Asked],
    settings: Settings,
    before: Begun[AnsweredRow],
) -> list[AnsweredRow]:
    """Answer the questions that an earlier run has not answered."""
    rows: list[AnsweredRow] = []
    far = HowFar(logged=True)
    for number, question in enumerate(questions, start=1):
        row = before.take(question.text)
        if row is not None:
            rows.append(replace(row, grade=_grade(question, row)))
        else:
            try:
                row = await _row(model, by, question, settings)
            except ClientError as error:
                err(f"question {number} left unanswered: {error}")
            else:
                before.append(line_of(row))
                rows.append(row)
        far.show(
            f"{number} of {len(questions)} questions",
            last=number == len(questions),
        )
    return rows


def _grade(question: Asked, row: AnsweredRow) -> float | None:
    """Grade an earlier answer again: the expected answer may have changed since."""
    if question.expected is None:
        return row.grade
    answer = "".join(each.text for each in row.deltas)
    return float(question.expected.met_by(answer))


@asynccontextmanager
async def _started(
    config: ClientConfig,
) -> AsyncGenerator[tuple[LocalModel, AnsweredBy]]:
    chosen = resolve(config.model, sha256=config.model_sha256, registry=Registry())
    shape = read_shape(chosen.path)
    model = LocalModel.of(
        chosen, context_tokens=config.context_tokens, computing=config.computing
    )
    with progress("loading the local model"):
        await model.start()
    info = model.info
    try:
        yield (
            model,
            AnsweredBy(
                model_sha256=running_digest(info.model_sha256, info.adapter_sha256),
                template_sha256=info.template_sha256,
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
    row = AnsweredRow(
        text=question.text,
        deltas=tuple(deltas),
        finish=finish,
        grade=None,
        model=by,
    )
    return replace(row, grade=_grade(question, row))
