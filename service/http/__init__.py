"""The HTTP application: routes, request and response schemas, uploads, telemetry."""
