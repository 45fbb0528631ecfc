"""The balancer's configuration that we ship, against the replicas' own limits."""

from __future__ import annotations

import re

from cluster.balancer import CONFIGURATION
from outside.server import ROOT


def test_the_balancer_gives_an_idle_connection_up_before_a_replica_does() -> None:
    """Otherwise a write may be sent into a connection that is being closed, and must not be repeated."""
    upstream = re.search(r"upstream replicas \{(.*?)\n    \}", CONFIGURATION.read_text(), re.DOTALL)
    assert upstream is not None
    ours = re.search(r"keepalive_timeout (\d+)s;", upstream[1])
    reference = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    theirs = re.search(r"^\| `head_timeout` \| `\"(\d+)s\"`", reference, re.MULTILINE)
    assert ours is not None and theirs is not None
    assert int(ours[1]) <= int(theirs[1]) - 5
