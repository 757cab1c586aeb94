"""Programs for high-level synthesis: instructions, loops and directives."""
