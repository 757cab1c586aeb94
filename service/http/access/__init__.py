"""Who may send a request: keys and their scopes, requests per second, and a log of writes."""
