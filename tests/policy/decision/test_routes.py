import pytest

from curtilage.policy.decision.routes import Route, most_private


def test_routes_are_ordered_by_privacy() -> None:
    order = [Route.BLOCK, Route.LOCAL, Route.DEIDENTIFY, Route.ENCLAVE]
    assert sorted(Route, key=lambda route: -route.privacy) == order


def test_most_private_takes_the_most_private() -> None:
    assert most_private([Route.ENCLAVE, Route.LOCAL, Route.DEIDENTIFY]) is Route.LOCAL
    assert most_private(list(Route)) is Route.BLOCK


def test_most_private_of_nothing_permits_nothing() -> None:
    with pytest.raises(ValueError, match="empty"):
        most_private([])
