"""Metrics, dashboards and alerts, against each other and against a real Prometheus."""
