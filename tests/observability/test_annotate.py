"""A benchmark run is drawn into Grafana where its phases were."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import annotate

EPOCH_S = 1_790_000_000.25


def results(folder: Path, epoch_s: float = EPOCH_S) -> Path:
    """A run of one cell with two phases, the second of which never ended."""

    def marker(t_s: float, event: str, phase: str) -> dict[str, Any]:
        return {"t_s": t_s, "event": event, "trial": 1, "mode": "compression", "concurrency": 4, "phase": phase}

    markers = [marker(10.0, "begin", "put"), marker(12.5, "end", "put"), marker(13.0, "begin", "get_cold")]
    (folder / "environment.json").write_text(json.dumps({"run_id": "run-1"}))
    (folder / "resource_timeseries.json").write_text(json.dumps({"epoch_s": epoch_s, "markers": markers}))
    return folder


@dataclass
class Grafana:
    """What was posted, and to where."""

    address: str = ""
    posted: list[tuple[str, str | None, dict[str, Any]]] = field(default_factory=list)
    status: int = 200


@pytest.fixture
def grafana() -> Iterator[Grafana]:
    """Somebody who answers as Grafana does."""
    state = Grafana()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.posted.append((self.path, self.headers["Authorization"], body))
            self.send_response(state.status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        state.address = f"http://127.0.0.1:{server.server_address[1]}"
        yield state
        server.shutdown()
        thread.join()


def test_a_run_and_its_phases_are_regions_with_the_tags_the_dashboard_asks_for(
    tmp_path: Path, grafana: Grafana, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", "word")
    assert annotate.main([str(results(tmp_path)), "--grafana", grafana.address + "/"]) == 0
    assert [(path, token) for path, token, _ in grafana.posted] == [("/api/annotations", "Bearer word")] * 2
    run, phase = (body for _, _, body in grafana.posted)
    begin_ms = 1_790_000_010_250
    assert run == {"time": begin_ms, "timeEnd": begin_ms + 3000, "text": "run-1", "tags": ["taxbench", "run", "run-1"]}
    assert (phase["time"], phase["timeEnd"]) == (begin_ms, begin_ms + 2500)
    assert phase["tags"] == ["taxbench", "phase", "put", "compression", "run-1"]
    assert phase["text"] == "put: compression, 4 at once, trial 1"


def test_without_a_clock_or_a_token_nothing_is_drawn(
    tmp_path: Path, grafana: Grafana, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRAFANA_TOKEN", raising=False)
    assert annotate.main([str(results(tmp_path)), "--grafana", grafana.address]) == 2
    monkeypatch.setenv("GRAFANA_TOKEN", "word")
    assert annotate.main([str(results(tmp_path, epoch_s=0)), "--grafana", grafana.address]) == 1
    assert grafana.posted == []


def test_a_refusal_is_told(tmp_path: Path, grafana: Grafana, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", "old")
    grafana.status = 401
    assert annotate.main([str(results(tmp_path)), "--grafana", grafana.address]) == 1
    assert len(grafana.posted) == 1
