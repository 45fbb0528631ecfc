"""The features of the crates that lints and tests are built with."""

from __future__ import annotations

FEATURES = ("--features", "azure,cloud,conformance,gcs,mutant-stale-cache,postgres,s3,simulated")
"""All of them but `fips`, for which `--all-features` would compile minutes of C (docs/decisions/0070-fips.md)."""
