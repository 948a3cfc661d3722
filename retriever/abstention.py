"""What an abstaining answer says, and whether an answer is one.

Knows nothing of passages or models.
"""

from __future__ import annotations

import re

from retriever.terms import Language, language_of

_TEXTS: dict[Language, str] = {
    "en": "The documents do not answer this question.",
    "zh": "文档中没有回答这个问题的内容。",
}
_SAYS_SO = re.compile(
    r"\b(?:documents?|passages?|texts?|context|sources?)\b[^.]{0,40}\b(?:do(?:es)? not|don['’]t|"
    r"doesn['’]t)\b[^.]{0,30}\b(?:answer|contain|mention|say|provide|specify|state|include)"
    r"|\bI (?:do not|don['’]t|cannot|can['’]t)\b[^.]{0,20}\b(?:know|answer|find)\b"
    r"|\bnot (?:answered|mentioned|stated|found|specified) in the (?:documents?|passages?|text)"
    r"|(?:文档|文件|资料|段落|文中|材料|上文)[^。]{0,12}(?:没有|未|无法)[^。]{0,10}(?:回答|提到|提及|说明|包含|给出|相关)"
    r"|我不知道|无法(?:回答|确定)",
    re.IGNORECASE,
)


def abstention(question: str) -> str:
    """Give the abstaining answer in the question's language (Chinese, or else English)."""
    return _TEXTS[language_of(question)]


def is_abstention(answer: str) -> bool:
    """Tell whether an answer does nothing but say that the documents do not answer.

    >>> is_abstention("The passages do not mention it."), is_abstention("It is 20.")
    (True, False)
    """
    words = answer.strip()
    return len(words) <= 160 and _SAYS_SO.search(words) is not None
