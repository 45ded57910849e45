"""`make fairness`: nine clients of a node, with and without a tenth that sends a hundred times as much."""
