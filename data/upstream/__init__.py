"""Files that others publish: downloads by checksum, plain pickles, spreadsheets."""
