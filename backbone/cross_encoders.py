"""A query and passages in, raw relevance logits out; a sentence-transformers CrossEncoder inside.

A passage too long for the model is read in overlapping windows, and its best window counts, so
nothing is cut in silence. Knows nothing of retrieval or of how scores are used.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sentence_transformers import CrossEncoder
from torch import Tensor

from backbone import fingerprints
from backbone import threads as thread_settings
from backbone.cache import ModelCache
from backbone.fingerprints import Identity
from backbone.quiet import quietly
from backbone.spans import PlainTokenizer, without_surrogates
from index.errors import InvalidInput, ModelError

BATCH_SIZE = 32
OVERLAP = 32
"""Tokens that neighbouring windows of a long passage share."""


class CrossEncoderModel:
    """Reads query and passage together and gives one logit for each passage."""

    def __init__(self, model: CrossEncoder, *, name: str, identity: Identity) -> None:
        self.name = name
        self._model = model.model.eval().requires_grad_(False)
        if self._model.config.num_labels != 1:
            raise ModelError(
                f"expected a cross-encoder with one output, {name!r} has "
                f"{self._model.config.num_labels}"
            )
        self._tokenizer = model.tokenizer
        self._plain = PlainTokenizer.copy(self._tokenizer.backend_tokenizer)
        self.max_tokens = int(
            min(model.max_seq_length or 512, self._model.config.max_position_embeddings)
        )
        """The most tokens of query, passage and special tokens together."""
        self.fingerprint = fingerprints.combine(
            kind="cross-encoder",
            weights=identity.weights,
            tokenizer=identity.tokenizer,
            settings=identity.settings,
            dtype="float32",
            max_tokens=str(self.max_tokens),
        )

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        """Score each passage for a query: raw logits, greater is better, in the passages' order.

        Raises InvalidInput for a query that leaves no room for a passage.
        """
        if not passages:
            return []
        query_ids = self._plain.encode(query)
        room = self.max_tokens - len(query_ids) - self._tokenizer.num_special_tokens_to_add(True)
        if room < 2 * OVERLAP and room < self.max_tokens // 2:
            raise InvalidInput(
                f"the query has {len(query_ids)} tokens, {self.name!r} reads {self.max_tokens} of "
                "query and passage together; shorten the query"
            )
        owners: list[int] = []
        windows: list[str] = []
        for number, passage in enumerate(passages):
            pieces = self._windows(passage, room)
            windows += pieces
            owners += [number] * len(pieces)
        logits = self._run(query, windows)
        best = [float("-inf")] * len(passages)
        for owner, logit in zip(owners, logits, strict=True):
            best[owner] = max(best[owner], logit)
        return best

    def _windows(self, passage: str, room: int) -> list[str]:
        spans = self._plain.raw_spans(passage)
        if len(spans) <= room:
            return [passage]
        # A word cut in two may take a few tokens more than its half of the count.
        size = room - min(8, room // 4)
        step = max(1, size - min(OVERLAP, size // 2))
        starts = range(0, max(1, len(spans) - size + step), step)
        return [passage[spans[i][0] : spans[min(i + size, len(spans)) - 1][1]] for i in starts]

    @torch.inference_mode()
    def _run(self, query: str, windows: Sequence[str]) -> list[float]:
        """Score windows, longest first in batches, and put the logits back in order."""
        order = sorted(range(len(windows)), key=lambda i: -len(windows[i]))
        result = [0.0] * len(windows)
        for start in range(0, len(order), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            features = self._tokenizer(
                [without_surrogates(query)] * len(batch),
                [without_surrogates(windows[i]) for i in batch],
                padding=True,
                truncation=True,
                max_length=self.max_tokens,
                split_special_tokens=True,
                return_tensors="pt",
            )
            logits: Tensor = self._model(**features).logits[:, 0]
            for i, logit in zip(batch, logits.tolist(), strict=True):
                result[i] = logit
        return result


def load_cross_encoder(
    source: str, cache: ModelCache, *, threads: int | None = None
) -> CrossEncoderModel:
    """Load a cross-encoder by source, fetching it first where it is not in the cache.

    Raises ModelError for a model that cannot be fetched or loaded, or has several outputs.
    """
    thread_settings.pin(threads)
    folder = cache.pull(source)
    try:
        with quietly():
            model = CrossEncoder(
                str(folder), device="cpu", local_files_only=True, trust_remote_code=False
            )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(f"{source!r} cannot be loaded as a cross-encoder: {error}") from error
    return CrossEncoderModel(model, name=source, identity=cache.identity(source))
