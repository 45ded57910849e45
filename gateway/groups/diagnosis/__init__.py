"""Why a group lags or rebalances: its activity, and the causes that follow from it. Pure."""
