"""Texts in, unit vectors out, with the embedder's own token counts; sentence-transformers inside.

Texts are tokenised once, sorted by token count and run in batches of 32, so there is hardly any
padding; nothing is cut in silence (M3). Knows nothing of stores or chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from torch import Tensor

from backbone import fingerprints
from backbone import threads as thread_settings
from backbone.cache import ModelCache
from backbone.fingerprints import Identity
from backbone.quiet import quietly
from backbone.spans import PlainTokenizer, without_surrogates
from index.errors import InvalidInput, ModelError
from index.records import FloatArray, Progress, no_progress

BATCH_SIZE = 32
PROBE = "A probe, 探测。"
STATIC_MAX_TOKENS = 1 << 20
"""Static embedders have no limit of their own; this keeps the number finite."""


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What the model wants in front of a query and of a passage."""

    query: str = ""
    passage: str = ""


class Embedder:
    """A sentence embedder. `dimension` is E; vectors are float32 of length 1."""

    def __init__(self, model: SentenceTransformer, *, name: str, identity: Identity) -> None:
        self.name = name
        self._model = model.eval().requires_grad_(False)
        self._tokenizer, self._is_static, self._pad_id = _tokenizer_of(model)
        self._prefixes = _prefixes_of(model)
        # Before the tokenizer is adopted: this call switches padding on in the shared Rust object.
        expected = _prepared_ids(model, self._prefixes.passage)
        self._plain = PlainTokenizer.adopt(self._tokenizer)
        self.dimension: int = int(model.get_embedding_dimension() or 0)
        self._limit: int = STATIC_MAX_TOKENS if self._is_static else int(model.max_seq_length)
        overhead = self._plain.count(self._prefixes.passage) + len(self._tokenizer.encode("").ids)
        self.max_tokens: int = self._limit - (0 if self._is_static else overhead)
        """The most tokens of a passage, prefix and special tokens taken off."""
        self._check_preparation(expected)
        self.fingerprint: str = fingerprints.combine(
            kind="embedder",
            weights=identity.weights,
            tokenizer=identity.tokenizer,
            settings=identity.settings,  # pooling among them
            dtype="float32",
            normalisation="unit",
            prefixes=repr((self._prefixes.query, self._prefixes.passage)),
            max_tokens=str(self._limit),
        )

    @classmethod
    def load(cls, source: str, cache: ModelCache, *, threads: int | None = None) -> Embedder:
        """Load an embedder by alias or source, fetching it first where it is not in the cache.

        Raises ModelError for a model that cannot be fetched or loaded.
        """
        thread_settings.pin(threads)
        folder = cache.pull(source)
        try:
            with quietly():
                model = SentenceTransformer(
                    str(folder), device="cpu", local_files_only=True, trust_remote_code=False
                )
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise ModelError(f"{source!r} cannot be loaded as an embedder: {error}") from error
        return cls(model.float(), name=source, identity=cache.identity(source))

    def encode_passages(
        self, texts: Sequence[str], *, progress: Progress = no_progress
    ) -> FloatArray:
        """Embed passages, `[N, E]` in the order of the texts; the model's prefix is put in front.

        A text without tokens gets the zero vector from a static model. Raises InvalidInput for
        a passage of more than `max_tokens` tokens, before anything is computed.
        """
        rows = self._ids(texts, self._prefixes.passage)
        for number, row in enumerate(rows):
            if len(row) > self._limit:
                raise InvalidInput(
                    f"passage {number} has {self.count_tokens(texts[number])} tokens, "
                    f"{self.name!r} reads at most {self.max_tokens}; split it (nothing is cut)"
                )
        return self._embed(rows, progress)

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Embed queries, `[N, E]`. One beyond the limit is the mean of its windows' vectors."""
        windows = [self._windows(text) for text in texts]
        flat = self._embed(
            self._ids([w for group in windows for w in group], self._prefixes.query), no_progress
        )
        result = np.zeros((len(texts), self.dimension), np.float32)
        at = 0
        for i, group in enumerate(windows):
            mean = flat[at : at + len(group)].mean(axis=0)
            result[i] = mean / max(float(np.linalg.norm(mean)), 1e-12) if len(group) > 1 else mean
            at += len(group)
        return result

    def count_tokens(self, text: str) -> int:
        """Count a text's tokens, without prefix and special tokens."""
        return self._plain.count(text)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Give the code points `[start, end)` of each token, ascending; blanks may lie between."""
        return self._plain.raw_spans(text)

    def _check_preparation(self, expected: Sequence[int]) -> None:
        """Compare our ids of PROBE with sentence-transformers'. Raises ModelError for others."""
        ours = self._ids([PROBE], self._prefixes.passage)[0]
        if ours != expected:
            raise ModelError(
                f"{self.name!r} prepares texts in a way that Graft does not know (expected ids "
                f"{expected[:8]} …, came {ours[:8]} …); does its tokenizer wrap them in a chat?"
            )

    def _windows(self, text: str) -> list[str]:
        """Cut a query into parts that fit. A part read alone may have a token more than it had in
        the whole, so each is measured as it will be read, and halved until it fits."""
        waiting, windows = [text], []
        while waiting:
            part = waiting.pop()
            starts = [start for start, _ in self.token_spans(part)]
            middle = starts[len(starts) // 2] if len(starts) > 1 else 0
            if middle == 0 or len(self._ids([part], self._prefixes.query)[0]) <= self._limit:
                windows.append(part)
            else:
                waiting += [part[middle:], part[:middle]]
        return windows

    def _ids(self, texts: Sequence[str], prefix: str) -> list[list[int]]:
        prepared = [without_surrogates(prefix + text) for text in texts]
        encodings = self._tokenizer.encode_batch_fast(
            prepared, add_special_tokens=not self._is_static
        )
        return [encoding.ids for encoding in encodings]

    @torch.inference_mode()
    def _embed(self, rows: Sequence[list[int]], progress: Progress) -> FloatArray:
        """Run token rows through the model, longest first: lack of memory shows at once."""
        result = np.zeros((len(rows), self.dimension), np.float32)
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        for start in range(0, len(order), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            features = self._features([rows[i] for i in batch])
            vectors: Tensor = self._model(features)["sentence_embedding"]
            result[batch] = torch.nn.functional.normalize(vectors, dim=1).numpy()
            progress("embed", min(start + BATCH_SIZE, len(order)), len(order), "passages")
        return result

    def _features(self, rows: Sequence[list[int]]) -> dict[str, Tensor]:
        """Make one batch's tensors; masks come from lengths, never from ids."""
        lengths = [len(row) for row in rows]
        if self._is_static:
            offsets = np.cumsum([0, *lengths[:-1]])
            flat = np.fromiter((i for row in rows for i in row), np.int64, sum(lengths))
            return {"input_ids": torch.from_numpy(flat), "offsets": torch.from_numpy(offsets)}
        ids = np.full((len(rows), max(lengths)), self._pad_id, np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


def _tokenizer_of(model: SentenceTransformer) -> tuple[Tokenizer, bool, int]:
    """Give the Rust tokenizer, whether the model is static, and the padding id."""
    tokenizer = model.tokenizer
    is_static = isinstance(tokenizer, Tokenizer)
    backend = tokenizer if is_static else getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"expected a fast tokenizer (it knows offsets), came {type(tokenizer).__name__}"
        )
    return backend, is_static, 0 if is_static else int(tokenizer.pad_token_id or 0)


def _prepared_ids(model: SentenceTransformer, prefix: str) -> list[int]:
    ids: Tensor = model.preprocess([PROBE], prompt=prefix or None)["input_ids"]
    return [int(i) for i in ids.flatten()]


def _prefixes_of(model: SentenceTransformer) -> Prefixes:
    prompts = model.prompts or {}
    passage = prompts.get("passage") or prompts.get("document") or ""
    return Prefixes(prompts.get("query") or "", passage)
