"""A cluster on this machine's loopback: PostgreSQL, an S3 store, replicas, and nginx that gives each request to one."""
