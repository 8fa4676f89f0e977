"""The live cluster table that clients share: rows, frames, wire format, summaries."""
