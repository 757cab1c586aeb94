"""Mutation testing: small changes to numerical code, each of which some test should notice.

Run by `make mutants` and apart from the tests: one mutant costs one run of the nearest tests.
See docs/mutation.md.
"""
