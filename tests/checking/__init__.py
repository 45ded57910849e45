"""What all harnesses share: the history of a run, its checkers, planted anomalies and the runner of mutants."""
