"""The limits of an answer, in words and units that users understand."""
