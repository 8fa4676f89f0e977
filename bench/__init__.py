"""Every speed and size claim of Marey, as a ratio measured side by side in one run."""
