"""The table of encoded keys: how a request writes a key, and which key that is."""

from __future__ import annotations

from outside.server import ROOT


def encoded_keys() -> list[tuple[str, str]]:
    """Pairs of the text on the wire and the key, the same that the wire crate's tests read."""
    table = ROOT / "tests" / "vectors" / "keys" / "encoded.tsv"
    rows = [line.split("\t") for line in table.read_text().splitlines() if not line.startswith("#")]
    return [(raw, key) for raw, key in rows]
