"""Records. Read, decide with the core, write: one transaction each; gives back what is true now, as facts."""
