"""Questions in, passages, prompts and checked quotes out; see docs/."""

from retriever.abstention import abstention, is_abstention
from retriever.answerability import ABSTAIN_BELOW, CITE_BELOW, answerability
from retriever.citations import Citation, Cited, resolve
from retriever.condensing import Excerpt, condense
from retriever.extractive import Extractive, answer
from retriever.prompting import Prompt, build_prompt
from retriever.searching import Reranker, Retriever
from retriever.settings import RetrievalSettings

__all__ = [
    "ABSTAIN_BELOW",
    "CITE_BELOW",
    "Citation",
    "Cited",
    "Excerpt",
    "Extractive",
    "Prompt",
    "Reranker",
    "RetrievalSettings",
    "Retriever",
    "abstention",
    "answer",
    "answerability",
    "build_prompt",
    "condense",
    "is_abstention",
    "resolve",
]
