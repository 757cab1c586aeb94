"""Tables of figures for documents."""
