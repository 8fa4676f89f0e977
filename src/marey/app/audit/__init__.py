"""The record of changes, sign-ins and refusals: appended to, never changed."""
