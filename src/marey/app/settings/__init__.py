"""Reading and checking ``marey.toml``: keys, schema, detection, a first configuration."""
