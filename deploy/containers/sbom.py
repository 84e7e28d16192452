"""Bills of materials in CycloneDX 1.6: what an image holds, by name and digest.

Written from the same values that the image is built from, without a time and with an
identifier that follows from the content: two builds give the same bytes.
"""

import email
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from deploy.image.build import sha256_of
from deploy.image.packages import Package
from deploy.image.wheels import normal_name, read_wheel

SPECIFICATION: Final = "1.6"
OWN_LICENCE: Final = "Apache-2.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One part of an image.

    Attributes:
        name, version: of the distribution.
        purl: the package URL, which identifies it.
        sha256: of the file that it came in, lower-case hex; empty: our own tree.
        licence: an SPDX expression; empty: the distribution states none.
    """

    name: str
    version: str
    purl: str
    sha256: str = ""
    licence: str = ""

    def to_fields(self) -> Mapping[str, object]:
        """Return it as CycloneDX has it."""
        fields: dict[str, object] = {
            "type": "library",
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            "purl": self.purl,
        }
        if self.sha256:
            fields["hashes"] = [{"alg": "SHA-256", "content": self.sha256}]
        if self.licence:
            fields["licenses"] = [{"expression": self.licence}]
        return fields


def debian_component(package: Package) -> Component:
    """Return the component of a locked Debian package."""
    version = quote(package.version, safe=":")
    return Component(
        name=package.name,
        version=package.version,
        purl=f"pkg:deb/debian/{quote(package.name)}@{version}?arch=amd64",
        sha256=package.sha256,
    )


def wheel_component(wheel: Path) -> Component:
    """Return the component of a wheel, from its name and its metadata."""
    found = wheel.name.split("-")
    name, version = normal_name(found[0]), found[1]
    return Component(
        name=name,
        version=version,
        purl=f"pkg:pypi/{name}@{quote(version)}",
        sha256=sha256_of(wheel),
        licence=_licence(wheel),
    )


def own_component(version: str) -> Component:
    """Return the component of our own code."""
    return Component(
        name="curtilage",
        version=version,
        purl=f"pkg:pypi/curtilage@{quote(version)}",
        licence=OWN_LICENCE,
    )


def write_sbom(
    image: str, version: str, identity: str, components: Sequence[Component]
) -> str:
    """Return the bill of an image.

    Args:
        image: its name.
        version: its version.
        identity: its id, 64 hex digits.
        components: everything that it holds.
    """
    ordered = sorted(components, key=lambda component: component.purl)
    # A name for this very image: whoever builds it again gets the same.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"sha256:{identity}")
    bill = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": image,
                "name": image,
                "version": version,
                "hashes": [{"alg": "SHA-256", "content": identity}],
            }
        },
        "components": [component.to_fields() for component in ordered],
        "dependencies": [
            {"ref": image, "dependsOn": [component.purl for component in ordered]},
            *({"ref": component.purl} for component in ordered),
        ],
    }
    return json.dumps(bill, indent=1) + "\n"


def _licence(wheel: Path) -> str:
    """Return what the wheel's metadata states as ``License-Expression`` (PEP 639)."""
    for path, content in read_wheel(wheel):
        if path.endswith(".dist-info/METADATA") and path.count("/") == 1:
            headers = email.message_from_bytes(content)
            return headers.get("License-Expression", "")
    return ""
