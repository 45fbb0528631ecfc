"""The codec benchmark: delta codecs on pairs of real files. Standard library only; run it by `make bench-codec`."""
