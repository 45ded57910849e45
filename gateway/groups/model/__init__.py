"""The state of a group: members, positions, settings, history; the values of its calls; its stored records."""
