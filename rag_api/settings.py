"""Settings: `graft.toml`, GRAFT_* variables and overrides go in, one checked object comes out.

Precedence: overrides, then the environment, then the file, then the defaults. A key that does not
exist is an error that gives its path; secrets are masked wherever settings are shown.
Knows nothing of models, stores or the web.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings.exceptions import SettingsError

from index.errors import ConfigError

CONFIG_NAME = "graft.toml"
ENV_PREFIX = "GRAFT_"
FOREIGN_ENV = ("GRAFT_CONFIG", "GRAFT_SHARED_", "GRAFT_TEST_", "GRAFT_BENCH_", "GRAFT_DEMO_")
"""Variables (or beginnings of some) that belong to tests, benchmarks and the demo, not to us."""
DEFAULT_DATA_DIR = Path("~/.local/share/graft")
DEFAULT_MODELS_DIR = Path("~/.cache/graft/models")
PROFILE_EMBEDDERS: Mapping[str, str] = {"default": "e5-small", "fast": "wordllama"}
MIB = 1 << 20


class Part(BaseModel):
    """A table of the settings file: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ChunkingPart(Part):
    """How texts are cut; sizes in the embedder's own tokens."""

    size: int = Field(default=256, ge=8, le=8192)
    overlap: int = Field(default=32, ge=0, le=4096)
    splitter: str = "structure"

    @model_validator(mode="after")
    def check_overlap(self) -> ChunkingPart:
        """Refuse an overlap that leaves no new text in a chunk."""
        if self.overlap >= self.size:
            raise ValueError(f"overlap {self.overlap} must be below size {self.size}")
        return self


class RetrievalPart(Part):
    """Defaults of a search. A threshold of `None` is off; 0.0 is a threshold."""

    k: int = Field(default=5, ge=1, le=200)
    candidates: int = Field(default=50, ge=1, le=1000)
    mode: Literal["hybrid", "dense", "lexical"] = "hybrid"
    rrf_k: int = Field(default=2, ge=1, le=10_000)
    dense_weight: float = Field(default=0.4, ge=0.0, le=1.0)
    """The dense list's share in the fusion; the lexical list has the rest."""
    min_dense: float | None = None
    min_lexical: float | None = None
    min_rerank: float | None = None
    mmr_lambda: float | None = Field(default=None, ge=0.0, le=1.0)


class KnnPart(Part):
    """Defaults of the token memory at decode time, and the caps that no request may pass."""

    lam: float = Field(default=0.25, ge=0.0, le=1.0, alias="lambda")
    k: int = Field(default=32, ge=1, le=4096)
    temperature: float = Field(default=0.25, gt=0.0, le=1000.0)
    max_lambda: float = Field(default=0.95, ge=0.0, le=1.0)
    max_k: int = Field(default=1024, ge=1, le=4096)
    max_temperature: float = Field(default=100.0, gt=0.0, le=1000.0)


class MemoryPart(Part):
    """Token memory at ingestion: built at once up to `auto_limit_tokens` pending tokens."""

    auto_limit_tokens: int = Field(default=60_000, ge=0)
    window: int = Field(default=512, ge=16, le=8192)


class GenerationPart(Part):
    """Defaults and caps of decoding."""

    max_tokens: int = Field(default=256, ge=1, le=8192)
    max_tokens_cap: int = Field(default=2048, ge=1, le=32_768)
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    excerpt_tokens: int = Field(default=40, ge=0, le=32_768)
    """Tokens of the passages' best sentences that a prompt shows; 0 shows whole passages.
    Small backbones lose the answer among whole passages (docs/lab-log.md)."""


class LimitsPart(Part):
    """What one request, one file and one parse may cost."""

    upload_bytes: int = Field(default=512 * MIB, ge=1)
    body_bytes: int = Field(default=4 * MIB, ge=1024)
    """A request body that is not an upload."""
    batch_items: int = Field(default=500, ge=1, le=10_000)
    embedding_items: int = Field(default=256, ge=1, le=10_000)
    query_chars: int = Field(default=8192, ge=1)
    parse_memory_bytes: int = Field(default=1536 * MIB, ge=64 * MIB)
    parse_cpu_s: float = Field(default=120.0, gt=0)
    parse_wall_s: float = Field(default=180.0, gt=0)
    parse_output_chars: int = Field(default=50_000_000, ge=1)


