"""What somebody may see of a site: every store, frame and file as their scope shows it."""
