"""Queries longer than an embedder reads: every part fits, and the whole query counts."""

from __future__ import annotations

import numpy as np
import pytest

from backbone import Embedder
from index.errors import InvalidInput

LONG = ["斑马密码 " * 1500, "，" * 3000, "x" * 8192, "what is a generation? " * 700]


@pytest.mark.slow
@pytest.mark.parametrize("query", LONG, ids=["words", "commas", "letters", "english"])
def test_a_query_of_any_length_is_embedded_whole(e5: Embedder, query: str) -> None:
    windows = e5._windows(query)
    assert "".join(windows) == query
    assert len(windows) > 1
    [vector] = e5.encode_queries([query])
    assert np.isclose(np.linalg.norm(vector), 1.0, atol=1e-4)


@pytest.mark.slow
def test_the_end_of_a_long_query_moves_its_vector(e5: Embedder) -> None:
    filler = "The weather is fine today. " * 100
    plain, ended = e5.encode_queries([filler, filler + "How do whales breathe? " * 60])
    assert float(plain @ ended) < 0.99
    with pytest.raises(InvalidInput, match="at most"):
        e5.encode_passages([filler])
