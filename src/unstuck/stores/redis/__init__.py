"""Jobs on a Redis or Valkey server, in the layout of BullMQ."""
