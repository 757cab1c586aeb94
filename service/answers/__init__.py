"""From a question with its names looked up to an answer."""
