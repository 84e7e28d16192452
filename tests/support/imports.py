"""Watches for a library's import, and keeps it from happening."""

import os
import sys

import pytest


def values_at_import(
    monkeypatch: pytest.MonkeyPatch, library: str, variable: str
) -> list[str]:
    """Return a list that gets the variable's value when the library is imported.

    The variable says 0 before; the import fails, as if nothing were installed.
    """
    seen: list[str] = []

    class AtImport:
        def find_spec(
            self, fullname: str, path: object, target: object = None, /
        ) -> None:
            del path, target
            if fullname == library:
                seen.append(os.environ[variable])
                raise ModuleNotFoundError(fullname)

    monkeypatch.setenv(variable, "0")
    monkeypatch.delitem(sys.modules, library, raising=False)
    monkeypatch.setattr(sys, "meta_path", [AtImport(), *sys.meta_path])
    return seen
