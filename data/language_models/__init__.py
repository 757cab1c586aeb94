"""Plain descriptions of language models: layers, sizes and number formats of weights.

Vector parameters (biases, weights of normalisations, decay rates) are not counted: together they
are under 0.1 % of a model with a billion parameters. Sizes are numbers of elements unless a name
says otherwise.
"""
