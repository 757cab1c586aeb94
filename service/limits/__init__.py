"""What an answer says of its own limits, in the reader's words and units."""
