"""What one partition has in the store: manifests, their chain and their encoding."""
