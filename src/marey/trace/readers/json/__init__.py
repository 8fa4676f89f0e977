"""Chrome-trace JSON in blocks: native and pure parsers, raw columns, recovery of damaged files."""
