"""The commands, one file each. `penstock.cli.main` imports a command when it is called."""
