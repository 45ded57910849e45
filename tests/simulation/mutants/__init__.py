"""Planted bugs that runs of the simulator must find, for each kind of run."""

from tests.simulation.mutants import groups, rebuild, recreated, replication, share, tables

KINDS_OF_RUNS = (replication, groups, share, tables, rebuild, recreated)
MUTANTS = {name: mutant for kind in KINDS_OF_RUNS for name, mutant in kind.MUTANTS.items()}
