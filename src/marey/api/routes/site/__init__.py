"""What concerns the site itself: the record of changes."""
