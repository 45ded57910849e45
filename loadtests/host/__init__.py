"""The tools of the benches and of locust: servers as processes, admin calls, processor time, cores, the machine."""
