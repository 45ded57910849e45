"""Load generators: closed and open loops, h2load, bodies."""
