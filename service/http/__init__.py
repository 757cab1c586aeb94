"""The HTTP application: routes, schemas, uploads, telemetry."""
