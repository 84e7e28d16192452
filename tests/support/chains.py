"""The objects that an exception keeps alive."""


def chain(problem: BaseException | None) -> str:
    """Everything an exception reaches: itself, causes, contexts."""
    texts: list[str] = []
    while problem is not None:
        texts.append(repr(problem) + repr(vars(problem)))
        problem = problem.__cause__ or problem.__context__
    return " ".join(texts)
