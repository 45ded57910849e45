"""The README's commands in a Debian 12 that has nothing but what the README names: no Java, no compiler, no jq."""
