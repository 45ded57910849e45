"""The clients in TypeScript and Go: their generated files, and stories that judge them beside the Python client."""
