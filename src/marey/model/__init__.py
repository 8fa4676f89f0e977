"""The vocabulary that every part of Marey shares; imports nothing of the other parts."""
