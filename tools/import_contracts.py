"""Import-linter's contract type ``doors``: which modules may import each library.

It holds in one table what would otherwise be a ``protected`` contract for each library.
``pyproject.toml`` names this module under ``contract_types``.
"""

from typing import cast

import grimp
from importlinter import Contract, ContractCheck, fields
from importlinter.contracts.protected import ProtectedContract
from typing_extensions import override


class _TableField(fields.Field[dict[str, list[str]]]):
    """A table: each library's name, and the modules that may import it."""

    @override
    def parse(self, raw_data: object) -> dict[str, list[str]]:
        if not isinstance(raw_data, dict):
            raise fields.ValidationError("must be a table of lists")
        return cast("dict[str, list[str]]", raw_data)


class DoorsContract(Contract):
    """Only the listed modules import a library; an import by any other breaks this.

    Configuration options:
        doors: A table, from the library (or module) to the modules that may import it.
    """

    type_name = "doors"
    doors = _TableField()

    @override
    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        checks = {each: each.check(graph, verbose) for each in self._protected()}
        broken = {each: check for each, check in checks.items() if not check.kept}
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    @override
    def render_broken_contract(self, check: ContractCheck) -> None:
        for each, found in check.metadata["broken"].items():
            each.render_broken_contract(found)

    def _protected(self) -> list[ProtectedContract]:
        table = cast("dict[str, list[str]]", self.doors)
        return [
            ProtectedContract(
                name=library,
                session_options=self.session_options,
                contract_options={
                    "protected_modules": [library],
                    "allowed_importers": importers,
                },
            )
            for library, importers in table.items()
        ]
