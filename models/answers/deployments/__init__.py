"""Whole answers about deployed language models: times, rates, power, memory, price and limits."""
