import asyncio

import pytest

from support.hop_exchanges import record
from support.hops import Hops


@pytest.fixture(scope="session")
def hops(tmp_path_factory: pytest.TempPathFactory) -> Hops:
    """The traffic on the hops of a stack, by kind of exchange."""
    return asyncio.run(record(tmp_path_factory.mktemp("hops")))
