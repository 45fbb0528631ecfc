"""One module per command: `add` declares its flags, `run` does it and gives back the exit code."""
