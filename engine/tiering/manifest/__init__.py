"""One partition's data in the store: manifests, their chain and their encoding."""
