"""Top floor: answers over HTTP and on the command line."""
