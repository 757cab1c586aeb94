"""Readers: from files, modules and tables to operator graphs."""