class Settings(BaseSettings):
    """Everything that Graft can be told. Build it with `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    data_dir: Path = DEFAULT_DATA_DIR
    models_dir: Path = DEFAULT_MODELS_DIR
    profile: Literal["default", "fast"] = "default"
    embedder: str | None = Field(
        default=None, description="Alias or source; None follows the profile."
    )
    backbone: str = "smollm2-135m"
    reranker: str | None = Field(
        default=None, description="`query-likelihood` or `cross-encoder:SOURCE`; None is off."
    )
    threads: int = Field(
        default=0, ge=0, le=256, description="Threads a process; 0 is half the cores."
    )
    host: str = "127.0.0.1"
    port: int = Field(default=8642, ge=0, le=65_535)
    worker: bool = Field(
        default=True, description="Whether the server starts and watches a worker."
    )
    lease_s: float = Field(default=60.0, ge=2.0, le=3600.0)
    api_keys: dict[SecretStr, str] = Field(
        default_factory=dict, description="Key (or `sha256:HEX` of one) to tenant; empty is local."
    )
    chunking: ChunkingPart = ChunkingPart()
    retrieval: RetrievalPart = RetrievalPart()
    knn: KnnPart = KnnPart()
    memory: MemoryPart = MemoryPart()
    generation: GenerationPart = GenerationPart()
    limits: LimitsPart = LimitsPart()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing by itself: `load_settings` merges the sources."""
        return (init_settings,)

    @field_validator("data_dir", "models_dir")
    @classmethod
    def expand(cls, folder: Path) -> Path:
        """Make the folder absolute."""
        return folder.expanduser().absolute()

    @property
    def embedder_source(self) -> str:
        """The embedder in use: the one named, or the profile's."""
        return self.embedder or PROFILE_EMBEDDERS[self.profile]

    def shown(self) -> dict[str, Any]:
        """Give the settings as plain data with every secret masked."""
        plain = self.model_dump(mode="json", exclude={"api_keys"}, by_alias=True)
        plain["api_keys"] = {
            f"key {number} (masked)": tenant
            for number, tenant in enumerate(self.api_keys.values(), start=1)
        }
        return plain

    def for_worker(self) -> dict[str, Any]:
        """Give what a worker process needs, without the keys."""
        return self.model_dump(mode="json", exclude={"api_keys"}, by_alias=True)

    def key_digests(self) -> dict[str, str]:
        """Map the SHA-256 (hex) of every API key to its tenant."""
        digests = {}
        for secret, tenant in self.api_keys.items():
            key = secret.get_secret_value()
            given = key.startswith("sha256:")
            digests[key[7:].lower() if given else hashlib.sha256(key.encode()).hexdigest()] = tenant
        return digests


def load_settings(config: Path | None = None, **overrides: Any) -> Settings:
    """Read the file (given, $GRAFT_CONFIG, or `graft.toml` in the data folder) and the environment.

    Raises ConfigError with the path of the key that is unknown or out of bounds.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    _refuse_unknown_variables()
    path = _config_path(config, given.get("data_dir"))
    table = _read_toml(path) if path is not None else {}
    return _checked(table, given, f" (file {str(path)!r})" if path is not None else "")


def settings_from_plain(plain: Mapping[str, Any]) -> Settings:
    """Rebuild settings that another process of ours sent; neither file nor environment is read."""
    return Settings.model_validate({**plain}, by_alias=True)


def _checked(table: Mapping[str, Any], given: Mapping[str, Any], origin: str) -> Settings:
    try:
        environment = EnvSettingsSource(Settings)()
        return Settings.model_validate(_merged(_merged(table, environment), given))
    except ValidationError as error:
        raise ConfigError(_explain(error) + origin) from None
    except SettingsError as error:
        raise ConfigError(f"a GRAFT_* variable cannot be read: {error}") from None


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for name, value in above.items():
        old = result.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[name] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def _config_path(config: Path | None, data_dir: Path | str | None) -> Path | None:
    named = config or os.environ.get("GRAFT_CONFIG")
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise ConfigError(f"the settings file {str(path)!r} does not exist")
        return path
    folder = Path(data_dir or os.environ.get("GRAFT_DATA_DIR") or DEFAULT_DATA_DIR).expanduser()
    path = folder / CONFIG_NAME
    return path if path.is_file() else None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the settings file {str(path)!r} is not valid TOML: {error}") from None


def _refuse_unknown_variables() -> None:
    known = {ENV_PREFIX + name.upper() for name in Settings.model_fields}
    for name in os.environ:
        if not name.startswith(ENV_PREFIX) or name.startswith(FOREIGN_ENV):
            continue
        if name.split("__")[0] not in known:
            raise ConfigError(
                f"unknown setting: the variable {name} names nothing; known are {sorted(known)}"
            )


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_input=False, include_url=False, include_context=False):
        path = [str(step) for step in item["loc"]]
        if path[:1] == ["api_keys"]:  # the step below is the key itself
            path = ["api_keys", "(masked)"][: len(path)]
        what = "unknown key" if item["type"] == "extra_forbidden" else item["msg"]
        lines.append(f"{'.'.join(path)}: {what}")
    return "settings: " + "; ".join(lines)
