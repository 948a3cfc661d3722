"""Bodies of requests: OpenAI's shapes with our extras, unknown keys refused.

JSON goes in, checked values come out. Parameters that OpenAI knows and Graft does not support are
not declared, so that sending one is an error and never silently ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rag_api.web import values

Scalar = str | int | float | bool
Mode = Literal["none", "rag", "knn_lm", "both", "extractive"]
SearchMode = Literal["hybrid", "dense", "lexical"]
Metadata = Annotated[dict[str, str], Field(max_length=16)]
Attributes = Annotated[dict[str, Scalar], Field(max_length=64)]
Filter = dict[str, Any]


class Body(BaseModel):
    """A request body; an unknown key is an error, and so is a value that nothing can keep."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _check_values(cls, given: object) -> object:
        """Raises InvalidInput, which goes through pydantic as it is and names the place."""
        values.check(given)
        return given


class StaticSizes(Body):
    """Sizes of chunks in embedder tokens."""

    max_chunk_size_tokens: int = Field(ge=8, le=8192)
    chunk_overlap_tokens: int = Field(ge=0)


class ChunkingStrategy(Body):
    """`auto` (the server's settings) or `static`; `splitter` is an extra of Graft."""

    type: Literal["auto", "static"]
    static: StaticSizes | None = None
    splitter: str | None = None


class StoreCreate(Body):
    """Create a vector store, if wanted with files in it."""

    name: str | None = Field(default=None, min_length=1, max_length=256)
    description: str | None = None
    file_ids: list[str] = Field(default_factory=list)
    metadata: Metadata | None = None
    chunking_strategy: ChunkingStrategy | None = None


class StoreUpdate(Body):
    """Rename a vector store or replace its metadata."""

    name: str | None = Field(default=None, min_length=1, max_length=256)
    metadata: Metadata | None = None


class FileAttach(Body):
    """Put an uploaded file into a vector store, as a document under the file's name."""

    file_id: str
    attributes: Attributes | None = None
    chunking_strategy: ChunkingStrategy | None = None


class BatchItem(Body):
    """One file of a batch with attributes of its own."""

    file_id: str
    attributes: Attributes | None = None


class BatchAttach(Body):
    """Put several files into a vector store; each is done or refused by itself."""

    file_ids: list[str] | None = None
    files: list[BatchItem] | None = None
    attributes: Attributes | None = None
    chunking_strategy: ChunkingStrategy | None = None


class DocumentsDelete(Body):
    """Delete several documents by name; each is deleted or reported by itself."""

    documents: list[str] = Field(min_length=1)


class RankingOptions(Body):
    """How a search ranks and cuts. `score_threshold` holds for the dense score (cosine)."""

    ranker: Literal["auto", "none"] | str | None = None
    score_threshold: float | None = None
    mode: SearchMode | None = None
    min_dense: float | None = None
    min_lexical: float | None = None
    min_rerank: float | None = None
    mmr_lambda: float | None = Field(default=None, ge=0.0, le=1.0)


class StoreSearch(Body):
    """Search one vector store."""

    query: str | list[str]
    filters: Filter | None = None
    max_num_results: int = Field(default=10, ge=1, le=50)
    ranking_options: RankingOptions | None = None
    rewrite_query: bool = False


class TextPart(Body):
    """A part of a message's content; only text is supported."""

    type: Literal["text"]
    text: str


class ChatMessage(Body):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None


class StreamOptions(Body):
    """What a stream carries besides its tokens."""

    include_usage: bool = False


class RetrievalExtra(Body):
    """Which stores a chat reads, how, and whether it may abstain."""

    vector_store_ids: list[str] = Field(default_factory=list, max_length=16)
    mode: Mode | None = None
    k: int | None = Field(default=None, ge=1, le=200)
    candidates: int | None = Field(default=None, ge=1, le=1000)
    search_mode: SearchMode | None = None
    where: Filter | None = None
    min_dense: float | None = None
    min_lexical: float | None = None
    min_rerank: float | None = None
    mmr_lambda: float | None = Field(default=None, ge=0.0, le=1.0)
    abstain: bool = False


class KnnExtra(Body):
    """How the token memory takes part in the next-token distribution."""

    lam: float | None = Field(default=None, ge=0.0, le=1.0, alias="lambda")
    k: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, gt=0.0)


class ChatRequest(Body):
    """A chat completion; `retrieval`, `knn` and `include` are extras of Graft."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0.0, le=2.0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    frequency_penalty: float | None = Field(default=None, ge=-2.0, le=2.0)
    presence_penalty: float | None = Field(default=None, ge=-2.0, le=2.0)
    logit_bias: dict[str, float] | None = None
    user: str | None = Field(default=None, description="A label for the caller's own records.")
    retrieval: RetrievalExtra | None = None
    knn: KnnExtra | None = None
    include: list[Literal["tokens", "passages"]] = Field(default_factory=list)


class EmbeddingRequest(Body):
    """Texts to embed; `input_type` is an extra of Graft for models that tell queries apart."""

    model: str
    input: str | list[str] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    input_type: Literal["passage", "query"] = "passage"
    user: str | None = None


class MemoryBuild(Body):
    """Ask for the token memory of a store to be built."""


class JobCancel(Body):
    """Ask for a job to be cancelled."""
