# pyright: reportPrivateUsage=false
"""Switches forgetting off in every Python program that has this folder in PYTHONPATH.

Python imports a module of this name at its start. For the control of a scan, which must
find something then, and for the measurement of what forgetting costs. Of what is
released nothing reads this.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curtilage.inference.native import Context


def _with_pythons_allocator(module: ModuleType) -> None:
    module.FORGETTING.clear()


def _keeping_what_was_read(native: ModuleType) -> None:
    """Let the library reuse its cells, and overwrite nothing."""
    lib = native.lib

    def erase(self: "Context", sequence: int) -> None:
        if self._used[sequence]:
            lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
            self._used[sequence] = 0

    def clear(self: "Context") -> None:
        if self._touched and not self._gone:
            for sequence in range(self._room):
                lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
            self._used = [0] * self._sequences
            self._touched = self._torn = False

    def drop_logits(self: "Context") -> None:
        self._with_logits = []

    def keep(*_arguments: object) -> None:
        pass

    context = native.Context
    context.erase, context.clear, context.drop_logits = erase, clear, drop_logits
    context.flush = context.renew = native.Saved.wipe = keep


_CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "curtilage.sandbox.parent": _with_pythons_allocator,
    "curtilage.inference.native": _keeping_what_was_read,
}


class _Changing(MetaPathFinder):
    """Changes a module right after it was loaded."""

    # Without a decorator of another package: this is loaded before anything else.
    def find_spec(  # type: ignore[explicit-override]
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        change = _CHANGES.get(name)
        if change is None:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def load(module: ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = load  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Changing())
