"""The HTTP server of a team: Ray's Jobs interface and our own REST interface, over all clusters."""
