"""How much of a campaign runs: all of it, or the share that `CAMPAIGN_SHARE` names."""

from __future__ import annotations

import os


def size(full: int, share: float = 1.0) -> int:
    """`full`, or a share of it: that of the environment, else the one given."""
    return max(1, round(full * float(os.environ.get("CAMPAIGN_SHARE", share))))
