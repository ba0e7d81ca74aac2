"""The SQL statements of the stores."""
