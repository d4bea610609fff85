"""The policy of STOMP: entries are pushed to their subscribers, who acknowledge them or not."""
