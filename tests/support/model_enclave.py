"""An enclave in memory whose answers come from a scripted engine.

Parser, model and formats are those of the enclave server.
"""

from collections.abc import AsyncGenerator

from typing_extensions import override

from curtilage.client.remote.seal import CHAT_PATH
from curtilage.client.remote.sealed import SealedExchange
from curtilage.enclave_server.errors import ChatError
from curtilage.enclave_server.model import Model
from curtilage.enclave_server.ohttp.chat import (
    ChatLimits,
    parse_chat_completion_request,
)
from curtilage.enclave_server.ohttp.openai_answers import (
    Answer,
    AnswerHead,
    Begun,
    Ending,
    Piece,
    encode_completion,
    encode_error,
    error_type,
    first_event,
    last_events,
    piece_event,
    tellable,
)
from curtilage.inference.protocol import Engine
from curtilage.wire import bhttp, chunked
from curtilage_dev.scripted_engine import Script, ScriptedEngine
from support.memory_enclave import ROOMY, MemoryEnclave, Reply

HEAD = AnswerHead(answer_id="chatcmpl-0", created=3, model="scripted")


class ModelEnclave(MemoryEnclave):
    """Answers each question by the next script, or with another engine."""

    def __init__(self, *scripts: Script, engine: Engine | None = None) -> None:
        super().__init__(parameters=ROOMY)
        self.engine = ScriptedEngine(*scripts)
        self.model = Model(engine or self.engine)

    @override
    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        body = exchange.take_body()
        request, _ = chunked.open_chunked_request(self.keys, body)
        decoded = bhttp.decode_request(request)
        if decoded.path == CHAT_PATH:
            try:
                self.reply = await self._answered(decoded.content)
            except ChatError as error:
                error = tellable(error)
                self.reply = Reply(
                    content=encode_error(error),
                    status=error.status,
                    media_type=error_type(error),
                    fields=error.fields,
                )
        async for data in self.body(bytes(self.answer(body))):
            yield data

    async def _answered(self, content: bytes) -> Reply:
        await self.engine.start()
        chat = parse_chat_completion_request(content, ChatLimits())
        answers: list[Answer] = [each async for each in self.model.answer(chat)]
        *begun, ending = answers
        assert isinstance(begun[0], Begun)
        assert isinstance(ending, Ending)
        pieces = [each for each in begun if isinstance(each, Piece)]
        if not chat.stream:
            made = encode_completion(HEAD, pieces, ending, logprobs=chat.logprobs)
            return Reply(content=made, media_type=b"application/json")
        events = [piece_event(HEAD, each) for each in pieces]
        return Reply(
            content=b"".join(
                (first_event(HEAD, chat.n), *events, last_events(HEAD, ending))
            )
        )
