"""Is this build slower than the last one? Hot paths by criterion, the real server on loopback, both against a baseline.

`taxbench` answers an operator's questions and `codecbench` compares codecs; this package answers a developer's.
"""
