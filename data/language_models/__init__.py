"""Descriptions of language models: layers, sizes, and number formats of the weights.

Vector parameters (biases, normalisation weights, decay rates) are not counted: they make up less
than 0.1 % of a model with a billion parameters. Sizes are numbers of elements unless a name says
otherwise.
"""
