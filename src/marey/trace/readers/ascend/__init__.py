"""Recordings of Ascend devices: timelines of msprof and MindSpore, and Marey-graph files."""
