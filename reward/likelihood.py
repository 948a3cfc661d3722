"""How probable a frozen language model finds things: a query after a passage, a completion.

`QueryLikelihoodScorer` reranks passages without training (Sachan et al., EMNLP 2022, eq. 2);
`MeanLogProb` is the plain confidence of a completion. Knows nothing of stores or of search.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from backbone import LanguageModel
from decoding.protocols import ScorerKind
from decoding.records import Completion
from index.errors import InvalidInput, ModelError
from reward.candidates import texts_of

_LEAD = "Passage: "
_ASK = "\nPlease write a question based on this passage.\nQuestion:"


class QueryLikelihoodScorer:
    """Mean log p(query token | passage) in nats, at most 0, by the frozen model."""

    kind: ScorerKind = "final"

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.name = f"query-likelihood:{model.name}"

    def score(self, query: str, candidates: Sequence[str] | Sequence[Completion]) -> list[float]:
        """Give the mean log-probability of the query after each text, one forward each.

        A text that does not fit the model's context beside the query is read from its start as
        far as it fits. Raises InvalidInput for an empty query.
        """
        wanted = self._model.encode(" " + query.strip())
        if not query.strip() or not wanted:
            raise InvalidInput("expected a query with words; got none", param="query")
        return [self._mean_logprob(wanted, text) for text in texts_of(candidates)]

    def _mean_logprob(self, wanted: list[int], text: str) -> float:
        model = self._model
        lead, ask = model.encode(_LEAD), model.encode(_ASK)
        room = model.context_length - len(lead) - len(ask) - len(wanted)
        if room < 0:
            raise InvalidInput(
                f"the query has {len(wanted)} tokens, too many for {model.name!r}", param="query"
            )
        ids = torch.tensor([[*lead, *model.encode(text)[:room], *ask, *wanted]])
        step = model.forward(ids, cache=None, num_logits=len(wanted) + 1)
        if step.logits is None:
            raise ModelError(f"{model.name!r} gave no logits; expected a causal language model")
        logp = step.logits[0, :-1].log_softmax(-1)  # [len(wanted), V]
        chosen = logp.gather(1, torch.tensor(wanted)[:, None])
        return float(chosen.mean())


class MeanLogProb:
    """Mean log-probability in nats of a completion's own tokens, at most 0."""

    kind: ScorerKind = "final"
    name = "mean-logprob"

    def score(self, question: str, candidates: Sequence[Completion]) -> list[float]:
        """Give each completion's mean; one without tokens gets −inf."""
        return [
            sum(token.logprob for token in c.tokens) / len(c.tokens) if c.tokens else float("-inf")
            for c in candidates
        ]
