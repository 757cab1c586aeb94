"""Import of a user's table: columns, devices and graphs are resolved, and rows are checked."""
