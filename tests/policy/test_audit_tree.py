import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.tlog import hash_leaf, root_from_inclusion
from curtilage.policy.audit_tree import Frontier, Tree
from curtilage_dev.log import inclusion_path, tree_root


def leaves(size: int) -> list[bytes]:
    return [hash_leaf(str(number).encode()) for number in range(size)]


@given(st.integers(1, 70))
def test_the_root_is_that_of_rfc_6962(size: int) -> None:
    tree = Frontier()
    for number in range(size):
        tree.push(str(number).encode())
    assert tree.root() == tree_root(leaves(size))
    assert len(tree.roots) == size.bit_count()


@given(st.integers(1, 40), st.integers(0, 30))
def test_a_frontier_goes_on_without_its_leaves(size: int, more: int) -> None:
    hashes = leaves(size + more)
    whole = Frontier()
    for each in hashes[:size]:
        whole.push_hash(each)
    resumed = Frontier(size, whole.roots)
    for each in hashes[size:]:
        resumed.push_hash(each)
    assert resumed.root() == tree_root(hashes)


@given(st.integers(1, 70), st.data())
def test_a_path_leads_to_the_root(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    hashes = leaves(size)
    path = Tree(hashes).inclusion(index)
    assert list(path) == inclusion_path(hashes, index)
    reached = root_from_inclusion(
        index=index, size=size, leaf_hash=hashes[index], hashes=path
    )
    assert reached == tree_root(hashes)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="no root"):
        Frontier().root()
    with pytest.raises(ValueError, match="bits set"):
        Frontier(3, [bytes(32)])
    with pytest.raises(IndexError):
        Tree(leaves(3)).inclusion(3)
