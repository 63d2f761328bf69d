"""The front door of a team: stock Ray clients, our own REST interface and every page, over all clusters."""
