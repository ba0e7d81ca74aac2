"""The book of statements."""
