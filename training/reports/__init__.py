"""Result tables for documents."""
