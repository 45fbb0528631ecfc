"""The extra studies of `local`: level sweep, adaptive level, codec table, small files, memory by object size."""
