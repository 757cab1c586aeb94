"""Published files: downloads with checksums, pickles read as plain data, and spreadsheets."""
