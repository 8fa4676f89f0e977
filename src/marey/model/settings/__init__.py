"""How settings files are declared and read: msgspec structs, and errors that name the line."""
