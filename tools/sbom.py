"""Write the bill of materials of a release (CycloneDX): the wheel and every package that is installed with it.

The versions are those of constraints.txt, with which the release is tested. The same wheel always gives the same bill.
"""

import hashlib
import importlib.metadata
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from tools.licences_doc import PROJECT, closure, licence_of


def bill_of(wheel: Path, *, epoch: int) -> str:
    """Return the bill of materials of a wheel that was built at this time."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    _, version, *_ = wheel.name.split("-")
    platform = _component(PROJECT, version, ComponentType.APPLICATION)
    platform.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=digest))
    needed = closure()
    parts = {name: _component(name, importlib.metadata.version(name), ComponentType.LIBRARY) for name in needed}
    bom = Bom(components=parts.values())
    bom.metadata.component = platform
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bom.serial_number = uuid5(NAMESPACE_URL, digest)
    for owner in (platform, *parts.values()):
        bom.register_dependency(owner, _needed_by(owner.name, needed, parts))
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _needed_by(user: str, needed: dict[str, set[str]], parts: dict[str, Component]) -> Iterable[Component]:
    return [parts[name] for name, users in needed.items() if user in users]


def _component(name: str, version: str, kind: ComponentType) -> Component:
    purl = PackageURL("pypi", name=canonicalize_name(name), version=version)
    licence = LicenseFactory().make_from_string(licence_of(name).replace("**", ""))
    return Component(type=kind, name=name, version=version, purl=purl, bom_ref=str(purl), licenses=[licence])
