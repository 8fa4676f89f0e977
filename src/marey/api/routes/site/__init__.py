"""What concerns the site itself: signing in, accounts, people, the record of changes."""
