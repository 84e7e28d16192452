"""Why a query's names and numbers cannot be replaced; words without content."""

from curtilage.client.answer import Obstacle

WHY_NOT_REPLACED = {
    Obstacle.NOTHING_FOUND: "nothing that was found can be replaced",
    Obstacle.MARK_IN_SOURCE: "the text holds the marks of pseudonyms itself",
    Obstacle.OTHER_VIEW: "what was found is written in a disguise",
    Obstacle.ACROSS_TEXTS: "what was found is spread over several texts",
    Obstacle.NOT_CONTENT: "it stands in a field that cannot be rewritten",
    Obstacle.OVERLAP: "two different things overlap",
    Obstacle.NO_STAND_IN: "a part of what was found has no pseudonym",
    Obstacle.STOP_STRING: "a stop string would cut a pseudonym",
    Obstacle.LOGPROBS: "log-probabilities tell of pseudonyms, token by token",
    Obstacle.STILL_FOUND: "something is still found when they are replaced",
    Obstacle.NAME_LEFT: "a name that was replaced also stands there otherwise written",
}


class KeptHomeError(Exception):
    """A query cannot be rewritten; inside this part only, never for a caller.

    Attributes:
        obstacle: why.
    """

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.value)
        self.obstacle = obstacle
