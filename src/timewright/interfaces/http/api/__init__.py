"""`/api/v1`: routes, handlers and responses of the operations, and their OpenAPI description."""
