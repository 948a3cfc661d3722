"""The image's recipe and the compose file agree with each other and with the project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture(scope="module")
def steps(root: Path) -> list[tuple[str, str]]:
    """The Dockerfile as (instruction, argument), comments dropped, continued lines joined."""
    text = (root / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(w[0], w[1]) for line in joined.splitlines() if (w := line.split(maxsplit=1))]


@pytest.fixture(scope="module")
def service(root: Path) -> dict[str, Any]:
    document = yaml.safe_load((root / "docker-compose.yml").read_text(encoding="utf-8"))
    assert set(document["services"]) == {"graft"}
    (volume,) = document["volumes"]
    found: dict[str, Any] = document["services"]["graft"]
    assert f"{volume}:/data" in found["volumes"]
    return found


def arguments(steps: list[tuple[str, str]], instruction: str) -> list[str]:
    return [argument for name, argument in steps if name == instruction]


def test_the_dockerfile_has_known_instructions_and_starts_from_python_3_11(
    steps: list[tuple[str, str]],
) -> None:
    known = {"FROM", "ARG", "RUN", "ENV", "COPY", "USER", "WORKDIR", "VOLUME", "EXPOSE", "CMD"}
    assert {name for name, _ in steps} <= known
    assert steps[0] == ("FROM", "python:3.11-slim")


def test_what_the_image_copies_exists(steps: list[tuple[str, str]], root: Path) -> None:
    copies = arguments(steps, "COPY")
    assert copies
    for argument in copies:
        *sources, _ = argument.split()
        assert all((root / source).exists() for source in sources)


def test_the_lock_file_is_installed_before_the_source_is_copied(
    steps: list[tuple[str, str]],
) -> None:
    order = [i for i, (_, a) in enumerate(steps) if "requirements.lock" in a or a == ". /tmp/graft"]
    names = [steps[i][0] for i in order]
    assert names == ["COPY", "RUN", "COPY"]


def test_the_working_directory_is_not_the_source_and_the_source_is_gone(
    steps: list[tuple[str, str]],
) -> None:
    sources = {argument.split()[-1] for argument in arguments(steps, "COPY")}
    (folder,) = arguments(steps, "WORKDIR")
    assert not any(source.startswith(folder.rstrip("/") + "/") for source in sources)
    assert folder not in sources
    installs = [a for a in arguments(steps, "RUN") if "--no-deps" in a]
    assert len(installs) == 1
    assert " -e " not in installs[0]
    assert "rm -rf /tmp/graft" in installs[0]


def test_the_service_does_not_run_as_root_and_owns_its_data_folder(
    steps: list[tuple[str, str]],
) -> None:
    (user,) = arguments(steps, "USER")
    assert user not in ("root", "0")
    assert any(f"chown {user} /data" in argument for argument in arguments(steps, "RUN"))
    assert arguments(steps, "VOLUME") == ["/data"]
    environment = " ".join(arguments(steps, "ENV"))
    assert "GRAFT_DATA_DIR=/data/" in environment
    assert "GRAFT_MODELS_DIR=/data/" in environment


def test_ports_agree_in_the_image_the_compose_file_and_the_settings(
    steps: list[tuple[str, str]], service: dict[str, Any]
) -> None:
    from rag_api.settings import Settings

    port = str(Settings.model_fields["port"].default)
    (command,) = arguments(steps, "CMD")
    assert arguments(steps, "EXPOSE") == [port]
    assert f'"{port}"' in command
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"127.0.0.1:{port}/healthz" in service["healthcheck"]["test"][-1]


def test_the_compose_file_passes_arguments_that_the_image_declares(
    steps: list[tuple[str, str]], service: dict[str, Any]
) -> None:
    assert set(service["build"]["args"]) == set(arguments(steps, "ARG"))


def test_the_compose_file_names_settings_that_exist_and_gives_no_secret(
    service: dict[str, Any],
) -> None:
    from rag_api.settings import Settings

    for name, value in service["environment"].items():
        assert name.removeprefix("GRAFT_").lower() in Settings.model_fields
        assert re.fullmatch(r"\$\{[A-Z_]+:\?.*\}", value), f"{name} must come from outside"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]


def test_what_the_image_ignores_is_nothing_that_the_wheel_needs(root: Path) -> None:
    ignored = (root / ".dockerignore").read_text(encoding="utf-8").split()
    for needed in ("README.md", "LICENSE", "pyproject.toml", "requirements.lock", "index"):
        assert needed not in ignored
        assert (root / needed).exists()
