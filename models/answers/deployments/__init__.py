"""Complete answers about deployed language models: time, rate, power, memory, price and limits."""
