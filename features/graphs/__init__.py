"""What an operator graph implies but does not show: blocks that repeat, dropout, operands."""
