"""Who is asking: recognised at the door, held to one permission per route."""
