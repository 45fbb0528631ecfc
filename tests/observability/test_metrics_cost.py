"""What metrics cost: less than 2 % of a request's instructions, counted and not timed.

Small objects, where it matters most. As "metrics" counts every instruction below a call into the metrics library, and
every instruction of the functions that make such calls, whatever else they do: turning metrics off could save no more.
Off, the calls would not be made and the rest would stay as it is, so no second build is needed to know the difference.
"""

from __future__ import annotations

from pathlib import Path

from observability.callgrind import count, wrapper
from outside.clients import s3_client
from outside.content import noise
from outside.server import BINARY, Server

ROUNDS = 60
REQUESTS = 3 * ROUNDS
SHARE_MAX = 0.02
UPDATES_PER_REQUEST_MIN = 8
"""Fewer would mean that the functions were not recognised."""


def of_metrics(function: str) -> bool:
    """Whether a function is the metrics library's."""
    return "prometheus::" in function


def test_metrics_take_less_than_two_percent_of_the_instructions_of_a_request(tmp_path: Path) -> None:
    server = Server(tmp_path / "server", binary=wrapper(tmp_path, BINARY))
    server.launch()
    try:
        server.wait_ready(120)
        s3 = s3_client(server.endpoint)
        s3.create_bucket(Bucket="small")

        def work() -> None:
            for number in range(ROUNDS):
                s3.put_object(Bucket="small", Key=f"k{number}", Body=noise(number, 2000))
                s3.head_object(Bucket="small", Key=f"k{number}")
                s3.get_object(Bucket="small", Key=f"k{number}")["Body"].read()

        work()
        assert server.process is not None
        profile = count(tmp_path, server.process.pid, work)
        assert server.stop(120) == 0, server.tail()
    finally:
        server.kill()
    into = {edge for edge in profile.inclusive if of_metrics(edge[1]) and not of_metrics(edge[0])}
    assert sum(profile.calls[edge] for edge in into) > UPDATES_PER_REQUEST_MIN * REQUESTS
    library = sum(profile.inclusive[edge] for edge in into)
    # An executor's `poll` runs whole requests inlined into it: not a function that is there for metrics.
    callers = {caller for caller, _ in into if "poll" not in caller and "rayon" not in caller}
    around = sum(profile.own[caller] for caller in callers)
    # valgrind's processor has no SHA instructions; on a real one the sums of signatures cost next to nothing.
    rest = profile.total - sum(cost for name, cost in profile.own.items() if "sha2::" in name)
    print(
        f"{profile.total / REQUESTS:.0f} instructions a request, {rest / REQUESTS:.0f} without SHA-256; metrics "
        f"{library / REQUESTS:.0f} ({library / rest:.2%}), with what is around them {(library + around) / rest:.2%}"
    )
    assert (library + around) / rest < SHARE_MAX
