"""How the guides read, as far as a program can count it: they address you, name things, and keep sentences short.

The counts are floors. A text that passes them can still read badly; a text that fails them does.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from house.test_rules import ROOT, relative

GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").rglob("*.md"))]
DOCUMENTS = [
    *(ROOT / name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "results" not in path.parts),
]
WHAT_MAX = 4.0
"""Of 1,000 words: a noun says more than a clause with "what"."""
YOU_MIN = 8.0
"""Of 1,000 words: a guide speaks to its reader."""
SENTENCE_WORDS_MAX = 35


def prose(path: Path) -> str:
    """The text without code blocks and comments; inline code counts as one word."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    return re.sub(r"`[^`]*`", "code", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))


def share(texts: list[str], *words: str) -> float:
    """How many of 1,000 words are one of these."""
    found = re.findall(r"[a-z][a-z'-]*", " ".join(texts).lower())
    return 1000 * sum(word in words for word in found) / len(found)


def sentences(text: str) -> list[str]:
    """Sentences outside tables; an item of a list and a heading end one too."""
    kept = "\n".join("" if line.lstrip().startswith("|") else line for line in text.splitlines())
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*#>]|\d+\.)\s)", kept)
    return [sentence for block in blocks for sentence in re.split(r"(?<=[.!?:;])\s+", " ".join(block.split()))]


def test_guides_speak_to_you_and_name_things() -> None:
    texts = [prose(path) for path in GUIDES]
    assert len(GUIDES) > 20
    what, you = share(texts, "what"), share(texts, "you", "your", "yours", "yourself")
    print(f"README and guides, per 1,000 words: what {what:.1f}, you {you:.1f}")
    assert what <= WHAT_MAX
    assert you >= YOU_MIN


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_no_sentence_is_too_long(path: Path) -> None:
    long = [sentence for sentence in sentences(prose(path)) if len(sentence.split()) > SENTENCE_WORDS_MAX]
    assert long == []


def test_every_guide_opens_with_its_goal() -> None:
    guides = sorted((ROOT / "docs" / "guide").glob("*.md"))
    missing = [relative(path) for path in guides if not all(f"**{word}" in path.read_text()[:600] for word in OPENING)]
    assert missing == []


OPENING = ("Goal:**", "You need**", "You get**")
"""What the reader will reach, what it takes, and the result."""
