"""How far is this build from its goals? One table of them, measured now, and one of how the store grows.

`taxbench` answers an operator's questions, `speedbench` guards a build against the last one; this package holds a build
against its goals.
"""
