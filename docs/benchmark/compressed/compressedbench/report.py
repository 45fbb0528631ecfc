"""The raw values as tables."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
HEAD = (
    "| family | pairs | MB | today | view | delta | flags and residue | headers | encode MB/s | decode MB/s |\n"
    "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n"
)


def sums(name: str, rows: list[Row]) -> str:
    """One line of the table: shares of the targets' bytes, speeds over all of them."""
    whole = sum(row["target_bytes"] for row in rows)

    def share(field: str) -> str:
        return f"{100 * sum(row[field] for row in rows) / whole:.1f} %"

    def speed(field: str) -> str:
        return f"{whole / 1e6 / max(sum(row[field] for row in rows), 1e-9):.0f}"

    steps = sum(row["parse_bytes"] - row["header_bytes"] for row in rows)
    cells = [
        name,
        str(len(rows)),
        f"{whole / 1e6:.1f}",
        share("today_bytes"),
        share("view_bytes"),
        share("delta_bytes"),
    ]
    cells += [f"{100 * steps / whole:.2f} %", f"{100 * sum(row['header_bytes'] for row in rows) / whole:.2f} %"]
    return "| " + " | ".join([*cells, speed("encode_s"), speed("decode_s")]) + " |\n"


def table(rows: list[Row]) -> str:
    """Every family and the sum."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    lines = [sums(family, [row for row in rows if row["family"] == family]) for family in families]
    deflated = [row for row in rows if row["streams"]]
    return HEAD + "".join(lines) + sums("sum", rows) + sums("sum of those with a deflate stream", deflated)


def pairs(rows: list[Row]) -> str:
    """Every pair."""
    out = "| package | releases | MB | today | view | steps wrongly predicted | of these replayed | decode MB/s |\n"
    out += "| --- | --- | --: | --: | --: | --: | --: | --: |\n"
    for row in rows:
        whole = row["target_bytes"]
        missed = f"{100 * row['missed'] / max(row['steps'], 1):.2f} %"
        replayed = f"{100 * row['replayed'] / max(row['missed'], 1):.0f} %" if row["missed"] else "–"
        name = f"{row['family']} {row['package']}" + (" (tuned on)" if row["tuned"] else "")
        shares = f"{100 * row['today_bytes'] / whole:.1f} % | {100 * row['view_bytes'] / whole:.1f} %"
        speed = f"{whole / 1e6 / row['decode_s']:.0f}" if row["decode_s"] > 0.01 else "–"
        versions = " → ".join(row["versions"])
        out += f"| {name} | {versions} | {whole / 1e6:.2f} | {shares} | {missed} | {replayed} | {speed} |\n"
    return out


def render(results: Row) -> str:
    """The report."""
    rows = [row for row in results["pairs"] if "error" not in row]
    failed = [row for row in results["pairs"] if "error" in row]
    measured = [row for row in rows if not row["tuned"]]
    out = (
        f"# Successors of compressed files\n\nSeed {results['seed']}. Shares are of the newer release's own bytes.\n\n"
    )
    out += "## The part that is only measured\n\n" + table(measured)
    out += "\n## Everything, the part tuned on included\n\n" + table(rows) + "\n## Pairs\n\n" + pairs(rows)
    if failed:
        out += "\n## Not measured\n\n"
        out += "".join(f"- {row['family']} {row['package']}: {row['error']}\n" for row in failed)
    return out
