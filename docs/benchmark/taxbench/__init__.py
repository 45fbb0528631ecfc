"""What compression and encryption cost on an S3 proxy, measured so that it survives its own review.

The package is split the way a run is split. `artifacts` makes or fetches the objects, `client` moves them and keeps the
raw samples, `servers` starts and observes what is measured, `cell` runs one (trial, mode, concurrency) through its
phases, `summarize` turns the raw files into `summary.json`, `guards` says what may be believed, and `report` draws it.
Running and reporting never mix: a report is a pure function of the files a run left behind.
"""

__version__ = "0.1.0"
