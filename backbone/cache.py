"""Sources in, model folders out: fetched, converted and checked once, then only looked up.

A model folder holds safetensors, a tokenizer and `graft.json` (sizes and hashes of its files, the
identity, the conversion check). It appears by one rename under a lock, so an interrupted pull
leaves nothing half done and two processes never convert at once. Knows nothing of running models.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from backbone import fingerprints
from backbone.fingerprints import Identity
from backbone.folders import refuse_code
from backbone.recipes import STARTER_MODELS
from backbone.sources import ModelSource, resolve
from index.errors import Damaged, ModelError
from index.records import Progress, no_progress

MARKER = "graft.json"
_PREFIX = ".pulling-"


@dataclass(frozen=True, slots=True)
class Marker:
    """What `graft.json` says of a model folder."""

    source: str
    licence: str
    role: str
    identity: Identity
    files: Mapping[str, tuple[int, str]]
    """Name → (bytes, SHA-256)."""
    check: Mapping[str, object] = field(default_factory=dict)
    format: int = 1


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a model without loading it."""

    name: str
    source: str
    role: str
    licence: str
    about: str
    is_pulled: bool
    folder: Path | None
    num_bytes: int
    """On disk when pulled, else to download (0: unknown)."""
    check: Mapping[str, object]


class ModelCache:
    """The folder of pulled models."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pull(self, source: str, *, progress: Progress = no_progress) -> Path:
        """Give the model's folder, fetching and converting it first where it is not there.

        A pulled model costs no network and no hashing: names and sizes are compared. Raises
        ModelError when it cannot be fetched, converted or passes no check; Damaged when files
        are missing or have another size.
        """
        wanted = resolve(source)
        if wanted.scheme == "folder":
            self._marker_of_folder(Path(wanted.location))
            return Path(wanted.location)
        target = self.folder / wanted.key
        if not (target / MARKER).is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._locked(wanted.key):
                if not (target / MARKER).is_file():
                    self._make(wanted, target, progress)
        _check_sizes(target, read_marker(target))
        return target

    def identity(self, source: str) -> Identity:
        """Give the hashes that say which model a pulled one is."""
        return self._marker(resolve(source)).identity

    def verify(self, source: str) -> None:
        """Hash every file of a pulled model. Raises Damaged at the first that is another."""
        wanted = resolve(source)
        folder = Path(wanted.location) if wanted.scheme == "folder" else self.folder / wanted.key
        for name, (_, sha256) in self._marker(wanted).files.items():
            if fingerprints.of_file(folder / name) != sha256:
                raise Damaged(f"{folder / name}: its bytes changed; delete {folder} and pull again")

    def info(self, source: str) -> ModelInfo:
        """Tell what is known of a model. Raises ModelError for an unknown name."""
        wanted = resolve(source)
        recipe = wanted.recipe
        is_folder = wanted.scheme == "folder"
        folder = Path(wanted.location) if is_folder else self.folder / wanted.key
        is_pulled = is_folder or (folder / MARKER).is_file()
        marker = self._marker(wanted) if is_pulled else None
        to_fetch = sum(part.num_bytes for part in recipe.parts) if recipe else 0
        return ModelInfo(
            name=recipe.alias if recipe else source,
            source=str(wanted),
            role=recipe.role if recipe else "unknown",
            licence=recipe.licence if recipe else "unknown",
            about=recipe.about if recipe else "",
            is_pulled=is_pulled,
            folder=folder if is_pulled else None,
            num_bytes=sum(size for size, _ in marker.files.values()) if marker else to_fetch,
            check=marker.check if marker else {},
        )

    def list(self) -> tuple[ModelInfo, ...]:
        """List the starter set and whatever else has been pulled."""
        infos = [self.info(alias) for alias in STARTER_MODELS]
        known = {info.folder for info in infos}
        for marker_path in sorted(self.folder.glob(f"[!.]*/{MARKER}")):
            folder = marker_path.parent
            if folder not in known:
                marker = read_marker(folder)
                size = sum(num_bytes for num_bytes, _ in marker.files.values())
                infos.append(
                    ModelInfo(
                        marker.source, marker.source, marker.role, marker.licence, "", True,
                        folder, size, marker.check,
                    )
                )  # fmt: skip
        return tuple(infos)

    def _make(self, wanted: ModelSource, target: Path, progress: Progress) -> None:
        """Fetch and convert into a temporary folder, mark it, rename it into place."""
        from backbone import conversion

        for left in self.folder.glob(f"{_PREFIX}{wanted.key}-*"):
            # We hold the lock, so its maker is dead; a pip that it left behind may still write.
            shutil.rmtree(left, ignore_errors=True)
        if target.exists():
            shutil.rmtree(target)
        work = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{wanted.key}-", dir=self.folder))
        try:
            model = work / "model"
            model.mkdir()
            check = conversion.make(wanted, work, model, progress=progress)
            refuse_code(model)
            recipe = wanted.recipe
            marker = Marker(
                source=str(wanted),
                licence=recipe.licence if recipe else "unknown",
                role=recipe.role if recipe else "unknown",
                identity=fingerprints.of_model_folder(model),
                files=_hash_files(model, progress),
                check=check,
            )
            (model / MARKER).write_text(json.dumps(asdict(marker), indent=1), encoding="utf-8")
            _sync(model)
            os.rename(model, target)
            _sync_folder(self.folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        with (self.folder / f".{key}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _marker(self, wanted: ModelSource) -> Marker:
        if wanted.scheme == "folder":
            return self._marker_of_folder(Path(wanted.location))
        return read_marker(self.folder / wanted.key)

    def _marker_of_folder(self, folder: Path) -> Marker:
        """Hash a user's own folder once and remember the result beside the cached models.

        The note holds while no file's size or time of change moves; the folder is left alone.
        """
        refuse_code(folder)
        stamp = {
            str(path.relative_to(folder)): [path.stat().st_size, path.stat().st_mtime_ns]
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        key = fingerprints.combine(folder=str(folder), stamp=json.dumps(stamp))
        note = self.folder / ".folders" / f"{key}.json"
        if note.is_file():
            return _parse_marker(note)
        files = _hash_files(folder, no_progress)
        identity = fingerprints.of_model_folder(folder)
        marker = Marker(str(folder), "unknown", "unknown", identity, files)
        note.parent.mkdir(parents=True, exist_ok=True)
        scratch = note.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(asdict(marker)), encoding="utf-8")
        os.replace(scratch, note)
        return marker


def read_marker(folder: Path) -> Marker:
    """Read a model folder's `graft.json`. Raises ModelError where it is missing or unreadable."""
    return _parse_marker(folder / MARKER)


def _parse_marker(path: Path) -> Marker:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        files = {name: (int(size), str(sha)) for name, (size, sha) in values["files"].items()}
        return Marker(**{**values, "files": files, "identity": Identity(**values["identity"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ModelError(
            f"{path} cannot be read ({error}); delete its folder, pull the model again"
        ) from error


def _check_sizes(folder: Path, marker: Marker) -> None:
    for name, (size, _) in marker.files.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            raise Damaged(
                f"{path}: expected {size} bytes, came {found}; delete {folder} and pull again"
            )


def _hash_files(folder: Path, progress: Progress) -> dict[str, tuple[int, str]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MARKER)
    result = {}
    for i, path in enumerate(paths):
        progress("hash files", i, len(paths), "files")
        name = str(path.relative_to(folder))
        result[name] = (path.stat().st_size, fingerprints.of_file(path))
    return result


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            _sync_folder(path)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
