"""Training steps of large language models: times, memory, and plans."""
