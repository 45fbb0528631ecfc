"""Which packages may be measured, written down before any was fetched, and the seed that draws from them.

Every list names widely used packages of one ecosystem whose releases are files of 100 kB to 40 MB. Of each list `DRAWN`
are drawn; the first `TUNED` of them are the part the format was tuned on, the others are only measured. None is dropped
after it was measured.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SEED = 20261123
DRAWN = 8
TUNED = 2

PYPI = (
    "aiohttp",
    "black",
    "boto3",
    "botocore",
    "cryptography",
    "Django",
    "fonttools",
    "grpcio",
    "lxml",
    "matplotlib",
    "mypy",
    "numpy",
    "pandas",
    "pillow",
    "protobuf",
    "psycopg2-binary",
    "pydantic-core",
    "Pygments",
    "ruff",
    "scikit-learn",
    "scipy",
    "setuptools",
    "sqlalchemy",
    "sympy",
    "uvloop",
)
NPM = (
    "@babel/core",
    "@types/node",
    "antd",
    "axios",
    "bootstrap",
    "chart.js",
    "core-js",
    "d3",
    "esbuild-wasm",
    "eslint",
    "jquery",
    "lodash",
    "mongodb",
    "next",
    "prettier",
    "react-dom",
    "rollup",
    "rxjs",
    "svelte",
    "three",
    "typescript",
    "vite",
    "vue",
    "webpack",
    "zod",
)
# Two consecutive releases each, as they were when the list was written.
MAVEN = {
    "ch.qos.logback:logback-classic": ("1.5.17", "1.5.18"),
    "com.fasterxml.jackson.core:jackson-databind": ("2.18.2", "2.18.3"),
    "com.google.guava:guava": ("33.4.7-jre", "33.4.8-jre"),
    "com.h2database:h2": ("2.3.230", "2.3.232"),
    "com.squareup.okhttp3:okhttp-jvm": ("5.0.0", "5.1.0"),
    "io.netty:netty-common": ("4.1.117.Final", "4.1.118.Final"),
    "io.netty:netty-handler": ("4.1.117.Final", "4.1.118.Final"),
    "io.projectreactor:reactor-core": ("3.7.2", "3.7.3"),
    "net.bytebuddy:byte-buddy": ("1.15.10", "1.15.11"),
    "org.apache.commons:commons-lang3": ("3.16.0", "3.17.0"),
    "org.apache.kafka:kafka-clients": ("3.9.0", "3.9.1"),
    "org.apache.lucene:lucene-core": ("10.1.0", "10.2.0"),
    "org.apache.tomcat.embed:tomcat-embed-core": ("10.1.39", "10.1.40"),
    "org.assertj:assertj-core": ("3.27.2", "3.27.3"),
    "org.hibernate.orm:hibernate-core": ("6.6.12.Final", "6.6.13.Final"),
    "org.jetbrains.kotlin:kotlin-stdlib": ("2.1.0", "2.1.10"),
    "org.mockito:mockito-core": ("5.15.2", "5.16.0"),
    "org.postgresql:postgresql": ("42.7.4", "42.7.5"),
    "org.springframework:spring-core": ("6.2.4", "6.2.5"),
    "org.springframework:spring-web": ("6.2.4", "6.2.5"),
}
GO = (
    "github.com/aws/aws-sdk-go-v2/service/s3",
    "github.com/docker/cli",
    "github.com/gin-gonic/gin",
    "github.com/gofiber/fiber/v2",
    "github.com/gohugoio/hugo",
    "github.com/golang/protobuf",
    "github.com/hashicorp/consul/api",
    "github.com/jackc/pgx/v5",
    "github.com/prometheus/client_golang",
    "github.com/prometheus/prometheus",
    "github.com/spf13/cobra",
    "github.com/spf13/viper",
    "go.etcd.io/bbolt",
    "go.uber.org/zap",
    "golang.org/x/net",
    "golang.org/x/sys",
    "golang.org/x/text",
    "golang.org/x/tools",
    "google.golang.org/grpc",
    "google.golang.org/protobuf",
    "gorm.io/gorm",
    "k8s.io/api",
    "k8s.io/apimachinery",
    "k8s.io/client-go",
)
CARGO = {
    "axum": ("0.8.3", "0.8.4"),
    "bindgen": ("0.71.0", "0.71.1"),
    "chrono": ("0.4.40", "0.4.41"),
    "clap_builder": ("4.5.38", "4.5.39"),
    "h2": ("0.4.9", "0.4.10"),
    "hyper": ("1.5.2", "1.6.0"),
    "image": ("0.25.5", "0.25.6"),
    "libc": ("0.2.171", "0.2.172"),
    "libsqlite3-sys": ("0.31.0", "0.32.0"),
    "openssl-sys": ("0.9.107", "0.9.108"),
    "regex-automata": ("0.4.8", "0.4.9"),
    "reqwest": ("0.12.14", "0.12.15"),
    "ring": ("0.17.13", "0.17.14"),
    "rustix": ("1.0.5", "1.0.7"),
    "rustls": ("0.23.26", "0.23.27"),
    "serde_json": ("1.0.139", "1.0.140"),
    "sqlx-core": ("0.8.4", "0.8.5"),
    "syn": ("2.0.100", "2.0.101"),
    "time": ("0.3.40", "0.3.41"),
    "tokio": ("1.44.1", "1.44.2"),
    "web-sys": ("0.3.76", "0.3.77"),
    "winapi": ("0.3.8", "0.3.9"),
    "windows-sys": ("0.59.0", "0.60.2"),
    "zerocopy": ("0.8.24", "0.8.25"),
}
# The newest two that the distribution offers (its release, and its updates): most have been built months apart.
DEBIAN = (
    "bind9-libs",
    "curl",
    "git",
    "gnutls-bin",
    "imagemagick-6-common",
    "libavcodec59",
    "libc6",
    "libcurl4",
    "libde265-0",
    "libexpat1",
    "libgnutls30",
    "libpython3.11-stdlib",
    "libssl3",
    "libtiff6",
    "libxml2",
    "openssh-client",
    "openssh-server",
    "openssl",
    "perl-base",
    "postgresql-client-15",
    "python3.11-minimal",
    "redis-tools",
    "sudo",
    "vim-tiny",
)


@dataclass(frozen=True)
class Draw:
    """A package that is measured, and whether the format was tuned on it."""

    family: str
    package: str
    tuned: bool


def draw(seed: int = SEED) -> list[Draw]:
    """What is measured: the same for the same seed."""
    rng = random.Random(seed)
    drawn: list[Draw] = []
    for family, names in {
        "pypi": PYPI,
        "npm": NPM,
        "maven": tuple(MAVEN),
        "go": GO,
        "cargo": tuple(CARGO),
        "debian": DEBIAN,
    }.items():
        chosen = rng.sample(sorted(names), DRAWN)
        drawn += [Draw(family, name, at < TUNED) for at, name in enumerate(chosen)]
    return drawn
