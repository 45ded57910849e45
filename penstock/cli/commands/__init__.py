"""One file for each command. `penstock.cli.main` imports a command when it is called."""
