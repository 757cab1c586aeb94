"""`forerun llm`: what a language model costs to serve."""
