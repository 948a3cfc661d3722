"""Questions in, passages, prompts and checked quotes out; see docs/."""

from retriever.abstention import abstention, is_abstention
from retriever.citations import Citation, Cited, resolve
from retriever.extractive import Extractive, answer
from retriever.prompting import Prompt, build_prompt
from retriever.searching import Reranker, Retriever
from retriever.settings import RetrievalSettings

__all__ = [
    "Citation",
    "Cited",
    "Extractive",
    "Prompt",
    "Reranker",
    "RetrievalSettings",
    "Retriever",
    "abstention",
    "answer",
    "build_prompt",
    "is_abstention",
    "resolve",
]
