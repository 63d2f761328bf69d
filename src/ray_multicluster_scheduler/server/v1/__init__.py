"""Our own REST interface, `/api/v1`: what `service.api.Service` promises, as JSON of its views."""
