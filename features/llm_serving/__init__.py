"""What a language model costs to serve, in closed form: operators, iterations, memory, queues."""
