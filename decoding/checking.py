"""A request goes in; what cannot be done is refused here, before it is queued.

Knows nothing of how requests are run.
"""

from __future__ import annotations

import math

from backbone import LanguageModel
from decoding.records import Request
from index.errors import FingerprintMismatch, InvalidInput


def check(request: Request, model: LanguageModel) -> None:
    """Raise InvalidInput (with `param`) or FingerprintMismatch for what cannot be served."""
    _check_lengths(request, model)
    _check_ids(request, model)
    _check_numbers(request)
    for shaper in request.shapers:
        if shaper.fingerprint not in (None, model.fingerprint):
            raise FingerprintMismatch(
                f"a {type(shaper).__name__} was built for backbone {shaper.fingerprint!r}, this "
                f"engine runs {model.fingerprint!r} ({model.name}); build its memory for this "
                "backbone with `graft ingest`"
            )


def _check_lengths(request: Request, model: LanguageModel) -> None:
    if not request.prompt:
        raise InvalidInput("a prompt of at least one token is needed, got none", param="prompt")
    if request.max_tokens < 1:
        raise InvalidInput(
            f"max_tokens must be at least 1, got {request.max_tokens}", param="max_tokens"
        )
    total = len(request.prompt) + request.max_tokens
    if total > model.context_length:
        raise InvalidInput(
            f"the prompt has {len(request.prompt)} tokens and max_tokens is {request.max_tokens}: "
            f"{total} together, but {model.name} has a context of {model.context_length}; "
            "shorten the prompt or ask for fewer tokens",
            param="max_tokens",
        )


def _check_ids(request: Request, model: LanguageModel) -> None:
    for name, ids in (
        ("prompt", request.prompt),
        ("stop_ids", request.stop_ids),
        ("logit_bias", request.logit_bias),
    ):
        wrong = next((each for each in ids if not 0 <= each < model.num_vocab), None)
        if wrong is not None:
            raise InvalidInput(
                f"{name} holds token id {wrong}, {model.name} knows 0 to {model.num_vocab - 1}",
                param=name,
            )
    if not all(request.stop):
        raise InvalidInput("a stop string may not be empty", param="stop")


def _check_numbers(request: Request) -> None:
    bounds: tuple[tuple[str, float, float, float], ...] = (
        ("temperature", request.temperature, 0.0, 100.0),
        ("top_p", request.top_p, 0.0, 1.0),
        ("min_p", request.min_p, 0.0, 1.0),
        ("top_k", request.top_k, 0, math.inf),
        ("logprobs", request.logprobs or 0, 0, 1000),
        ("repetition_penalty", request.repetition_penalty, 1e-3, 1e3),
        ("presence_penalty", request.presence_penalty, -1e3, 1e3),
        ("frequency_penalty", request.frequency_penalty, -1e3, 1e3),
    )
    for name, value, low, high in bounds:
        if not low <= value <= high:  # nan fails too
            raise InvalidInput(f"{name} must be in [{low}, {high}], got {value}", param=name)
    if any(math.isnan(bias) or bias == math.inf for bias in request.logit_bias.values()):
        raise InvalidInput("a logit bias must be a number or -inf", param="logit_bias")
