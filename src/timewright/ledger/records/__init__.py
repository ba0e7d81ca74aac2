"""Small stored documents: analyses, notes, namespaces, instances."""
