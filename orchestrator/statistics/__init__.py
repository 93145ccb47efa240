"""Statistics on judgments: arrays in, frozen results out, no I/O."""
