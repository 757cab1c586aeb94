"""Plain descriptions of language models: layers, sizes, number formats of their weights.

Parameters that are vectors (biases, weights of normalisations, decay rates) are not counted:
together they are under 0.1 % of a model of a billion parameters. Sizes are numbers of elements
unless a name says otherwise.
"""
