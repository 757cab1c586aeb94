"""Properties derived from an operator graph: repeated blocks, dropout, operands of products."""
