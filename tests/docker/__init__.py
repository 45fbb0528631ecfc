"""The image and the compose file, built and run by a real Docker Engine: `make docker-test`."""
