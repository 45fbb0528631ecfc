"""Linearizability: what clients did at the same time, held against what one register per key could have answered.

`history` is what is recorded, `projection` makes operations on single registers of it, `checker` looks for an order
that explains them, `workload` makes histories against a running server or cluster, `campaign` puts it all together.
"""
