"""The files that browsers load: those of /docs and of the console, and libraries of others in vendor/."""
