"""Push subscriptions: deliver the records of topics by HTTP POST, from the leader of the subscription's group."""
