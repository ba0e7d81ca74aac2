"""API keys, secrets and the keyring that protects them."""
