"""The dashboards as Python: one module per dashboard, `panel` for what they are made of.

`python -m boards` (with `PYTHONPATH=grafana`) writes `grafana/dashboards/*.json`, which is what Grafana loads and what
is reviewed; a test compares the two.
"""
