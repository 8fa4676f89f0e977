"""What keeps one client from wearing the server down: bounded heads, deadlines, places, lines."""
