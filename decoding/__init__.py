"""The engine: one target distribution, sampling, streaming; protocols for what takes part in it."""

from decoding.cache import KV
from decoding.engine import Engine
from decoding.handles import Handle
from decoding.protocols import (
    STAGES,
    Draft,
    Drafter,
    DrafterState,
    Scorer,
    ScorerKind,
    Shaper,
    ShaperState,
    Stage,
    StepView,
)
from decoding.randomness import PosRng
from decoding.records import (
    Completion,
    FinishReason,
    Request,
    Source,
    Timings,
    TokenEvent,
    Usage,
)

__all__ = [
    "KV",
    "STAGES",
    "Completion",
    "Draft",
    "Drafter",
    "DrafterState",
    "Engine",
    "FinishReason",
    "Handle",
    "PosRng",
    "Request",
    "Scorer",
    "ScorerKind",
    "Shaper",
    "ShaperState",
    "Source",
    "Stage",
    "StepView",
    "Timings",
    "TokenEvent",
    "Usage",
]
