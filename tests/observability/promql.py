"""The names in a PromQL expression: metrics, matchers, grouping labels. Strict: what it does not know is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*") |
    (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?(?:ms|[smhdwy])?) |
    (?P<name>[a-zA-Z_:][\w:]*) |
    (?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){}\[\],])
    )""",
    re.VERBOSE,
)
AGGREGATIONS = {"sum", "min", "max", "avg", "count"}
FUNCTIONS = {
    "rate",
    "increase",
    "changes",
    "avg_over_time",
    "last_over_time",
    "histogram_quantile",
    "time",
    "vector",
    "absent",
}
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
WORDS = {"and", "or", "unless", "offset", "bool"}


class PromqlError(ValueError):
    """Something that this reader, or PromQL, does not know."""


@dataclass(frozen=True)
class Selector:
    """`metric{label="value"}`, without a range."""

    metric: str
    labels: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Names:
    """What an expression refers to."""

    selectors: tuple[Selector, ...]
    grouping: frozenset[str]

    @property
    def metrics(self) -> set[str]:
        """The metrics, as Prometheus names their series."""
        return {selector.metric for selector in self.selectors}


@dataclass(frozen=True)
class Token:
    """One word, and where it ends."""

    kind: str
    text: str
    start: int
    end: int


def tokens(expr: str) -> list[Token]:
    """Splits an expression."""
    found: list[Token] = []
    at = 0
    while expr[at:].strip():
        match = TOKEN.match(expr, at)
        if match is None or match.lastgroup is None:
            raise PromqlError(f"{expr[at:]!r} of {expr!r}")
        found.append(Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup), match.end()))
        at = match.end()
    return found


def names(expr: str) -> Names:
    """Reads an expression's names."""
    stream = [*tokens(expr), Token("end", "", len(expr), len(expr))]
    selectors: list[Selector] = []
    grouping: set[str] = set()
    at = 0
    while stream[at].kind != "end":
        token, following = stream[at], stream[at + 1].text
        at += 1
        if token.text == "{":
            raise PromqlError(f"a selector without a metric in {expr!r}")
        if token.kind != "name" or token.text in WORDS:
            continue
        if token.text in GROUPING:
            at = _list_of_names(expr, stream, at, grouping)
        elif following == "(":
            if token.text not in AGGREGATIONS | FUNCTIONS:
                raise PromqlError(f"function {token.text} in {expr!r}")
        elif token.text in AGGREGATIONS:
            if following not in GROUPING:
                raise PromqlError(f"{token.text} {following} in {expr!r}")
        else:
            labels: list[str] = []
            end = token.end
            if following == "{":
                at, end = _matchers(expr, stream, at, labels)
            selectors.append(Selector(token.text, tuple(labels), expr[token.start : end]))
    return Names(tuple(selectors), frozenset(grouping))


def _list_of_names(expr: str, stream: list[Token], at: int, into: set[str]) -> int:
    """`(a, b)`; gives the place after it."""
    if stream[at].text != "(":
        raise PromqlError(f"labels expected in {expr!r}")
    at += 1
    while stream[at].text != ")":
        if stream[at].kind != "name":
            raise PromqlError(f"{stream[at].text!r} is no label in {expr!r}")
        into.add(stream[at].text)
        at += 2 if stream[at + 1].text == "," else 1
    return at + 1


def _matchers(expr: str, stream: list[Token], at: int, into: list[str]) -> tuple[int, int]:
    """`{a="x", b=~"y"}`; gives the place after it and where it ends."""
    at += 1
    while stream[at].text != "}":
        matcher = stream[at : at + 4]
        kinds = [token.kind for token in matcher]
        if kinds != ["name", "sign", "string", "sign"] or matcher[1].text not in ("=", "!=", "=~", "!~"):
            raise PromqlError(f"matcher {' '.join(token.text for token in matcher)} in {expr!r}")
        if matcher[3].text not in (",", "}"):
            raise PromqlError(f"matchers without a comma in {expr!r}")
        into.append(matcher[0].text)
        at += 4 if matcher[3].text == "," else 3
    return at + 1, stream[at].end
