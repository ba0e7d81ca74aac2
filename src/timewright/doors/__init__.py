"""Ways in. No decisions here: each door spells the operations in its own way."""
