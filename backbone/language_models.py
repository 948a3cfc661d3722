"""A frozen causal LM and its tokenizer: text and ids in, logits and token-memory keys out.

Knows nothing of stores, sampling or memories. It keeps no request's state: keys come back from the
call that made them, caches belong to the caller, and masks are the caller's, made from lengths and
never from ids (a padding token may be the end token; E12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers import PreTrainedTokenizerFast as FastTokenizer
from transformers.cache_utils import Cache

from backbone import fingerprints, threads
from backbone.cache import ModelCache
from backbone.chats import ChatTemplate
from backbone.fingerprints import Identity
from backbone.hooks import KeyTap, as_keys
from backbone.quiet import quietly
from backbone.spans import PlainTokenizer
from index.errors import InvalidInput, ModelError

DtypeName = Literal["float32", "bfloat16", "float16"]
DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, slots=True)
class Forward:
    """What one forward gives: `logits [R, W, V]` float32 (or None), `keys [R, W, D]` float32."""

    logits: Tensor | None
    keys: Tensor


class LanguageModel:
    """The backbone. Build it with `load` (weights on disk) or `wrap` (a model in memory)."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: FastTokenizer, *, name: str, identity: Identity
    ) -> None:
        if not isinstance(tokenizer, FastTokenizer):
            raise ModelError(
                f"expected a fast tokenizer (it knows offsets), came {type(tokenizer).__name__}"
            )
        self.name = name
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self._plain = PlainTokenizer.copy(
            tokenizer.backend_tokenizer, chat_template=str(tokenizer.chat_template or "")
        )
        self._chat = ChatTemplate(tokenizer, self._plain)
        self._tap = KeyTap(model)
        self.prefix_ids: tuple[int, ...] = tuple(tokenizer("", add_special_tokens=True).input_ids)
        """Ids that the model expects before any text (a forced begin token); often none."""
        self.num_vocab: int = model.get_output_embeddings().weight.shape[0]
        self.context_length: int = _context_length(model)
        self.eos_ids: frozenset[int] = _eos_ids(model, tokenizer)
        self.key_dim: int = self._probe()
        self.dtype: str = str(model.dtype).removeprefix("torch.")
        self.fingerprint: str = fingerprints.combine(
            kind="backbone",
            weights=identity.weights,
            tokenizer=identity.tokenizer,
            settings=identity.settings,
            prefix=repr(self.prefix_ids),
            dtype=self.dtype,
            hook=self._tap.name,
            normalisation="none",
        )

    @classmethod
    def load(
        cls,
        source: str,
        cache: ModelCache,
        *,
        threads: int | None = None,
        dtype: DtypeName = "float32",
    ) -> LanguageModel:
        """Load a model by alias or source, fetching it first where it is not in the cache.

        Raises ModelError for a model that cannot be fetched or loaded.
        """
        if dtype not in DTYPES:
            raise ModelError(f"expected a dtype of {sorted(DTYPES)}, came {dtype!r}")
        _pin(threads)
        folder = cache.pull(source)
        model, tokenizer = load_from_folder(folder, DTYPES[dtype])
        return cls(model, tokenizer, name=source, identity=cache.identity(source))

    @classmethod
    def wrap(cls, model: PreTrainedModel, tokenizer: FastTokenizer, *, name: str) -> LanguageModel:
        """Wrap a model in memory; its weights are hashed here, so keep this to small ones."""
        identity = fingerprints.of_model(
            model.state_dict(), tokenizer.backend_tokenizer, model.config.to_dict()
        )
        return cls(model, tokenizer, name=name, identity=identity)

    @property
    def has_chat_template(self) -> bool:
        """Say whether `chat` can be used."""
        return self._chat.is_there

    @property
    def marker_ids(self) -> frozenset[int]:
        """The ids that steer the model (turn markers, end of text); no user's text makes one."""
        return frozenset(self._plain.markers.values())

    def encode(self, text: str) -> list[int]:
        """Give the ids of a text; markers inside it stay plain text and none are added (E11)."""
        return self._plain.encode(text)

    def encode_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Give ids and code-point spans `[start, end)`, which together cover the whole text.

        Byte pieces of one character share its span.
        """
        tokens = self._plain.encode_spans(text)
        return tokens.ids, tokens.spans

    def decode(self, ids: Sequence[int]) -> str:
        """Give the text of ids, markers included."""
        return cast(str, self.tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=False))

    def chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Give the ids of a conversation under the model's own template, contents as plain text.

        Roles are system, user, assistant and tool. Raises InvalidInput for another role or a
        conversation that the template refuses, ModelError where the model ships no template.
        """
        return self._chat.encode(messages, add_generation_prompt=add_generation_prompt)

    @torch.inference_mode()
    def forward(
        self,
        ids: Tensor,
        *,
        cache: Cache | None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        want_logits: bool = True,
        num_logits: int = 0,
    ) -> Forward:
        """Run the model once over `ids [R, W]`; `cache` is extended in place.

        `attention_mask [R, past + W]` is 1 where there is a token. `num_logits` keeps the last so
        many positions (0: all), `want_logits=False` skips the output layer. Keys are the input of
        the last layer's MLP, `[R, W, D]`. Raises InvalidInput for ids of another rank.
        """
        if ids.ndim != 2:
            raise InvalidInput(f"expected ids of shape [R, W], came {tuple(ids.shape)}")
        inputs = {
            "input_ids": ids,
            "attention_mask": attention_mask,
            "position_ids": position_ids,
            "cache": cache,
            "use_cache": cache is not None,
        }
        inputs = {name: value for name, value in inputs.items() if value is not None}
        with self._tap.reading() as readings:
            if want_logits:
                logits = self.model(**inputs, logits_to_keep=num_logits).logits.to(torch.float32)
            else:
                self.model.base_model(**inputs)
                logits = None
        if len(readings) != 1:
            raise ModelError(f"expected one reading of {self._tap.name}, came {len(readings)}")
        return Forward(logits, as_keys(readings[0], *ids.shape))

    def _probe(self) -> int:
        """Run one token to see that the hook reads, and how wide its keys are."""
        keys = self.forward(torch.zeros((1, 1), dtype=torch.long), cache=None).keys
        return int(keys.shape[-1])


def load_from_folder(folder: Path, dtype: torch.dtype) -> tuple[PreTrainedModel, FastTokenizer]:
    """Load safetensors and tokenizer from a folder, running no code from it and no network."""
    try:
        with quietly():
            tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            model = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(
            f"{folder.name!r} cannot be loaded as a language model: {error}"
        ) from error
    return model, tokenizer


def _pin(num_threads: int | None) -> None:
    threads.pin(num_threads)


def _context_length(model: PreTrainedModel) -> int:
    config = model.config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    raise ModelError(f"{type(config).__name__} names no context length")


def _eos_ids(model: PreTrainedModel, tokenizer: FastTokenizer) -> frozenset[int]:
    """Collect the ids that end an answer, from the generation settings, config and tokenizer."""
    found: set[int] = set()
    for value in (
        getattr(model.generation_config, "eos_token_id", None),
        model.config.get_text_config().eos_token_id,
        tokenizer.eos_token_id,
    ):
        found.update(value if isinstance(value, list | tuple) else [] if value is None else [value])
    return frozenset(found)
