"""Properties that an operator graph implies: repeated blocks, dropout, operands of products."""
