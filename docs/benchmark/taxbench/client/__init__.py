"""The measuring client: one keep-alive connection per worker process, raw samples kept, verification off the clock."""
