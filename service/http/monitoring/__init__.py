"""What operators see of requests and processes: the access log, spans, and metrics of stores."""
