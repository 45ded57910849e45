"""One replica of a partition: leader and follower drivers, replica fetch, acknowledgements."""
