"""Answers about deployed language models: times, memory, power and price."""
