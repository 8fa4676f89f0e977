"""Findings → people: webhook, e-mail, Alertmanager; at least once, never a flood."""
