"""Names of models that a request may ask for, and what each stands for; pure.

A name only restricts: it stands for one local model, for one kind of tier, or for what
policy and router decide. None permits a tier that the policy does not.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from curtilage.client.chat.openai_fields import DOCUMENT, MODEL_ID, MODELS_PATH
from curtilage.client.chat.options import Mode, Require, RoutingOptions
from curtilage.client.errors import ModelNotFoundError, UsageError

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
ANY: Final = "*"
"""The alias of every name that is not listed."""
KINDS: Final = tuple(each.value for each in Require)
RESERVED: Final = frozenset({MODEL_ID, *KINDS})
_MOST_LISTED: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the name of a model stands for.

    Attributes:
        require: the only kind of tier that may answer; None: any that the policy
            permits.
        local_model: the only local model that may answer; empty: the usual one.
    """

    require: Require | None = None
    local_model: str = ""

    def narrowed(self, options: RoutingOptions) -> RoutingOptions:
        """Return a request's options, restricted to this.

        Raises:
            UsageError: they ask for something else; names the field.
        """
        if self.require is None:
            return options
        if options.require not in {None, self.require}:
            raise UsageError(
                f"this model is answered by {self.require.value} only", param="require"
            )
        if self.require is Require.ENCLAVE and options.mode is Mode.HOME:
            raise UsageError(
                "mode home and a model of an enclave exclude each other", param="mode"
            )
        if self.local_model:
            for name, said in (
                ("defer", options.defer),
                ("max_cost", options.max_cost_microusd is not None),
                ("slo_hard", options.slo_hard),
            ):
                # They choose among tiers or wait for one; this is one local model.
                if said:
                    raise UsageError(
                        f"{name} does not go with one local model", param=name
                    )
        return replace(options, require=self.require, local_model=self.local_model)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNames:
    """The names that requests may use.

    Attributes:
        models: of local models.
        aliases: other names, each with a model's, ``curtilage`` or a kind of tier;
            ``*``: of every other name.
    """

    models: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def listed(self) -> tuple[str, ...]:
        """All names but ``*``, that of the usual way first."""
        return (MODEL_ID, *sorted((self.models | self.aliases.keys()) - {ANY}))

    def meaning(self, name: str) -> str | None:
        """Return what a name stands for, as an alias says it; None: it is unknown."""
        if name == MODEL_ID or name in self.models:
            return name
        return self.aliases.get(name, self.aliases.get(ANY))

    def target(self, name: object) -> Target:
        """Return what a request's ``model`` stands for.

        Args:
            name: None: the usual way.

        Raises:
            ModelNotFoundError: it is no known name; lists some, and does not repeat
                it.
        """
        said = self.meaning(name) if isinstance(name, str) else None
        if name is None or said == MODEL_ID:
            return Target()
        if said is None:
            names = self.listed[:_MOST_LISTED]
            more = ", …" if len(self.listed) > len(names) else ""
            raise ModelNotFoundError(
                f"no such model; GET {MODELS_PATH} lists the models here: "
                f"{', '.join(names)}{more} ({DOCUMENT})",
                param="model",
            )
        if said in self.models:
            return Target(require=Require.LOCAL, local_model=said)
        return Target(require=Require(said))

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the names."""
        for name in sorted(self.models | self.aliases.keys()):
            if NAME.fullmatch(name) is None and not (
                name == ANY and name in self.aliases
            ):
                yield (
                    f"{name!r} is no name: 1 to 128 of A-Z, a-z, 0-9 and ._:/@+-, "
                    "beginning with a letter or digit"
                )
            if name in RESERVED:
                yield f"{name!r} has a meaning already"
        for alias, said in sorted(self.aliases.items()):
            if alias in self.models:
                yield f"alias {alias!r} is the name of a model"
            if said in self.aliases and said not in self.models:
                yield f"alias {alias!r} stands for another alias; name its model"
            elif said not in self.models | RESERVED:
                yield (
                    f"alias {alias!r} stands for {said!r}, which is no model of this "
                    f"file, nor {', '.join((MODEL_ID, *KINDS))}"
                )
