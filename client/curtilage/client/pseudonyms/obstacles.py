"""Reasons why a query's names and numbers cannot be replaced; without content."""

from curtilage.client.chat.answer import Obstacle

WHY_NOT_REPLACED = {
    Obstacle.NOTHING_FOUND: "none of the findings can be replaced",
    Obstacle.MARK_IN_SOURCE: "the text itself contains the marks of pseudonyms",
    Obstacle.OTHER_VIEW: "a finding is written in disguise",
    Obstacle.ACROSS_TEXTS: "a finding is spread over several texts",
    Obstacle.NOT_CONTENT: "a finding is in a field that cannot be rewritten",
    Obstacle.OVERLAP: "two different findings overlap",
    Obstacle.NO_STAND_IN: "a part of the findings has no pseudonym",
    Obstacle.STOP_STRING: "a stop string would cut a pseudonym",
    Obstacle.LOGPROBS: "log-probabilities would be those of the pseudonyms",
    Obstacle.STILL_FOUND: "after the replacement something is still found",
    Obstacle.NAME_LEFT: "a replaced name also occurs in another spelling",
}


class CannotRewriteError(Exception):
    """A query cannot be rewritten; raised and caught inside this package only.

    Attributes:
        obstacle: the reason.
    """

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.value)
        self.obstacle = obstacle
