"""Output of the command line: tables, pages, errors and follow mode."""
