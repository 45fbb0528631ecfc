"""What is measured: our server, plain file servers, other S3 servers, and endpoints somebody else runs."""
