"""The state of share groups: which records are held, done, delayed or dead. gateway/groups/core decides with it."""
