"""Results of benchmark suites: scores of processors, and systems of coming rounds."""
