"""Planted bugs that runs of the simulator must find, for each kind of run."""

from tests.simulation.mutants import groups, rebuild, replication, share, tables

MUTANTS = replication.MUTANTS | groups.MUTANTS | share.MUTANTS | tables.MUTANTS | rebuild.MUTANTS
