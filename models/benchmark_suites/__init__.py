"""Results of benchmark suites: tests with settings, and systems in future rounds."""
