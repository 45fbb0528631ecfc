# The developer's commands; CI runs `make test` and nothing else.
.PHONY: help run cluster test test-all campaigns reliability reliability-page docker-test arm-test release release-test bench bench-baseline bench-codec bench-compressed bench-bases bench-goals bench-peers bench-report demo lint fmt audit pin

PY := .venv/bin/python

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-14s %s\n", $$1, $$2 }'

run: ## build, start on 127.0.0.1:9000 (data in ./deltaweir-data), print commands to paste next
	cargo build --profile quick --locked -p proxy
	exec target/quick/deltaweir serve

cluster: ## PostgreSQL, an S3 store, three replicas and nginx on loopback, until Ctrl-C; prints commands to paste
	@tests/setup.sh
	cargo build --locked -p proxy
	cd tests && exec ../$(PY) -m cluster

test: ## everything CI checks, under 25 minutes on two quiet cores from a fresh clone
	@python3.11 tests/suite.py

test-all: ## test, and the campaigns that take minutes and gigabytes
	@python3.11 tests/suite.py --long

RELIABILITY := cd tests && ../$(PY) -m campaigns.reliability

campaigns: ## every campaign at full length, and docs/reliability.md from their output (hours)
	@tests/setup.sh
	cargo build --locked -p proxy
	$(RELIABILITY) run --share 1

reliability: ## every campaign at a tenth of its length, and docs/reliability.md
	@tests/setup.sh
	cargo build --locked -p proxy
	$(RELIABILITY) run

reliability-page: ## docs/reliability.md again, from docs/reliability.json
	$(RELIABILITY) page

docker-test: ## the image and the compose files, built and run by a real Docker Engine (root; half an hour)
	@tests/setup.sh
	@tests/docker/setup.sh
	$(PY) -m pytest --timeout=3600 --verbose tests/docker/smoke.py

arm-test: ## the codec's tests on an emulated ARM processor, for its NEON comparisons (installs a cross compiler and qemu)
	@tests/arm/test.sh

TARGETS := x86_64-unknown-linux-musl aarch64-unknown-linux-musl

release: ## static binaries, .deb, images, checksums, SBOM, signature, install.sh in results/release (TARGETS=… for fewer)
	release/release.sh $(TARGETS)

release-test: ## installs what `make release` made in a bare Debian, and times it until `deltaweir demo` shows a ratio (root)
	tests/release/bare.sh

lint: ## formatting, clippy, licences and version floors, ruff, mypy
	@tests/setup.sh
	cargo fmt --all --check
	python3.11 tests/suite.py --only clippy
	.tools/bin/cargo-deny --locked --all-features check bans licenses sources
	.venv/bin/ruff check tests docs grafana release
	cd tests/rust-sdk && cargo fmt --check
	.venv/bin/mypy tests
	.venv/bin/mypy docs/format
	.venv/bin/mypy grafana
	.venv/bin/mypy release/sbom.py
	cd docs/benchmark && ../../.venv/bin/mypy

fmt: ## format Rust and Python
	cargo fmt --all
	.venv/bin/ruff check --fix --quiet tests
	.venv/bin/ruff format --quiet tests

demo: ## four releases each of two real packages through four kinds of bucket, with a table of their cost
	@tests/setup.sh
	cargo build --release --locked -p proxy
	PYTHONPATH=tests:docs/benchmark $(PY) -m demo

audit: ## ask RustSec's advisory database about every dependency (needs github.com)
	@tests/setup.sh
	.tools/bin/cargo-deny --locked --all-features check advisories

SPEEDBENCH := PYTHONPATH=docs/benchmark $(PY) -m speedbench

bench: ## hot paths, the real server, the console over a million objects, as JSON in results/speed, with ratios against the committed baseline
	@tests/setup.sh
	cargo build --release --locked -p proxy --bin deltaweir --example fill_store
	$(SPEEDBENCH) run
	$(SPEEDBENCH) compare

bench-baseline: ## measure twice and make that the baseline (on a quiet machine; commit the file)
	@tests/setup.sh
	cargo build --release --locked -p proxy --bin deltaweir --example fill_store
	$(SPEEDBENCH) run --runs 2 --out docs/benchmark/baseline/speed.json

bench-codec: ## ratio, speed and memory of the delta codec on real packages, xdelta3, zstd and bsdiff beside it; byte planes
	@tests/setup.sh
	cargo build --release --locked -p delta-codec --example bench_codec
	PYTHONPATH=docs/benchmark/codec $(PY) -m codecbench
	target/release/examples/bench_codec planes

bench-compressed: ## two releases of wheels, jars, npm, Go and cargo packages in the store: bytes, speeds, memory (fetches them)
	@tests/setup.sh
	cargo build --release --locked -p proxy --bin deltaweir --example view_study
	PYTHONPATH=docs/benchmark/compressed:docs/benchmark/codec:tests $(PY) -m compressedbench.store --efforts auto balanced high sealed
	PYTHONPATH=docs/benchmark/compressed $(PY) -m compressedbench

bench-bases: ## how well bases are chosen: real packages shuffled into one bucket, beside every possible choice
	cargo build --release --locked -p proxy --example base_study
	cd docs/benchmark && ../../$(PY) -m basestudy && ../../$(PY) -m basestudy --opaque

bench-goals: ## every speed and size that has a goal: now, goal, met or not; and how the store grows to 100,000 objects (hours)
	@tests/setup.sh
	cargo build --release --locked -p proxy --bin deltaweir --example fill_store
	cargo build --release --locked -p delta-codec --example bench_codec
	PYTHONPATH=docs/benchmark:docs/benchmark/codec:tests $(PY) -m goalbench

bench-peers: ## versitygw, rclone, MinIO and s3proxy beside ours, same corpus and client: speed, CPU, memory, bytes, small files
	@tests/setup.sh
	@tests/setup.sh peers
	cargo build --release --locked -p proxy
	PYTHONPATH=docs/benchmark $(PY) -m taxbench local --comparators versitygw,rclone,minio,s3proxy --studies small_files

bench-report: ## the cost of compression and encryption on this machine: docs/benchmark/results/…/report.html
	@tests/setup.sh
	cargo build --release --locked -p proxy
	PYTHONPATH=docs/benchmark $(PY) -m taxbench local

pin: ## resolve tests/requirements.in again into tests/requirements.txt
	rm -rf .tools/pin && python3.11 -m venv .tools/pin
	.tools/pin/bin/python -m pip install --quiet -r tests/requirements.in
	(echo '# Resolved from tests/requirements.in by `make pin`.'; .tools/pin/bin/python -m pip freeze) >tests/requirements.txt
	rm -rf .tools/pin
