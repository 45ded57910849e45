"""Usage: how much each tenant has used in each hour, for bills."""
