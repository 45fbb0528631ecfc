"""Grafana's own model of a dashboard, as its foundation SDK has it, held against JSON.

The SDK is generated from the schemas of one Grafana release and reads JSON leniently. What it leaves out when it writes
the JSON again is a key Grafana does not know; a value that is not of its field's type, or none of its enumeration's, is
one Grafana would not take for what it was meant to be.
"""

from __future__ import annotations

import enum
import json
import typing
from collections.abc import Iterator
from types import UnionType
from typing import Any

from grafana_foundation_sdk.cog import plugins, runtime
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

plugins.register_default_plugins()

UNITS = {value for name, value in vars(units).items() if not name.startswith("_") and isinstance(value, str)}
"""Every unit a panel may have."""


def unknown(board: dict[str, Any]) -> list[str]:
    """What Grafana has no place for in a dashboard, by path."""
    return list(_lost(board, json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder)), ""))


def misfits(board: dict[str, Any]) -> list[str]:
    """Values that are not what Grafana's model says they are, by path."""
    return list(_misfits(Dashboard.from_json(board), Dashboard, ""))


def knows(panel_type: str) -> bool:
    """Whether Grafana has such panels of its own, so that their options were looked at."""
    return runtime.panelcfg_config(panel_type) is not None


def _lost(given: Any, kept: Any, path: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            if key in kept:
                yield from _lost(value, kept[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for value, other in zip(given, kept, strict=True):
            yield from _lost(value, other, f"{path}[]")
    elif given != kept:
        yield f"{path}: {given!r} became {kept!r}"


def _misfits(value: Any, wanted: Any, path: str) -> Iterator[str]:
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, UnionType):
        complaints = [list(_misfits(value, one, path)) for one in inner]
        if all(complaints):
            yield from max(complaints, key=_depth)
    elif origin is typing.Literal:
        if value not in inner:
            yield f"{path}: {value!r} is none of {inner}"
    elif origin is list and isinstance(value, list):
        for one in value:
            yield from _misfits(one, inner[0], f"{path}[]")
    elif origin is dict and isinstance(value, dict):
        for key, one in value.items():
            yield from _misfits(one, inner[1], f"{path}.{key}")
    elif isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        if value not in {one.value for one in wanted}:
            yield f"{path}: {value!r} is none of {wanted.__name__}"
    elif origin or not isinstance(value, (int, float) if wanted is float else wanted) or _is_bool(value, wanted):
        yield f"{path}: {value!r} is no {wanted}"
    elif _is_model(value):
        # Of its own type: of queries, options and a panel's fields the model says only `object`.
        for name, hint in typing.get_type_hints(type(value)).items():
            yield from _misfits(getattr(value, name), hint, f"{path}.{name}")


def _depth(complaints: list[str]) -> int:
    """How far down they lie: those of the type that was meant lie deepest."""
    return max(complaint.partition(":")[0].count(".") for complaint in complaints)


def _is_bool(value: Any, wanted: type) -> bool:
    """Python takes True for a number."""
    return isinstance(value, bool) and wanted in (int, float)


def _is_model(value: Any) -> bool:
    return type(value).__module__.startswith("grafana_foundation_sdk.models.")
