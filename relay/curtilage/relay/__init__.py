"""The relay: sees who asks, not what; shares no code with anyone."""
