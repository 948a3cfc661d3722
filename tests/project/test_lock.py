"""The lock file pins everything that pyproject.toml needs, at versions that fit."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version


def read_pins(root: Path) -> dict[str, Version]:
    lines = (root / "requirements.lock").read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pins = {}
    for requirement in wanted:
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", f"{requirement} is not an exact pin"
        assert canonicalize_name(requirement.name) not in pins, (
            f"{requirement.name} is pinned twice"
        )
        pins[canonicalize_name(requirement.name)] = Version(specifier.version)
    return pins


def direct_requirements(root: Path) -> list[Requirement]:
    document = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    project = document["project"]
    lines = [*project["dependencies"], *document["build-system"]["requires"]]
    for extra in project["optional-dependencies"].values():
        lines += extra
    return [Requirement(line) for line in lines]


@pytest.fixture(scope="module")
def pins(root: Path) -> dict[str, Version]:
    return read_pins(root)


def test_every_direct_requirement_is_pinned_at_a_version_that_satisfies_it(
    root: Path, pins: dict[str, Version]
) -> None:
    requirements = direct_requirements(root)
    assert len(requirements) > 20
    for requirement in requirements:
        version = pins[canonicalize_name(requirement.name)]
        assert version in requirement.specifier, f"{requirement} is pinned at {version}"


def test_the_pins_are_closed_under_the_requirements_of_the_installed_packages(
    root: Path, pins: dict[str, Version]
) -> None:
    """What `pip check` asks, of the pins alone: other packages in the environment do not count."""
    queue = [(requirement, "pyproject.toml") for requirement in direct_requirements(root)]
    seen: set[str] = set()
    while queue:
        requirement, parent = queue.pop()
        name = canonicalize_name(requirement.name)
        key = f"{name}[{','.join(sorted(requirement.extras))}]"
        assert name in pins, f"{parent} needs {requirement}, and no pin names it"
        assert requirement.specifier.contains(pins[name], prereleases=True), (
            f"{parent} needs {requirement}, and the pin is {pins[name]}"
        )
        if key not in seen:
            seen.add(key)
            queue += [(child, name) for child in children(requirement)]
    unused = set(pins) - {key.split("[")[0] for key in seen} - {"editables"}
    assert not unused, f"pinned and needed by nothing: {sorted(unused)}"


def children(requirement: Requirement) -> list[Requirement]:
    """Give the requirements of an installed package that hold here, for the extras asked."""
    found = []
    for line in importlib.metadata.requires(requirement.name) or []:
        child = Requirement(line)
        extras = requirement.extras or {""}
        if is_platform_build_part(requirement.name, child.name):
            continue
        if child.marker is None or any(child.marker.evaluate({"extra": e}) for e in extras):
            found.append(child)
    return found


def is_platform_build_part(parent: str, child: str) -> bool:
    """Say whether a package belongs to one build of torch only (GPU libraries, their compiler)."""
    return canonicalize_name(parent) == "torch" and (
        child.startswith(("nvidia-", "cuda-")) or child in {"triton", "pytorch-triton"}
    )


def test_torch_is_pinned_without_a_local_suffix(root: Path, pins: dict[str, Version]) -> None:
    assert pins["torch"] == Version("2.13.0")
    assert "torch==2.13.0\n" in (root / "requirements.lock").read_text(encoding="utf-8")
