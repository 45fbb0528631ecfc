"""What a test needs to use the real binary from outside: start it, talk to it, look at what it left on disk."""
