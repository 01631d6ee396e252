"""State schemas: their keys, channels, validation and JSON schemas."""
